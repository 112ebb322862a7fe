package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// expectPending waits until a claim reports that it waits, and for what reason.
func expectPending(ctx context.Context, claim *v1alpha1.IPClaim, reason, message string) {
	GinkgoHelper()
	Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions) }).Should(Equal(map[string]string{
		"Ready": "False/" + reason, "Pending": "True/" + reason,
	}))
	Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimPending))
	Expect(meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionPending).Message).To(Equal(message))
	Expect(claim.Spec.CIDR).To(BeEmpty())
	Expect(claim.Spec.AllocationName).To(BeEmpty())
}

// answered creates a claim, expects that it has a block at once, or none if that is empty, and
// returns it.
func answered(ctx context.Context, claim *v1alpha1.IPClaim, cidr string) *v1alpha1.IPClaim {
	GinkgoHelper()
	Expect(specs.Created(ctx, k8s, claim).Spec.CIDR).To(Equal(cidr))
	return claim
}

// expectBound waits until a claim is bound to a block, and returns it.
func expectBound(ctx context.Context, claim *v1alpha1.IPClaim, cidr string) *v1alpha1.IPClaim {
	GinkgoHelper()
	Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions) }).Should(Equal(map[string]string{
		"Ready": "True/Bound", "Bound": "True/Bound",
	}))
	Expect(claim.Spec.CIDR).To(Equal(cidr))
	Expect(claim.Status.AllocatedCIDR).To(Equal(cidr))
	Expect(claim.Status.BoundAllocationRef).To(Equal(&v1alpha1.AllocationReference{Name: claim.Spec.AllocationName}))
	return claim
}

// served creates a claim, waits until it is bound to a block, and returns it.
func served(ctx context.Context, claim *v1alpha1.IPClaim, cidr string) *v1alpha1.IPClaim {
	GinkgoHelper()
	return expectBound(ctx, specs.Created(ctx, k8s, claim), cidr)
}

