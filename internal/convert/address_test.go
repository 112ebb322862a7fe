package convert

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestAddressRequest(t *testing.T) {
	asks := func(kind string, annotations ...string) AddressClaim {
		claim := AddressClaim{Namespace: "team", Name: "a", PoolGroup: v1alpha1.GroupVersion.Group, PoolKind: kind, PoolName: "lab", Annotations: map[string]string{}}
		for i := 0; i < len(annotations); i += 2 {
			claim.Annotations[annotations[i]] = annotations[i+1]
		}
		return claim
	}
	base := ipam.Request{Claim: ipam.Name{Namespace: "team", Name: "a"}, Length: ipam.NoLength, Single: true}
	with := func(edit func(*ipam.Request)) ipam.Request {
		r := base
		edit(&r)
		return r
	}
	var rows []messages.Row
	for name, test := range map[string]struct {
		claim AddressClaim
		want  ipam.Request
		err   string
	}{
		"a pool":             {claim: asks("IPPool"), want: with(func(r *ipam.Request) { r.Pool = ipam.PoolNamed("lab") })},
		"a namespace's pool": {claim: asks("LocalIPPool"), want: with(func(r *ipam.Request) { r.Pool = ipam.LocalPoolNamed("team", "lab") })},
		"a class":            {claim: asks("IPClass"), want: with(func(r *ipam.Request) { r.Class = "lab" })},
		"an address": {claim: asks("IPPool", v1alpha1.AnnotationAddress, "10.0.0.7"), want: with(func(r *ipam.Request) {
			r.BlockField = "metadata.annotations[ipam.cadastre.dev/address]"
			r.Pool, r.Block, r.Family = ipam.PoolNamed("lab"), netip.MustParsePrefix("10.0.0.7/32"), ipam.IPv4
		})},
		"an address of IPv6": {claim: asks("IPPool", v1alpha1.AnnotationAddress, "2001:db8::7"), want: with(func(r *ipam.Request) {
			r.BlockField = "metadata.annotations[ipam.cadastre.dev/address]"
			r.Pool, r.Block, r.Family = ipam.PoolNamed("lab"), netip.MustParsePrefix("2001:db8::7/128"), ipam.IPv6
		})},
		"a sticky key": {claim: asks("IPClass", v1alpha1.AnnotationSticky, "node-1"), want: with(func(r *ipam.Request) { r.Class, r.Sticky = "lab", "node-1" })},
		"a grant": {claim: asks("IPPool", v1alpha1.AnnotationUseGranted, "lab"), want: with(func(r *ipam.Request) {
			r.Pool, r.Grant = ipam.PoolNamed("lab"), &ipam.Grant{}
		})},
		"a grant for another pool":   {claim: asks("IPPool", v1alpha1.AnnotationUseGranted, "other"), want: with(func(r *ipam.Request) { r.Pool = ipam.PoolNamed("lab") })},
		"a block is no address":      {claim: asks("IPPool", v1alpha1.AnnotationAddress, "10.0.0.0/24"), err: `metadata.annotations[ipam.cadastre.dev/address]: Invalid value: "10.0.0.0/24"`},
		"an address with zeros":      {claim: asks("IPPool", v1alpha1.AnnotationAddress, "2001:DB8::7"), err: `write "2001:db8::7"`},
		"a key as long as it may be": {claim: asks("IPClass", v1alpha1.AnnotationSticky, strings.Repeat("k", 253)), want: with(func(r *ipam.Request) { r.Class, r.Sticky = "lab", strings.Repeat("k", 253) })},
		"a key that is too long":     {claim: asks("IPPool", v1alpha1.AnnotationSticky, strings.Repeat("k", 254)), err: "may not be more than 253"},
	} {
		t.Run(name, func(t *testing.T) {
			got, errs := AddressRequest(test.claim)
			rows = append(rows, rowsOf("IPAddressClaim", errs...)...)
			if test.err != "" {
				if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), test.err) {
					t.Errorf("got error %v, want one with %q", err, test.err)
				}
				return
			}
			if diff := cmp.Diff(test.want, got, cmpopts.EquateComparable(netip.Prefix{}, ipam.PoolKey{})); diff != "" || len(errs) > 0 {
				t.Errorf("errors %v, (-want +got):\n%s", errs, diff)
			}
		})
	}
	messages.Golden(t, rows)
}

func TestTargets(t *testing.T) {
	type targets struct{ always, inCluster bool }
	for ref, want := range map[[2]string]targets{
		{"ipam.cadastre.dev", "IPPool"}:                    {always: true},
		{"ipam.cadastre.dev", "LocalIPPool"}:               {always: true},
		{"ipam.cadastre.dev", "IPClass"}:                   {always: true},
		{"ipam.cluster.x-k8s.io", "InClusterIPPool"}:       {inCluster: true},
		{"ipam.cluster.x-k8s.io", "GlobalInClusterIPPool"}: {inCluster: true},
		{"ipam.cadastre.dev", "InClusterIPPool"}:           {},
		{"ipam.cadastre.dev", "IPClaim"}:                   {},
		{"ipam.cluster.x-k8s.io", "IPPool"}:                {},
		{"ipam.metal3.io", "IPPool"}:                       {},
		{"", "IPPool"}:                                     {},
	} {
		if got := (Targets{}).Has(ref[0], ref[1]); got != want.always {
			t.Errorf("%v is a target: %t", ref, got)
		}
		if got := (Targets{InCluster: true}).Has(ref[0], ref[1]); got != (want.always || want.inCluster) {
			t.Errorf("%v is a target, with the in-cluster provider's: %t", ref, got)
		}
	}
}

func TestAddressInUse(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.7": "10.0.0.7", "2001:DB8::7": "2001:db8::7", "::ffff:10.0.0.7": "10.0.0.7",
	} {
		if got, err := AddressInUse(field.NewPath("spec"), text); err != nil || got.String() != want {
			t.Errorf("AddressInUse(%q) is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "10.0.0", "10.0.0.0/24", "fe80::1%eth0", "name"} {
		if got, err := AddressInUse(field.NewPath("spec"), text); err == nil {
			t.Errorf("AddressInUse(%q) is %v", text, got)
		}
	}
}

func TestGrantRoundTrips(t *testing.T) {
	for _, given := range []ipam.Grant{{}, {PoolUID: "1-2-3"}} {
		text := GrantText(ipam.PoolNamed("p"), given)
		if got := grant(map[string]string{v1alpha1.AnnotationUseGranted: text}, "p"); got == nil || *got != given {
			t.Errorf("%q is read as %+v, want %+v", text, got, given)
		}
	}
	for _, text := range []string{"", "/", "/1-2-3", "q", "q/1-2-3", "p.q"} {
		for _, pool := range []string{"p", ""} {
			if got := grant(map[string]string{v1alpha1.AnnotationUseGranted: text}, pool); got != nil {
				t.Errorf("%q is read as %+v for pool %q, want no right", text, got, pool)
			}
		}
	}
	if grant(nil, "") != nil {
		t.Error("an object without the annotation has a right")
	}
}
