package allocator

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// two namespaces have a pool of one name, class and label each, beside the
// platform's.
func twoTenants() *Catalogue {
	c := NewCatalogue("")
	for _, key := range []ipam.PoolKey{ipam.PoolNamed("p"), ipam.LocalPoolNamed("red", "p"), ipam.LocalPoolNamed("blue", "p")} {
		c.SetPool(ipam.Pool{Key: key, Classes: []string{"gold", "silver"}, Labels: map[string]string{"of": "all"}})
	}
	c.SetProject("red", "red")
	c.SetProject("blue", "blue")
	return c
}

func everything(map[string]string) bool { return true }

func keysOf(pools []ipam.Pool) []ipam.PoolKey {
	keys := []ipam.PoolKey{}
	for _, p := range sortedByName(pools) {
		keys = append(keys, p.Key)
	}
	return keys
}

func TestTheCatalogueShowsANamespaceItsOwnPools(t *testing.T) {
	c := twoTenants()
	platform, red := ipam.PoolNamed("p"), ipam.LocalPoolNamed("red", "p")
	for from, want := range map[string][]ipam.PoolKey{"red": {red, platform}, "": {platform}, "green": {platform}} {
		if got := keysOf(c.PoolsOf(from, "gold")); !slices.Equal(got, want) {
			t.Errorf("from %q, pools of the class: got %v, want %v", from, got, want)
		}
		if got := keysOf(c.PoolsWhere(from, everything)); !slices.Equal(got, want) {
			t.Errorf("from %q, pools by label: got %v, want %v", from, got, want)
		}
	}
	c.SetPool(ipam.Pool{Key: red, Classes: []string{"silver"}})
	c.DropPool(platform)
	if got := keysOf(c.PoolsOf("red", "gold")); len(got) > 0 {
		t.Errorf("the class is backed by %v still", got)
	}
	if got := keysOf(c.PoolsOf("red", "silver")); !slices.Equal(got, []ipam.PoolKey{red}) {
		t.Errorf("the other class is backed by %v, want %v", got, red)
	}
	if got := c.PoolsOfAll("silver"); len(got) != 2 {
		t.Errorf("whosever they are, the other class is backed by %v", got)
	}
}

func TestOneNamespaceWaitsNotForAnothers(t *testing.T) {
	q := NewQueue()
	for i, namespace := range []string{"red", "blue"} {
		name := ipam.Name{Namespace: namespace, Name: "c"}
		q.Join(Waiting{Since: time.Unix(int64(i), 0), Holder: HolderOfClaim(name), Request: ipam.Request{Claim: name, Class: "gold"}})
	}
	all := func(Waiting) bool { return true }
	for pool, want := range map[ipam.PoolKey]string{
		ipam.PoolNamed("p"): "red", ipam.LocalPoolNamed("red", "p"): "red", ipam.LocalPoolNamed("blue", "p"): "blue", ipam.LocalPoolNamed("green", "p"): "",
	} {
		first, _ := q.First(ipam.Pool{Key: pool, Classes: []string{"gold"}}, all)
		if first.Holder.Namespace != want {
			t.Errorf("first for %s is one of %q, want %q", pool, first.Holder.Namespace, want)
		}
		woken := q.WaitingFor(Entry{Pool: pool, Classes: []string{"gold"}})
		if pool.Namespace != "" && slices.ContainsFunc(woken, func(h ipam.Holder) bool { return h.Namespace != pool.Namespace }) {
			t.Errorf("a change of %s wakes %v", pool, woken)
		}
		if pool.Namespace == "" && len(woken) != 2 {
			t.Errorf("a change of %s wakes %v", pool, woken)
		}
	}
}

func TestWhoHoldsABlockIsForTheSameProjectToKnow(t *testing.T) {
	a := &Allocator{catalogue: twoTenants(), ledger: ledger.New(ledger.Options{}), log: logr.Discard()}
	block := netip.MustParsePrefix("10.0.0.0/24")
	for _, c := range []struct {
		from   string
		holder ipam.Holder
		tells  bool
	}{
		{"red", HolderOfPool(ipam.LocalPoolNamed("red", "p")), true},
		{"red", HolderOfPool(ipam.LocalPoolNamed("blue", "p")), false},
		{"red", HolderOfPool(ipam.PoolNamed("p")), false},
		{"red", HolderOfClaim(ipam.Name{Namespace: "blue", Name: "c"}), false},
		{"", HolderOfPool(ipam.LocalPoolNamed("blue", "p")), true},
	} {
		err := &ipam.TakenError{Block: block, Pool: ipam.PoolNamed("corporate"), Holder: c.holder, Overlap: block}
		want := "10.0.0.0/24 is in use in pool corporate"
		if c.tells {
			want = err.Error()
		}
		if got := a.Redacted(c.from, err).Error(); got != want {
			t.Errorf("told to %q of what %s holds: %q, want %q", c.from, c.holder, got, want)
		}
	}
}
