package incluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// world holds a cluster in which the pools of the in-cluster provider can be served.
type world struct{ *suite.World }

func start(t *testing.T, options cluster.Options) *world {
	options.ClusterAPI, options.ControllerManager = true, true
	options.Manifests = filepath.Join(suite.ModuleRoot(t), "config", "overlays", "in-cluster-pools")
	w := &world{suite.Start(t, options)}
	w.Namespace("site")
	return w
}

// served are the arguments of an operator that serves the pools.
func served() []string { return []string{"--in-cluster-pools", "--orphan-grace=5s"} }

func pool(name string, prefix int, addresses ...string) *incluster.InClusterIPPool {
	return &incluster.InClusterIPPool{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: name},
		Spec:       provider.InClusterIPPoolSpec{Addresses: addresses, Prefix: prefix},
	}
}

func claim(name, pool string) *ipamv1.IPAddressClaim {
	return build.AddressClaim("site", name).From(incluster.GroupVersion.Group, "InClusterIPPool", pool).Obj()
}

// address returns the IPAddress of a claim.
func (w *world) address(name string) *ipamv1.IPAddress {
	w.Helper()
	address := &ipamv1.IPAddress{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: "site", Name: name}, address))
	return address
}

// counted waits until the status of a pool has these counts: total, free, used.
func (w *world) counted(obj incluster.Pool, total, free, used string) {
	w.Helper()
	w.Await(fmt.Sprintf("%s counts %s, %s free, %s used", obj.GetName(), total, free, used), func(ctx context.Context) bool {
		if err := w.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return false
		}
		c := obj.PoolStatus().Capacity
		return c != nil && c.Total == total && c.Available == free && c.Allocated == used
	})
}

// says waits until a condition of a pool has a reason and a message that contains a text.
func (w *world) says(obj incluster.Pool, condition, reason, text string) {
	w.Helper()
	w.Await(fmt.Sprintf("the condition %s of %s is %s: %s", condition, obj.GetName(), reason, text), func(ctx context.Context) bool {
		if err := w.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return false
		}
		c := meta.FindStatusCondition(obj.PoolStatus().Conditions, condition)
		return c != nil && c.Reason == reason && strings.Contains(c.Message, text)
	})
}

// refused fails the test unless an error has all of the texts.
func refused(t *testing.T, err error, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("got %v, want that it says %q", err, text)
		}
	}
}

func TestInClusterPools(t *testing.T) {
	w := start(t, cluster.Options{Managers: 2, ManagerArgs: served()})
	suite.Steps(t, func(t *testing.T) *world { return &world{w.For(t)} },
		suite.Step[*world]{Name: "addresses are handed out as the provider does", Run: (*world).handedOut},
		suite.Step[*world]{Name: "each object is replaced by its manifest", Run: (*world).isReplaced},
		suite.Step[*world]{Name: "a pool in use is protected", Run: (*world).isProtected},
		suite.Step[*world]{Name: "an address that exists outside of the pool is not handed out again", Run: (*world).keepsOutOfRange},
		suite.Step[*world]{Name: "pools share what is free", Run: (*world).sharesAddresses},
		suite.Step[*world]{Name: "a pool of many blocks has several records", Run: (*world).hasSeveralRecords},
		suite.Step[*world]{Name: "the kubectl plug-in shows the pools", Run: (*world).isShown},
		suite.Step[*world]{Name: "no address is handed out while the provider renews its lease", Run: (*world).heedsLease},
		suite.Step[*world]{Name: "the provider for Proxmox accepts the pools", Run: (*world).isAcceptedByProxmox},
		suite.Step[*world]{Name: "invalid pools are refused", Run: (*world).refusesInvalid},
	)
}

// isReplaced replaces the pool, the claim and what the operator has made for it by their manifests, with the fields
// that a user writes and no others.
func (w *world) isReplaced() {
	machines, machine := pool("machines", 24, "10.0.0.10-10.0.0.12"), claim("machine", "machines")
	w.Created(machines)
	w.counted(machines, "3", "3", "0")
	w.Created(machine)
	w.Served(machine)
	records := &v1alpha1.IPAllocationList{}
	suite.Must(w, w.List(w.Context(), records, client.InNamespace("site")))
	file := filepath.Join(w.TempDir(), "manifest.json")
	for _, name := range []string{"inclusterippools/machines", "ipaddressclaims/machine", "ipaddresses.ipam.cluster.x-k8s.io/machine", "ipallocations/" + records.Items[0].Name} {
		before := w.manifest(name)
		written := map[string]any{
			"apiVersion": before["apiVersion"], "kind": before["kind"], "spec": before["spec"],
			"metadata": map[string]any{"namespace": "site", "name": path.Base(name)},
		}
		if before["kind"] == "IPAllocation" { // users write none: it is replaced as it is stored
			written = before
		}
		text, err := json.Marshal(written)
		suite.Must(w, err)
		suite.Must(w, os.WriteFile(file, text, 0o600))
		w.RunKubectl("replace", "-f", file)
		w.Await(name+" is as before", func(context.Context) bool {
			after := w.manifest(name)
			return equality.Semantic.DeepEqual(meaning(before), meaning(after))
		})
	}
	w.Deleted(machine)
	w.Gone(machine)
	w.counted(machines, "3", "3", "0")
	w.Deleted(machines)
	w.Gone(machines)
}

