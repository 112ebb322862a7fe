package contract

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// recordsOf returns the allocations that a pool has for a holder's name.
func recordsOf(ctx context.Context, pool, holder string) []v1alpha1.IPAllocation {
	var records []v1alpha1.IPAllocation
	for _, record := range specs.RecordsIn(ctx, k8s, pool) {
		if record.Spec.ClaimRef.Name == holder {
			records = append(records, record)
		}
	}
	return records
}

// addressFor returns an IPAddress that another client writes for a claim.
func addressFor(claim *ipamv1.IPAddressClaim, address string, prefix int32) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: claim.Name},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: claim.Name}, PoolRef: claim.Spec.PoolRef,
			Address: address, Prefix: &prefix,
		},
	}
}

var _ = Describe("Existing objects", Ordered, func() {
	var team string
	var pool *v1alpha1.IPPool

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "adoption")
		pool = specs.Pool(ctx, k8s, build.Pool("adoption").CIDR("10.4.0.0/28").Obj())
	})

	It("is recorded as soon as it is made, before there is a claim, and adopted when that comes", func(ctx context.Context) {
		claim := build.AddressClaim(team, "static").Pool("adoption").Obj()
		address := specs.Created(ctx, k8s, addressFor(claim, "10.4.0.0", 20))
		Expect(recordsOf(ctx, "adoption", "static")).To(HaveLen(1), "at admission")
		By("so that no other claim gets it")
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "other").Pool("adoption").Obj())).Spec.Address).To(Equal("10.4.0.1"))

		specs.Created(ctx, k8s, claim)
		spec := address.Spec
		adopted := served(ctx, claim)
		Expect(adopted.UID).To(Equal(address.UID))
		Expect(adopted.Spec).To(Equal(spec), "its spec is never touched")
		Expect(adopted.Finalizers).To(ContainElement(v1alpha1.FinalizerProtect))
		Expect(adopted.OwnerReferences).To(ConsistOf(
			HaveField("UID", claim.UID), HaveField("UID", pool.UID)))
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "adoption", "static") }).Should(
			ConsistOf(HaveField("Spec.ClaimRef.UID", claim.UID)))
	})

	It("is repaired if finalizers, owners or labels were removed", func(ctx context.Context) {
		address := served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "repair").Pool("adoption").Obj()))
		as := address.DeepCopy()
		specs.Edited(ctx, k8s, address, func(a *ipamv1.IPAddress) {
			a.Finalizers, a.OwnerReferences, a.Labels, a.Annotations = nil, nil, nil, nil
		})
		Eventually(func() []string { return specs.Stored(ctx, k8s, address).Finalizers }).Should(Equal(as.Finalizers))
		Expect(address.OwnerReferences).To(ConsistOf(as.OwnerReferences))
		Expect(address.Labels).To(Equal(as.Labels))
		Expect(address.Annotations).To(Equal(as.Annotations))
	})

	It("keeps its address when record and status are lost", func(ctx context.Context) {
		address := served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "lost").Pool("adoption").Obj()))
		record := recordsOf(ctx, "adoption", "lost")[0]
		asOperator := running.AsOperator()
		Expect(asOperator.Delete(ctx, &record)).To(Succeed())
		Expect(asOperator.Patch(ctx, &record, build.Merge(`{"metadata":{"finalizers":[]}}`))).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "adoption", "lost") }).Should(
			ConsistOf(And(HaveField("Spec.CIDR", address.Spec.Address+"/32"), Not(HaveField("UID", record.UID)))))
	})

	It("does not block its claim if a release was cut short", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "halfway").Pool("halfway").Obj())
		record := &v1alpha1.IPAllocation{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "halfway-attempt", Finalizers: []string{v1alpha1.FinalizerHeld}},
			Spec: v1alpha1.IPAllocationSpec{
				CIDR: "10.4.1.0/32", IPFamily: v1alpha1.IPv4, PoolRef: &v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "halfway"},
				ClaimRef: v1alpha1.ClaimReference{APIGroup: ipamv1.GroupVersion.Group, Kind: "IPAddressClaim", Name: claim.Name, UID: claim.UID},
				Purpose:  v1alpha1.PurposeClaim, ReclaimPolicy: v1alpha1.ReclaimDelete, State: v1alpha1.AllocationBound,
			},
		}
		asOperator := running.AsOperator()
		Expect(asOperator.Create(ctx, record)).To(Succeed())
		Expect(asOperator.Delete(ctx, record)).To(Succeed())
		Expect(specs.Stored(ctx, k8s, record).DeletionTimestamp).NotTo(BeNil(), "our finalizer is still on it")
		specs.Created(ctx, k8s, build.Pool("halfway").CIDR("10.4.1.0/32").Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.4.1.0"))
	})

	It("that is in conflict is reported, not renumbered, and names the holder to those of its project", func(ctx context.Context) {
		claim := build.AddressClaim(team, "conflict").Pool("adoption").Obj()
		specs.Created(ctx, k8s, addressFor(claim, "10.4.0.1", 28)) // that of the claim "other"
		specs.Created(ctx, k8s, claim)
		Eventually(reason(ctx, claim)).Should(Equal("False/AllocationFailed"))
		message := meta.FindStatusCondition(claim.Status.Conditions, "Ready").Message
		Expect(message).To(And(ContainSubstring("conflict"), ContainSubstring("10.4.0.1"), ContainSubstring(team+"/other")))
		Expect(addressOf(ctx, claim).Spec.Address).To(Equal("10.4.0.1"))
		Expect(claim.Status.AddressRef.Name).To(BeEmpty())

		By("but not to others")
		elsewhere := specs.Namespace(ctx, k8s, "adoption-elsewhere")
		foreign := build.AddressClaim(elsewhere, "conflict").Pool("adoption").Obj()
		specs.Created(ctx, k8s, addressFor(foreign, "10.4.0.1", 28))
		specs.Created(ctx, k8s, foreign)
		Eventually(reason(ctx, foreign)).Should(Equal("False/AllocationFailed"))
		Expect(meta.FindStatusCondition(foreign.Status.Conditions, "Ready").Message).To(And(
			HavePrefix("conflict: 10.4.0.1/32 is in use in pool adoption"), Not(ContainSubstring(team+"/"))))

		By("while no claim waits behind it: no other address would serve it")
		passed(ctx, team, "beside-conflict", "adoption")
		block := specs.Created(ctx, k8s, build.Claim(team, "beside-conflict").Pool("adoption").Length(32).Obj())
		Expect(block.Spec.CIDR).NotTo(BeEmpty())
		Expect(k8s.Delete(ctx, block)).To(Succeed())

		By("and served when the other is gone")
		Expect(k8s.Delete(ctx, build.AddressClaim(team, "other").Obj())).To(Succeed())
		Expect(k8s.Delete(ctx, foreign)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, foreign)).Should(BeTrue())
		served(ctx, claim)
	})

	It("that lies outside the pool is reported, and does not stop the pool", func(ctx context.Context) {
		claim := build.AddressClaim(team, "outside").Pool("adoption").Obj()
		specs.Created(ctx, k8s, addressFor(claim, "10.99.0.1", 24))
		specs.Created(ctx, k8s, claim)
		Eventually(reason(ctx, claim)).Should(Equal("False/AllocationFailed"))
		passed(ctx, team, "after-outside", "adoption")
	})
})

