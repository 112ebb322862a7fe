package inventory

import (
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestKeepingPrefersClassOverPool judges by the block's class first, then by its pool.
func TestKeepingPrefersClassOverPool(t *testing.T) {
	a := newUnsyncedCatalog()
	a.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Retention: 1, ReuseDelay: 2}})
	a.SetPool(ipam.Pool{Key: ipam.PoolNamed("p"), Retention: 3, ReuseDelay: 4})
	for name, c := range map[string]struct {
		class, pool string
		want        ipam.Keeping
	}{
		"both":                      {"gold", "p", ipam.Keeping{Retention: 1, ReuseDelay: 2}},
		"the pool alone":            {"", "p", ipam.Keeping{Retention: 3, ReuseDelay: 4}},
		"a class that is not there": {"none", "p", ipam.Keeping{Retention: 3, ReuseDelay: 4}},
		"a pool that is not there":  {"gold", "none", ipam.Keeping{Retention: 1, ReuseDelay: 2}},
		"neither of them exists":    {"", "none", ipam.Keeping{}},
	} {
		if got := a.Keeping(ipam.Record{Class: c.class, Pool: ipam.PoolNamed(c.pool)}); got != c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}
