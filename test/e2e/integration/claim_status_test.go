package integration

import (
	"context"
	"net/netip"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// The status of a claim is in the answer to its create call, and only the operator writes it from
// then on. This topic has 10.127.0.0/16.
var _ = Describe("The status of a claim", Ordered, func() {
	const team, operator = "claim-status", "system:serviceaccount:cadastre-system:cadastre-controller-manager"
	var forged v1alpha1.IPClaimStatus

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Pool(ctx, k8s, build.Pool("claim-status").CIDR("10.127.0.0/20").Obj())
		hosts := build.Pool("claim-status-hosts").CIDR("10.127.16.0/24").Network(20, "10.127.16.1").Obj()
		hosts.Spec.Network.HostSettings = v1alpha1.HostSettings{
			DNSServers: []string{"10.127.16.2", "2001:db8::53"}, SearchDomains: []string{"example.com"}, MTU: 9000, VLAN: 42,
		}
		specs.Pool(ctx, k8s, hosts)
		specs.Pool(ctx, k8s, build.Pool("claim-status-full").CIDR("10.127.32.0/30").Obj())
		specs.Created(ctx, k8s, build.Claim(team, "all").Pool("claim-status-full").Length(30).Obj())
		forged = v1alpha1.IPClaimStatus{
			Phase: v1alpha1.ClaimBound, AllocatedCIDR: "10.0.0.0/8", BoundAllocationRef: &v1alpha1.AllocationReference{Name: "forged"},
			PoolRef:    &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "forged"},
			Conditions: []metav1.Condition{{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Forged", LastTransitionTime: metav1.Now()}},
		}
	})

	// conditionReasons returns the conditions that every claim has.
	conditionReasons := func(claim *v1alpha1.IPClaim) map[string]string {
		GinkgoHelper()
		for _, c := range claim.Status.Conditions {
			Expect(c.LastTransitionTime.Time).To(BeTemporally("~", claim.CreationTimestamp.Time, 10*time.Second))
			Expect(c.Message).NotTo(BeEmpty())
		}
		return reasons(claim.Status.Conditions)
	}

	It("is complete in the answer to the create call", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "block").Pool("claim-status").Length(28).Obj())
		Expect(conditionReasons(claim)).To(Equal(map[string]string{"Ready": "True/Bound", "Bound": "True/Bound"}))
		claim.Status.Conditions = nil
		Expect(claim.Status).To(Equal(v1alpha1.IPClaimStatus{
			Phase: v1alpha1.ClaimBound, AllocatedCIDR: claim.Spec.CIDR, PoolRef: &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "claim-status"},
			BoundAllocationRef: &v1alpha1.AllocationReference{Name: claim.Spec.AllocationName},
		}))
	})

	It("shows how to configure a host with an address", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "host").Pool("claim-status-hosts").Obj())
		Expect(claim.Status.Address).To(Equal(strings.TrimSuffix(claim.Spec.CIDR, "/32")))
		Expect(claim.Status.Network).To(Equal(&v1alpha1.ClaimNetwork{PrefixLength: 20, Gateway: "10.127.16.1", HostSettings: v1alpha1.HostSettings{
			DNSServers: []string{"10.127.16.2", "2001:db8::53"}, SearchDomains: []string{"example.com"}, MTU: 9000, VLAN: 42,
		}}))
		pool := build.Pool("claim-status-hosts").Obj()
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Spec.Network.MTU = 1500 })
		Eventually(func(g Gomega) { // a change counts for later addresses
			later := build.Claim(team, "").Pool("claim-status-hosts").Obj()
			later.GenerateName = "later-"
			g.Expect(k8s.Create(ctx, later)).To(Succeed())
			g.Expect(later.Status.Network.MTU).To(BeEquivalentTo(1500))
		}).Should(Succeed())
		Expect(specs.Stored(ctx, k8s, claim).Status.Network.MTU).To(BeEquivalentTo(9000))
	})

	It("shows in the answer why a claim waits", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "missing").Class("claim-status-missing").Obj())
		Expect(conditionReasons(claim)).To(Equal(map[string]string{
			"Ready": "False/ClassNotFound", "Pending": "True/ClassNotFound",
		}))
		Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimPending))
		claim = specs.Created(ctx, k8s, build.Claim(team, "waits").Pool("claim-status-full").Length(30).Obj())
		Expect(conditionReasons(claim)).To(Equal(map[string]string{
			"Ready": "False/PoolExhausted", "Exhausted": "True/PoolExhausted",
		}))
		Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimExhausted))
	})

	It("is written with the spec in one write, when a claim that waited is served", func(ctx context.Context) {
		claim := specs.Stored(ctx, k8s, build.Claim(team, "waits").Obj())
		changes, err := k8s.Watch(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(team), client.MatchingFields{"metadata.name": "waits"},
			&client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: claim.ResourceVersion}})
		Expect(err).NotTo(HaveOccurred())
		defer changes.Stop()
		deleted(ctx, build.Claim(team, "all").Obj())
		for bound := false; !bound; {
			var event watch.Event
			Eventually(changes.ResultChan()).Should(Receive(&event))
			seen := event.Object.(*v1alpha1.IPClaim)
			bound = seen.Status.Phase == v1alpha1.ClaimBound
			Expect(seen.Spec.CIDR).To(Equal(seen.Status.AllocatedCIDR), "%s", seen.Status.Phase)
		}
		expectBound(ctx, claim, "10.127.32.0/30")
	})

	DescribeTable("is not the one that the creator of the claim sends", func(ctx context.Context, class string, create func(context.Context, client.Object) error) {
		claim := build.Claim(team, "forged-by-"+strings.ReplaceAll(CurrentSpecReport().LeafNodeText, " ", "-")).Obj()
		if class == "" {
			claim.Spec.PoolRef, claim.Spec.PrefixLength = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "claim-status"}, new(int32(28))
		} else {
			claim.Spec.ClassName = class
		}
		claim.Status = forged
		Expect(create(ctx, claim)).To(Succeed())
		specs.Stored(ctx, k8s, claim)
		Expect(claim.Status.AllocatedCIDR).To(Equal(claim.Spec.CIDR))
		Expect(claim.Status.Conditions).To(HaveLen(2))
		Expect(claim.Status.Conditions).NotTo(ContainElement(HaveField("Reason", "Forged")))
	},
		Entry("of a bound claim", "", func(ctx context.Context, obj client.Object) error { return k8s.Create(ctx, obj) }),
		Entry("of a waiting claim", "claim-status-missing", func(ctx context.Context, obj client.Object) error { return k8s.Create(ctx, obj) }),
		Entry("of an applied claim", "", applied),
	)

	DescribeTable("does not change by users that may update the claim", func(ctx context.Context, change func(context.Context, *v1alpha1.IPClaim) error) {
		claim := specs.Stored(ctx, k8s, build.Claim(team, "block").Obj())
		before := claim.DeepCopy()
		claim.Status = forged
		Expect(change(ctx, claim)).To(Succeed())
		after := specs.Stored(ctx, k8s, claim)
		Expect(after.Status).To(Equal(before.Status))
		Expect(after.Spec).To(Equal(before.Spec))
	},
		Entry("by an update", func(ctx context.Context, claim *v1alpha1.IPClaim) error { return k8s.Update(ctx, claim) }),
		Entry("by a patch", func(ctx context.Context, claim *v1alpha1.IPClaim) error {
			return k8s.Patch(ctx, claim, build.Merge(`{"status":{"phase":"Pending"}}`))
		}),
		Entry("by a patch that removes a condition", func(ctx context.Context, claim *v1alpha1.IPClaim) error {
			return k8s.Patch(ctx, claim, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/status/conditions/0"}]`)))
		}),
		Entry("by server-side apply", func(ctx context.Context, claim *v1alpha1.IPClaim) error { return applied(ctx, claim) }),
		Entry("by a user with the right to update claims", func(ctx context.Context, claim *v1alpha1.IPClaim) error {
			cfg := rest.CopyConfig(running.Config())
			cfg.Impersonate = rest.ImpersonationConfig{UserName: "admin-of-all", Groups: []string{"system:masters"}}
			return running.Client(cfg).Update(ctx, claim)
		}),
	)

	DescribeTable("is kept by an update that leaves it out", func(ctx context.Context, leave func(map[string]any)) {
		claim := specs.Stored(ctx, k8s, build.Claim(team, "block").Obj())
		obj := unstructuredOf(claim)
		leave(obj.Object)
		obj.SetLabels(map[string]string{"replaced": claim.ResourceVersion})
		Expect(k8s.Update(ctx, obj)).To(Succeed())
		after := specs.Stored(ctx, k8s, claim.DeepCopy())
		Expect(after.Labels).To(HaveKey("replaced"))
		Expect(after.Status).To(Equal(claim.Status))
		Expect(after.Spec).To(Equal(claim.Spec))
	},
		Entry("kubectl replace", func(obj map[string]any) { delete(obj, "status") }),
		Entry("a client that writes whole objects", func(obj map[string]any) { obj["status"] = map[string]any{} }),
		Entry("kubectl replace of the manifest that was created", func(obj map[string]any) {
			delete(obj, "status")
			obj["spec"] = map[string]any{"poolRef": map[string]any{"kind": "IPPool", "name": "claim-status"}, "prefixLength": int64(28)}
		}),
	)

	It("may be read by all users who may edit the claim, and survives it", func(ctx context.Context) {
		claim := specs.Stored(ctx, k8s, build.Claim(team, "block").Obj())
		text, err := yaml.Marshal(unstructuredOf(claim).Object)
		Expect(err).NotTo(HaveOccurred())
		obj := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(text, &obj.Object)).To(Succeed()) // as kubectl edit has it
		obj.SetAnnotations(map[string]string{"edited": "yes"})
		Expect(k8s.Update(ctx, obj)).To(Succeed())
		Expect(specs.Stored(ctx, k8s, claim.DeepCopy()).Status).To(Equal(claim.Status))
	})

	It("can be selected by", func(ctx context.Context) {
		waiting := &v1alpha1.IPClaimList{}
		Expect(k8s.List(ctx, waiting, client.InNamespace(team), client.MatchingFields{"status.phase": "Pending"})).To(Succeed())
		Expect(waiting.Items).To(ContainElement(HaveField("Name", "missing")))
		Expect(waiting.Items).NotTo(ContainElement(HaveField("Name", "block")))
	})
})