var _ = Describe("Changes of others to our claims", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "others")
		specs.Pool(ctx, k8s, build.Pool("others").CIDR("10.5.0.0/28").Obj())
	})

	It("a foreign finalizer keeps the address of a deleted claim", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "in-use").Pool("others").Finalizer("vm.example.com/in-use").Obj())
		address := served(ctx, claim)
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		passed(ctx, team, "after-in-use", "others")
		Expect(specs.Stored(ctx, k8s, address).DeletionTimestamp).To(BeNil())
		Expect(specs.Stored(ctx, k8s, claim).Finalizers).To(ConsistOf("vm.example.com/in-use", v1alpha1.FinalizerRelease))
		Expect(recordsOf(ctx, "others", "in-use")).To(HaveLen(1))
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = []string{v1alpha1.FinalizerRelease} })
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
	})

	It("Metal3's finalizer does not", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "metal3").Pool("others").Finalizer("metal3data.infrastructure.cluster.x-k8s.io").Obj())
		address := served(ctx, claim)
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, address)).Should(BeTrue())
		Eventually(func() []string { return specs.Stored(ctx, k8s, claim).Finalizers }).Should(ConsistOf("metal3data.infrastructure.cluster.x-k8s.io"))
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = nil })
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
	})

	It("a claim that goes without release takes its address with it", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "forced").Pool("others").Obj())
		address := served(ctx, claim)
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { // a paused claim is not released
			c.Annotations = map[string]string{"cluster.x-k8s.io/paused": ""}
		})
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = nil })
		Eventually(specs.IsGone(ctx, k8s, address)).Should(BeTrue())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "others", "forced") }).Should(BeEmpty())
	})

	It("an IPAddress that comes for a former claim does not keep the next one of its name from its own", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("others-next").CIDR("10.5.1.0/28").Obj())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "model").Pool("others").Obj())
		late := served(ctx, claim)
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
		By("the leader before having been paused while it sent it")
		late.Name, late.ResourceVersion, late.UID = "late", "", ""
		late.Spec.ClaimRef.Name = "late"
		late.Spec.Address = "10.5.0.9"
		specs.Created(ctx, k8s, late)
		next := specs.Created(ctx, k8s, build.AddressClaim(team, "late").Pool("others-next").Obj())
		Expect(served(ctx, next).Spec.Address).To(HavePrefix("10.5.1."))
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "others", "late") }).Should(BeEmpty())
	})

	It("a claim that is being deleted gets no finalizer, and no address", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "too-late").Pool("others").Finalizer("vm.example.com/f").Annotation("cluster.x-k8s.io/paused", "").Obj())
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = []string{"vm.example.com/f"} })
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		specs.Edited(ctx, k8s, claim, goOn)
		passed(ctx, team, "after-too-late", "others")
		Expect(specs.Stored(ctx, k8s, claim).Finalizers).To(Equal([]string{"vm.example.com/f"}))
		Expect(recordsOf(ctx, "others", "too-late")).To(BeEmpty())
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = nil })
	})

	It("conditions of others stay", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "conditions").Pool("others").Annotation("cluster.x-k8s.io/paused", "").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/Paused"))
		theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Because", LastTransitionTime: metav1.Now()}
		claim.Status.Conditions = append(claim.Status.Conditions, theirs)
		Expect(k8s.Status().Update(ctx, claim)).To(Succeed())
		specs.Edited(ctx, k8s, claim, goOn)
		served(ctx, claim)
		Expect(meta.IsStatusConditionTrue(claim.Status.Conditions, "Theirs")).To(BeTrue())
	})
})

