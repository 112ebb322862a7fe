package plugin

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// pools shows how full the pools are.
func (w *world) pools(t *testing.T) {
	w.countsAgree(t)
	admin := w.as(t, "")
	admin.runs("kubectl ipam pools")
	admin.runs("kubectl ipam pools -o wide")
	admin.runs("kubectl ipam pools west -o wide --count")
	admin.runs("kubectl ipam pools vips -o yaml")
	admin.runs("kubectl ipam pools -o name")
	admin.runs("kubectl ipam pools v6 -o jsonpath={.pools[0].free}")
	admin.runs("kubectl ipam pools none").ends(command.ExitNotFound).says("pool none")
	admin.runs("kubectl ipam pools a b").ends(command.ExitUsage)
	admin.runs("kubectl ipam pools -o xml").ends(command.ExitUsage)
	admin.matches("pools")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam pools -n team-a").hides("team-b")
	alice.matches("pools-tenant")
}

// countsAgree waits until each pool's status has the sums of its records.
func (w *world) countsAgree(t *testing.T) {
	t.Helper()
	var diff string
	defer func() {
		if diff != "" {
			t.Errorf("the status of pools and their records differ (-records +status):\n%s", diff)
		}
	}()
	w.For(t).Await("the status of all pools matches their records", func(context.Context) bool {
		diff = cmp.Diff(w.poolUses(t, "--count"), w.poolUses(t))
		return diff == ""
	})
}

// poolUses returns the output of pools, without the source of the figures.
func (w *world) poolUses(t *testing.T, flags ...string) []map[string]any {
	t.Helper()
	line := "kubectl ipam pools -o json"
	for _, flag := range flags {
		line += " " + flag
	}
	report := struct{ Pools []map[string]any }{}
	suite.Must(t, json.Unmarshal([]byte(w.as(t, "").runs(line).ends(command.ExitDone).out), &report))
	for _, pool := range report.Pools {
		for _, field := range []string{"source", "retained", "cooling"} {
			delete(pool, field)
		}
	}
	return report.Pools
}
