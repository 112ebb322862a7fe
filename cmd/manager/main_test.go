package main

import (
	"encoding/json"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"

	"github.com/cadastre-dev/cadastre/hack/chart"
	"github.com/cadastre-dev/cadastre/internal/operator"
)

func TestUnusableFlagIsRejected(t *testing.T) {
	err := start(pflag.NewFlagSet("manager", pflag.ContinueOnError), []string{"--orphan-grace=64s"})
	if err == nil || !strings.HasPrefix(err.Error(), "--orphan-grace=1m4s is shorter") {
		t.Errorf("the manager starts with a grace period of 64s: %v", err)
	}
}

// TestChartHasValueForEveryFlag compares the flags with the schema of the chart's values.
func TestChartHasValueForEveryFlag(t *testing.T) {
	text, err := os.ReadFile("../../config/charts/cadastre/values.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema struct {
		Properties struct {
			Flags struct {
				Properties map[string]struct{ Description string }
			}
		}
	}
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	values := slices.Sorted(maps.Keys(schema.Properties.Flags.Properties))
	values = append(values, chart.Derived()...)
	slices.Sort(values)

	set := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	bind(set, new(operator.Options), logs.NewOptions())
	var flags []string
	set.VisitAll(func(flag *pflag.Flag) {
		if strings.HasPrefix(flag.Name, "test.") { // of the test's own binary
			return
		}
		flags = append(flags, flag.Name)
		value, isValue := schema.Properties.Flags.Properties[flag.Name]
		if isValue && value.Description != flag.Usage {
			t.Errorf("--%s is described as %q in the schema, want %q: make chart", flag.Name, value.Description, flag.Usage)
		}
	})
	if diff := cmp.Diff(flags, values); diff != "" {
		t.Errorf("the flags, and the values of the chart with the derived flags: make chart\n%s", diff)
	}
}
