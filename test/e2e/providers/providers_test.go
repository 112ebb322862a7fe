// Package providers checks IPAM providers of Cluster API by the conformance kit, each in a cluster
// of its own with Cluster API's manager, and compares the results with the table in
// docs/comparison.md; -update writes it. It also gives machines addresses of both by the package
// addresses.
package providers

import (
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/clusterapi/conformance"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
)

var update = flag.Bool("update", false, "write the table in docs/comparison.md")

const (
	poolSize = 14 // addresses of each pool

	ourPool = `
apiVersion: ipam.cadastre.dev/v1alpha1
kind: IPPool
metadata: {name: "{{.Name}}"}
spec:
  cidr: 10.99.{{.Index}}.0/28
  network: {prefixLength: 24, gateway: 10.99.{{.Index}}.1}
`
	inClusterPool = `
apiVersion: ipam.cluster.x-k8s.io/v1alpha2
kind: InClusterIPPool
metadata: {name: "{{.Name}}"}
spec:
  addresses: [10.99.{{.Index}}.2-10.99.{{.Index}}.15]
  prefix: 24
  gateway: 10.99.{{.Index}}.1
`
)

func TestConformance(t *testing.T) {
	ours := check(suite.Start(t, cluster.Options{ClusterAPI: true, ControllerManager: true, Managers: 1}), ourPool)
	for _, result := range ours {
		if result.Outcome != conformance.Passed {
			t.Errorf("Cadastre: %s %s: %s", result.Clause.ID, result.Outcome, result.Reason)
		}
	}
	table := conformance.Table(
		conformance.Report{Provider: "Cadastre", Results: ours},
		conformance.Report{Provider: "in-cluster provider", Results: check(inCluster(t), inClusterPool)},
	)
	t.Log("\n" + table)
	page := filepath.Join(suite.ModuleRoot(t), "docs", "comparison.md")
	if *update {
		suite.Must(t, document.SpliceFile(page, "conformance", table))
	}
	text, err := os.ReadFile(page)
	suite.Must(t, err)
	want, err := document.Splice(string(text), "conformance", table)
	suite.Must(t, err)
	if diff := cmp.Diff(string(text), want); diff != "" {
		t.Errorf("docs/comparison.md has other results (-documented +found); run go test ./test/e2e/providers -update:\n%s", diff)
	}
}

// inCluster starts a cluster with the in-cluster provider.
func inCluster(t *testing.T) *suite.World {
	w := suite.Start(t, cluster.Options{Bare: true, ClusterAPI: true, ControllerManager: true})
	suite.Must(t, w.InstallInCluster(t.Context()))
	provider, err := w.NewInCluster()
	suite.Must(t, err)
	suite.Must(t, provider.Start(t.Context()))
	t.Cleanup(func() { suite.Must(t, provider.Stop()) })
	return w
}

// check checks all clauses in a cluster.
func check(w *suite.World, pool string) (results []conformance.Result) {
	w.Helper()
	k8s, err := conformance.NewClient(w.Config())
	suite.Must(w, err)
	kit := conformance.New(conformance.Target{Client: k8s, Pool: pool, Addresses: poolSize, Deadline: 30 * time.Second})
	for _, c := range conformance.Clauses() {
		began := time.Now()
		result := kit.Check(w.Context(), c)
		for _, note := range result.Notes {
			w.Error(c.ID, note)
		}
		w.Logf("%s %s in %s", c.ID, result.Outcome, time.Since(began).Round(time.Millisecond))
		results = append(results, result)
	}
	suite.Must(w, kit.Close(w.Context()))
	return results
}
