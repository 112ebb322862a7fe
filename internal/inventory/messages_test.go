package inventory

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// newMixedCatalog returns a catalog with pools and classes from which a claim of the namespace team
// gets nothing.
func newMixedCatalog() *Catalog {
	c := New(Options{Ledger: emptyLedger()})
	c.SetProject("team", "team")
	c.TrackClusters()
	c.SetCluster(ipam.Name{Namespace: "team", Name: "resting"}, true)
	four, six := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("2001:db8::/48")
	all := ipam.Pool{Family: ipam.IPv4, CIDR: four, Lengths: ipam.Lengths{Min: 26, Max: 30}, OnExhaustion: ipam.OnExhaustionWait}
	for name, edit := range map[string]func(*ipam.Pool){
		"plain":       func(*ipam.Pool) {},
		"v6":          func(p *ipam.Pool) { p.Family, p.CIDR, p.Lengths = ipam.IPv6, six, ipam.Lengths{Min: 48, Max: 128} },
		"new":         func(p *ipam.Pool) { p.CIDR = netip.Prefix{} },
		"paused":      func(p *ipam.Pool) { p.Paused = true },
		"terminating": func(p *ipam.Pool) { p.Terminating = true },
		"full-of-holes": func(p *ipam.Pool) {
			p.Withheld = space.NewRanges(four, []space.Range{space.RangeOf(netip.MustParsePrefix("10.0.0.0/25")), space.RangeOf(netip.MustParsePrefix("10.0.0.128/32")), space.RangeOf(netip.MustParsePrefix("10.0.0.192/32"))})
		},
		"leased":   func(p *ipam.Pool) { p.Classes = []string{"leased"} },
		"withheld": func(p *ipam.Pool) { p.Withheld = space.NewRanges(four, []space.Range{space.RangeOf(four)}) },
	} {
		pool := all
		edit(&pool)
		pool.Key = ipam.PoolNamed(name)
		c.SetPool(pool)
	}
	for _, cluster := range []string{"resting", "missing"} {
		local := all
		local.Key, local.Labels = ipam.LocalPoolNamed("team", cluster), map[string]string{v1alpha1.LabelCluster: cluster}
		c.SetPool(local)
	}
	for _, class := range []ipam.Class{
		{Name: "gold", Family: ipam.IPv4, Length: ipam.NoLength, Lengths: ipam.Lengths{Min: 24, Max: 28}},
		{Name: "provisioned", Provisioner: "example.com/ipam", Family: ipam.IPv4, Length: ipam.NoLength, Lengths: ipam.Lengths{Max: 32}},
		{Name: "leased", Provisioner: "example.com/ipam", Family: ipam.IPv4, Length: ipam.NoLength, Lengths: ipam.Lengths{Max: 32}},
	} {
		c.SetClass(ClassEntry{Class: class})
	}
	return c
}