// manifest returns an object of the namespace as it is stored.
func (w *world) manifest(name string) map[string]any {
	w.Helper()
	obj := map[string]any{}
	suite.Must(w, json.Unmarshal([]byte(w.RunKubectl("get", "-n", "site", name, "-o", "json")), &obj))
	return obj
}

// meaning returns the fields of a manifest that are the same before and after it is replaced.
func meaning(manifest map[string]any) []any {
	metadata := manifest["metadata"].(map[string]any)
	return []any{manifest["spec"], manifest["status"], metadata["finalizers"], metadata["ownerReferences"], metadata["generation"]}
}

func (w *world) handedOut() {
	machines := pool("machines", 24, "10.0.0.10-10.0.0.12", "10.0.0.16/31")
	machines.Spec.Gateway, machines.Spec.ExcludedAddresses = "10.0.0.1", []string{"10.0.0.11"}
	w.Created(machines)
	w.counted(machines, "4", "4", "0")
	selecting := build.Claim("site", "selecting").Obj()
	selecting.Spec.PoolSelector = &v1alpha1.PoolSelector{MatchExpressions: []v1alpha1.PoolSelectorExpression{{Key: "zone", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	w.Created(selecting)
	if selecting.Status.Phase == v1alpha1.ClaimBound {
		w.Errorf("an IPClaim has %s of a pool of the in-cluster provider", selecting.Status.AllocatedCIDR)
	}
	w.Deleted(selecting)
	first := claim("first", "machines")
	w.Created(first)
	w.Served(first)
	address := w.address("first")
	if got := address.Spec; got.Address != "10.0.0.10" || got.Gateway != "10.0.0.1" || *got.Prefix != 24 {
		w.Errorf("the IPAddress has %+v", got)
	}
	if !slices.Equal(address.Finalizers, []string{incluster.FinalizerProtect}) || len(address.Labels)+len(address.Annotations) > 0 || len(address.OwnerReferences) != 2 {
		w.Errorf("the IPAddress has the metadata %+v", address.ObjectMeta)
	}
	if !slices.Equal(first.Finalizers, []string{incluster.FinalizerRelease}) {
		w.Errorf("the claim has the finalizers %q", first.Finalizers)
	}
	w.counted(machines, "4", "3", "1")
	w.Deleted(first)
	w.Gone(first, address)
	w.counted(machines, "4", "4", "0")
	w.Deleted(machines)
	w.Gone(machines)

	global := &incluster.GlobalInClusterIPPool{ObjectMeta: metav1.ObjectMeta{Name: "global"}}
	global.Spec = provider.InClusterIPPoolSpec{Addresses: []string{"2001:db8::/64"}, Prefix: 64, Gateway: "fe80::1"}
	w.Created(global)
	second := build.AddressClaim("site", "second").From(incluster.GroupVersion.Group, "GlobalInClusterIPPool", "global").Obj()
	w.Created(second)
	w.Served(second)
	if got := w.address("second").Spec; got.Address != "2001:db8::1" || got.Gateway != "fe80::1" || *got.Prefix != 64 {
		w.Errorf("the IPAddress has %+v", got)
	}
	w.counted(global, "9223372036854775807", "9223372036854775807", "1")
	w.Deleted(second)
	w.Gone(second)
	w.Deleted(global)
	w.Gone(global)
}

func (w *world) isProtected() {
	used := pool("used", 24, "10.1.0.10-10.1.0.20")
	w.Created(used)
	held := claim("held", "used")
	w.Created(held)
	w.Served(held)
	refused(w.TB.(*testing.T), w.Delete(w.Context(), used), "IPAddressClaim site/held")
	smaller := used.DeepCopy()
	smaller.Spec.Addresses = []string{"10.1.0.15-10.1.0.20"}
	refused(w.TB.(*testing.T), w.Patch(w.Context(), smaller, client.MergeFrom(used)), "spec.addresses", "10.1.0.10 of IPAddressClaim site/held", "have them released first")
	grown := used.DeepCopy()
	grown.Spec.Addresses = []string{"10.1.0.10", "10.1.0.30-10.1.0.31"}
	suite.Must(w, w.Patch(w.Context(), grown, client.MergeFrom(used)))
	w.counted(used, "3", "2", "1")
	next := claim("next", "used")
	w.Created(next)
	w.Served(next)
	if got := w.address("next").Spec.Address; got != "10.1.0.30" {
		w.Errorf("after the edit the next claim has %s", got)
	}
	// Two records at most, in the end one, are what the pool has.
	w.Await("what the pool had before is released", func(ctx context.Context) bool { return len(w.ownRecords(ctx, "used")) == 1 })
	suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(used), used))
	moved := used.DeepCopy()
	metav1.SetMetaDataAnnotation(&moved.ObjectMeta, incluster.AnnotationSkipDeleteCheck, "")
	suite.Must(w, w.Patch(w.Context(), moved, client.MergeFrom(used)))
	w.Deleted(moved)
	w.says(used, v1alpha1.ConditionReady, v1alpha1.ReasonTerminating, "")
	w.Deleted(held, next)
	w.Gone(held, next, used)
	w.Await("the pool's own record is released", func(ctx context.Context) bool { return len(w.ownRecords(ctx, "used")) == 0 })
}

// keepsOutOfRange makes an IPAddress outside of its pool, as the provider leaves it after an edit that its
// webhook has missed.
func (w *world) keepsOutOfRange() {
	small := pool("small", 24, "10.6.0.10-10.6.0.20")
	w.Created(small)
	w.counted(small, "11", "11", "0")
	outside := &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "outside", Finalizers: []string{incluster.FinalizerProtect}}}
	outside.Spec = ipamv1.IPAddressSpec{
		Address: "10.6.0.21", Prefix: new(int32(24)), ClaimRef: ipamv1.IPAddressClaimReference{Name: "outside"},
		PoolRef: claim("outside", "small").Spec.PoolRef,
	}
	of := claim("outside", "small")
	w.Created(outside, of)
	w.counted(small, "11", "11", "1")
	before := small.DeepCopy()
	small.Spec.Addresses = []string{"10.6.0.20-10.6.0.22"}
	suite.Must(w, w.Patch(w.Context(), small, client.MergeFrom(before)))
	w.Served(of)
	w.counted(small, "3", "2", "1")
	first, second := claim("beside", "small"), claim("beside-2", "small")
	w.Created(first, second)
	w.Served(first, second)
	for _, name := range []string{"beside", "beside-2"} {
		if got := w.address(name).Spec.Address; got == "10.6.0.21" {
			w.Errorf("%s has the address of the other claim", name)
		}
	}
	w.Deleted(of, first, second)
	w.Gone(of, first, second)
	w.Deleted(small)
	w.Gone(small)
}