// Missing objects may turn up: such claims and pools are admitted, with a warning, and served as
// soon as they do. This topic has 10.26.0.0/16, 10.27.0.0/16 and 2001:db8:26::/48.
var _ = Describe("waiting", Ordered, ContinueOnFailure, func() {
	const team = "waiting"
	var recordingClient *witness

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		recordingClient = newWitness()
	})

	// admitted creates an object that is admitted with this warning, and no other but one that
	// names the existing classes.
	admitted := func(ctx context.Context, obj client.Object, warning string) {
		GinkgoHelper()
		recordingClient.takeWarnings()
		Expect(recordingClient.Create(ctx, obj)).To(Succeed())
		Expect(recordingClient.code()).To(Equal(201))
		warnings := recordingClient.takeWarnings()
		Expect(warnings[0]).To(Equal(warning))
		for _, more := range warnings[1:] {
			Expect(more).To(HavePrefix("namespace " + team + " may use the IPClasses "))
		}
	}

	// waits creates a claim that is admitted with a warning, and then reports the same.
	waits := func(ctx context.Context, claim *v1alpha1.IPClaim, reason, why string) {
		GinkgoHelper()
		admitted(ctx, claim, why+": the claim waits")
		expectPending(ctx, claim, reason, why)
	}

	It("makes a claim of an unknown class wait for the class, and then for a pool of it", func(ctx context.Context) {
		claim := build.Claim(team, "class").Class("late-class").Obj()
		waits(ctx, claim, v1alpha1.ReasonClassNotFound, `there is no IPClass "late-class" that this namespace may use: create it, or name another one`)

		class := specs.Created(ctx, k8s, build.Class("late-class").Length(24).Obj())
		expectPending(ctx, claim, v1alpha1.ReasonNoPoolForClass, `no IPv4 pool that this namespace may use backs the IPClass "late-class": add the class to the classNames of one, or change the visibility of one that backs it`)
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }).Should(Equal("True/NoPools"))

		specs.Created(ctx, k8s, build.Pool("late-class").Domain("waiting").CIDR("10.26.0.0/24").Classes("late-class").Lengths(24, 24).Obj())
		expectBound(ctx, claim, "10.26.0.0/24")
		Expect(claim.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
		Expect(claim.Spec.PrefixLength).To(HaveValue(Equal(int32(24))))
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }).Should(Equal("True/Ready"))
		Expect(class.Status.Pools).To(Equal(int32(1)))
	})

	It("makes a claim of a class that no pool backs wait until a pool is edited to back it", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("late-backing").Length(24).Obj())
		pool := specs.Pool(ctx, k8s, build.Pool("late-backing").Domain("waiting").CIDR("10.26.1.0/24").Obj())
		claim := build.Claim(team, "backing").Class("late-backing").Obj()
		waits(ctx, claim, v1alpha1.ReasonNoPoolForClass, `no IPv4 pool that this namespace may use backs the IPClass "late-backing": add the class to the classNames of one, or change the visibility of one that backs it`)
		Expect(patched(ctx, pool, `{classNames: [late-backing]}`)).To(Succeed())
		expectBound(ctx, claim, "10.26.1.0/24")
	})

	It("makes a claim of an unknown pool wait for the pool", func(ctx context.Context) {
		claim := build.Claim(team, "pool").Pool("late-pool").Length(24).Obj()
		waits(ctx, claim, v1alpha1.ReasonPoolNotFound, `there is no IPPool "late-pool" that this namespace may use: create it, name another one, or ask for the right to use it and then create this object again`)
		specs.Created(ctx, k8s, build.Pool("late-pool").Domain("waiting").CIDR("10.26.2.0/24").Obj())
		expectBound(ctx, claim, "10.26.2.0/24")
	})

	It("makes a claim that selects no pool wait until one is labeled", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("late-label").Domain("waiting").CIDR("10.26.3.0/24").Obj())
		claim := build.Claim(team, "selector").Selecting("late", "label").Length(24).Obj()
		waits(ctx, claim, v1alpha1.ReasonPoolNotFound, "spec.poolSelector selects no pool that this namespace may use: label one, or change the selector")
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Labels = map[string]string{"late": "label"} })
		expectBound(ctx, claim, "10.26.3.0/24")
	})

	It("makes a child of an unknown parent, and its claims, wait for the parent", func(ctx context.Context) {
		child := build.Pool("late-child").Child("late-parent", 24).Obj()
		admitted(ctx, child, `there is no IPPool "late-parent" that this pool may use: create it, name another parent, or ask for the right to use it and then create this object again: the pool waits`)
		Expect(child.Spec.CIDR).To(BeEmpty())
		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions) }).Should(Equal(map[string]string{
			"Ready": "False/ParentNotReady", "Allocated": "False/ParentNotReady", "Exhausted": "False/HasRoom",
		}))
		Expect(child.Status.Phase).To(Equal(v1alpha1.PoolPending))

		claim := build.Claim(team, "grandchild").Pool("late-child").Length(24).Obj()
		waits(ctx, claim, v1alpha1.ReasonPoolNotReady, "pool late-child has no CIDR yet: wait until it has, or use another pool")

		specs.Created(ctx, k8s, build.Pool("late-parent").Domain("waiting").CIDR("10.26.4.0/23").Obj())
		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions) }).Should(Equal(map[string]string{
			"Ready": "True/Full", "Allocated": "True/Recorded", "Exhausted": "True/PoolExhausted",
		}))
		Expect(child.Spec.CIDR).To(Equal("10.26.4.0/24"))
		Expect(child.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
		expectBound(ctx, claim, "10.26.4.0/24")
	})

	It("makes a claim that names nothing wait for a default class of its family", func(ctx context.Context) {
		claim := build.Claim(team, "default").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Obj()
		const why = "the claim names no class and no pool, and there is no default class for IPv6: set spec.className, or annotate an IPv6 class with ipam.cadastre.dev/is-default-class=true"
		waits(ctx, claim, v1alpha1.ReasonNoDefaultClass, why)
		specs.Created(ctx, k8s, build.Pool("late-default").Domain("waiting").CIDR("2001:db8:26::/48").Classes("late-default").Obj())
		class := specs.Created(ctx, k8s, build.Class("late-default").V6().Length(64).Default().Obj())
		DeferCleanup(func(ctx context.Context) { deleted(ctx, class) })
		expectBound(ctx, claim, "2001:db8:26::/64")
		Expect(claim.Spec.ClassName).To(Equal("late-default"))
	})

	It("asks the provisioner of a class for pools, and serves the claims from them", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("leased").With(func(s *v1alpha1.IPClassSpec) { s.Provisioner = "example.com/ipam" }).Obj())
		demand := func() []v1alpha1.ClassDemand { return specs.Stored(ctx, k8s, class).Status.Demand }
		first := build.Claim(team, "leased-first").Class("leased").Length(25).Obj()
		waits(ctx, first, v1alpha1.ReasonWaitingForProvisioner, `no IPv4 pool that this namespace may use backs the IPClass "leased": wait until its provisioner, example.com/ipam, has made one, or name another class`)
		Eventually(demand).Should(Equal([]v1alpha1.ClassDemand{{PrefixLength: 25, Claims: 1}}))
		specs.Created(ctx, k8s, build.Pool("leased-1").Domain("waiting").CIDR("10.26.6.0/24").Classes("leased").Obj())
		expectBound(ctx, first, "10.26.6.0/25")
		Eventually(demand).Should(BeEmpty())

		second, third := build.Claim(team, "leased-second").Class("leased").Length(25).Obj(), build.Claim(team, "leased-third").Class("leased").Length(25).Obj()
		answered(ctx, second, "10.26.6.128/25")
		admitted(ctx, third, "no free /25 in pool leased-1: nothing is free: the claim waits")
		expectPending(ctx, third, v1alpha1.ReasonWaitingForProvisioner, "no free /25 in pool leased-1: the claim is bound as soon as one is released, or the provisioner example.com/ipam has made another pool")
		Eventually(demand).Should(Equal([]v1alpha1.ClassDemand{{PrefixLength: 25, Claims: 1}}))
		specs.Created(ctx, k8s, build.Pool("leased-2").Domain("waiting").CIDR("10.26.8.0/25").Classes("leased").Obj())
		expectBound(ctx, third, "10.26.8.0/25")
		Eventually(demand).Should(BeEmpty())
	})

	It("reports it if the created class does not allow the request, and binds once it does", func(ctx context.Context) {
		claim := build.Claim(team, "policy").Class("late-policy").Length(20).Obj()
		admitted(ctx, claim, `there is no IPClass "late-policy" that this namespace may use: create it, or name another one: the claim waits`)
		specs.Pool(ctx, k8s, build.Pool("late-policy").Domain("waiting").CIDR("10.27.0.0/16").Classes("late-policy").Obj())
		class := specs.Created(ctx, k8s, build.Class("late-policy").Lengths(24, 28).Obj())
		expectPending(ctx, claim, v1alpha1.ReasonPolicyViolation, "spec.prefixLength: 20: class late-policy allows /24 to /28: ask for one of these")
		By("not holding up those behind it")
		answered(ctx, build.Claim(team, "allowed").Class("late-policy").Length(24).Obj(), "10.27.0.0/24")
		Expect(patched(ctx, class, `{allowedPrefixLengths: {min: 20}}`)).To(Succeed())
		expectBound(ctx, claim, "10.27.16.0/20")
	})

	It("reports it if the created parent does not allow a child of that size", func(ctx context.Context) {
		child := build.Pool("late-large").Child("late-small", 16).Obj()
		admitted(ctx, child, `there is no IPPool "late-small" that this pool may use: create it, name another parent, or ask for the right to use it and then create this object again: the pool waits`)
		specs.Created(ctx, k8s, build.Pool("late-small").Domain("waiting").CIDR("10.26.7.0/24").Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions)["Ready"] }).Should(Equal("False/Invalid"))
		Expect(meta.FindStatusCondition(child.Status.Conditions, v1alpha1.ConditionReady).Message).To(
			Equal("spec.prefixLength: 16: pool late-small (10.26.7.0/24) hands out /24 to /32: ask for one of these"))
	})

	It("warns of nothing if nothing is missing", func(ctx context.Context) {
		recordingClient.takeWarnings()
		Expect(recordingClient.Create(ctx, build.Claim(team, "served").Class("late-policy").Length(28).Obj())).To(Succeed())
		Expect(recordingClient.takeWarnings()).To(BeEmpty())
	})
})

