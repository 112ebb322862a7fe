package conformance

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

var (
	kubeconfig = flag.String("kubeconfig", "", "the kubeconfig of an administrator of the cluster in which the provider runs")
	pool       = flag.String("pool", "", "a file with a template of the pool")
	addresses  = flag.Int("addresses", 0, "the number of addresses that a pool of the template has for claims; 0: not known")
	deadline   = flag.Duration("deadline", time.Minute, "the time limit of each wait")
	levels     = flag.String("levels", "MUST,SHOULD,MAY", "the levels of the clauses to check; MAY: beyond the contract")
)

// TestConformance checks the clauses of the contract against the provider of a cluster.
func TestConformance(t *testing.T) {
	if *kubeconfig == "" || *pool == "" {
		t.Skip("set -kubeconfig and -pool to check a provider")
	}
	log.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	must(t, err)
	text, err := os.ReadFile(*pool)
	must(t, err)
	k8s, err := NewClient(config)
	must(t, err)
	kit := New(Target{Client: k8s, Pool: string(text), Addresses: *addresses, Deadline: *deadline})
	t.Cleanup(func() { must(t, kit.Close(context.WithoutCancel(t.Context()))) })
	for _, c := range Clauses() {
		if !slices.Contains(strings.Split(*levels, ","), string(c.Level)) {
			continue
		}
		t.Run(c.Title(), func(t *testing.T) {
			result := kit.Check(t.Context(), c)
			t.Logf("%s: %s %s", c.Level, c.Requires, c.Link())
			for _, note := range result.Notes {
				t.Log(note)
			}
			switch result.Outcome {
			case Failed:
				t.Error(result.Reason)
			case Skipped:
				t.Skip(result.Reason)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
