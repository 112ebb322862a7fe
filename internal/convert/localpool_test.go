package convert

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// poolsOfBothKinds returns pools of one spec: cluster-scoped, and of the namespace team.
func poolsOfBothKinds(spec v1alpha1.PoolSpec) (*v1alpha1.IPPool, *v1alpha1.LocalIPPool) {
	return &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: v1alpha1.IPPoolSpec{PoolSpec: spec}},
		&v1alpha1.LocalIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p"}, Spec: v1alpha1.LocalIPPoolSpec{PoolSpec: spec}}
}

func TestLocalPoolReadsLikeIPPool(t *testing.T) {
	above := func(kind v1alpha1.PoolKind) v1alpha1.PoolSpec {
		return v1alpha1.PoolSpec{CIDR: "10.0.1.0/24", ParentRef: &v1alpha1.PoolReference{Kind: kind, Name: "above"}}
	}
	for name, tc := range map[string]struct {
		spec v1alpha1.PoolSpec
		home ipam.PoolKey
	}{
		"a root lies in a domain of its namespace's own": {
			v1alpha1.PoolSpec{CIDR: "10.0.0.0/8", ClassNames: []string{"gold"}, Reserved: []string{"10.0.0.0/30"}},
			ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Namespace: "team", Name: "default", Family: ipam.IPv4},
		},
		"a root in a domain by name": {
			v1alpha1.PoolSpec{CIDR: "2001:db8::/32", RoutingDomain: "vrf-1"},
			ipam.LocalDomainNamed("team", "vrf-1", ipam.IPv6),
		},
		"a child of an IPPool":            {above(v1alpha1.PoolKindIPPool), ipam.PoolNamed("above")},
		"a child of what states no kind":  {above(""), ipam.PoolNamed("above")},
		"a child of a pool of hosts":      {v1alpha1.PoolSpec{CIDR: "10.0.1.0/24", ParentRef: above("").ParentRef, Network: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.1.1"}}, ipam.PoolNamed("above")},
		"one without a block, and bounds": {v1alpha1.PoolSpec{PrefixLength: new(int32(24)), ParentRef: above("").ParentRef}, ipam.PoolNamed("above")},
	} {
		t.Run(name, func(t *testing.T) {
			platform, local := poolsOfBothKinds(tc.spec)
			want, errs := Pool(platform)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			want.Key, want.Home = ipam.LocalPoolNamed("team", "p"), tc.home
			got, errs := Pool(local)
			if diff := cmp.Diff(want, got, comparing); diff != "" || len(errs) > 0 {
				t.Errorf("errors %v, (-want +got):\n%s", errs, diff)
			}
		})
	}
}

func TestParentRefKindIsValidated(t *testing.T) {
	spec := func(kind v1alpha1.PoolKind, name string) v1alpha1.PoolSpec {
		return v1alpha1.PoolSpec{PrefixLength: new(int32(24)), ParentRef: &v1alpha1.PoolReference{Kind: kind, Name: name}}
	}
	const itself = `spec.parentRef.name: Invalid value: "p": is the pool itself: name the pool of which this one is a part`
	const notLocal = `spec.parentRef.kind: Invalid value: "LocalIPPool": a cluster-scoped pool cannot be part of a LocalIPPool: name an IPPool`
	var rows []messages.Row
	for name, tc := range map[string]struct {
		spec            v1alpha1.PoolSpec
		platform, local []string
	}{
		"an IPPool":                      {spec(v1alpha1.PoolKindIPPool, "above"), nil, nil},
		"a LocalIPPool":                  {spec(v1alpha1.PoolKindLocalIPPool, "above"), []string{notLocal}, nil},
		"an IPPool of the same name":     {spec(v1alpha1.PoolKindIPPool, "p"), []string{itself}, nil},
		"a LocalIPPool of the same name": {spec(v1alpha1.PoolKindLocalIPPool, "p"), []string{notLocal}, []string{itself}},
	} {
		t.Run(name, func(t *testing.T) {
			platform, local := poolsOfBothKinds(tc.spec)
			_, errs := Pool(platform)
			rows = append(rows, rowsOf("IPPool", errs...)...)
			if diff := cmp.Diff(tc.platform, messagesOf(errs)); diff != "" {
				t.Errorf("an IPPool (-want +got):\n%s", diff)
			}
			_, errs = Pool(local)
			if diff := cmp.Diff(tc.local, messagesOf(errs)); diff != "" {
				t.Errorf("a LocalIPPool (-want +got):\n%s", diff)
			}
		})
	}
	messages.Golden(t, rows)
}

// TestLocalPoolErrorsMatchIPPool expects the same faults of a spec in both kinds.
func TestLocalPoolErrorsMatchIPPool(t *testing.T) {
	for name, spec := range map[string]v1alpha1.PoolSpec{
		"nothing at all":          {},
		"host bits":               {CIDR: "10.0.0.1/24"},
		"the wrong family":        {CIDR: "10.0.0.0/8", IPFamily: v1alpha1.IPv6},
		"a domain below a parent": {RoutingDomain: "vrf-1", PrefixLength: new(int32(24)), ParentRef: &v1alpha1.PoolReference{Name: "above"}},
		"a length without parent": {CIDR: "10.0.0.0/8", PrefixLength: new(int32(8))},
		"ranges outside":          {CIDR: "10.0.0.0/24", Ranges: []string{"10.0.1.0/28"}},
		"a gateway outside":       {CIDR: "10.0.0.0/24", Network: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.1.1"}},
		"a delay in the past":     {CIDR: "10.0.0.0/24", ReuseDelay: &metav1.Duration{Duration: -1}},
		"lengths it cannot have":  {CIDR: "10.0.0.0/24", Allocation: &v1alpha1.PoolAllocation{MinPrefixLength: new(int32(8))}},
	} {
		t.Run(name, func(t *testing.T) {
			platform, local := poolsOfBothKinds(spec)
			_, want := Pool(platform)
			_, got := Pool(local)
			if diff := cmp.Diff(messagesOf(want), messagesOf(got)); diff != "" || len(want) == 0 {
				t.Errorf("%d errors, (-IPPool +LocalIPPool):\n%s", len(want), diff)
			}
		})
	}
}
