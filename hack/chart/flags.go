package chart

import (
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/component-base/logs"
	logsv1 "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // flags of --logging-format=json

	"github.com/cadastre-dev/cadastre/internal/operator"
)

// Derived returns the flags that no value sets, because they follow from other settings: the
// namespace of the release, serviceAccount.name, and the name of the Service. kubeconfig is for
// programs that do not run in a cluster.
func Derived() []string {
	return []string{"operator-namespace", "service-account", "webhook-service-name", "kubeconfig"}
}

// Flags returns the operator's flags that are values of the chart.
func Flags() []*pflag.Flag {
	set := pflag.NewFlagSet("manager", pflag.ContinueOnError)
	new(operator.Options).Bind(set)
	logsv1.AddFlags(logs.NewOptions(), set)
	var flags []*pflag.Flag
	set.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains(Derived(), flag.Name) && !flag.Hidden {
			flags = append(flags, flag)
		}
	})
	return flags
}

// schemaOf returns the JSON schema of a flag's value.
func schemaOf(flag *pflag.Flag) map[string]any {
	schema := map[string]any{"description": flag.Usage, "type": []any{"string", "null"}}
	switch flag.Value.Type() {
	case "bool":
		schema["type"] = []any{"boolean", "null"}
	case "int", "int32", "uint32", "Level":
		schema["type"] = []any{"integer", "null"}
	case "duration":
		schema["pattern"] = `^([0-9.]+(ns|us|ms|s|m|h))+$`
	}
	if isAddress(flag.Name) {
		schema["pattern"] = `:[0-9]+$`
	}
	return schema
}

// isAddress reports whether a flag is an address whose port the Pod must name.
func isAddress(flag string) bool { return flag == "health-addr" || flag == "diagnostics-address" }
