package addresses

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const notServed = ": its IPAM provider has not served it"

func TestEnsureCreatesClaimAsContractRequires(t *testing.T) {
	w := newWorld(t)
	w.machine.Devices[0].Labels = map[string]string{"rack": "r1"}
	w.machine.Devices[0].Annotations = map[string]string{"ipam.cadastre.dev/sticky": "web"}
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	claim := w.claim("web-eth0-0")
	w.equal("spec", claim.Spec, ipamv1.IPAddressClaimSpec{ClusterName: "example", PoolRef: v4})
	w.equal("labels", claim.Labels, map[string]string{clusterv1.ClusterNameLabel: "example", "rack": "r1"})
	w.equal("annotations", claim.Annotations, map[string]string{"ipam.cadastre.dev/sticky": "web"})
	w.equal("owners", claim.OwnerReferences, []metav1.OwnerReference{{
		APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: "uid-of-web", Controller: new(true), BlockOwnerDeletion: new(true),
	}})
}

func TestEnsureReturnsBothFamiliesInOrder(t *testing.T) {
	w := newWorld(t)
	w.machine.Devices = []Device{
		{Name: "eth1", Pools: []ipamv1.IPPoolReference{v6, v4}},
		{Name: "dhcp"},
		{Name: "eth0", Pools: []ipamv1.IPPoolReference{v4, v4}},
	}
	w.waits(
		"IPAddressClaim web-eth1-0 has no address yet"+notServed,
		"IPAddressClaim web-eth1-1 has no address yet"+notServed,
		"IPAddressClaim web-eth0-0 has no address yet"+notServed,
		"IPAddressClaim web-eth0-1 has no address yet"+notServed,
	)
	w.serve("web-eth1-0", "2001:db8::5", 64, "fe80::1")
	w.serve("web-eth1-1", "10.0.0.5", 24, "10.0.0.1")
	w.serve("web-eth0-0", "10.0.1.6", 24, "")
	w.waits("IPAddressClaim web-eth0-1 has no address yet" + notServed)
	w.serve("web-eth0-1", "10.0.1.7", 24, "")
	addresses := w.ready("eth1 2001:db8::5/64", "eth1 10.0.0.5/24", "eth0 10.0.1.6/24", "eth0 10.0.1.7/24")
	w.equal("gateway", addresses[0].Gateway.String(), "fe80::1")
	w.equal("pool", addresses[1].Pool, v4)
	w.equal("claim", addresses[3].Claim, "web-eth0-1")
	if addresses[2].Gateway.IsValid() {
		t.Errorf("a pool without gateway has the gateway %s", addresses[2].Gateway)
	}
}

func TestEnsureReportsMessageOfClaim(t *testing.T) {
	for name, report := range map[string]func(*ipamv1.IPAddressClaim){
		"v1beta2": func(claim *ipamv1.IPAddressClaim) {
			claim.SetConditions([]metav1.Condition{{Type: "Ready", Status: "False", Reason: "PoolExhausted", Message: "the pool is full"}})
		},
		"v1beta1": func(claim *ipamv1.IPAddressClaim) {
			conditions := clusterv1.Conditions{{Type: "Other", Message: "other"}, {Type: "Ready", Message: "the pool is full"}} //nolint:staticcheck // IPAM providers of v1beta1 set it
			claim.SetV1Beta1Conditions(conditions)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
			claim := w.claim("web-eth0-0")
			report(claim)
			w.do(w.Status().Update(t.Context(), claim))
			w.waits("IPAddressClaim web-eth0-0 has no address yet: the pool is full")
		})
	}
}

func TestEnsureFindsClaimThatCacheDoesNotShow(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	w.serve("web-eth0-0", "10.0.0.5", 24, "")
	w.hide()
	w.waits("IPAddress web-eth0-0 of IPAddressClaim web-eth0-0 does not exist")
	w.cache.Get = nil
	w.ready("eth0 10.0.0.5/24")
}

