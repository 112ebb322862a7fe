package integration

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has separate routing domains.
var _ = Describe("overlap", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("overlap-four").Domain("overlap").CIDR("10.1.0.0/16").Obj())
		specs.Pool(ctx, k8s, build.Pool("overlap-six").Domain("overlap").CIDR("2001:db8:1::/48").Obj())
		child := specs.Pool(ctx, k8s, build.Pool("overlap-child").Child("overlap-four", 24).Obj())
		Expect(recordsOf(ctx, child)).To(HaveLen(1))
	})

	DescribeTable("refuses a root pool that overlaps another of its routing domain, and names that one", func(ctx context.Context, cidr, overlaps, by string) {
		pool := build.Pool(unused()).Domain("overlap").CIDR(cidr).Obj()
		err := k8s.Create(ctx, pool.DeepCopy())
		Expect(err).To(Satisfy(apierrors.IsConflict))
		Expect(err.Error()).To(ContainSubstring(fmt.Sprintf(
			"spec.cidr: %s conflicts with %s of routing domain overlap, held by IPPool %s: choose another cidr, make this pool a child of the other, or give it another routingDomain",
			cidr, overlaps, by)))
		Expect(specs.IsGone(ctx, k8s, pool)()).To(BeTrue())
		Expect(recordsOf(ctx, pool)).To(BeEmpty())
	},
		Entry("being equal to it", "10.1.0.0/16", "10.1.0.0/16", "overlap-four"),
		Entry("lying inside of it", "10.1.128.0/20", "10.1.0.0/16", "overlap-four"),
		Entry("lying at its end", "10.1.255.255/32", "10.1.0.0/16", "overlap-four"),
		Entry("lying around it", "10.0.0.0/8", "10.1.0.0/16", "overlap-four"),
		Entry("being all of IPv4", "0.0.0.0/0", "10.1.0.0/16", "overlap-four"),
		Entry("being equal to a child of it", "10.1.0.0/24", "10.1.0.0/16", "overlap-four"),
		Entry("being equal to it in IPv6", "2001:db8:1::/48", "2001:db8:1::/48", "overlap-six"),
		Entry("lying inside of it in IPv6", "2001:db8:1:ffff::/64", "2001:db8:1::/48", "overlap-six"),
		Entry("lying around it in IPv6", "2001:db8::/32", "2001:db8:1::/48", "overlap-six"),
	)

	DescribeTable("admits a root pool", func(ctx context.Context, domain, cidr string) {
		pool := specs.Pool(ctx, k8s, build.Pool(unused()).Domain(domain).CIDR(cidr).Obj())
		Expect(recordOf(ctx, pool.Name).Spec.RoutingDomain).To(Equal(domain))
	},
		Entry("next to another, before it", "overlap", "10.0.0.0/16"),
		Entry("next to another, after it", "overlap", "10.2.0.0/15"),
		Entry("next to another in IPv6", "overlap", "2001:db8:2::/48"),
		Entry("equal to one of another routing domain", "overlap-other", "10.1.0.0/16"),
		Entry("around one of another routing domain", "overlap-around", "10.0.0.0/8"),
		Entry("equal to one of another routing domain in IPv6", "overlap-other", "2001:db8:1::/48"),
		Entry("that is all of IPv4", "overlap-all", "0.0.0.0/0"),
		Entry("that is all of IPv6, beside it", "overlap-all", "::/0"),
	)

	It("writes the default routing domain into a root pool that names none", func(ctx context.Context) {
		pool := specs.Created(ctx, k8s, build.Pool("overlap-default").CIDR("192.0.2.0/24").Obj())
		Expect(pool.Spec.RoutingDomain).To(Equal("default"))
		err := k8s.Create(ctx, build.Pool(unused()).Domain("default").CIDR("192.0.2.128/25").Obj())
		Expect(err).To(Satisfy(apierrors.IsConflict))
		Expect(err.Error()).To(ContainSubstring("IPPool overlap-default"))
	})

	It("admits one of many that are created at the same instant", func(ctx context.Context) {
		var creating sync.WaitGroup
		errs := make([]error, 16)
		for i := range errs {
			creating.Go(func() {
				cidr := fmt.Sprintf("10.0.0.0/%d", 8+i) // each lies inside the one before
				errs[i] = k8s.Create(ctx, build.Pool(fmt.Sprintf("overlap-race-%d", i)).Domain("overlap-race").CIDR(cidr).Obj())
			})
		}
		creating.Wait()
		admitted := 0
		for i, err := range errs {
			if err == nil {
				admitted++
				specs.Ready(ctx, k8s, build.Pool(fmt.Sprintf("overlap-race-%d", i)).Obj())
				continue
			}
			Expect(err).To(Satisfy(apierrors.IsConflict), "%v", err)
			Expect(err.Error()).To(ContainSubstring("overlap-race-"))
		}
		Expect(admitted).To(Equal(1))
	})

	It("frees the space of a root pool that is gone", func(ctx context.Context) {
		gone := specs.Pool(ctx, k8s, build.Pool("overlap-gone").Domain("overlap-again").CIDR("10.0.0.0/8").Obj())
		unwanted(ctx, gone)
		var next *v1alpha1.IPPool
		Eventually(func() error {
			next = build.Pool("overlap-next").Domain("overlap-again").CIDR("10.0.0.0/8").Obj()
			return k8s.Create(ctx, next)
		}).Should(Succeed())
		specs.Ready(ctx, k8s, next)
	})
})

