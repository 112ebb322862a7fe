package plugin

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/cli"
)

// pools shows how full the pools are.
func (w *world) pools(t *testing.T) {
	admin := w.as(t, "")
	admin.runs("kubectl ipam pools")
	admin.runs("kubectl ipam pools -o wide")
	admin.runs("kubectl ipam pools vips -o yaml")
	admin.runs("kubectl ipam pools -o name")
	admin.runs("kubectl ipam pools core -o jsonpath={.pools[0].free}")
	admin.runs("kubectl ipam pools none").ends(cli.ExitNotFound).says("pool none")
	admin.runs("kubectl ipam pools a b").ends(cli.ExitUsage)
	admin.runs("kubectl ipam pools -o xml").ends(cli.ExitUsage)
	admin.matches("pools")
	alice := w.as(t, "alice")
	alice.runs("kubectl ipam pools -n team-a").hides("team-b")
	alice.matches("pools-tenant")
}
