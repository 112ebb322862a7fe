package ipam

import (
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

func TestFold(t *testing.T) {
	plain := Pool{Key: PoolNamed("plain"), Family: IPv4, CIDR: netip.MustParsePrefix("10.0.0.0/8"), Lengths: Lengths{8, 32}}
	hosts := Pool{Key: PoolNamed("hosts"), Family: IPv6, CIDR: netip.MustParsePrefix("2001:db8::/64"), Lengths: Lengths{64, 128}, Network: &Network{Length: 64}}
	class := Class{Name: "c", Family: IPv4, Lengths: Lengths{20, 28}, Length: 24, Reclaim: ReclaimRetain, AllowRetain: true, Strategy: StrategyBestFit}
	deletes := Class{Name: "d", Family: IPv4, Lengths: Lengths{0, 32}, Length: 24, Reclaim: ReclaimDelete}
	hostClass := Class{Name: "h", Family: IPv4, Lengths: Lengths{8, 32}, Length: 24}
	for name, c := range map[string]struct {
		req   Request
		class *Class
		pools []Pool
		want  Terms
		field string // of the refusal
	}{
		"the class states the fields that the claim does not": {
			req: Request{Length: NoLength}, class: &class,
			want: Terms{Class: "c", Family: IPv4, Length: 24, Reclaim: ReclaimRetain, Retains: "spec.reclaimPolicy", Strategy: StrategyBestFit},
		},
		"the claim counts before the class": {
			req: Request{Length: 28, Reclaim: ReclaimDelete}, class: &class,
			want: Terms{Class: "c", Family: IPv4, Length: 28, Reclaim: ReclaimDelete, Strategy: StrategyBestFit},
		},
		"a named block has its length": {
			req: Request{Length: NoLength, Block: netip.MustParsePrefix("10.1.0.0/26")}, class: &class,
			want: Terms{Class: "c", Family: IPv4, Length: 26, Reclaim: ReclaimRetain, Retains: "spec.reclaimPolicy", Strategy: StrategyBestFit, Block: netip.MustParsePrefix("10.1.0.0/26")},
		},
		"a pool with a network hands out single addresses": {
			req: Request{Length: NoLength}, pools: []Pool{hosts},
			want: Terms{Family: IPv6, Length: 128, Reclaim: ReclaimDelete, Selection: SelectFirstFit},
		},
		"a class that deletes does not retain": {req: Request{Length: 24, Reclaim: ReclaimRetain}, class: &deletes, field: "spec.reclaimPolicy"},
		"nor does it for a sticky key":         {req: Request{Length: 24, Sticky: "node-1"}, class: &deletes, field: FieldSticky},
		"one address, with any default of the class": {
			req: Request{Length: NoLength, Single: true}, class: &hostClass, pools: []Pool{plain},
			want: Terms{Class: "h", Family: IPv4, Length: 32, Reclaim: ReclaimDelete, Single: true},
		},
		"one address, before there is a pool": {
			req: Request{Length: NoLength, Single: true}, class: &hostClass,
			want: Terms{Class: "h", Family: IPv4, Length: 32, Reclaim: ReclaimDelete, Single: true},
		},
		"one address of a plain pool": {
			req: Request{Length: NoLength, Single: true}, pools: []Pool{plain},
			want: Terms{Family: IPv4, Length: 32, Reclaim: ReclaimDelete, Selection: SelectFirstFit, Single: true},
		},
		"a class that hands out no single address": {req: Request{Length: NoLength, Single: true}, class: &class, pools: []Pool{plain}, field: "spec.poolRef.name"},
		"an address of another family than the class's": {
			req: Request{Length: NoLength, Block: netip.MustParsePrefix("2001:db8::1/128"), BlockField: "annotation"}, class: &class, field: "annotation",
		},
		"a plain pool has no default length":                           {req: Request{Length: NoLength}, pools: []Pool{plain}, field: "spec.prefixLength"},
		"another family than the class's":                              {req: Request{Length: NoLength, Family: IPv6}, class: &class, field: "spec.ipFamily"},
		"a length that the class does not allow":                       {req: Request{Length: 29}, class: &class, field: "spec.prefixLength"},
		"a block of a length that it does not allow":                   {req: Request{Length: NoLength, Block: netip.MustParsePrefix("10.0.0.0/16")}, class: &class, field: "spec.cidr"},
		"a block of another family than the class's":                   {req: Request{Length: NoLength, Block: netip.MustParsePrefix("2001:db8::/64")}, class: &class, field: "spec.cidr"},
		"a block of another family, of a length that the class allows": {req: Request{Length: NoLength, Block: netip.MustParsePrefix("2001:db8::/24")}, class: &class, field: "spec.cidr"},
		"a sticky key where the class allows it": {
			req: Request{Length: 24, Sticky: "node-1", Reclaim: ReclaimDelete}, class: &class,
			want: Terms{Class: "c", Family: IPv4, Length: 24, Reclaim: ReclaimDelete, Retains: FieldSticky, Sticky: "node-1", Strategy: StrategyBestFit},
		},
		"a class without a default length, before there is a pool": {
			req: Request{Length: NoLength}, class: &Class{Name: "n", Family: IPv4, Lengths: Lengths{20, 28}, Length: NoLength},
			want: Terms{Class: "n", Family: IPv4, Length: NoLength, Reclaim: ReclaimDelete},
		},
		"a length of no family yet": {
			req:  Request{Length: 200},
			want: Terms{Length: 200, Reclaim: ReclaimDelete, Selection: SelectFirstFit},
		},
		"a length that the family does not have":       {req: Request{Length: 33}, pools: []Pool{plain}, field: "spec.prefixLength"},
		"nothing is known of a pool that is not there": {req: Request{Length: NoLength}, want: Terms{Length: NoLength, Reclaim: ReclaimDelete, Selection: SelectFirstFit}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Fold(c.req, c.class, c.pools)
			var refused *PolicyError
			if errors.As(err, &refused) != (c.field != "") || refused != nil && refused.Field != c.field {
				t.Fatalf("refused: %v, want a refusal of %q", err, c.field)
			}
			if err == nil && got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// TestFittingErrorNamesFieldToChange covers terms that no pool fits.
func TestFittingErrorNamesFieldToChange(t *testing.T) {
	pool := Pool{Key: PoolNamed("p"), Family: IPv4, CIDR: netip.MustParsePrefix("10.0.0.0/16"), Lengths: Lengths{16, 28}}
	for name, c := range map[string]struct {
		terms Terms
		want  string
	}{
		"a block outside":                         {Terms{Family: IPv4, Length: 24, Block: netip.MustParsePrefix("10.1.0.0/24")}, "spec.cidr: 10.1.0.0/24: lies outside pool p, which is 10.0.0.0/16: ask for a block within it, or name another pool"},
		"another family":                          {Terms{Family: IPv6, Length: 64}, "spec.ipFamily: IPv6: pool p is IPv4: name a pool of the family that you need"},
		"a length that it does not hand out":      {Terms{Family: IPv4, Length: 30}, "spec.prefixLength: 30: pool p (10.0.0.0/16) hands out /16 to /28: ask for one of these"},
		"a block to be retained":                  {Terms{Family: IPv4, Length: 24, Retains: "spec.reclaimPolicy"}, "spec.reclaimPolicy: Retain: pool p does not allow it (allowRetain): leave reclaimPolicy out, or write Delete"},
		"a block to be kept by a key":             {Terms{Family: IPv4, Length: 24, Retains: FieldSticky, Sticky: "node-1"}, FieldSticky + ": node-1: pool p does not allow it (allowRetain): remove the annotation"},
		"an address outside, by another field":    {Terms{Family: IPv4, Length: 32, Block: netip.MustParsePrefix("10.1.0.1/32"), BlockField: "address", Single: true}, "address: 10.1.0.1/32: lies outside pool p, which is 10.0.0.0/16: ask for a block within it, or name another pool"},
		"an address of another family":            {Terms{Family: IPv6, Length: 128, Block: netip.MustParsePrefix("::1/128"), BlockField: "address", Single: true}, "address: ::1/128: pool p is IPv4: ask for such a block, or name a pool of the family that you need"},
		"one address of a pool of larger blocks":  {Terms{Family: IPv4, Length: 32, Single: true}, "spec.poolRef.name: p: pool p hands out /16 to /28, and an IPAddressClaim is one address, a /32: set spec.allocation of the pool so that it allows that, or name another pool"},
		"that address of a pool of larger blocks": {Terms{Family: IPv4, Length: 32, Block: netip.MustParsePrefix("10.0.0.1/32"), BlockField: "address", Single: true}, "spec.poolRef.name: p: pool p hands out /16 to /28, and an IPAddressClaim is one address, a /32: set spec.allocation of the pool so that it allows that, or name another pool"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := c.terms.Fitting([]Pool{pool}); err == nil || err.Error() != c.want {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestNoPoolsFitIfThereAreNone(t *testing.T) {
	if fitting, unfit, err := (Terms{}).Fitting(nil); len(fitting)+len(unfit) > 0 || err != nil {
		t.Errorf("got %v, %v and %v", fitting, unfit, err)
	}
}

func TestClassAllowsRetentionForItsPools(t *testing.T) {
	pool := Pool{Key: PoolNamed("p"), Family: IPv4, CIDR: netip.MustParsePrefix("10.0.0.0/16"), Lengths: Lengths{16, 28}}
	terms := Terms{Class: "gold", Family: IPv4, Length: 24, Retains: "spec.reclaimPolicy"}
	if fitting, _, err := terms.Fitting([]Pool{pool}); err != nil || len(fitting) != 1 {
		t.Errorf("by the class: %v, %v", fitting, err)
	}
	terms.Class, pool.AllowRetain = "", true
	if fitting, _, err := terms.Fitting([]Pool{pool}); err != nil || len(fitting) != 1 {
		t.Errorf("by the pool: %v, %v", fitting, err)
	}
}

func TestSingleAddressPoolFitsOneAddress(t *testing.T) {
	pool := Pool{Key: PoolNamed("p"), Family: IPv4, CIDR: netip.MustParsePrefix("10.0.0.0/16"), Lengths: Lengths{16, 32}}
	for name, terms := range map[string]Terms{
		"one address":      {Family: IPv4, Length: 32, Single: true},
		"no length yet":    {Family: IPv4, Length: NoLength},
		"all of the pool":  {Family: IPv4, Length: 16, Block: pool.CIDR},
		"one of no length": {Family: IPv4, Length: NoLength, Single: true},
	} {
		if fitting, _, err := terms.Fitting([]Pool{pool}); err != nil || len(fitting) != 1 {
			t.Errorf("%s: %v, %v", name, fitting, err)
		}
	}
}

// TestPoolWaitingForParentFits expects that a request fits if the pool can hand out its block
// later: a request that is refused because a manifest was applied first would not be sent again.
func TestPoolWaitingForParentFits(t *testing.T) {
	waits := Pool{Key: PoolNamed("p"), Home: PoolNamed("parent"), Lengths: Lengths{0, 128}}
	four := waits
	four.Family, four.Lengths.Max = IPv4, 32
	for name, c := range map[string]struct {
		terms Terms
		pool  Pool
		want  bool
	}{
		"a length of a family":                 {Terms{Family: IPv4, Length: 24}, waits, true},
		"a block":                              {Terms{Family: IPv4, Length: 24, Block: netip.MustParsePrefix("10.0.0.0/24")}, waits, true},
		"a length of its family":               {Terms{Family: IPv4, Length: 24}, four, true},
		"a block of its family":                {Terms{Family: IPv4, Length: 24, Block: netip.MustParsePrefix("10.0.0.0/24")}, four, true},
		"a length of the other family":         {Terms{Family: IPv6, Length: 24}, four, false},
		"a block of the other family":          {Terms{Family: IPv6, Length: 64, Block: netip.MustParsePrefix("2001:db8::/64")}, four, false},
		"a block to be kept, which it forbids": {Terms{Family: IPv4, Length: 24, Retains: "spec.reclaimPolicy"}, waits, false},
	} {
		if fitting, _, err := c.terms.Fitting([]Pool{c.pool}); (err == nil) != c.want || (len(fitting) == 1) != c.want {
			t.Errorf("%s: %v, %v; want that it fits: %t", name, fitting, err, c.want)
		}
	}
}

func TestLargestBlockOfPool(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	for name, c := range map[string]struct {
		withheld []string
		want     int
	}{
		"nothing is withheld": {nil, 24}, "its first address is": {[]string{"10.0.0.0/32"}, 25},
		"its halves' are": {[]string{"10.0.0.0/32", "10.0.0.128/32"}, 26}, "all of it is": {[]string{"10.0.0.0/24"}, NoLength},
	} {
		var ranges []space.Range
		for _, text := range c.withheld {
			ranges = append(ranges, space.RangeOf(netip.MustParsePrefix(text)))
		}
		if got := (Pool{CIDR: cidr, Withheld: space.NewRanges(cidr, ranges)}).LargestBlock(); got != c.want {
			t.Errorf("%s: got %d, want %d", name, got, c.want)
		}
	}
}

func TestPoolKeyString(t *testing.T) {
	for want, key := range map[string]PoolKey{
		"pool p": PoolNamed("p"), "pool ns/p": LocalPoolNamed("ns", "p"),
		"routing domain d": DomainNamed("d", IPv4), "routing domain ns/d": LocalDomainNamed("ns", "d", IPv6),
	} {
		if got := key.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if IPv4.All().String() != "0.0.0.0/0" || IPv6.All().String() != "::/0" {
		t.Errorf("all of IPv4 is %s, all of IPv6 %s", IPv4.All(), IPv6.All())
	}
}

func TestPoolNamesClasses(t *testing.T) {
	p := Pool{Classes: []string{"gold", "silver"}}
	if !p.Names("gold") || !p.Names("silver") || p.Names("lead") || p.Names("") {
		t.Errorf("gold %t, silver %t, lead %t, none %t", p.Names("gold"), p.Names("silver"), p.Names("lead"), p.Names(""))
	}
}

// TestClassExcludesPools covers the pools of each kind that name a class.
func TestClassExcludesPools(t *testing.T) {
	platform, own := PoolNamed("p"), LocalPoolNamed("team", "own")
	for name, tc := range map[string]struct {
		localPools bool
		pool       Pool
		want       Verdict
	}{
		"an IPPool":                                   {false, Pool{Key: platform, Family: IPv4}, Fits},
		"an IPPool whose family is not known":         {false, Pool{Key: platform}, Fits},
		"an IPPool of the other family":               {true, Pool{Key: platform, Family: IPv6}, FamilyMismatch},
		"a LocalIPPool":                               {false, Pool{Key: own, Family: IPv4}, LocalPoolNotAllowed},
		"a LocalIPPool that is allowed":               {true, Pool{Key: own, Family: IPv4}, Fits},
		"a LocalIPPool of the other family, allowed":  {true, Pool{Key: own, Family: IPv6}, FamilyMismatch},
		"a LocalIPPool of the other family, excluded": {false, Pool{Key: own, Family: IPv6}, LocalPoolNotAllowed},
	} {
		class := Class{Name: "gold", Family: IPv4, LocalPools: tc.localPools}
		if got := (PoolResult{Err: class.Excludes(tc.pool)}).Verdict(); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestRank(t *testing.T) {
	candidate := func(namespace, name string, used float64) Candidate {
		key := PoolNamed(name)
		if namespace != "" {
			key = LocalPoolNamed(namespace, name)
		}
		return Candidate{Pool: Pool{Key: key}, Utilized: used}
	}
	pools := []Candidate{candidate("", "b", 0.5), candidate("", "a", 0.9), candidate("", "c", 0.1), candidate("own", "z", 1), candidate("", "d", 0.1)}
	for by, want := range map[Selection]string{
		SelectFirstFit: "zabcd", SelectLeastUtilized: "zcdba", SelectMostUtilized: "zabcd",
	} {
		got := ""
		for _, pool := range Rank(pools, by) {
			got += pool.Key.Name
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", by, got, want)
		}
	}
}

func TestRequestMayUseAndMayName(t *testing.T) {
	red := Tenant{Project: "red"}
	claim := Request{Claim: Name{"team", "c"}, Tenant: red}
	beside := Request{Child: LocalPoolNamed("team", "q"), Tenant: red}
	platforms := Request{Child: PoolNamed("q")}
	for _, c := range []struct {
		what                   string
		pool                   Pool
		asks                   Request
		use, grant, nameDenied bool
	}{
		{"a claim, of a shared pool", Pool{Key: PoolNamed("p")}, claim, true, false, false},
		{"a claim, of a pool of the same project", Pool{Key: PoolNamed("p"), Project: "red"}, claim, true, false, false},
		{"a claim, of another project's pool", Pool{Key: PoolNamed("p"), Project: "blue"}, claim, true, true, true},
		{"a claim, of another project's pool for itself", Pool{Key: PoolNamed("p"), Project: "blue", Visibility: VisibilityConsumer}, claim, false, true, true},
		{"a claim, of a pool beside it", Pool{Key: LocalPoolNamed("team", "p")}, claim, true, false, false},
		{"a claim, of a pool of another namespace", Pool{Key: LocalPoolNamed("other", "p")}, claim, false, false, true},
		{"a local pool, of a shared parent", Pool{Key: PoolNamed("p")}, beside, true, true, true},
		{"a local pool, of a parent of the same project", Pool{Key: PoolNamed("p"), Project: "red"}, beside, true, true, true},
		{"a local pool, of the platform's parent", Pool{Key: PoolNamed("p"), Visibility: VisibilityPlatform}, beside, false, true, true},
		{"a local pool, of a parent beside it", Pool{Key: LocalPoolNamed("team", "p")}, beside, true, false, false},
		{"a local pool, of a parent of another namespace", Pool{Key: LocalPoolNamed("other", "p")}, beside, false, false, true},
		{"a cluster-scoped pool, of one without project", Pool{Key: PoolNamed("p"), Visibility: VisibilityPlatform}, platforms, true, false, false},
		{"a cluster-scoped pool, of one with a project", Pool{Key: PoolNamed("p"), Project: "red"}, platforms, true, true, true},
		{"a cluster-scoped pool, of a namespace's own", Pool{Key: LocalPoolNamed("team", "p")}, platforms, false, false, true},
	} {
		granted := c.asks
		granted.Grant = &Grant{}
		got := []bool{c.asks.MayUse(c.pool), c.asks.NeedsGrant(c.pool), !c.asks.MayName(c.pool), granted.MayName(c.pool)}
		want := []bool{c.use, c.grant, c.nameDenied, c.use} // a grant does not make visible
		if !slices.Equal(got, want) {
			t.Errorf("%s: may use, needs a grant, is denied the name, may name with a grant: got %t, want %t", c.what, got, want)
		}
	}
}

func TestGrantAppliesOnlyToItsPool(t *testing.T) {
	pool := Pool{Key: PoolNamed("p"), Project: "blue", Spec: Revision{UID: "present"}}
	for _, c := range []struct {
		grant *Grant
		want  bool
	}{{nil, false}, {&Grant{}, true}, {&Grant{PoolUID: "present"}, true}, {&Grant{PoolUID: "former"}, false}} {
		request := Request{Claim: Name{"team", "c"}, Tenant: Tenant{Project: "red"}, Grant: c.grant}
		if got := request.MayName(pool); got != c.want {
			t.Errorf("%+v: may name the pool %t, want %t", c.grant, got, c.want)
		}
	}
}

func TestPoolKeysAreUnique(t *testing.T) {
	seen := map[PoolKey]string{}
	for what, key := range map[string]PoolKey{
		"a pool": PoolNamed("default"), "a local one": LocalPoolNamed("team", "default"), "another's": LocalPoolNamed("other", "default"),
		"a domain": DomainNamed("default", IPv4), "a local domain": LocalDomainNamed("team", "default", IPv4),
		"another's domain": LocalDomainNamed("other", "default", IPv4), "its other half": LocalDomainNamed("team", "default", IPv6),
		"a domain that is named like a local one": DomainNamed("team/default", IPv4),
	} {
		if other, ok := seen[key]; ok {
			t.Errorf("%s and %s have the key %+v", what, other, key)
		}
		seen[key] = what
	}
}

func TestTenant(t *testing.T) {
	red := Tenant{Project: "red"}
	for _, c := range []struct {
		tenant     Tenant
		visibility Visibility
		project    string
		want       bool
	}{
		{red, VisibilityShared, "", true},
		{red, VisibilityShared, "blue", true},
		{red, VisibilityConsumer, "red", true},
		{red, VisibilityConsumer, "blue", false},
		{red, VisibilityPlatform, "", false},
		{Tenant{Project: "ours", Platform: true}, VisibilityPlatform, "", true},
	} {
		if got := c.tenant.MayUse(c.visibility, c.project); got != c.want {
			t.Errorf("%+v, %s of %q: got %t, want %t", c.tenant, c.visibility, c.project, got, c.want)
		}
	}
}