var _ = Describe("A pool that is full", Ordered, func() {
	var team string
	var holding, waiting []*ipamv1.IPAddressClaim

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "full")
		specs.Pool(ctx, k8s, build.Pool("full").CIDR("10.6.0.0/30").Obj())
		for i := range 4 {
			claim := specs.Created(ctx, k8s, build.AddressClaim(team, fmt.Sprintf("holds-%d", i)).Pool("full").Obj())
			served(ctx, claim)
			holding = append(holding, claim)
		}
	})

	It("is reported, by condition and event", func(ctx context.Context) {
		for i := range 3 { // within one second the name decides
			claim := specs.Created(ctx, k8s, build.AddressClaim(team, fmt.Sprintf("waits-%d", i)).Pool("full").Obj())
			Eventually(reason(ctx, claim)).Should(Equal("False/PoolExhausted"))
			waiting = append(waiting, claim)
		}
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, waiting[0]) }).Should(ConsistOf("Warning PoolExhausted"))
		Expect(specs.EventsOf(ctx, k8s, holding[0])).To(BeEmpty(), "it was served at once, as its condition says")
	})

	It("serves waiting claims, oldest first, at once, and none is overtaken", func(ctx context.Context) {
		overtaking := specs.Created(ctx, k8s, build.Claim(team, "zz-overtakes").Pool("full").Length(32).Obj())
		Expect(overtaking.Spec.CIDR).To(BeEmpty())
		for i, claim := range waiting {
			began := time.Now()
			Expect(k8s.Delete(ctx, holding[i])).To(Succeed())
			served(ctx, claim)
			GinkgoWriter.Printf("served %v after the delete call\n", time.Since(began))
			for _, later := range waiting[i+1:] {
				Expect(reason(ctx, later)()).To(Equal("False/PoolExhausted"))
			}
		}
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, waiting[0]) }).Should(ConsistOf("Warning PoolExhausted", "Normal AddressAllocated"))
		Expect(specs.Stored(ctx, k8s, overtaking).Spec.CIDR).To(BeEmpty())
		Expect(k8s.Delete(ctx, holding[3])).To(Succeed())
		Eventually(func() string { return specs.Stored(ctx, k8s, overtaking).Spec.CIDR }).ShouldNot(BeEmpty())
	})
})

var _ = Describe("A pool that changes", Ordered, func() {
	It("drains the blocks that its ranges leave out", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "drains")
		pool := specs.Pool(ctx, k8s, build.Pool("drains").CIDR("10.7.0.0/24").Ranges("10.7.0.10-10.7.0.20").Obj())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "before").Pool("drains").Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.7.0.10"))
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Spec.Ranges = []string{"10.7.0.100-10.7.0.110"} })
		Eventually(func() string { return specs.Stored(ctx, k8s, pool).Status.Capacity.OutOfRange }).Should(Equal("1"))
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "after").Pool("drains").Obj())).Spec.Address).To(Equal("10.7.0.100"))
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.7.0.10"), "a held address stays")
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(func() string { return specs.Stored(ctx, k8s, pool).Status.Capacity.OutOfRange }).Should(Equal("0"))
	})

	It("that comes after its claims serves them", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "early")
		byPool := specs.Created(ctx, k8s, build.AddressClaim(team, "by-pool").Pool("early").Obj())
		byClass := specs.Created(ctx, k8s, build.AddressClaim(team, "by-class").Class("early").Obj())
		Eventually(reason(ctx, byPool)).Should(Equal("False/PoolNotFound"))
		Eventually(reason(ctx, byClass)).Should(Equal("False/PoolNotReady"))
		specs.Created(ctx, k8s, build.Class("early").Obj())
		specs.Created(ctx, k8s, build.Pool("early").CIDR("10.8.0.0/24").Classes("early").Obj())
		served(ctx, byPool)
		served(ctx, byClass)
	})
})