// Two records that overlap are a defect. Only the operator's account can make them here.
// This topic has 10.71.0.0/16.
var _ = Describe("conflicts", Ordered, func() {
	It("are reported to both: the first one keeps its block", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "conflicts")
		specs.Pool(ctx, k8s, build.Pool("conflicts").CIDR("10.71.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj())
		first := build.Claim(team, "first").Pool("conflicts").Length(32).Obj()
		first.Labels, first.Annotations = map[string]string{"app": "shop"}, map[string]string{"example.com/note": "kept"}
		first.Spec.OwnerRef = &v1alpha1.ClaimOwner{Kind: "VirtualMachine", Name: "web-0"}
		specs.Created(ctx, k8s, first)
		whole := first.DeepCopy()
		second := specs.Created(ctx, k8s, build.Claim(team, "second").Class("conflicts-missing").Obj())

		operator := running.AsOperator()
		record := specs.Stored(ctx, k8s, specs.RecordOf(first))
		record.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: "second-overlapping", Finalizers: []string{v1alpha1.FinalizerHeld}}
		record.Spec.ClaimRef.Name, record.Spec.ClaimRef.UID, record.Spec.ReclaimPolicy = second.Name, second.UID, v1alpha1.ReclaimRetain
		Expect(operator.Create(ctx, record)).To(Succeed())
		patch := build.Merge(`{"spec":{"cidr":"` + first.Spec.CIDR + `","allocationName":"` + record.Name + `"}}`)
		Expect(operator.Patch(ctx, second, patch)).To(Succeed())

		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, second).Status.Conditions)["Ready"] }).Should(Equal("False/Conflict"))
		Expect(specs.Stored(ctx, k8s, second).Status.AllocatedCIDR).To(BeEmpty())
		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, first).Status.Conditions) }).WithTimeout(30 * time.Second).Should(Equal(map[string]string{
			"Ready": "False/Conflict", "Bound": "True/Bound",
		}))
		Expect(first.Status.AllocatedCIDR).To(Equal(first.Spec.CIDR))
		Expect(meta.FindStatusCondition(first.Status.Conditions, v1alpha1.ConditionReady).Message).To(Equal(
			first.Spec.CIDR + " conflicts with " + first.Spec.CIDR + " of pool conflicts, held by IPClaim conflicts/second: have one of the two released"))
		Expect(first.Labels).To(Equal(whole.Labels), "caches keep little of a claim that is Bound; the written object is complete")
		Expect(first.Annotations).To(Equal(whole.Annotations))
		Expect(first.Spec).To(Equal(whole.Spec))
		for _, name := range []string{first.Name, second.Name} {
			Eventually(func() []string { return conflictsToldOf(ctx, team, name) }).Should(HaveLen(1), name)
		}
		By("and the second is served nothing while the first still exists")
		deleted(ctx, second)
		Eventually(specs.IsGone(ctx, k8s, record)).Should(BeTrue()) // although its policy is Retain
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
		record := specs.Stored(ctx, k8s, specs.RecordOf(first))
		record.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: claim + "-overlapping", Finalizers: []string{v1alpha1.FinalizerHeld}}
		record.Spec.ClaimRef.Name, record.Spec.ReclaimPolicy, record.Spec.State = claim, v1alpha1.ReclaimRetain, state
		Expect(operator.Create(ctx, record)).To(Succeed())
		return record
	}

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
