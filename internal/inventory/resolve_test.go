package inventory

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

func TestEmptyClaimHasDefaultFamily(t *testing.T) {
	four, six := defaultClass("four", ipam.IPv4, 1), defaultClass("six", ipam.IPv6, 2)
	hidden := defaultClass("hidden", ipam.IPv4, 0)
	hidden.Visibility, hidden.Project = ipam.VisibilityConsumer, "others"
	block := netip.MustParsePrefix("2001:db8::/64")
	for name, c := range map[string]struct {
		of      ipam.Family
		classes []ClassEntry
		request ipam.Request
		want    string // empty: the claim waits
	}{
		"IPv4 of both":                             {ipam.IPv4, []ClassEntry{four, six}, ipam.Request{}, "four"},
		"IPv4, where only IPv6 has one":            {ipam.IPv4, []ClassEntry{six}, ipam.Request{}, ""},
		"IPv6 of both":                             {ipam.IPv6, []ClassEntry{four, six}, ipam.Request{}, "six"},
		"IPv6, where only IPv4 has one":            {ipam.IPv6, []ClassEntry{four}, ipam.Request{}, ""},
		"the flag is not set":                      {"", []ClassEntry{four, six}, ipam.Request{}, "four"},
		"the claim names the other family":         {ipam.IPv4, []ClassEntry{four, six}, ipam.Request{Family: ipam.IPv6}, "six"},
		"the claim names a block of the other":     {ipam.IPv4, []ClassEntry{four, six}, ipam.Request{Block: block}, "six"},
		"the older default may not be used":        {ipam.IPv4, []ClassEntry{hidden, four, six}, ipam.Request{}, "four"},
		"the only default of it may not be used":   {ipam.IPv4, []ClassEntry{hidden, six}, ipam.Request{}, ""},
		"the claim names the family that has none": {ipam.IPv4, []ClassEntry{four}, ipam.Request{Family: ipam.IPv6}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := New(Options{Ledger: emptyLedger(), DefaultFamily: c.of})
			for _, class := range c.classes {
				a.SetClass(class)
			}
			class, err := a.classOf(c.request)
			if missing, ok := errors.AsType[*ipam.MissingError](err); c.want == "" {
				if !ok || missing.Reason != v1alpha1.ReasonNoDefaultClass {
					t.Fatalf("got class %+v and %v, want that there is no default class", class, err)
				}
				if family := a.familyOf(c.request); !strings.Contains(missing.Message, "no default class for "+string(family)+":") {
					t.Errorf("it does not name the family %s: %s", family, missing.Message)
				}
				return
			}
			if err != nil || class.Name != c.want {
				t.Errorf("got class %+v and %v, want %s", class, err, c.want)
			}
		})
	}
}

// TestSelectorsAreEvaluatedOutsideLock covers the lock that every create takes: a selector that
// takes it itself ends.
func TestSelectorsAreEvaluatedOutsideLock(t *testing.T) {
	c := New(Options{Ledger: emptyLedger()})
	for _, key := range []ipam.PoolKey{ipam.PoolNamed("a"), ipam.PoolNamed("b"), ipam.LocalPoolNamed("team", "c"), ipam.LocalPoolNamed("other", "d")} {
		c.SetPool(ipam.Pool{Key: key, Labels: map[string]string{"name": key.Name}})
	}
	got := c.PoolsWhere("team", func(labels map[string]string) bool {
		c.SetPool(ipam.Pool{Key: ipam.PoolNamed("z")})
		return labels["name"] != "b"
	})
	if len(got) != 2 || !slices.ContainsFunc(got, func(p ipam.Pool) bool { return p.Key.Name == "a" }) || !slices.ContainsFunc(got, func(p ipam.Pool) bool { return p.Key.Name == "c" }) {
		t.Errorf("%v are selected, want a and c", got)
	}
}

func defaultClass(name string, family ipam.Family, created int64) ClassEntry {
	return ClassEntry{Class: ipam.Class{Name: name, Family: family}, Default: true, Created: time.Unix(created, 0)}
}