// ownRecords returns the own records of a pool.
func (w *world) ownRecords(ctx context.Context, pool string) []v1alpha1.IPAllocation {
	records := &v1alpha1.IPAllocationList{}
	if err := w.List(ctx, records, client.InNamespace(cluster.Namespace)); err != nil {
		return nil
	}
	return slices.DeleteFunc(records.Items, func(r v1alpha1.IPAllocation) bool { return r.Spec.ClaimRef.Name != pool })
}

func (w *world) sharesAddresses() {
	older, younger := pool("older", 24, "10.2.0.10-10.2.0.20"), pool("younger", 24, "10.2.0.15-10.2.0.25")
	w.Created(older)
	w.counted(older, "11", "11", "0")
	w.Created(younger)
	w.counted(younger, "5", "5", "0")
	w.says(younger, v1alpha1.ConditionAllocated, v1alpha1.ReasonRecorded, "but for those of InClusterIPPool site/older")
	same := pool("same", 24, "10.2.0.11")
	w.Created(same)
	w.says(same, v1alpha1.ConditionReady, v1alpha1.ReasonConflict, "older")
	w.Deleted(older)
	w.Gone(older)
	w.counted(younger, "11", "11", "0")
	w.counted(same, "1", "1", "0")
	w.Deleted(younger, same)
	w.Gone(younger, same)
}