func TestUnservedRequestStatesRemedy(t *testing.T) {
	c := newMixedCatalog()
	four, six := netip.MustParsePrefix("10.9.0.0/28"), netip.MustParsePrefix("2001:db8::/64")
	named := func(pool string) ipam.Request { return ipam.Request{Pool: ipam.PoolNamed(pool), Length: 28} }
	with := func(r ipam.Request, edit func(*ipam.Request)) ipam.Request {
		edit(&r)
		return r
	}
	var rows []messages.Row
	for _, tc := range []struct {
		value   string
		request ipam.Request
	}{
		{"IPv4", ipam.Request{Length: 28}},
		{`"none"`, ipam.Request{Class: "none", Length: 28}},
		{`"provisioned"`, ipam.Request{Class: "provisioned", Length: 28}},
		{`"leased"`, ipam.Request{Class: "leased", Length: 25}},
		{`"gold"`, ipam.Request{Class: "gold", Length: 28}},
		{"IPv6", ipam.Request{Class: "gold", Family: ipam.IPv6, Length: 28}},
		{"2001:db8::/64", ipam.Request{Class: "gold", Block: six, Length: ipam.NoLength}},
		{"30", ipam.Request{Class: "gold", Length: 30}},
		{"40", ipam.Request{Class: "gold", Length: 40}},
		{"gold", ipam.Request{Class: "gold", Single: true, Length: ipam.NoLength}},
		{"Retain", ipam.Request{Class: "gold", Length: 28, Reclaim: ipam.ReclaimRetain}},
		{"node-1", with(named("plain"), func(r *ipam.Request) { r.Sticky = "node-1" })},
		{"poolSelector", ipam.Request{Selects: func(map[string]string) bool { return false }, Length: 28}},
		{`"none"`, named("none")},
		{`"none"`, ipam.Request{Pool: ipam.LocalPoolNamed("team", "none"), Length: 28}},
		{"new", named("new")},
		{"paused", named("paused")},
		{"terminating", named("terminating")},
		{"10.0.0.0/24", named("withheld")},
		{"/26", with(named("full-of-holes"), func(r *ipam.Request) { r.Length = 26 })},
		{"plain", named("plain")},
		{"8", with(named("plain"), func(r *ipam.Request) { r.Length = 8 })},
		{"", with(named("plain"), func(r *ipam.Request) { r.Length = ipam.NoLength })},
		{"plain", with(named("plain"), func(r *ipam.Request) { r.Length, r.Single = ipam.NoLength, true })},
		{"10.9.0.0/28", with(named("plain"), func(r *ipam.Request) { r.Block, r.Length = four, ipam.NoLength })},
		{"2001:db8::/64", with(named("plain"), func(r *ipam.Request) { r.Block, r.Length = six, ipam.NoLength })},
		{"IPv4", with(named("v6"), func(r *ipam.Request) { r.Family = ipam.IPv4 })},
		{"resting", ipam.Request{Pool: ipam.LocalPoolNamed("team", "resting"), Length: 28}},
		{"missing", ipam.Request{Pool: ipam.LocalPoolNamed("team", "missing"), Length: 28}},
	} {
		tc.request.Claim = ipam.Name{Namespace: "team", Name: "c"}
		_, err := c.Resolve(tc.request)
		outcome := convert.ClaimWaits(err)
		row := messages.Row{Object: "IPClaim", On: "condition Ready", Answer: "False, " + outcome.Reason, Value: tc.value, Message: outcome.Message}
		if tc.request.Single || tc.request.Sticky != "" {
			row.Object, row.Answer = "IPAddressClaim", "False, AllocationFailed"
		}
		rows = append(rows, row)
	}
	rows = append(rows, exclusionError(t, c, ipam.Pool{Key: ipam.PoolNamed("six"), Family: ipam.IPv6}), exclusionError(t, c, ipam.Pool{Key: ipam.LocalPoolNamed("team", "own"), Family: ipam.IPv4}))
	_, err := c.ResolvePool(ipam.Pool{Key: ipam.PoolNamed("child"), Home: ipam.PoolNamed("plain"), Family: ipam.IPv4, Length: 24})
	if err == nil {
		t.Fatal("a child as large as its parent is served")
	}
	messages.Golden(t, append(rows, messages.Row{Object: "IPPool", On: "condition Ready", Answer: "False, " + v1alpha1.ReasonInvalid, Value: "24", Message: err.Error()}))
}

// exclusionError returns the error for a claim about a pool that names its class and does not back
// it.
func exclusionError(t *testing.T, c *Catalog, pool ipam.Pool) messages.Row {
	t.Helper()
	pool.Classes = []string{"gold"}
	c.SetPool(pool)
	defer c.DropPool(pool.Key)
	_, err := c.Resolve(ipam.Request{Claim: ipam.Name{Namespace: "team", Name: "c"}, Class: "gold", Length: 28})
	candidates, _ := convert.Candidates(ipam.PoolsOf(err))
	if len(candidates) != 1 {
		t.Fatalf("the claim lists %v, want the pool", candidates)
	}
	return messages.Row{Object: "IPClaim", On: "candidate", Answer: "reason, " + string(candidates[0].Reason), Value: pool.Key.String(), Message: candidates[0].Message}
}

func TestErrorListsEachUsablePool(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("team", "red")
	c.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Length: 26, Lengths: ipam.Lengths{Max: 32}, LocalPools: true}})
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

func TestErrorOmitsPoolsThatRequestCannotName(t *testing.T) {
	c := newUnsyncedCatalog()
	c.SetProject("team", "red")
	hidden := ipam.Class{Name: "hidden", Family: ipam.IPv4, Visibility: ipam.VisibilityConsumer, Project: "secret"}
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

// defaultEntry returns a class as a default one of its family.
func defaultEntry(class ipam.Class, created int64) ClassEntry {
	entry := defaultClass(class.Name, class.Family, created)
	entry.Class = class
	return entry
}

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
