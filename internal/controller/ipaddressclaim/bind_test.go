package ipaddressclaim

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// TestGatewayOfRecordPrecedesGatewayOfPool covers a pool whose gateway was edited after an address was
// recorded.
func TestGatewayOfRecordPrecedesGatewayOfPool(t *testing.T) {
	first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for name, test := range map[string]struct {
		pool, record netip.Addr
		want         string
	}{
		"of neither":  {},
		"of the pool": {pool: first, want: "10.0.0.1"},
		"of both":     {pool: first, record: second, want: "10.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := ipam.Pool{Network: &ipam.Network{Length: 24, Gateway: test.pool}}
			length, gateway := subnet(pool, ipam.Record{Block: netip.MustParsePrefix("10.0.0.9/32"), Gateway: test.record})
			if *length != 24 || gateway != test.want {
				t.Errorf("got /%d and the gateway %q, want /24 and %q", *length, gateway, test.want)
			}
		})
	}
}

// TestOwnersOfOthersAreKept gives an IPAddress one owner: only the claim and a pool are replaced, in any
// version and life.
func TestOwnersOfOthersAreKept(t *testing.T) {
	ours, theirs := v1alpha1.GroupVersion.String(), ipamv1.GroupVersion.Group
	claim := build.AddressClaim("team", "a").Obj()
	claim.UID = "uid"
	pool := metav1.OwnerReference{APIVersion: ours, Kind: "IPPool", Name: "hosts", UID: "pool"}
	for name, test := range map[string]struct {
		owner                  metav1.OwnerReference
		isKept, isNoController bool
		version                string // of the claim; empty: the present one
	}{
		"the claim":                        {owner: metav1.OwnerReference{APIVersion: theirs + "/v1alpha1", Kind: kind, Name: "a", UID: "former"}},
		"the claim, from another provider": {owner: metav1.OwnerReference{APIVersion: theirs + "/v1beta1", Kind: kind, Name: "a", UID: "uid"}, version: "v1beta1"},
		"another claim":                    {owner: metav1.OwnerReference{APIVersion: theirs + "/v1beta2", Kind: kind, Name: "b"}, isKept: true},
		"another kind of the claim's name": {owner: metav1.OwnerReference{APIVersion: theirs + "/v1beta2", Kind: "InClusterIPPool", Name: "a"}, isKept: true},
		"another group's claim":            {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: kind, Name: "a"}, isKept: true},
		"another pool":                     {owner: metav1.OwnerReference{APIVersion: ours, Kind: "IPPool", Name: "former"}},
		"another group's pool":             {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "IPPool", Name: "hosts"}, isKept: true},
		"another kind of our group":        {owner: metav1.OwnerReference{APIVersion: ours, Kind: "IPClaim", Name: "hosts"}, isKept: true},
		"a controller":                     {owner: metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Machine", Name: "m", Controller: new(true)}, isKept: true, isNoController: true},
	} {
		t.Run(name, func(t *testing.T) {
			refs := ownerReferences([]metav1.OwnerReference{test.owner}, claim, pool)
			if len(refs) < 2 || refs[0].UID != "uid" || refs[1].UID != "pool" || *refs[0].Controller == test.isNoController {
				t.Fatalf("the owners are %+v, want the claim, as controller: %t, and the pool", refs, !test.isNoController)
			}
			if version := theirs + "/" + cmp.Or(test.version, "v1beta2"); refs[0].APIVersion != version {
				t.Errorf("the claim is of the version %s, want %s", refs[0].APIVersion, version)
			}
			if slices.Contains(refs, test.owner) != test.isKept {
				t.Errorf("the owners are %+v, want that %+v is kept: %t", refs, test.owner, test.isKept)
			}
		})
	}
}

// TestChangedMetadataIsNoticed changes one property after the other of an IPAddress.
func TestChangedMetadataIsNoticed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ipamv1.IPAddress)
		want   bool
	}{
		"nothing":                            {func(*ipamv1.IPAddress) {}, true},
		"the spec":                           {func(a *ipamv1.IPAddress) { a.Spec.Address = "10.0.0.9" }, true},
		"the order of owners":                {func(a *ipamv1.IPAddress) { slices.Reverse(a.OwnerReferences) }, true},
		"a finalizer":                        {func(a *ipamv1.IPAddress) { a.Finalizers = nil }, false},
		"a label":                            {func(a *ipamv1.IPAddress) { a.Labels = nil }, false},
		"an annotation":                      {func(a *ipamv1.IPAddress) { a.Annotations = nil }, false},
		"the number of owners":               {func(a *ipamv1.IPAddress) { a.OwnerReferences = a.OwnerReferences[:1] }, false},
		"the UID of an owner":                {func(a *ipamv1.IPAddress) { a.OwnerReferences[0].UID = "other" }, false},
		"the kind of an owner":               {func(a *ipamv1.IPAddress) { a.OwnerReferences[0].Kind = "Other" }, false},
		"the name of an owner":               {func(a *ipamv1.IPAddress) { a.OwnerReferences[0].Name = "other" }, false},
		"the version of an owner":            {func(a *ipamv1.IPAddress) { a.OwnerReferences[0].APIVersion = "v2" }, false},
		"that an owner is the controller":    {func(a *ipamv1.IPAddress) { a.OwnerReferences[0].Controller = nil }, false},
		"that an owner waits for its object": {func(a *ipamv1.IPAddress) { a.OwnerReferences[0].BlockOwnerDeletion = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			before := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{
				Finalizers: []string{"f"}, Labels: map[string]string{"l": ""}, Annotations: map[string]string{"a": ""},
				OwnerReferences: []metav1.OwnerReference{
					{APIVersion: "v1", Kind: "A", Name: "a", UID: "a", Controller: new(true), BlockOwnerDeletion: new(true)},
					{APIVersion: "v1", Kind: "B", Name: "b", UID: "b"},
				},
			}}
			changed := before.DeepCopy()
			test.change(changed)
			if got := sameMetadata(before, changed); got != test.want {
				t.Errorf("the metadata are the same: %t, want %t", got, test.want)
			}
		})
	}
}

// TestAddressInStatusIsLookedForLive uses a claim whose record is lost.
func TestAddressInStatusIsLookedForLive(t *testing.T) {
	there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme)).WithObjects(address("a", "10.0.0.4")).Build()
	c := attachReplica(emptyAllocator(t), &Controller{Live: there})
	for name, want := range map[string]error{"": nil, "a": errNotSeen} {
		s := &scope{name: ipam.Name{Namespace: story.Team, Name: "a"}, claim: claim("a").Obj()}
		s.claim.Status.AddressRef.Name = name
		if err := c.checkNew(t.Context(), s); !errors.Is(err, want) {
			t.Errorf("the status names %q: got %v, want %v", name, err, want)
		}
	}
}
