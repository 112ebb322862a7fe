package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// expectPending waits until a claim reports that it waits, and for what reason.
func expectPending(ctx context.Context, claim *v1alpha1.IPClaim, reason, message string) {
	GinkgoHelper()
	Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions) }).Should(Equal(map[string]string{
		"Ready": "False/" + reason, "Bound": "False/" + reason, "Pending": "True/" + reason, "Exhausted": "False/" + reason,
	}))
	Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimPending))
	Expect(conditionOf(claim.Status.Conditions, v1alpha1.ConditionPending).Message).To(Equal(message))
	Expect(claim.Spec.CIDR).To(BeEmpty())
	Expect(claim.Spec.AllocationName).To(BeEmpty())
}

// expectBound waits until a claim is bound to a block.
func expectBound(ctx context.Context, claim *v1alpha1.IPClaim, cidr string) {
	GinkgoHelper()
	Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions) }).Should(Equal(map[string]string{
		"Ready": "True/Bound", "Bound": "True/Bound", "Pending": "False/Bound", "Exhausted": "False/Bound",
	}))
	Expect(claim.Spec.CIDR).To(Equal(cidr))
	Expect(claim.Status.AllocatedCIDR).To(Equal(cidr))
	Expect(claim.Status.BoundAllocationRef).To(Equal(&v1alpha1.AllocationReference{Name: claim.Spec.AllocationName}))
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

	It("makes a claim of an unknown class wait for the class, and then for a pool of it", func(ctx context.Context) {
		claim := build.Claim(team, "class").Class("late-class").Obj()
		admitted(ctx, claim, `there is no IPClass "late-class" that this namespace may use: create it, or name another one: the claim waits`)
		expectPending(ctx, claim, v1alpha1.ReasonClassNotFound, `there is no IPClass "late-class" that this namespace may use: create it, or name another one`)

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
		admitted(ctx, claim, `no IPv4 pool that this namespace may use backs the IPClass "late-backing": add the class to the classNames of one, or change the visibility of one that backs it: the claim waits`)
		expectPending(ctx, claim, v1alpha1.ReasonNoPoolForClass, `no IPv4 pool that this namespace may use backs the IPClass "late-backing": add the class to the classNames of one, or change the visibility of one that backs it`)
		Expect(patched(ctx, pool, `{classNames: [late-backing]}`)).To(Succeed())
		expectBound(ctx, claim, "10.26.1.0/24")
	})

	It("makes a claim of an unknown pool wait for the pool", func(ctx context.Context) {
		claim := build.Claim(team, "pool").Pool("late-pool").Length(24).Obj()
		admitted(ctx, claim, `there is no IPPool "late-pool" that this namespace may use: create it, name another one, or ask for the right to use it and then create this object again: the claim waits`)
		expectPending(ctx, claim, v1alpha1.ReasonPoolNotFound, `there is no IPPool "late-pool" that this namespace may use: create it, name another one, or ask for the right to use it and then create this object again`)
		specs.Created(ctx, k8s, build.Pool("late-pool").Domain("waiting").CIDR("10.26.2.0/24").Obj())
		expectBound(ctx, claim, "10.26.2.0/24")
	})

	It("makes a claim that selects no pool wait until one is labeled", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("late-label").Domain("waiting").CIDR("10.26.3.0/24").Obj())
		claim := build.Claim(team, "selector").Selecting("late", "label").Length(24).Obj()
		admitted(ctx, claim, "spec.poolSelector selects no pool that this namespace may use: label one, or change the selector: the claim waits")
		expectPending(ctx, claim, v1alpha1.ReasonPoolNotFound, "spec.poolSelector selects no pool that this namespace may use: label one, or change the selector")
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
		admitted(ctx, claim, "pool late-child has no CIDR yet: wait until it has, or use another pool: the claim waits")
		expectPending(ctx, claim, v1alpha1.ReasonPoolNotReady, "pool late-child has no CIDR yet: wait until it has, or use another pool")

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
		admitted(ctx, claim, why+": the claim waits")
		expectPending(ctx, claim, v1alpha1.ReasonNoDefaultClass, why)
		specs.Created(ctx, k8s, build.Pool("late-default").Domain("waiting").CIDR("2001:db8:26::/48").Classes("late-default").Obj())
		class := specs.Created(ctx, k8s, build.Class("late-default").V6().Length(64).Default().Obj())
		DeferCleanup(func(ctx context.Context) { deleted(ctx, class) })
		expectBound(ctx, claim, "2001:db8:26::/64")
		Expect(claim.Spec.ClassName).To(Equal("late-default"))
	})

	It("leaves a claim of a class of another provisioner alone, and reports it", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("late-foreign").With(func(s *v1alpha1.IPClassSpec) { s.Provisioner = "example.com/other" }).Obj())
		specs.Created(ctx, k8s, build.Pool("late-foreign").Domain("waiting").CIDR("10.26.6.0/24").Classes("late-foreign").Obj())
		claim := build.Claim(team, "foreign").Class("late-foreign").Length(28).Obj()
		admitted(ctx, claim, `the IPClass "late-foreign" is served by another provisioner: wait until that has served the claim, or name another class: the claim waits`)
		expectPending(ctx, claim, v1alpha1.ReasonForeignProvisioner, `the IPClass "late-foreign" is served by another provisioner: wait until that has served the claim, or name another class`)
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }).Should(Equal("True/ForeignProvisioner"))
		Expect(specs.RecordsIn(ctx, k8s, "late-foreign")).To(BeEmpty())
	})

	It("reports it if the created class does not allow the request, and binds once it does", func(ctx context.Context) {
		claim := build.Claim(team, "policy").Class("late-policy").Length(20).Obj()
		admitted(ctx, claim, `there is no IPClass "late-policy" that this namespace may use: create it, or name another one: the claim waits`)
		specs.Created(ctx, k8s, build.Pool("late-policy").Domain("waiting").CIDR("10.27.0.0/16").Classes("late-policy").Obj())
		class := specs.Created(ctx, k8s, build.Class("late-policy").Lengths(24, 28).Obj())
		expectPending(ctx, claim, v1alpha1.ReasonPolicyViolation, "spec.prefixLength: 20: class late-policy allows /24 to /28: ask for one of these")
		Expect(patched(ctx, class, `{allowedPrefixLengths: {min: 20}}`)).To(Succeed())
		expectBound(ctx, claim, "10.27.0.0/20")
	})

	It("reports it if the created parent does not allow a child of that size", func(ctx context.Context) {
		child := build.Pool("late-large").Child("late-small", 16).Obj()
		admitted(ctx, child, `there is no IPPool "late-small" that this pool may use: create it, name another parent, or ask for the right to use it and then create this object again: the pool waits`)
		specs.Created(ctx, k8s, build.Pool("late-small").Domain("waiting").CIDR("10.26.7.0/24").Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions)["Ready"] }).Should(Equal("False/Invalid"))
		Expect(conditionOf(child.Status.Conditions, v1alpha1.ConditionReady).Message).To(
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
			claim := specs.Created(ctx, k8s, build.Claim(team, fmt.Sprintf("waits-%02d", i)).Pool("queue-order").Length(int32(30-i%2)).Obj())
			Expect(claim.Spec.CIDR).To(BeEmpty())
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
		late = specs.Created(ctx, k8s, build.Claim(team, "zz-late").Pool("queue-order").Length(30).Obj())
		Expect(late.Spec.CIDR).To(BeEmpty())
		deleted(ctx, holding[4])
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-00", "waits-02", "waits-04", "waits-06"}))
		Consistently(func() string { return specs.Stored(ctx, k8s, late).Spec.CIDR }).WithTimeout(time.Second).Should(BeEmpty())
	})

	It("serves larger ones when there is room for them, in their turn", func(ctx context.Context) {
		deleted(ctx, late) // or it takes a block that is too small for those before it
		for i := range 10 {
			deleted(ctx, waiting[2*i]) // likewise, bound or not
		}
		for _, claim := range append(holding[5:], holding[1]) {
			deleted(ctx, claim)
		}
		Eventually(func() []string { return boundOf(ctx, waiting, 1) }).Should(Equal([]string{"waits-01", "waits-03", "waits-05", "waits-07"}))
	})
})

// boundOf returns those of every second claim that are bound.
func boundOf(ctx context.Context, claims []*v1alpha1.IPClaim, from int) []string {
	var names []string
	for i := from; i < len(claims); i += 2 {
		if specs.Stored(ctx, k8s, claims[i]).Status.Phase == v1alpha1.ClaimBound {
			names = append(names, claims[i].Name)
		}
	}
	return names
}