func TestSelectorFindsOnlyUsablePools(t *testing.T) {
	a := New(Options{Ledger: emptyLedger(), PlatformProject: "the-platform"})
	for name, visible := range map[string]ipam.Pool{
		"shared":   {Visibility: ipam.VisibilityShared},
		"own":      {Visibility: ipam.VisibilityConsumer, Project: "red"},
		"others":   {Visibility: ipam.VisibilityConsumer, Project: "blue"},
		"platform": {Visibility: ipam.VisibilityPlatform},
		"owned":    {Visibility: ipam.VisibilityShared, Project: "blue"}, // to name it takes the right to use it
	} {
		visible.Key, visible.Labels = ipam.PoolNamed(name), map[string]string{"zone": "a"}
		a.SetPool(visible)
	}
	selects := func(l map[string]string) bool { return l["zone"] == "a" }
	for project, want := range map[string][]string{"red": {"own", "shared"}, "green": {"shared"}, "blue": {"others", "owned", "shared"}, "the-platform": {"platform", "shared"}} {
		request := ipam.Request{
			Claim: ipam.Name{Namespace: project, Name: "c"}, Selects: selects,
			Tenant: ipam.Tenant{Project: project, Platform: project == "the-platform"},
		}
		pools, err := a.poolsOf(&namedObjects{request: request})
		var got []string
		for _, pool := range pools {
			got = append(got, pool.Key.Name)
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("project %s: got %v and %v, want %v", project, got, err, want)
		}
	}
}

// TestClassWithHiddenPoolsLooksEmpty expects an answer that does not show that a
// hidden pool backs the class; nor must the message state that none does.
func TestClassWithHiddenPoolsLooksEmpty(t *testing.T) {
	a := New(Options{Ledger: emptyLedger()})
	class := &ipam.Class{Name: "gold", Family: ipam.IPv4}
	request := ipam.Request{Claim: ipam.Name{Namespace: "red", Name: "c"}, Tenant: ipam.Tenant{Project: "red"}}
	_, none := a.poolsOf(&namedObjects{request: request, class: class})
	a.SetPool(ipam.Pool{Key: ipam.PoolNamed("p"), Family: ipam.IPv4, Classes: []string{"gold"}, Visibility: ipam.VisibilityConsumer, Project: "blue"})
	_, hidden := a.poolsOf(&namedObjects{request: request, class: class})
	const want = `no IPv4 pool that this namespace may use backs the IPClass "gold": add the class to the classNames of one, or change the visibility of one that backs it`
	if none == nil || none.Error() != want || hidden == nil || hidden.Error() != want {
		t.Errorf("without a pool: %v; with a hidden one: %v; want both times: %s", none, hidden, want)
	}
}

// TestClassWithProvisionerWaitsForSuitablePool expects that a claim of a class that has a provisioner
// waits for the next pool if none is there or suitable, unless no next pool would help.
func TestClassWithProvisionerWaitsForSuitablePool(t *testing.T) {
	c, pool := newCatalogWithPool()
	small := newPoolWithholding("small", "10.0.0.1/32")
	small.Classes, small.Lengths.Min, small.OnExhaustion = []string{"leased", "rejecting"}, 20, ipam.OnExhaustionWait
	pool.Classes = []string{"narrow"}
	c.SetPool(pool)
	c.SetPool(small)
	for _, name := range []string{"leased", "empty", "rejecting", "narrow"} {
		class := ipam.Class{Name: name, Provisioner: "example.com/ipam", Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 20, Max: 32}, Length: ipam.NoLength}
		if name == "rejecting" {
			class.OnExhaustion = ipam.OnExhaustionReject
		}
		c.SetClass(ClassEntry{Class: class})
	}
	const next = ": wait until its provisioner, example.com/ipam, has made one, or name another class"
	for name, test := range map[string]struct {
		request ipam.Request
		want    string
		// waits reports whether the claim counts for the demand, and on how many pools it waits.
		waits bool
		pools int
	}{
		"no pool is there":                   {ipam.Request{Class: "empty", Length: 28}, `no IPv4 pool that this namespace may use backs the IPClass "empty"` + next, true, 0},
		"no pool is large enough":            {ipam.Request{Class: "leased", Length: 24}, `no pool of the IPClass "leased" can hand out a /24` + next, true, 1},
		"no pool hands out the length":       {ipam.Request{Class: "narrow", Length: 28}, `no pool of the IPClass "narrow" can hand out a /28` + next, true, 0},
		"the class does not allow a length":  {ipam.Request{Class: "empty", Length: 16}, "class empty allows /20 to /32", false, 0},
		"the claim asks for one block":       {ipam.Request{Class: "narrow", Length: ipam.NoLength, Block: netip.MustParsePrefix("10.1.0.0/28")}, "lies outside", false, 0},
		"the claim is not to wait for room":  {ipam.Request{Class: "rejecting", Length: 24}, "leave a /25 at most", true, 1},
		"neither the class nor a pool helps": {ipam.Request{Class: "narrow", Length: ipam.NoLength}, "has a default", false, 0},
	} {
		test.request.Claim = ipam.Name{Namespace: "ns", Name: "x"}
		_, err := c.Resolve(test.request)
		missing, _ := errors.AsType[*ipam.MissingError](err)
		if isProvisioned := missing != nil && missing.Reason == v1alpha1.ReasonWaitingForProvisioner; err == nil || !strings.Contains(err.Error(), test.want) || isProvisioned != strings.Contains(test.want, next) {
			t.Errorf("%s: got %v (%t), want %s", name, err, isProvisioned, test.want)
		}
		if wants := c.Wants(test.request); (wants.Provisioner != "") != test.waits || len(wants.Pools) != test.pools || test.waits && wants.Length != test.request.Length {
			t.Errorf("%s: it wants %+v, want %d pools and %t", name, wants, test.pools, test.waits)
		}
	}
}

