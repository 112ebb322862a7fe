package register

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// shape returns the name of each pool with its depth, in order.
func shape(r *Register) []string {
	var names []string
	for _, pool := range r.Pools {
		name := nameOf(pool.Key)
		for range pool.Depth() {
			name = "-" + name
		}
		names = append(names, name)
	}
	return names
}

func TestPoolsAreSortedByAddressBelowParents(t *testing.T) {
	s := &store{}
	s.hold(ipam.PoolNamed("b"), netip.MustParsePrefix("10.0.128.0/24"), ipam.PurposePool, convert.HolderOfPool(ipam.PoolNamed("second")))
	s.hold(ipam.PoolNamed("unseen"), netip.MustParsePrefix("192.0.2.0/32"), ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c"}))
	r := Build(&Objects{Allocations: s.records, Pools: []v1alpha1.IPPool{
		*build.Pool("second").Child("b", 24).Obj(), // only the record has its CIDR
		*build.Pool("first").Child("b", 24).With(func(p *v1alpha1.IPPoolSpec) { p.CIDR = "10.0.1.0/24" }).Obj(),
		*build.Pool("b").CIDR("10.0.0.0/16").Obj(),
		*build.Pool("a").CIDR("10.1.0.0/16").Obj(),
		*build.Pool("z").CIDR("10.0.0.0/8").Domain("alpha").Obj(),
		*build.Pool("orphan").Child("gone", 24).Obj(),
	}})
	if diff := cmp.Diff([]string{"z", "b", "-first", "-second", "a", "orphan", "unseen"}, shape(r)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := r.Pool(ipam.PoolNamed("second")).CIDR.String(); got != "10.0.128.0/24" {
		t.Errorf("the child has %s", got)
	}
}

func TestCyclicPoolParentsAreAccepted(t *testing.T) {
	r := Build(&Objects{Pools: []v1alpha1.IPPool{
		*build.Pool("a").Child("b", 24).Obj(), *build.Pool("b").Child("c", 24).Obj(), *build.Pool("c").Child("b", 24).Obj(),
	}})
	if len(r.Pools) != 3 {
		t.Errorf("%d pools, want 3", len(r.Pools))
	}
	for _, pool := range r.Pools { // without an endless loop
		if usage, ok := pool.Usage(); ok || !usage.Used.IsZero() {
			t.Errorf("%s: %+v", pool.Key, usage)
		}
	}
}

func TestInvalidObjectsAreReported(t *testing.T) {
	s := &store{}
	s.hold(ipam.PoolNamed("a"), netip.MustParsePrefix("10.0.0.0/24"), ipam.PurposeClaim, convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "c"}))
	s.records[0].Spec.CIDR = "10.0.0.1/24"
	r := Build(&Objects{Allocations: s.records, Pools: []v1alpha1.IPPool{*build.Pool("a").CIDR("10.0.0.0/33").Obj()}})
	if len(r.Invalid) != 2 || !strings.HasPrefix(r.Invalid[0].Error(), "IPPool a is not valid and is left out: ") ||
		!strings.HasPrefix(r.Invalid[1].Error(), "IPAllocation team/r-0 is not valid and is left out: ") {
		t.Fatalf("invalid: %v", r.Invalid)
	}
	if len(r.Pools) != 0 {
		t.Errorf("pools: %v", shape(r))
	}
}

func TestExplainListsUnreadResources(t *testing.T) {
	got := Explain([]Unread{{Resource: "ippools"}, {Resource: "ipclaims", Namespace: "team"}, {Resource: "ipallocations", Namespace: "team"}})
	want := "you may not list ippools, and you may list ipclaims and ipallocations in namespace team alone: other objects are missing here"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