func (w *world) hasSeveralRecords() {
	var addresses []string
	for i := range 100 {
		addresses = append(addresses, fmt.Sprintf("10.3.0.%d", 2*i+1))
	}
	many := pool("many", 24, addresses...)
	w.Created(many)
	w.counted(many, "100", "100", "0")
	if records := w.ownRecords(w.Context(), "many"); len(records) != 2 {
		w.Errorf("it has %d own records, want 2", len(records))
	}
	before := many.DeepCopy()
	many.Spec.Addresses = addresses[50:]
	suite.Must(w, w.Patch(w.Context(), many, client.MergeFrom(before)))
	w.counted(many, "50", "50", "0")
	w.Await("one own record is left", func(ctx context.Context) bool { return len(w.ownRecords(ctx, "many")) == 1 })
	w.Deleted(many)
	w.Gone(many)
}

// heedsLease plays the provider that elects a leader: it cannot run outside of a cluster.
func (w *world) heedsLease() {
	w.Namespace("capi-ipam-in-cluster-system")
	leased := pool("leased", 24, "10.5.0.10-10.5.0.20")
	earlier := claim("earlier", "leased")
	w.Created(leased, earlier)
	w.Served(earlier)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "capi-ipam-in-cluster-system", Name: "7bb7acb4.ipam.cluster.x-k8s.io"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("provider"), LeaseDurationSeconds: new(int32(3600)), RenewTime: new(metav1.NowMicro())},
	}
	w.Created(lease)
	w.says(leased, v1alpha1.ConditionReady, v1alpha1.ReasonProviderRunning, "the in-cluster provider hands out")
	next := claim("next-leased", "leased")
	w.Created(next)
	w.isShownAsProvided("leased")
	w.Deleted(earlier)
	w.Gone(earlier) // releases go on
	suite.Must(w, w.Get(w.Context(), client.ObjectKeyFromObject(next), next))
	if next.Status.AddressRef.Name != "" || len(next.Status.Conditions) > 0 {
		w.Errorf("beside the provider the claim has the status %+v", next.Status)
	}
	w.Deleted(lease)
	w.Served(next)
	w.says(leased, v1alpha1.ConditionReady, v1alpha1.ReasonReady, "")
	w.Deleted(next)
	w.Gone(next)
	w.Deleted(leased)
	w.Gone(leased)
}

// isAcceptedByProxmox makes a machine of the provider for Proxmox, whose rules accept no other kinds of pools.
func (w *world) isAcceptedByProxmox() {
	suite.Must(w, w.InstallProxmox(w.Context()))
	vms := pool("vms", 24, "10.4.0.10-10.4.0.20")
	w.Created(vms)
	w.counted(vms, "11", "11", "0")
	machine := func(group, kind string) *unstructured.Unstructured {
		ref := map[string]any{"apiGroup": group, "kind": kind, "name": "vms"}
		network := map[string]any{"default": map[string]any{"bridge": "vmbr0", "model": "virtio", "ipv4PoolRef": ref}}
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "infrastructure.cluster.x-k8s.io/v1alpha1", "kind": "ProxmoxMachine",
			"metadata": map[string]any{"namespace": "site", "name": "vm"},
			"spec":     map[string]any{"sourceNode": "pve", "templateID": int64(100), "network": network},
		}}
	}
	refused(w.TB.(*testing.T), w.Create(w.Context(), machine(v1alpha1.GroupVersion.Group, "IPPool")), "allows only IPAM apiGroup")
	w.Created(machine(incluster.GroupVersion.Group, string(vms.PoolKind())))
	w.Deleted(vms)
	w.Gone(vms)
}

func (w *world) refusesInvalid() {
	t := w.TB.(*testing.T)
	mixed := pool("mixed", 24, "10.0.0.1", "10.9.0.1", "x", "2001:db8::1")
	refused(t, w.Create(w.Context(), mixed), "spec.addresses[2]", `"x"`, "is not an address, range or CIDR")
	mixed.Spec.Addresses = []string{"10.0.0.1", "10.9.0.1", "2001:db8::1"}
	refused(t, w.Create(w.Context(), mixed), "spec.addresses[1]", "lies outside 10.0.0.0/24", "spec.addresses[2]")
	refused(t, w.Create(w.Context(), pool("empty", 24, []string{}...)), "spec.addresses", "set at least one")
	refused(t, w.Create(w.Context(), pool("long", 33, "10.0.0.1")), "spec.prefix", "between 0 and 32")
	gateway := pool("gateway", 24, "10.0.0.1")
	gateway.Spec.Gateway = "fe80::1"
	refused(t, w.Create(w.Context(), gateway), "spec.gateway", "is not of the family")
	native := build.Claim("site", "native").Obj()
	native.Spec.PoolRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindInClusterIPPool, Name: "machines"}
	refused(t, w.Create(w.Context(), native), "poolRef.kind")
}