// TestPoolOfUnknownFamilyBacksAnyClass covers a child that has no CIDR yet.
func TestPoolOfUnknownFamilyBacksAnyClass(t *testing.T) {
	a := newUnsyncedCatalog()
	for name, family := range map[string]ipam.Family{"four": ipam.IPv4, "six": ipam.IPv6, "unknown": ""} {
		a.SetPool(ipam.Pool{Key: ipam.PoolNamed(name), Family: family, Classes: []string{"gold"}})
	}
	pools, err := a.poolsOf(&namedObjects{request: ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: "x"}}, class: &ipam.Class{Name: "gold", Family: ipam.IPv4}})
	if got, want := keysOf(pools), []ipam.PoolKey{ipam.PoolNamed("four"), ipam.PoolNamed("unknown")}; err != nil || !slices.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
}

func emptyLedger() *ledger.Ledger { return ledger.New(ledger.Options{}) }

// newCatalogWithPool returns a catalog that knows the namespace ns, and a pool.
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
	c.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}, Limit: limit}})
	request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: "x"}, Class: "gold", Length: 30}
	if got, want := c.Wants(request).Account, (ipam.Account{Project: "ns", Class: "gold", ClassLimit: limit}); got != want {
		t.Errorf("of a class with a limit: got %+v, want %+v", got, want)
	}
	request.Class, request.Pool = "", pool.Key
	if got, want := c.Wants(request).Account, (ipam.Account{Project: "ns"}); got != want {
		t.Errorf("of a pool: got %+v, want %+v", got, want)
	}
}

func TestEqualRequestsAreResolvedOnce(t *testing.T) {
	c, pool := newCatalogWithPool()
	others := pool
	others.Key, others.Project = ipam.PoolNamed("others"), "others"
	c.SetPool(others)
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
		{"j", ipam.Request{Pool: others.Key, Length: 30}, 0, 5},
		{"k", ipam.Request{Pool: others.Key, Length: 30, Grant: &ipam.Grant{}}, 30, 6},
	} {
		test.request.Claim = ipam.Name{Namespace: "ns", Name: test.name}
		if got := requests.Wants(test.request); got.Length != test.length || len(got.Pools) != min(test.length, 1) || len(requests.wants) != test.known {
			t.Errorf("%s: wants %+v with %d known, want /%d with %d", test.name, got, len(requests.wants), test.length, test.known)
		}
	}
}

