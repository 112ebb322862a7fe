package integration

import (
	"context"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// expectExhausted waits until a claim reports that there is no room for it.
func expectExhausted(ctx context.Context, claim *v1alpha1.IPClaim, message string) {
	GinkgoHelper()
	Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions) }).Should(Equal(map[string]string{
		"Ready": "False/PoolExhausted", "Bound": "False/PoolExhausted", "Pending": "False/PoolExhausted", "Exhausted": "True/PoolExhausted",
	}))
	Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimExhausted))
	Expect(conditionOf(claim.Status.Conditions, v1alpha1.ConditionExhausted).Message).To(Equal(message))
	Expect(claim.Spec.CIDR).To(BeEmpty())
	Expect(claim.Status.AllocatedCIDR).To(BeEmpty())
	Expect(claim.Status.PoolRef).To(BeNil())
	Expect(claim.Status.BoundAllocationRef).To(BeNil())
}

// expectInsufficient fails unless the last answer to w is HTTP 507 with the message.
func expectInsufficient(w *witness, err error, message string) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred())
	Expect(w.code()).To(Equal(http.StatusInsufficientStorage))
	Expect(apierrors.ReasonForError(err)).To(Equal(metav1.StatusReason("InsufficientStorage")))
	Expect(err.Error()).To(ContainSubstring(message))
}