func TestEnsureKeepsForeignClaim(t *testing.T) {
	const want = "device eth0: IPAddressClaim web-eth0-0 does not belong to the machine: delete it, or make a machine with another name"
	reference := func(name string, controller bool) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: "uid-of-web", Controller: &controller}
	}
	other := metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "uid-of-other", Controller: new(true)}
	earlier := reference("web", true)
	earlier.UID = "uid-of-earlier"
	for name, owners := range map[string][]metav1.OwnerReference{
		"without an owner":                           nil,
		"of another owner":                           {other},
		"of an earlier machine with the name":        {earlier},
		"of this machine with another as controller": {other, reference("web", false)},
	} {
		for _, hidden := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				w := newWorld(t)
				w.do(w.Create(t.Context(), &ipamv1.IPAddressClaim{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-eth0-0", OwnerReferences: owners},
					Spec:       ipamv1.IPAddressClaimSpec{PoolRef: v4},
				}))
				if hidden {
					w.hide()
				}
				w.fails(ErrForeignClaim, want)
				w.equal("owners", w.claim("web-eth0-0").OwnerReferences, owners)
				waiting, err := w.machine.Release(t.Context())
				w.do(err)
				w.equal("waiting", waiting, []string(nil))
				w.claims("web-eth0-0")
			})
		}
	}
}

// TestEnsureCompletesClaimOfEarlierVersion uses a claim as providers make it without this package.
func TestEnsureCompletesClaimOfEarlierVersion(t *testing.T) {
	w := newWorld(t)
	w.do(w.Create(t.Context(), &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "web-eth0-0", Finalizers: []string{"kept"}, Labels: map[string]string{"kept": ""},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Secret", Name: "other", UID: "uid-of-other"},
				{APIVersion: "v0", Kind: "ConfigMap", Name: "web", UID: "uid-of-web"},
			},
		},
		Spec: ipamv1.IPAddressClaimSpec{PoolRef: v4},
	}))
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	claim := w.claim("web-eth0-0")
	w.equal("labels", claim.Labels, map[string]string{clusterv1.ClusterNameLabel: "example", "kept": ""})
	w.equal("finalizers", claim.Finalizers, []string{"kept"})
	w.equal("owners", claim.OwnerReferences, []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "Secret", Name: "other", UID: "uid-of-other"},
		{APIVersion: "v1", Kind: "ConfigMap", Name: "web", UID: "uid-of-web", Controller: new(true), BlockOwnerDeletion: new(true)},
	})
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	w.equal("version after a second pass", w.claim("web-eth0-0").ResourceVersion, claim.ResourceVersion)
}

// TestEnsureKeepsOwnersThatCacheDoesNotShow changes a claim between the read and the patch, which
// replaces the whole list of owners.
func TestEnsureKeepsOwnersThatCacheDoesNotShow(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	claim := w.claim("web-eth0-0")
	claim.OwnerReferences[0].Controller = nil
	w.do(w.Update(t.Context(), claim))
	w.cache.Get = func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, _ ...client.GetOption) error {
		w.do(c.Get(ctx, key, object))
		current := w.claim("web-eth0-0")
		current.OwnerReferences = append(current.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Secret", Name: "other", UID: "uid-of-other"})
		return c.Update(ctx, current)
	}
	_, _, err := w.machine.Ensure(t.Context())
	if !apierrors.IsConflict(err) {
		t.Errorf("the error is %v, want a conflict", err)
	}
	w.equal("owners", len(w.claim("web-eth0-0").OwnerReferences), 2)
}

func TestEnsureKeepsClaimOfAnotherPoolOrCluster(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Machine)
		want   string
	}{
		"pool": {
			change: func(m *Machine) { m.Devices[0].Pools = []ipamv1.IPPoolReference{v6} },
			want:   "device eth0: IPAddressClaim web-eth0-0 cannot change its pool or its Cluster: it is for the Pool v4, not the Pool v6: make a new machine, or a device with another name",
		},
		"Cluster": {
			change: func(m *Machine) { m.ClusterName = "other" },
			want:   "device eth0: IPAddressClaim web-eth0-0 cannot change its pool or its Cluster: it is for the Cluster example, not other: make a new machine",
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
			w.serve("web-eth0-0", "10.0.0.5", 24, "")
			before := w.claim("web-eth0-0")
			test.change(w.machine)
			w.fails(ErrClaimChanged, test.want)
			w.equal("claim", w.claim("web-eth0-0"), before)
		})
	}
}

