package inventory

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// withPool returns a catalog that knows the namespace ns, and a pool.
func newCatalogWithPool() (*Catalog, ipam.Pool) {
	c := New(Options{Ledger: emptyLedger()})
	pool := ipam.Pool{
		Key: ipam.PoolNamed("p"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: netip.MustParsePrefix("10.0.0.0/29"),
		Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 29, Max: 32},
	}
	c.SetProject("ns", "ns")
	c.SetPool(pool)
	return c, pool
}

// TestWantsIncludeClassLimit expects the limit, by which a waiter is passed over
// while its project has reached it.
func TestWantsIncludeClassLimit(t *testing.T) {
	c, pool := newCatalogWithPool()
	limit := ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(1)}}
	pool.Classes = []string{"gold"}
	c.SetPool(pool)
	c.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Native: true, Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}, Limit: limit}})
	request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: "x"}, Class: "gold", Length: 30}
	if got, want := c.Wants(request).Account, (ipam.Account{Project: "ns", Class: "gold", ClassLimit: limit}); got != want {
		t.Errorf("of a class with a limit: got %+v, want %+v", got, want)
	}
	request.Class, request.Pool = "", pool.Key
	if got, want := c.Wants(request).Account, (ipam.Account{Project: "ns"}); got != want {
		t.Errorf("of a pool: got %+v, want %+v", got, want)
	}
}

// TestEqualRequestsAreResolvedOnce counts the resolutions of many waiters.
func TestEqualRequestsAreResolvedOnce(t *testing.T) {
	c, pool := newCatalogWithPool()
	requests := c.NewWantsCache()
	all := func(map[string]string) bool { return true }
	for _, test := range []struct {
		name          string
		request       ipam.Request
		length, known int
	}{
		{"a", ipam.Request{Pool: pool.Key, Length: 30}, 30, 1},
		{"b", ipam.Request{Pool: pool.Key, Length: 30}, 30, 1},
		{"c", ipam.Request{Pool: pool.Key, Length: 31}, 31, 2},
		{"d", ipam.Request{Pool: ipam.PoolNamed("missing"), Length: 30}, 0, 3},
		{"e", ipam.Request{Selects: all, Selector: "all", Length: 30}, 30, 4},
		{"f", ipam.Request{Selects: all, Selector: "all", Length: 30}, 30, 4},
		{"g", ipam.Request{Selects: all, Length: 30}, 30, 4},
		{"h", ipam.Request{Pool: pool.Key, Block: netip.MustParsePrefix("10.0.0.1/32"), Length: ipam.NoLength}, 32, 4},
		{"i", ipam.Request{Pool: pool.Key, Block: netip.MustParsePrefix("10.1.0.1/32"), Length: ipam.NoLength}, 0, 4},
	} {
		test.request.Claim = ipam.Name{Namespace: "ns", Name: test.name}
		if got := requests.Wants(test.request); got.Length != test.length || len(got.Pools) != min(test.length, 1) || len(requests.wants) != test.known {
			t.Errorf("%s: wants %+v with %d known, want /%d with %d", test.name, got, len(requests.wants), test.length, test.known)
		}
	}
}

// TestChildAsLargeAsParentIsNotQueued covers a child that is against policy: no claim waits
// behind it when the parent is empty.
func TestChildAsLargeAsParentIsNotQueued(t *testing.T) {
	c, pool := newCatalogWithPool()
	for length, want := range map[int]int{29: 0, 30: 1} {
		got := c.Wants(ipam.Pool{Key: ipam.PoolNamed("child"), Home: pool.Key, Length: length}.ParentRequest())
		if len(got.Pools) != want {
			t.Errorf("a child of /%d waits for %v, want %d pools", length, got.Pools, want)
		}
	}
}