var _ = Describe("queue-order", Ordered, func() {
	var team string
	var holding, waiting []*v1alpha1.IPClaim
	var late *v1alpha1.IPClaim

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "queue-order")
		specs.Pool(ctx, k8s, build.Pool("queue-order").CIDR("10.65.0.0/27").Obj())
		for i := range 8 {
			holding = append(holding, specs.Created(ctx, k8s, build.Claim(team, fmt.Sprintf("holds-%d", i)).Pool("queue-order").Length(30).Obj()))
		}
	})

	bound := func(ctx context.Context) []string {
		var names []string
		for _, claim := range waiting {
			if specs.Stored(ctx, k8s, claim).Status.Phase == v1alpha1.ClaimBound {
				names = append(names, claim.Name)
			}
		}
		return names
	}

	It("queues 20 claims of mixed sizes", func(ctx context.Context) {
		for i := range 20 {
			// Ages have a resolution of one second; within one, the name decides.
			claim := answered(ctx, build.Claim(team, fmt.Sprintf("waits-%02d", i)).Pool("queue-order").Length(int32(30-i%2)).Obj(), "")
			waiting = append(waiting, claim)
		}
		for _, claim := range waiting {
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimExhausted))
		}
	})

	It("serves the oldest that fits, and no claim overtakes", func(ctx context.Context) {
		deleted(ctx, holding[0]) // room for one /30
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-00"}))
		deleted(ctx, holding[3])
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-00", "waits-02"}))
		deleted(ctx, holding[2]) // with the one before it, room for a /29: only 02 has it yet
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-00", "waits-02", "waits-04"}))
		late = answered(ctx, build.Claim(team, "zz-late").Pool("queue-order").Length(30).Obj(), "")
		deleted(ctx, holding[4])
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-00", "waits-02", "waits-04", "waits-06"}))
		Consistently(func() string { return specs.Stored(ctx, k8s, late).Spec.CIDR }).WithTimeout(time.Second).Should(BeEmpty())
	})

	It("serves larger ones when there is room for them, in their turn", func(ctx context.Context) {
		deleted(ctx, late) // or it takes a block that is too small for those before it
		waiting = slices.DeleteFunc(waiting, func(claim *v1alpha1.IPClaim) bool {
			small := *claim.Spec.PrefixLength == 30
			if small {
				deleted(ctx, claim) // likewise, bound or not
			}
			return small
		})
		for _, claim := range append(holding[5:], holding[1]) {
			deleted(ctx, claim)
		}
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-01", "waits-03", "waits-05", "waits-07"}))
	})
})

// expectExhausted waits until a claim reports that there is no room for it.
func expectExhausted(ctx context.Context, claim *v1alpha1.IPClaim, message string) {
	GinkgoHelper()
	Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions) }).Should(Equal(map[string]string{
		"Ready": "False/PoolExhausted", "Exhausted": "True/PoolExhausted",
	}))
	Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimExhausted))
	Expect(meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionExhausted).Message).To(Equal(message))
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
		second := specs.Bound(ctx, k8s, build.Claim(team, "reject-second").Pool("full-reject").Length(32).Obj())

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
		answered(ctx, build.Claim(team, "class-a").Class("full-class-reject").Obj(), "10.28.3.0/32")
		answered(ctx, build.Claim(team, "class-b").Class("full-class-wait").Obj(), "10.28.4.0/32")

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