func TestEnsureReportsErrorsOfAllDevices(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	w.machine.Devices = []Device{
		{Name: "eth0", Pools: []ipamv1.IPPoolReference{v6}},
		{Name: "eth1", Pools: []ipamv1.IPPoolReference{v4}},
	}
	w.fails(ErrClaimChanged, "device eth0: IPAddressClaim web-eth0-0 cannot change its pool or its Cluster: it is for the Pool v4, not the Pool v6: make a new machine, or a device with another name")
	w.claims("web-eth0-0", "web-eth1-0")
}

func TestEnsureWaitsForDeletedClaim(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	address := w.serve("web-eth0-0", "10.0.0.5", 24, "")
	w.do(w.Delete(t.Context(), w.claim("web-eth0-0")))
	before := w.claim("web-eth0-0")
	w.machine.Devices[0].Labels = map[string]string{"rack": "r1"}
	w.waits("IPAddressClaim web-eth0-0 is being deleted")
	w.equal("claim", w.claim("web-eth0-0"), before)
	w.freed("web-eth0-0")
	w.do(w.Delete(t.Context(), address))
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	w.serve("web-eth0-0", "10.0.0.6", 24, "")
	w.ready("eth0 10.0.0.6/24")
}

func TestEnsureWaitsForIPAddress(t *testing.T) {
	w := newWorld(t)
	w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
	address := w.serve("web-eth0-0", "10.0.0.5", 24, "")

	earlier := address.DeepCopy()
	earlier.OwnerReferences[0].UID = "uid-of-earlier"
	earlier.Finalizers = []string{providerFinalizer}
	w.do(w.Update(t.Context(), earlier))
	w.waits("IPAddress web-eth0-0 belongs to an earlier IPAddressClaim web-eth0-0")

	w.do(w.Delete(t.Context(), earlier))
	w.waits("IPAddress web-eth0-0 is being deleted")

	earlier.Finalizers = nil
	w.do(w.Get(t.Context(), client.ObjectKeyFromObject(earlier), earlier))
	earlier.Finalizers = nil
	w.do(w.Update(t.Context(), earlier))
	w.waits("IPAddress web-eth0-0 of IPAddressClaim web-eth0-0 does not exist")
}

func TestEnsureRejectsInvalidIPAddress(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*ipamv1.IPAddressSpec)
		want   string
	}{
		"another claim": {
			change: func(s *ipamv1.IPAddressSpec) { s.ClaimRef.Name = "other" },
			want:   "it is for the IPAddressClaim other, not web-eth0-0",
		},
		"another pool": {
			change: func(s *ipamv1.IPAddressSpec) { s.PoolRef = v6 },
			want:   "it is from the Pool v6, not the Pool v4",
		},
		"no address": {
			change: func(s *ipamv1.IPAddressSpec) { s.Address = "10.0.0" },
			want:   `ParseAddr("10.0.0"): IPv4 address too short`,
		},
		"no prefix": {
			change: func(s *ipamv1.IPAddressSpec) { s.Prefix = nil },
			want:   "it has no prefix",
		},
		"a prefix of the other family": {
			change: func(s *ipamv1.IPAddressSpec) { s.Prefix = new(int32(64)) },
			want:   "10.0.0.5 cannot have the prefix length 64",
		},
		"no gateway": {
			change: func(s *ipamv1.IPAddressSpec) { s.Gateway = "10.0.0" },
			want:   `ParseAddr("10.0.0"): IPv4 address too short`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
			address := w.serve("web-eth0-0", "10.0.0.5", 24, "10.0.0.1")
			test.change(&address.Spec)
			w.do(w.Update(t.Context(), address))
			w.fails(ErrInvalidAddress, "device eth0: IPAddress web-eth0-0 is not valid for its claim: "+test.want)
		})
	}
}

