package inventory

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// twoTenants returns a catalog in which two namespaces have a pool of one name, class and label
// each, beside the platform's.
func twoTenants() *Catalog {
	c := New(Options{Ledger: emptyLedger()})
	for _, key := range []ipam.PoolKey{ipam.PoolNamed("p"), ipam.LocalPoolNamed("red", "p"), ipam.LocalPoolNamed("blue", "p")} {
		c.SetPool(ipam.Pool{Key: key, Classes: []string{"gold", "silver"}, Labels: map[string]string{"of": "all"}})
	}
	c.SetProject("red", "red")
	c.SetProject("blue", "blue")
	return c
}

func matchAll(map[string]string) bool { return true }

func keysOf(pools []ipam.Pool) []ipam.PoolKey {
	keys := []ipam.PoolKey{}
	for _, p := range sortedByName(pools) {
		keys = append(keys, p.Key)
	}
	return keys
}

func TestCatalogShowsNamespaceItsOwnPools(t *testing.T) {
	c := twoTenants()
	platform, red := ipam.PoolNamed("p"), ipam.LocalPoolNamed("red", "p")
	backing := func(from, class string) []ipam.PoolKey {
		pools, _ := c.PoolsOf(from, ipam.Class{Name: class, LocalPools: true})
		return keysOf(pools)
	}
	for from, want := range map[string][]ipam.PoolKey{"red": {red, platform}, "": {platform}, "green": {platform}} {
		if got := backing(from, "gold"); !slices.Equal(got, want) {
			t.Errorf("from %q, pools of the class: got %v, want %v", from, got, want)
		}
		if got := keysOf(c.PoolsWhere(from, matchAll)); !slices.Equal(got, want) {
			t.Errorf("from %q, pools by label: got %v, want %v", from, got, want)
		}
	}
	c.SetPool(ipam.Pool{Key: red, Classes: []string{"silver"}})
	c.DropPool(platform)
	if got := backing("red", "gold"); len(got) > 0 {
		t.Errorf("the class is backed by %v still", got)
	}
	if got := backing("red", "silver"); !slices.Equal(got, []ipam.PoolKey{red}) {
		t.Errorf("the other class is backed by %v, want %v", got, red)
	}
	if got := c.PoolsNaming("silver"); len(got) != 2 {
		t.Errorf("the other class is named by %v, want two pools", got)
	}
}

// TestLocalPoolsBackOnlyClassesThatAllowThem changes a class, and resolves claims by it.
func TestLocalPoolsBackOnlyClassesThatAllowThem(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("red", "red")
	own := newPoolWithholding("own")
	own.Key, own.Classes = ipam.LocalPoolNamed("red", "own"), []string{"gold"}
	c.SetPool(own)
	others := own
	others.Key = ipam.LocalPoolNamed("blue", "own")
	c.SetPool(others)
	request := ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "x"}, Class: "gold", Length: 28}
	for _, step := range []struct {
		allowed bool
		wants   []ipam.PoolKey
		reason  ipam.Verdict
	}{{false, nil, ipam.LocalPoolNotAllowed}, {true, []ipam.PoolKey{own.Key}, ipam.NotReady}, {false, nil, ipam.LocalPoolNotAllowed}} {
		class := ipam.Class{Name: "gold", Native: true, Family: ipam.IPv4, Length: 28, Lengths: ipam.Lengths{Max: 32}, LocalPools: step.allowed}
		c.SetClass(ClassEntry{Class: class})
		if got := c.Wants(request).Pools; !slices.Equal(got, step.wants) {
			t.Errorf("allowed %t: a claim waits for %v, want %v", step.allowed, got, step.wants)
		}
		res, err := c.Resolve(request)
		if err == nil || len(res.PassedOver) != 1 || res.PassedOver[0].Pool != own.Key || res.PassedOver[0].Verdict() != step.reason {
			t.Errorf("allowed %t: got %v and %v, want %s of the namespace's own pool alone", step.allowed, res.PassedOver, err, step.reason)
		}
	}
}

func TestHolderIsNamedOnlyToSameProject(t *testing.T) {
	a := twoTenants()
	a.platformProject = "the-platform"
	a.SetProject("platform-a", "the-platform")
	a.SetProject("platform-b", "the-platform")
	block := netip.MustParsePrefix("10.0.0.0/24")
	for _, c := range []struct {
		from   string
		holder ipam.Holder
		tells  bool
	}{
		{"red", convert.HolderOfPool(ipam.LocalPoolNamed("red", "p")), true},
		{"red", convert.HolderOfPool(ipam.LocalPoolNamed("blue", "p")), false},
		{"red", convert.HolderOfPool(ipam.PoolNamed("p")), false},
		{"red", convert.HolderOfClaim(ipam.Name{Namespace: "blue", Name: "c"}), false},
		{"red", convert.HolderOfClaim(ipam.Name{Namespace: "platform-a", Name: "c"}), false},
		{"red", convert.HolderOfAddressClaim(ipam.Name{Namespace: "platform-a", Name: "c"}), false},
		{"red", convert.HolderOfClaim(ipam.Name{Namespace: "not-seen", Name: "c"}), false},
		{"not-seen", convert.HolderOfPool(ipam.PoolNamed("p")), false},
		{"not-seen", convert.HolderOfClaim(ipam.Name{Namespace: "not-seen", Name: "c"}), false},
		{"platform-b", convert.HolderOfClaim(ipam.Name{Namespace: "platform-a", Name: "c"}), true},
		{"platform-b", convert.HolderOfClaim(ipam.Name{Namespace: "red", Name: "c"}), false},
		{"", convert.HolderOfPool(ipam.LocalPoolNamed("blue", "p")), true},
	} {
		err := &ipam.TakenError{Block: block, Pool: ipam.PoolNamed("corporate"), Holder: c.holder, Overlap: block}
		want := "10.0.0.0/24 is in use in pool corporate"
		if c.tells {
			want = err.Error()
		}
		if got := a.Redact(c.from, err).Error(); got != want {
			t.Errorf("shown to %q about the block of %s: %q, want %q", c.from, c.holder, got, want)
		}
	}
}