func TestNoPoolsAreSelectedFromNone(t *testing.T) {
	c, _ := newCatalogWithPool()
	var res Resolution
	if err := c.selectPools(&res, nil); err != nil || len(res.Pools)+len(res.PassedOver) > 0 {
		t.Errorf("got %+v, %v", res, err)
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

// newPoolWithholding returns a /24 with some blocks withheld.
func newPoolWithholding(name string, blocks ...string) ipam.Pool {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	var ranges []space.Range
	for _, block := range blocks {
		ranges = append(ranges, space.RangeOf(netip.MustParsePrefix(block)))
	}
	return ipam.Pool{
		Key: ipam.PoolNamed(name), CIDR: cidr, Family: ipam.IPv4, Lengths: ipam.Lengths{Min: 24, Max: 32},
		OnExhaustion: ipam.OnExhaustionWait, Withheld: space.NewRanges(cidr, ranges),
	}
}

func TestRequestThatNoPoolCanEverServeIsRefused(t *testing.T) {
	rejecting := newPoolWithholding("rejecting", "10.0.0.0/26")
	rejecting.OnExhaustion = ipam.OnExhaustionReject
	for name, tc := range map[string]struct {
		terms   ipam.Terms
		pools   []ipam.Pool
		want    []string
		missing string
		policy  string
	}{
		"nothing is withheld":               {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a")}, []string{"a"}, "", ""},
		"as large as the rest":              {ipam.Terms{Length: 25}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32")}, []string{"a"}, "", ""},
		"larger than the rest":              {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32")}, nil, "no /24 can be handed out: the ranges and reserved addresses of pool a (10.0.0.0/24) leave a /25 at most, even when it is empty: ask for a smaller block, or change them", ""},
		"another pool has it":               {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32"), newPoolWithholding("b")}, []string{"b"}, "", ""},
		"the pool that has most is named":   {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.0/24"), newPoolWithholding("b", "10.0.0.1/32", "10.0.0.129/32"), newPoolWithholding("c", "10.0.0.1/32")}, nil, "pool c (10.0.0.0/24) leave a /25", ""},
		"a later pool withholds all":        {ipam.Terms{Length: 24}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32"), newPoolWithholding("b", "10.0.0.0/24")}, nil, "pool a (10.0.0.0/24) leave a /25", ""},
		"all is withheld":                   {ipam.Terms{Length: 32}, []ipam.Pool{newPoolWithholding("a", "10.0.0.0/24")}, nil, "no /32 can be handed out: pool a (10.0.0.0/24) withholds all of its addresses: change its ranges or reserved", ""},
		"a pool that does not let it wait":  {ipam.Terms{Length: 24}, []ipam.Pool{rejecting}, nil, "", "leave a /25 at most"},
		"a class that does not let it wait": {ipam.Terms{Length: 24, OnExhaustion: ipam.OnExhaustionReject}, []ipam.Pool{newPoolWithholding("a", "10.0.0.1/32")}, nil, "", "leave a /25 at most"},
		"a class that does":                 {ipam.Terms{Length: 24, OnExhaustion: ipam.OnExhaustionWait}, []ipam.Pool{rejecting}, nil, "leave a /25 at most", ""},
		"a pool without CIDR can fit later": {ipam.Terms{Length: 24}, []ipam.Pool{{Key: ipam.PoolNamed("child")}}, []string{"child"}, "", ""},
		"no length is known yet":            {ipam.Terms{Length: ipam.NoLength}, []ipam.Pool{newPoolWithholding("a", "10.0.0.0/24")}, []string{"a"}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pools, tooSmall, err := splitBySize(tc.terms, tc.pools)
			var got []string
			for _, p := range pools {
				got = append(got, p.Key.Name)
			}
			if !slices.Equal(got, tc.want) || len(got)+len(tooSmall) != len(tc.pools) {
				t.Errorf("got %v, and %v as too small; want %v", got, tooSmall, tc.want)
			}
			missing, _ := errors.AsType[*ipam.MissingError](err)
			policy, _ := errors.AsType[*ipam.PolicyError](err)
			switch {
			case tc.missing != "" && (missing == nil || missing.Reason != v1alpha1.ReasonCannotFit || !strings.Contains(missing.Message, tc.missing)):
				t.Errorf("got %v, want %s, with reason CannotFit", err, tc.missing)
			case tc.policy != "" && (policy == nil || policy.Field != "spec.prefixLength" || !strings.Contains(policy.Remedy, tc.policy)):
				t.Errorf("got %v, want spec.prefixLength: %s", err, tc.policy)
			case tc.missing+tc.policy == "" && err != nil:
				t.Error(err)
			}
		})
	}
}

func TestExhaustionPolicyPrefersClass(t *testing.T) {
	rejecting, waiting := ipam.Pool{OnExhaustion: ipam.OnExhaustionReject}, ipam.Pool{OnExhaustion: ipam.OnExhaustionWait}
	for name, c := range map[string]struct {
		terms ipam.Terms
		pools []ipam.Pool
		want  ipam.OnExhaustion
	}{
		"the class states it":      {ipam.Terms{OnExhaustion: ipam.OnExhaustionReject}, []ipam.Pool{waiting}, ipam.OnExhaustionReject},
		"the first pool states it": {ipam.Terms{}, []ipam.Pool{rejecting, waiting}, ipam.OnExhaustionReject},
		"neither states it":        {ipam.Terms{}, nil, ipam.OnExhaustionWait},
	} {
		if got := c.terms.WhenExhausted(c.pools); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}
