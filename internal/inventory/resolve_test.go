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
	return ClassEntry{Class: ipam.Class{Name: name, Native: true, Family: family}, Default: true, Created: time.Unix(created, 0)}
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
