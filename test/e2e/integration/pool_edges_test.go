package integration

import (
	"context"
	"fmt"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has 10.36.0.0/16 and 2001:db8:36::/48 of a separate routing domain.
var _ = Describe("pools at the edges", Ordered, ContinueOnFailure, func() {
	const team = "pool-edges"
	var wire *witness

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		wire = newWitness()
	})

	message := func(ctx context.Context, pool *v1alpha1.IPPool) func() string {
		return func() string {
			ready := meta.FindStatusCondition(specs.Stored(ctx, k8s, pool).Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil {
				return ""
			}
			return fmt.Sprintf("%s/%s: %s", ready.Status, ready.Reason, ready.Message)
		}
	}
	pending := func(ctx context.Context, claim *v1alpha1.IPClaim) func() string {
		return func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }
	}
	// many returns entries for so many single addresses, every other one from a number on.
	many := func(prefix string, from, count int) (entries []string) {
		for i := range count {
			entries = append(entries, fmt.Sprintf("%s:%x", prefix, from+2*i))
		}
		return entries
	}

	It("have 1,024 ranges and as many reserved ones, and no more", func(ctx context.Context) {
		pool := build.Pool("edges-many").Domain("edges").CIDR("2001:db8:36::/64").
			Ranges(many("2001:db8:36:", 2, 1024)...).Reserved(many("2001:db8:36:", 2, 1023)...).Obj()
		specs.Pool(ctx, k8s, pool)
		Expect(specs.Created(ctx, k8s, build.Claim(team, "last").Pool("edges-many").Length(128).Obj()).Spec.CIDR).To(Equal("2001:db8:36::800/128"))
		Expect(patched(ctx, pool, `{reserved: null}`)).To(Succeed())
		Eventually(func() string { return specs.Stored(ctx, k8s, pool).Status.Capacity.Available }).Should(Equal("1023"))
		tooMany := build.Pool("edges-too-many").Domain("edges").CIDR("2001:db8:36:1::/64").Ranges(many("2001:db8:36:1:", 2, 1025)...).Obj()
		Expect(k8s.Create(ctx, tooMany)).To(MatchError(ContainSubstring("spec.ranges: Too many: 1025: must have at most 1024 items")))
	})

	It("report CannotFit for a claim that even an empty pool could not serve, and let others pass", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-fit").Domain("edges").CIDR("10.36.0.0/24").Ranges("10.36.0.64/26").Obj())
		large := specs.Created(ctx, k8s, build.Claim(team, "large").Pool("edges-fit").Length(24).Obj())
		Eventually(pending(ctx, large)).Should(Equal("True/CannotFit"))
		Expect(meta.FindStatusCondition(large.Status.Conditions, "Pending").Message).To(Equal(
			"no /24 can be handed out: the ranges and reserved addresses of pool edges-fit (10.36.0.0/24) leave a /26 at most, even when it is empty: ask for a smaller block, or change them"))
		Expect(specs.Created(ctx, k8s, build.Claim(team, "small").Pool("edges-fit").Length(27).Obj()).Spec.CIDR).To(Equal("10.36.0.64/27"))
		child := specs.Created(ctx, k8s, build.Pool("edges-fit-child").Child("edges-fit", 25).Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions)["Allocated"] }).Should(Equal("False/CannotFit"))

		By("serving it once the pool is changed")
		deleted(ctx, &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "small"}})
		Expect(patched(ctx, pool, `{ranges: null}`)).To(Succeed())
		Eventually(func() string {
			return specs.Stored(ctx, k8s, large).Status.AllocatedCIDR + specs.Stored(ctx, k8s, child).Status.AllocatedCIDR
		}).ShouldNot(BeEmpty())
	})

	It("refuse it with 422 if they are set to reject", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("edges-refuse").Domain("edges").CIDR("10.36.1.0/24").Reserved("10.36.1.0").Rejects().Obj())
		Expect(wire.Create(ctx, build.Claim(team, "refused").Pool("edges-refuse").Length(24).Obj())).To(
			MatchError(ContainSubstring("spec.prefixLength: Invalid value: 24: the ranges and reserved addresses of pool edges-refuse (10.36.1.0/24) leave a /25 at most")))
		Expect(wire.code()).To(Equal(http.StatusUnprocessableEntity))
	})

	It("report that they are full, and which blocks are held out of range", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-full").Domain("edges").CIDR("10.36.2.0/30").Obj())
		for i := range 4 {
			specs.Created(ctx, k8s, build.Claim(team, fmt.Sprintf("full-%d", i)).Pool("edges-full").Length(32).Obj())
		}
		Eventually(message(ctx, pool)).Should(Equal("True/Full: the pool is full: wait until a block is released, or add a pool"))
		deleted(ctx, &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "full-3"}})
		Eventually(message(ctx, pool)).Should(Equal("True/Ready: the pool hands out blocks"))
		Expect(patched(ctx, pool, `{reserved: [10.36.2.0-10.36.2.2]}`)).To(Succeed())
		Eventually(func() string { return specs.Stored(ctx, k8s, pool).Status.Capacity.OutOfRange }).Should(Equal("3"))
		Expect(pool.Status.UtilizationPercent).To(BeEquivalentTo(75))
	})

	It("are paused by an annotation, with any value", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-paused").Domain("edges").CIDR("10.36.3.0/24").Obj())
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: "false"} })
		Eventually(func() v1alpha1.PoolPhase { return specs.Stored(ctx, k8s, pool).Status.Phase }).Should(Equal(v1alpha1.PoolPaused))
		Expect(message(ctx, pool)()).To(Equal("False/Paused: the annotation ipam.cadastre.dev/paused pauses the pool, whatever its value: remove it to hand out blocks again"))
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
		specs.Ready(ctx, k8s, pool)
	})

	It("get back a removed finalizer, unless they are paused", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-finalizer").Domain("edges").CIDR("10.36.4.0/24").Obj())
		specs.Created(ctx, k8s, build.Claim(team, "held").Pool("edges-finalizer").Length(32).Obj())
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Finalizers = nil })
		Eventually(func() []string { return specs.Stored(ctx, k8s, pool).Finalizers }).Should(ContainElement(v1alpha1.FinalizerPool))
	})

	It("have a gateway that is link-local", func(ctx context.Context) {
		pool := build.Pool("edges-gateway").Domain("edges").CIDR("2001:db8:36:2::/64").Network(64, "fe80::1").Obj()
		pool = specs.Pool(ctx, k8s, pool)
		Expect(pool.Status.Capacity.Withheld).To(Equal("1")) // the subnet-router anycast address
	})

	It("warn of class names that have no effect", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("edges-six").V6().Obj())
		Eventually(func() []string { // the class may not have been seen yet
			Expect(wire.Create(ctx, build.Pool("edges-classes").Domain("edges").CIDR("10.36.5.0/24").Classes("edges-none", "edges-six").Obj(), client.DryRunAll)).To(Succeed())
			return wire.takeWarnings()
		}).Should(Equal([]string{
			`spec.classNames: there is no IPClass "edges-none": create it, or correct the name`,
			`spec.classNames: IPClass "edges-six" does not hand out IPv4, the family of this pool: remove it, as it is not served from here`,
		}))
	})

	It("name the holders and the records that keep them, and how to release those", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("edges-retain").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj())
		pool := specs.Pool(ctx, k8s, build.Pool("edges-kept").Domain("edges").CIDR("10.36.6.0/24").Classes("edges-retain").Obj())
		claim := specs.Created(ctx, k8s, build.Claim(team, "kept").Class("edges-retain").Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(k8s.Delete(ctx, pool)).To(MatchError(ContainSubstring("pool edges-kept is in use by 1 allocation (IPClaim pool-edges/kept): delete it first")))
		deleted(ctx, claim)
		record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: claim.Spec.AllocationName}}
		Eventually(func() v1alpha1.AllocationState { return specs.Stored(ctx, k8s, record).Spec.State }).Should(Equal(v1alpha1.AllocationRetained))
		Eventually(func() error { return k8s.Delete(ctx, pool, client.DryRunAll) }).Should(MatchError(And(
			ContainSubstring("pool edges-kept is in use by 1 allocation: IPAllocation pool-edges/"+record.Name+" is retained"),
			ContainSubstring(": delete it to release the block"))))
	})
})
