package inventory

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestErrorListsEachUsablePool expects the reason for each pool that the request can
// use, and no other pool.
func TestErrorListsEachUsablePool(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("team", "red")
	c.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Native: true, Family: ipam.IPv4, Length: 26, Lengths: ipam.Lengths{Max: 32}, LocalPools: true}})
	add := func(pool ipam.Pool, change func(*ipam.Pool)) {
		pool.Classes = []string{"gold"}
		change(&pool)
		c.SetPool(pool)
	}
	six := func(p *ipam.Pool) { p.Family, p.CIDR = ipam.IPv6, netip.MustParsePrefix("2001:db8::/64") }
	add(newPoolWithholding("a-paused"), func(p *ipam.Pool) { p.Paused = true })
	add(newPoolWithholding("b-holes", "10.0.0.1/32", "10.0.0.65/32", "10.0.0.129/32", "10.0.0.193/32"), func(*ipam.Pool) {})
	add(newPoolWithholding("c-six"), six)
	add(newPoolWithholding("d-small-blocks"), func(p *ipam.Pool) { p.Lengths.Min = 28 })
	add(newPoolWithholding("e-going"), func(p *ipam.Pool) { p.Terminating = true })
	add(newPoolWithholding("f-new"), func(p *ipam.Pool) { p.CIDR = netip.Prefix{} })
	add(newPoolWithholding("g-unrecorded"), func(*ipam.Pool) {})
	add(newPoolWithholding("hidden"), func(p *ipam.Pool) { p.Visibility, p.Project = ipam.VisibilityConsumer, "secret" })
	add(newPoolWithholding("platform"), func(p *ipam.Pool) { p.Visibility = ipam.VisibilityPlatform })
	add(newPoolWithholding("z-own"), func(p *ipam.Pool) { p.Key, p.Paused = ipam.LocalPoolNamed("team", "z-own"), true })
	add(newPoolWithholding("others"), func(p *ipam.Pool) { p.Key = ipam.LocalPoolNamed("others", "own") })

	res, err := c.Resolve(ipam.Request{Claim: ipam.Name{Namespace: "team", Name: "x"}, Class: "gold", Length: ipam.NoLength})
	if err == nil || len(res.Pools) > 0 || !slices.Equal(res.PassedOver, ipam.PoolsOf(err)) {
		t.Fatalf("got the pools %v, passed over %v, and %v", res.Pools, res.PassedOver, err)
	}
	var got []string
	for _, passed := range res.PassedOver {
		got = append(got, passed.Pool.Name+" "+string(passed.Verdict()))
		if !strings.Contains(passed.Err.Error(), passed.Pool.String()) {
			t.Errorf("the reason for %s does not name it: %v", passed.Pool, passed.Err)
		}
	}
	if want := []string{
		"z-own Paused", "a-paused Paused", "b-holes CannotFit", "c-six FamilyMismatch", "d-small-blocks LengthNotAllowed",
		"e-going Terminating", "f-new NotReady", "g-unrecorded NotReady",
	}; !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestErrorOmitsPoolsThatRequestCannotName covers also the pools of a class that it cannot use.
func TestErrorOmitsPoolsThatRequestCannotName(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("team", "red")
	hidden := ipam.Class{Name: "hidden", Native: true, Family: ipam.IPv4, Visibility: ipam.VisibilityConsumer, Project: "secret"}
	c.SetClass(ClassEntry{Class: hidden})
	pool := newPoolWithholding("owned")
	pool.Project, pool.Classes, pool.Labels, pool.Paused = "secret", []string{"hidden"}, map[string]string{"zone": "a"}, true
	c.SetPool(pool)
	claim := ipam.Name{Namespace: "team", Name: "x"}
	selects := func(l map[string]string) bool { return l["zone"] == "a" }
	for name, request := range map[string]ipam.Request{
		"by name": {Claim: claim, Pool: pool.Key, Length: 26}, "by class": {Claim: claim, Class: "hidden", Length: 26},
		"by labels": {Claim: claim, Selects: selects, Length: 26},
	} {
		res, err := c.Resolve(request)
		if err == nil || len(res.Pools)+len(res.PassedOver)+len(ipam.PoolsOf(err)) > 0 {
			t.Errorf("%s: got %v, passed over %v, and %v", name, res.Pools, res.PassedOver, err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClassesForNamespace(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("team", "red")
	for i, class := range []ipam.Class{
		{Name: "silver", Family: ipam.IPv4}, {Name: "gold", Family: ipam.IPv4}, {Name: "six", Family: ipam.IPv6},
		{Name: "own", Family: ipam.IPv4, Visibility: ipam.VisibilityConsumer, Project: "red"},
		{Name: "secret", Family: ipam.IPv4, Visibility: ipam.VisibilityConsumer, Project: "blue"},
		{Name: "platform", Family: ipam.IPv4, Visibility: ipam.VisibilityPlatform},
	} {
		class.Native = true
		c.SetClass(defaultEntry(class, int64(10-i)))
	}
	var got []string
	for _, class := range c.ClassesFor(ipam.Request{Claim: ipam.Name{Namespace: "team", Name: "x"}}) {
		if class.Default {
			class.Name += "*"
		}
		got = append(got, class.Name)
	}
	if want := []string{"gold", "own*", "silver", "six*"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := c.ClassesFor(ipam.Request{Claim: ipam.Name{Namespace: "new", Name: "x"}}); len(got) > 0 {
		t.Errorf("a namespace that has not been seen may use %v", got)
	}
}

// asDefault returns a class as a default one of its family.
func defaultEntry(class ipam.Class, created int64) ClassEntry {
	entry := defaultClass(class.Name, class.Family, created)
	entry.Class = class
	return entry
}

// TestErrorWithHiddenHolderNamesPools covers an error for a stranger.
func TestErrorWithHiddenHolderNamesPools(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("team", "red")
	c.SetProject("theirs", "secret")
	block := netip.MustParsePrefix("10.0.0.0/28")
	taken := &ipam.TakenError{Block: block, Pool: ipam.PoolNamed("p"), Overlap: block, Holder: ipam.Holder{Kind: "IPClaim", Namespace: "theirs", Name: "a"}}
	pools := []ipam.PoolResult{{Pool: taken.Pool, Err: taken}}
	redacted := c.Redact("team", ipam.WithPools(taken, pools))
	if strings.Contains(redacted.Error(), "theirs") || !slices.Equal(ipam.PoolsOf(redacted), pools) {
		t.Errorf("got %v, of the pools %v", redacted, ipam.PoolsOf(redacted))
	}
}
