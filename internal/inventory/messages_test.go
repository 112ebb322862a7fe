package inventory

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// ofEverySort returns a catalog with pools and classes from which a claim of the namespace team
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
		{Name: "gold", Native: true, Family: ipam.IPv4, Length: ipam.NoLength, Lengths: ipam.Lengths{Min: 24, Max: 28}},
		{Name: "foreign", Family: ipam.IPv4},
	} {
		c.SetClass(ClassEntry{Class: class})
	}
	return c
}

// TestUnservedRequestStatesRemedy covers claims, and one pool, that cannot be served.
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
		{`"foreign"`, ipam.Request{Class: "foreign", Length: 28}},
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

// excluded returns the error for a claim about a pool that names its class and does not back
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
