package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has 10.34.0.0/16 of a separate routing domain.
var _ = Describe("static-block", Ordered, ContinueOnFailure, func() {
	const team, strangers = "static-block", "static-block-strangers"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Namespace(ctx, k8s, strangers)
		specs.Created(ctx, k8s, build.Class("static").Length(24).Obj())
		specs.Pool(ctx, k8s, build.Pool("static-a").Domain("static-block").CIDR("10.34.0.0/20").Reserved("10.34.15.0/24").Classes("static").Obj())
		specs.Pool(ctx, k8s, build.Pool("static-b").Domain("static-block").CIDR("10.34.16.0/20").Classes("static").Obj())
		specs.Pool(ctx, k8s, build.Pool("static-hosts").Domain("static-block").CIDR("10.34.32.0/24").Network(24, "10.34.32.1").Ranges("10.34.32.0/25").Obj())
		expectBound(ctx, specs.Created(ctx, k8s, build.Claim(team, "held").Pool("static-a").CIDR("10.34.4.0/24").Obj()), "10.34.4.0/24")
	})

	// refused asks for a block that is not available, and returns the message.
	refused := func(ctx context.Context, namespace, pool, cidr string) string {
		GinkgoHelper()
		claim := build.Claim(namespace, unused()).Pool(pool).CIDR(cidr).Obj()
		err := k8s.Create(ctx, claim.DeepCopy())
		Expect(err).To(Satisfy(apierrors.IsConflict), "%v", err)
		Expect(specs.IsGone(ctx, k8s, claim)()).To(BeTrue())
		Expect(recordsOf(ctx, claim)).To(BeEmpty())
		Expect(err.Error()).To(And(ContainSubstring("spec.cidr: "+cidr), ContainSubstring("leave cidr out to get a free block, or ask for another")))
		return err.Error()
	}

	It("is given to a claim that asks a pool for it", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "by-pool").Pool("static-a").CIDR("10.34.8.0/22").Obj())
		expectBound(ctx, claim, "10.34.8.0/22")
		Expect(claim.Spec.PrefixLength).To(HaveValue(Equal(int32(22))))
		Expect(claim.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
	})

	It("is given to a claim that asks a class for it, from the pool in which it lies", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "by-class").Class("static").CIDR("10.34.20.0/24").Obj())
		expectBound(ctx, claim, "10.34.20.0/24")
		Expect(claim.Status.PoolRef.Name).To(Equal("static-b"))
	})

	It("may be a single address, with the length stated or not", func(ctx context.Context) {
		expectBound(ctx, specs.Created(ctx, k8s, build.Claim(team, "address").Pool("static-hosts").CIDR("10.34.32.9/32").Obj()), "10.34.32.9/32")
		stated := specs.Created(ctx, k8s, build.Claim(team, "address-stated").Pool("static-hosts").CIDR("10.34.32.10/32").Length(32).Obj())
		expectBound(ctx, stated, "10.34.32.10/32")
		Expect(stated.Status.Address).To(Equal("10.34.32.10"))
	})

	DescribeTable("is refused as in use", func(ctx context.Context, cidr string) {
		Expect(refused(ctx, team, "static-a", cidr)).To(ContainSubstring(cidr + " conflicts with 10.34.4.0/24 of pool static-a, held by IPClaim static-block/held"))
	},
		Entry("if another claim holds it", "10.34.4.0/24"),
		Entry("if it is a part of another claim's block", "10.34.4.128/25"),
		Entry("if it is an address of another claim's block", "10.34.4.7/32"),
		Entry("if another claim holds a part of it", "10.34.4.0/23"),
	)

	It("does not show its holder to a stranger", func(ctx context.Context) {
		message := refused(ctx, strangers, "static-a", "10.34.4.0/24")
		Expect(message).To(ContainSubstring("in use"))
		Expect(message).NotTo(ContainSubstring("held"))
		Expect(message).NotTo(ContainSubstring(team + "/"))
		message = refused(ctx, strangers, "static-a", "10.34.4.128/25")
		Expect(message).NotTo(ContainSubstring("10.34.4.0/24"))
	})

	It("does not show the waiting claim to a stranger either", func(ctx context.Context) {
		holder := specs.Created(ctx, k8s, build.Claim(team, "late-held").Pool("static-late").CIDR("10.34.48.0/24").Obj())
		Eventually(phase(ctx, holder)).Should(Equal(v1alpha1.ClaimPending))
		strange := specs.Created(ctx, k8s, build.Claim(strangers, "late-strange").Pool("static-late").CIDR("10.34.48.0/24").Obj())
		specs.Pool(ctx, k8s, build.Pool("static-late").Domain("static-block").CIDR("10.34.48.0/20").Obj())
		expectBound(ctx, holder, "10.34.48.0/24")
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, strange).Status.Conditions)["Pending"] }).Should(Equal("True/Conflict"))
		for _, condition := range strange.Status.Conditions {
			Expect(condition.Message).To(HavePrefix("10.34.48.0/24 is in use in pool static-late"))
			Expect(condition.Message).NotTo(ContainSubstring("late-held"))
		}
	})

	It("does not show the platform's blocks to a tenant", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("static-platform").Child("static-b", 24).Obj()) // its own block is held by the platform
		block := specs.Stored(ctx, k8s, build.Pool("static-platform").Obj()).Spec.CIDR
		Expect(refused(ctx, strangers, "static-b", block)).NotTo(ContainSubstring("static-platform"))
	})

	It("is refused as in use of a class too", func(ctx context.Context) {
		err := k8s.Create(ctx, build.Claim(team, "by-class-2").Class("static").CIDR("10.34.20.0/24").Obj())
		Expect(err).To(Satisfy(apierrors.IsConflict))
		Expect(err.Error()).To(ContainSubstring("10.34.20.0/24 conflicts with 10.34.20.0/24 of pool static-b, held by IPClaim static-block/by-class"))
	})

	DescribeTable("is refused if it is withheld:", func(ctx context.Context, pool, cidr string) {
		Expect(refused(ctx, team, pool, cidr)).To(ContainSubstring(cidr + " is not handed out by pool " + pool + ": it is reserved, a gateway or edge address, or outside its ranges"))
	},
		Entry("reserved", "static-a", "10.34.15.0/24"),
		Entry("partly reserved", "static-a", "10.34.14.0/23"),
		Entry("a gateway", "static-hosts", "10.34.32.1/32"),
		Entry("a network address", "static-hosts", "10.34.32.0/32"),
		Entry("outside of the ranges", "static-hosts", "10.34.32.200/32"),
	)

	It("is refused outside of the pool, and outside of all pools of the class", func(ctx context.Context) {
		expectRefused(ctx, written("IPClaim", team, unused(), `{poolRef: {name: static-a}, cidr: 10.34.16.0/24}`),
			refusal{field: "spec.cidr", value: `"10.34.16.0/24"`, remedy: "lies outside pool static-a, which is 10.34.0.0/20"})
		expectRefused(ctx, written("IPClaim", team, unused(), `{className: static, cidr: 10.99.0.0/24}`),
			refusal{field: "spec.cidr", value: `"10.99.0.0/24"`, remedy: "lies outside"})
	})

	It("is refused, and does not wait, for any onExhaustion of the pool", func(ctx context.Context) {
		Expect(specs.Stored(ctx, k8s, build.Pool("static-a").Obj()).Spec.OnExhaustion).To(Or(BeEmpty(), Equal(v1alpha1.OnExhaustionWait)))
		refused(ctx, team, "static-a", "10.34.4.0/24")
	})

	It("is answered in a dry run as it would be", func(ctx context.Context) {
		free := build.Claim(team, "dry").Pool("static-a").CIDR("10.34.1.0/24").Obj()
		Expect(k8s.Create(ctx, free, client.DryRunAll)).To(Succeed())
		Expect(k8s.Create(ctx, build.Claim(team, "dry").Pool("static-a").CIDR("10.34.4.0/24").Obj(), client.DryRunAll)).To(Satisfy(apierrors.IsConflict))
	})

	It("is not handed out to a claim that asks for any block", func(ctx context.Context) {
		for _, want := range []struct {
			length int32
			cidr   string
		}{{22, "10.34.0.0/22"}, {24, "10.34.5.0/24"}, {23, "10.34.6.0/23"}, {23, "10.34.12.0/23"}, {24, "10.34.14.0/24"}} {
			Expect(specs.Created(ctx, k8s, build.Claim(team, "").Generated("any-").Pool("static-a").Length(want.length).Obj()).Spec.CIDR).To(Equal(want.cidr))
		}
	})

	It("is free again as soon as its claim is deleted", func(ctx context.Context) {
		for range 20 {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("again-").Pool("static-b").CIDR("10.34.31.0/24").Obj())
			Expect(claim.Spec.CIDR).To(Equal("10.34.31.0/24"))
			deleted(ctx, claim)
		}
	})
})

// This topic has 10.69.0.0/24 of a separate routing domain.
var _ = Describe("exact-without-class", Ordered, func() {
	It("binds a claim of an exact block that was made before there was a default class", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "exact-without-class")
		claim := specs.Created(ctx, k8s, build.Claim(team, "early").CIDR("10.69.0.128/28").Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }).Should(Equal("True/NoDefaultClass"))
		class := specs.Created(ctx, k8s, build.Class("exact-late").Length(28).Default().Obj())
		DeferCleanup(withoutDefault, class)
		specs.Pool(ctx, k8s, build.Pool("exact-late").Domain("exact-without-class").CIDR("10.69.0.0/24").Classes("exact-late").Obj())
		expectBound(ctx, claim, "10.69.0.128/28")
		Expect(claim.Spec.ClassName).To(Equal("exact-late"))

		By("keeping the class from then on")
		expectUnchangeable(ctx, claim, `{className: exact-other}`, refusal{field: "spec.className", remedy: "is immutable: make a new claim"})
		Expect(specs.Stored(ctx, k8s, claim).Status.Phase).To(Equal(v1alpha1.ClaimBound))
	})
})