func TestEnsureCreatesNothingForInvalidMachine(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Machine)
		want   string
	}{
		"that is being deleted": {
			change: func(m *Machine) { m.Owner.SetDeletionTimestamp(new(metav1.Now())) },
			want:   "web is being deleted: release its addresses",
		},
		"without finalizer": {
			change: func(m *Machine) { m.Owner.SetFinalizers(nil) },
			want:   "web has no finalizer: add one before it gets addresses",
		},
		"without Cluster": {
			change: func(m *Machine) { m.ClusterName = "" },
			want:   "the machine has no ClusterName: wait until its Cluster is known",
		},
		"with equal devices": {
			change: func(m *Machine) { m.Devices = append(m.Devices, m.Devices[0]) },
			want:   `the device name "eth0" is empty or not unique: rename the device`,
		},
		"with a device without name": {
			change: func(m *Machine) { m.Devices[0].Name = "" },
			want:   `the device name "" is empty or not unique: rename the device`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.change(w.machine)
			w.fails(nil, test.want)
			w.claims()
		})
	}
}

func TestEnsureReturnsErrorsOfCalls(t *testing.T) {
	for call, want := range map[string]string{
		"get *v1beta2.IPAddressClaim": "claiming an address for device eth0: the API server is away",
		"get *v1beta2.IPAddress":      "reading IPAddress web-eth0-0: the API server is away",
		"create":                      "claiming an address for device eth1: the API server is away",
		"patch":                       "adding metadata to IPAddressClaim web-eth0-0: the API server is away",
	} {
		t.Run(call, func(t *testing.T) {
			w := newWorld(t)
			w.waits("IPAddressClaim web-eth0-0 has no address yet" + notServed)
			w.serve("web-eth0-0", "10.0.0.5", 24, "")
			switch call {
			case "create":
				w.machine.Devices = []Device{{Name: "eth1", Pools: []ipamv1.IPPoolReference{v4}}}
			case "patch":
				w.machine.Devices[0].Labels = map[string]string{"rack": "r1"}
			}
			w.failing = call
			w.fails(errFailing, want)
		})
	}
}

func TestEnsureFailsIfOwnerCannotBeSet(t *testing.T) {
	w := newWorld(t)
	w.do(w.Create(t.Context(), &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web-eth0-0", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "web", UID: "uid-of-web"},
		}},
		Spec: ipamv1.IPAddressClaimSpec{PoolRef: v4},
	}))
	meta := w.machine.Owner.(*corev1.ConfigMap).ObjectMeta
	w.machine.Owner = &clusterv1.Cluster{ObjectMeta: meta} // the scheme does not have its kind
	for _, device := range []string{"eth0", "eth1"} {
		w.machine.Devices[0].Name = device
		if _, _, err := w.machine.Ensure(t.Context()); err == nil {
			t.Errorf("%s: no error", device)
		}
	}
	w.claims("web-eth0-0")
}

func TestInstancesOfPoolHaveTheirOwnClaims(t *testing.T) {
	w := newWorld(t)
	one, two := *w.machine, *w.machine
	one.Instance, two.Instance = "one", "two"
	w.machine = &one
	w.waits("IPAddressClaim web-one-eth0-0 has no address yet" + notServed)
	w.equal("label", w.claim("web-one-eth0-0").Labels[InstanceLabel], "one")
	w.serve("web-one-eth0-0", "10.0.0.5", 24, "")
	w.machine = &two
	w.waits("IPAddressClaim web-two-eth0-0 has no address yet" + notServed)
	two.Devices = nil
	waiting, err := two.ReleaseRemoved(t.Context())
	w.do(err)
	w.equal("waiting", waiting, []string{"IPAddressClaim web-two-eth0-0 is being deleted"})
	w.claims("web-one-eth0-0")
	w.machine = &one
	w.ready("eth0 10.0.0.5/24")

	// The names of the claims are equal, the instances are not.
	clash := one
	clash.Instance, clash.Devices = "one-eth0", []Device{{Name: "0", Pools: []ipamv1.IPPoolReference{v4}}}
	one.Devices = []Device{{Name: "eth0-0", Pools: []ipamv1.IPPoolReference{v4}}}
	w.waits("IPAddressClaim web-one-eth0-0-0 has no address yet" + notServed)
	w.machine = &clash
	w.fails(ErrForeignClaim, "device 0: IPAddressClaim web-one-eth0-0-0 does not belong to the machine: delete it, or make a machine with another name")
}