// This topic has 10.28.0.0/16 of a separate routing domain.
var _ = Describe("exhaustion", Ordered, ContinueOnFailure, func() {
	const team = "exhaustion"
	var recordingClient *witness

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		recordingClient = newWitness()
	})

	It("makes a claim for which there is no room wait, and gives it the block that is released", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("full-wait").Domain("exhaustion").CIDR("10.28.0.0/31").Obj())
		first := specs.Created(ctx, k8s, build.Claim(team, "first").Pool("full-wait").Length(32).Obj())
		second := specs.Created(ctx, k8s, build.Claim(team, "second").Pool("full-wait").Length(32).Obj())
		Expect(first.Spec.CIDR).To(Equal("10.28.0.0/32"))
		Expect(second.Spec.CIDR).To(Equal("10.28.0.1/32"))

		third := build.Claim(team, "third").Pool("full-wait").Length(32).Obj()
		Expect(recordingClient.Create(ctx, third)).To(Succeed())
		Expect(recordingClient.code()).To(Equal(http.StatusCreated))
		Expect(recordingClient.takeWarnings()).To(Equal([]string{"no free /32 in pool full-wait: nothing is free: the claim waits"}))
		expectExhausted(ctx, third, "no free /32 in pool full-wait: the claim is bound as soon as one is released")
		Expect(specs.RecordsIn(ctx, k8s, "full-wait")).To(HaveLen(2))

		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, pool).Status.Conditions) }).Should(Equal(map[string]string{
			"Ready": "True/Full", "Allocated": "True/Recorded", "Exhausted": "True/PoolExhausted",
		}))
		Expect(pool.Status.Phase).To(Equal(v1alpha1.PoolExhausted))
		Expect(pool.Status.Capacity).To(Equal(&v1alpha1.Capacity{Total: "2", Allocated: "2", Available: "0", Withheld: "0", OutOfRange: "0"}))
		Expect(pool.Status.UtilizationPercent).To(Equal(int32(100)))
		Expect(pool.Status.LargestFreePrefix).To(BeEmpty())

		deleted(ctx, second)
		expectBound(ctx, third, "10.28.0.1/32")
		deleted(ctx, first)
		Eventually(available(ctx, "full-wait")).Should(Equal("1"))
		Expect(specs.Stored(ctx, k8s, pool).Status.Phase).To(Equal(v1alpha1.PoolReady))
	})

	It("makes a claim wait for a larger block while smaller ones are free", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("full-pieces").Domain("exhaustion").CIDR("10.28.1.0/30").Obj())
		middle := specs.Created(ctx, k8s, build.Claim(team, "middle").Pool("full-pieces").CIDR("10.28.1.1/32").Obj())
		other := specs.Created(ctx, k8s, build.Claim(team, "other").Pool("full-pieces").CIDR("10.28.1.2/32").Obj())
		half := build.Claim(team, "half").Pool("full-pieces").Length(31).Obj()
		Expect(recordingClient.Create(ctx, half)).To(Succeed())
		Expect(recordingClient.takeWarnings()).To(Equal([]string{"no free /31 in pool full-pieces: the largest free block is a /32: the claim waits"}))
		expectExhausted(ctx, half, "no free /31 in pool full-pieces: the claim is bound as soon as one is released")
		Expect(specs.Stored(ctx, k8s, pool).Status.Phase).To(Equal(v1alpha1.PoolReady))
		deleted(ctx, other)
		expectBound(ctx, half, "10.28.1.2/31")
		deleted(ctx, middle)
	})

	It("refuses with HTTP 507 if the pool is set to reject, and stores nothing", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("full-reject").Domain("exhaustion").CIDR("10.28.2.0/31").Rejects().Obj())
		specs.Created(ctx, k8s, build.Claim(team, "reject-first").Pool("full-reject").Length(32).Obj())
		second := specs.Created(ctx, k8s, build.Claim(team, "reject-second").Pool("full-reject").Length(32).Obj())
		Eventually(phase(ctx, second)).Should(Equal(v1alpha1.ClaimBound))

		third := build.Claim(team, "reject-third").Pool("full-reject").Length(32).Obj()
		expectInsufficient(recordingClient, recordingClient.Create(ctx, third.DeepCopy()),
			"no free /32 in pool full-reject: nothing is free: ask for a smaller block, release one, or add a pool")
		Expect(specs.IsGone(ctx, k8s, third.DeepCopy())()).To(BeTrue())
		Expect(recordsOf(ctx, third)).To(BeEmpty())

		deleted(ctx, second)
		Eventually(func() []string { return recordsOf(ctx, second) }).Should(BeEmpty())
		Expect(recordingClient.Create(ctx, third)).To(Succeed())
		Expect(third.Spec.CIDR).To(Equal("10.28.2.1/32"))
	})

	It("answers a dry run as it would the real call", func(ctx context.Context) {
		expectInsufficient(recordingClient, recordingClient.Create(ctx, build.Claim(team, "reject-dry").Pool("full-reject").Length(32).Obj(), client.DryRunAll),
			"no free /32 in pool full-reject")
	})

	It("follows the class, for any setting of the pool", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("full-class-reject").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.OnExhaustion = v1alpha1.OnExhaustionReject }).Obj())
		specs.Created(ctx, k8s, build.Class("full-class-wait").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.OnExhaustion = v1alpha1.OnExhaustionWait }).Obj())
		specs.Pool(ctx, k8s, build.Pool("full-class-a").Domain("exhaustion").CIDR("10.28.3.0/32").Classes("full-class-reject").Obj())
		specs.Pool(ctx, k8s, build.Pool("full-class-b").Domain("exhaustion").CIDR("10.28.4.0/32").Classes("full-class-wait").Rejects().Obj())
		Expect(specs.Created(ctx, k8s, build.Claim(team, "class-a").Class("full-class-reject").Obj()).Spec.CIDR).To(Equal("10.28.3.0/32"))
		Expect(specs.Created(ctx, k8s, build.Claim(team, "class-b").Class("full-class-wait").Obj()).Spec.CIDR).To(Equal("10.28.4.0/32"))

		expectInsufficient(recordingClient, recordingClient.Create(ctx, build.Claim(team, "class-a-2").Class("full-class-reject").Obj()),
			"no free /32 in pool full-class-a: nothing is free")
		waits := specs.Created(ctx, k8s, build.Claim(team, "class-b-2").Class("full-class-wait").Obj())
		expectExhausted(ctx, waits, "no free /32 in pool full-class-b: the claim is bound as soon as one is released")
	})

	It("serves claims that wait by class from a pool that is added", func(ctx context.Context) {
		waits := specs.Stored(ctx, k8s, build.Claim(team, "class-b-2").Obj())
		specs.Pool(ctx, k8s, build.Pool("full-class-c").Domain("exhaustion").CIDR("10.28.5.0/31").Classes("full-class-wait").Obj())
		expectBound(ctx, waits, "10.28.5.0/32")
	})

	It("makes a child pool wait for room in its parent", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("full-parent").Domain("exhaustion").CIDR("10.28.6.0/24").Obj())
		first := specs.Created(ctx, k8s, build.Pool("full-child-1").Child("full-parent", 25).Obj())
		Expect(specs.Created(ctx, k8s, build.Pool("full-child-2").Child("full-parent", 25).Obj()).Spec.CIDR).To(Equal("10.28.6.128/25"))
		third := build.Pool("full-child-3").Child("full-parent", 25).Obj()
		Expect(recordingClient.Create(ctx, third)).To(Succeed())
		Expect(recordingClient.takeWarnings()).To(Equal([]string{"no free /25 in pool full-parent: nothing is free: the pool waits"}))
		Expect(third.Spec.CIDR).To(BeEmpty())
		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, third).Status.Conditions) }).Should(Equal(map[string]string{
			"Ready": "False/PoolExhausted", "Allocated": "False/PoolExhausted", "Exhausted": "False/HasRoom",
		}))
		Expect(third.Status.Phase).To(Equal(v1alpha1.PoolPending))
		unwanted(ctx, first)
		Expect(specs.Ready(ctx, k8s, third).Spec.CIDR).To(Equal("10.28.6.0/25"))
	})

	It("refuses a child pool with HTTP 507 if its parent is set to reject", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("full-parent-reject").Domain("exhaustion").CIDR("10.28.7.0/24").Rejects().Obj())
		specs.Created(ctx, k8s, build.Pool("full-reject-1").Child("full-parent-reject", 25).Obj())
		specs.Created(ctx, k8s, build.Pool("full-reject-2").Child("full-parent-reject", 25).Obj())
		third := build.Pool("full-reject-3").Child("full-parent-reject", 25).Obj()
		expectInsufficient(recordingClient, recordingClient.Create(ctx, third.DeepCopy()), "no free /25 in pool full-parent-reject: nothing is free")
		Expect(specs.IsGone(ctx, k8s, third)()).To(BeTrue())
		Expect(recordsOf(ctx, third)).To(BeEmpty())
	})
})
