package inventory

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestCatalogNotifiesListeners covers the notifications of pools: the classes that they back and
// backed, and that they are not paused any more, for which a claim can have waited.
func TestCatalogNotifiesListeners(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	var changes []Change
	c.Listen(func(e Change) { changes = append(changes, e) })
	key := ipam.PoolNamed("p")
	gold, silver := []string{"gold"}, []string{"silver"}
	for _, step := range []struct {
		what string
		do   func()
		want []Change
	}{
		{"it comes", func() { c.SetPool(ipam.Pool{Key: key, Classes: gold}) }, []Change{{Pool: key, Classes: gold}}},
		{"it is as it was", func() { c.SetPool(ipam.Pool{Key: key, Classes: gold}) }, nil},
		{"it is edited", func() { c.SetPool(ipam.Pool{Key: key, Classes: silver}) }, []Change{{Pool: key, Classes: []string{"gold", "silver"}}}},
		{"it is paused", func() { c.SetPool(ipam.Pool{Key: key, Paused: true}) }, []Change{{Pool: key, Classes: silver}}},
		{"it is edited then", func() { c.SetPool(ipam.Pool{Key: key, Paused: true, Classes: gold}) }, []Change{{Pool: key, Classes: gold}}},
		{"it is paused no more", func() { c.SetPool(ipam.Pool{Key: key, Classes: gold}) }, []Change{{Pool: key, Unpaused: true, Classes: []string{"gold", "gold"}}}},
		{"it goes", func() { c.DropPool(key) }, []Change{{Pool: key, Classes: gold}}},
		{"it is gone already", func() { c.DropPool(key) }, nil},
	} {
		changes = nil
		step.do()
		if diff := cmp.Diff(step.want, changes); diff != "" {
			t.Errorf("%s: %s", step.what, diff)
		}
	}
}

func TestListenersAreNotifiedOfInClusterPools(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	inCluster := ipam.PoolKey{Kind: ipam.PoolKindInClusterIPPool, Namespace: "red", Name: "p"}
	c.SetPool(ipam.Pool{Key: ipam.PoolNamed("p")})
	c.SetPool(ipam.Pool{Key: inCluster, Labels: map[string]string{"a": "b"}})
	var changes []Change
	c.Listen(func(e Change) { changes = append(changes, e) })
	c.NotifyInCluster()
	if diff := cmp.Diff([]Change{{Pool: inCluster, Labels: map[string]string{"a": "b"}, Unpaused: true}}, changes); diff != "" {
		t.Error(diff)
	}
}

// TestDeletedPoolsLeaveNoState covers users with the right to make pools: they can make and
// delete any number.
func TestDeletedPoolsLeaveNoState(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	for _, key := range []ipam.PoolKey{ipam.PoolNamed("p"), ipam.LocalPoolNamed("team", "p")} {
		c.SetPool(ipam.Pool{Key: key, Classes: []string{"gold"}})
		c.SetPool(ipam.Pool{Key: key, Classes: []string{"silver"}})
		c.DropPool(key)
	}
	if len(c.pools) > 0 || len(c.byClass) > 0 {
		t.Errorf("kept are pools of %d namespaces, and those of %d classes", len(c.pools), len(c.byClass))
	}
}