// applied applies an object as a GitOps tool does.
func applied(ctx context.Context, obj client.Object) error {
	u := unstructuredOf(obj)
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	return k8s.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops"), client.ForceOwnership)
}

// unstructuredOf returns an object as it is sent.
func unstructuredOf(obj client.Object) *unstructured.Unstructured {
	GinkgoHelper()
	text, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	Expect(err).NotTo(HaveOccurred())
	u := &unstructured.Unstructured{Object: text}
	gvk, err := k8s.GroupVersionKindFor(obj)
	Expect(err).NotTo(HaveOccurred())
	u.SetGroupVersionKind(gvk)
	return u
}

var _ = Describe("claim-lifecycle", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "claim-lifecycle")
		specs.Pool(ctx, k8s, build.Pool("lifecycle").CIDR("10.10.0.0/16").Obj())
	})

	It("answers each create call with a block, all of them disjoint and contained", func(ctx context.Context) {
		pool := netip.MustParsePrefix("10.10.0.0/16")
		var blocks []netip.Prefix
		for _, bits := range []int32{24, 28, 20, 32, 24} {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("size-").Pool("lifecycle").Length(bits).Obj())
			block := netip.MustParsePrefix(claim.Spec.CIDR)
			Expect(block.Bits()).To(Equal(int(bits)))
			Expect(pool.Contains(block.Addr())).To(BeTrue())
			for _, other := range blocks {
				Expect(block.Overlaps(other)).To(BeFalse(), "%s and %s", block, other)
			}
			blocks = append(blocks, block)
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		}
		Eventually(available(ctx, "lifecycle")).Should(Equal("60911")) // 65536 - 256 - 16 - 4096 - 1 - 256
	})

	It("releases deleted claims, to the last address", func(ctx context.Context) {
		Expect(k8s.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace(team))).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "lifecycle") }).Should(BeEmpty())
		Eventually(available(ctx, "lifecycle")).Should(Equal("65536"))
	})

	It("supports delete-then-create on a full pool", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("lifecycle-one").CIDR("10.11.0.0/32").Obj())
		atOnce := 0
		for range 50 {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("only-").Pool("lifecycle-one").Length(32).Obj())
			if claim.Spec.CIDR != "" {
				atOnce++
			}
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
			Expect(claim.Spec.CIDR).To(Equal("10.11.0.0/32"))
			deleted(ctx, claim)
		}
		// The test does not wait for a release that takes longer than 250 ms, on a machine that is
		// busy.
		Expect(atOnce).To(BeNumerically(">", 25), "the release that is on its way is waited for")
	})

	It("keeps the block of a deleted claim for as long as a foreign finalizer holds it", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("lifecycle-vm").CIDR("10.12.0.0/32").Obj())
		vm := specs.Created(ctx, k8s, build.Claim(team, "vm").Pool("lifecycle-vm").Length(32).Finalizer("example.com/vm").Obj())
		deleted(ctx, vm)
		next := answered(ctx, build.Claim(team, "next").Pool("lifecycle-vm").Length(32).Obj(), "")
		Expect(specs.RecordsIn(ctx, k8s, "lifecycle-vm")).To(HaveLen(1))
		specs.Edited(ctx, k8s, vm, func(c *v1alpha1.IPClaim) { c.Finalizers = nil })
		Eventually(phase(ctx, next)).Should(Equal(v1alpha1.ClaimBound))
		Expect(next.Spec.CIDR).To(Equal("10.12.0.0/32"))
	})

	It("answers a dry run with the block that it would give, and records nothing", func(ctx context.Context) {
		claim := build.Claim(team, "dry").Pool("lifecycle").Length(24).Obj()
		Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
		Expect(claim.Spec.CIDR).To(Equal("10.10.0.0/24"))
		Expect(specs.RecordsIn(ctx, k8s, "lifecycle")).To(BeEmpty())
	})
})
