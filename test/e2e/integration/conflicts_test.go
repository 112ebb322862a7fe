package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// Two records that overlap are a defect. Only the operator's account can make them here.
// This topic has 10.71.0.0/16.
var _ = Describe("conflicts", Ordered, func() {
	It("are reported to both: the first one keeps its block", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "conflicts")
		specs.Pool(ctx, k8s, build.Pool("conflicts").CIDR("10.71.0.0/24").Obj())
		first := build.Claim(team, "first").Pool("conflicts").Length(32).Obj()
		first.Labels, first.Annotations = map[string]string{"app": "shop"}, map[string]string{"example.com/note": "kept"}
		first.Spec.OwnerRef = &v1alpha1.ClaimOwner{Kind: "VirtualMachine", Name: "web-0"}
		specs.Created(ctx, k8s, first)
		whole := first.DeepCopy()
		second := specs.Created(ctx, k8s, build.Claim(team, "second").Class("conflicts-missing").Obj())

		operator := running.AsOperator()
		record := specs.Stored(ctx, k8s, &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: first.Spec.AllocationName}})
		record.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: "second-overlapping", Finalizers: []string{v1alpha1.FinalizerHeld}}
		record.Spec.ClaimRef.Name, record.Spec.ClaimRef.UID = second.Name, second.UID
		Expect(operator.Create(ctx, record)).To(Succeed())
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cidr":"`+first.Spec.CIDR+`","allocationName":"`+record.Name+`"}}`))
		Expect(operator.Patch(ctx, second, patch)).To(Succeed())

		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, second).Status.Conditions)["Ready"] }).Should(Equal("False/Conflict"))
		Expect(specs.Stored(ctx, k8s, second).Status.AllocatedCIDR).To(BeEmpty())
		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, first).Status.Conditions) }).WithTimeout(30 * time.Second).Should(Equal(map[string]string{
			"Ready": "False/Conflict", "Bound": "True/Bound", "Pending": "False/Bound", "Exhausted": "False/Bound",
		}))
		Expect(first.Status.AllocatedCIDR).To(Equal(first.Spec.CIDR))
		Expect(conditionOf(first.Status.Conditions, v1alpha1.ConditionReady).Message).To(Equal(
			first.Spec.CIDR + " conflicts with " + first.Spec.CIDR + " of pool conflicts, held by IPClaim conflicts/second: have one of the two released"))
		Expect(first.Labels).To(Equal(whole.Labels), "caches keep little of a claim that is Bound; the written object is complete")
		Expect(first.Annotations).To(Equal(whole.Annotations))
		Expect(first.Spec).To(Equal(whole.Spec))
		for _, name := range []string{first.Name, second.Name} {
			Eventually(func() []string { return conflictsToldOf(ctx, team, name) }).Should(HaveLen(1), name)
		}
		By("and the second is served nothing while the first still exists")
		deleted(ctx, second)
		expectBound(ctx, first, first.Spec.CIDR)
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, first).Status.Conditions)["Ready"] }).WithTimeout(30 * time.Second).Should(Equal("True/Bound"))
	})
})

// Of two records that overlap, one lost its block before it was ever handed out. This topic
// has 10.74.0.0/24.
var _ = Describe("a record that overlaps another", Ordered, func() {
	const team = "overlapping"
	var operator client.Client
	var first *v1alpha1.IPClaim

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Pool(ctx, k8s, build.Pool("overlapping").CIDR("10.74.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj())
		first = specs.Created(ctx, k8s, build.Claim(team, "first").Pool("overlapping").Length(32).Obj())
		operator = running.AsOperator()
	})

	// overlap records the block of the first claim for another one, as admission does.
	overlap := func(ctx context.Context, claim string, state v1alpha1.AllocationState) *v1alpha1.IPAllocation {
		GinkgoHelper()
		record := specs.Stored(ctx, k8s, &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: first.Spec.AllocationName}})
		record.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: claim + "-overlapping", Finalizers: []string{v1alpha1.FinalizerHeld}}
		record.Spec.ClaimRef.Name, record.Spec.ReclaimPolicy, record.Spec.State = claim, v1alpha1.ReclaimRetain, state
		Expect(operator.Create(ctx, record)).To(Succeed())
		return record
	}

	It("is reported if a live claim names each", func(ctx context.Context) {
		second := specs.Created(ctx, k8s, build.Claim(team, "second").Class("overlapping-missing").Obj())
		record := overlap(ctx, "second", v1alpha1.AllocationBound)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"cidr":"`+first.Spec.CIDR+`","allocationName":"`+record.Name+`"}}`))
		Expect(operator.Patch(ctx, second, patch)).To(Succeed())
		for _, claim := range []*v1alpha1.IPClaim{first, second} {
			Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Ready"] }).WithTimeout(30*time.Second).Should(Equal("False/Conflict"), claim.Name)
		}
		deleted(ctx, second)
		Eventually(specs.IsGone(ctx, k8s, record)).Should(BeTrue()) // although its policy is Retain
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, first).Status.Conditions)["Ready"] }).WithTimeout(30 * time.Second).Should(Equal("True/Bound"))
	})

	It("is released and not retained, if its claim does not exist", func(ctx context.Context) {
		Eventually(specs.IsGone(ctx, k8s, overlap(ctx, "loser", v1alpha1.AllocationBound))).Should(BeTrue())
	})

	It("is not given to a later claim of that name", func(ctx context.Context) {
		record := overlap(ctx, "again", v1alpha1.AllocationRetained)
		again := specs.Created(ctx, k8s, build.Claim(team, "again").Pool("overlapping").Length(32).Obj())
		Expect(again.Spec.CIDR).NotTo(Or(BeEmpty(), Equal(first.Spec.CIDR)))
		Expect(operator.Delete(ctx, record)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, record)).Should(BeTrue())
	})
})

// conflictsToldOf returns the texts of the events about a conflict of a claim.
func conflictsToldOf(ctx context.Context, namespace, name string) []string {
	GinkgoHelper()
	events := &eventsv1.EventList{}
	Expect(k8s.List(ctx, events, client.InNamespace(namespace))).To(Succeed())
	var notes []string
	for _, e := range events.Items {
		if e.Regarding.Name == name && e.Reason == v1alpha1.ReasonConflict {
			notes = append(notes, e.Note)
		}
	}
	return notes
}
