package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has 10.30.0.0/16 and 2001:db8:30::/47 of a separate routing domain.
var _ = Describe("family-mismatch", Ordered, ContinueOnFailure, func() {
	const team = "family-mismatch"
	ofFamily := func(family v1alpha1.IPFamily) func(*v1alpha1.IPClaimSpec) {
		return func(s *v1alpha1.IPClaimSpec) { s.IPFamily = family }
	}

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Created(ctx, k8s, build.Class("family-four").Length(28).Obj())
		specs.Created(ctx, k8s, build.Class("family-six").V6().Length(64).Obj())
		// Both back both classes: pools of the wrong family are passed over.
		specs.Pool(ctx, k8s, build.Pool("family-a6").Domain("family-mismatch").CIDR("2001:db8:30::/48").Classes("family-four", "family-six").Label("family", "any").Obj())
		specs.Pool(ctx, k8s, build.Pool("family-b4").Domain("family-mismatch").CIDR("10.30.0.0/24").Classes("family-four", "family-six").Label("family", "any").Obj())
	})

	It("serves a claim from those pools of its class that are of the class's family", func(ctx context.Context) {
		four := specs.Created(ctx, k8s, build.Claim(team, "four").Class("family-four").Obj())
		expectBound(ctx, four, "10.30.0.0/28")
		Expect(four.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
		six := specs.Created(ctx, k8s, build.Claim(team, "six").Class("family-six").Obj())
		expectBound(ctx, six, "2001:db8:30::/64")
		Expect(six.Spec.IPFamily).To(Equal(v1alpha1.IPv6))
	})

	It("counts for a class only the pools of its family", func(ctx context.Context) {
		four := build.Class("family-four").Obj()
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, four).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "256", Allocated: "16", Available: "240", Withheld: "0", OutOfRange: "0"})))
		Expect(four.Status.Pools).To(Equal(int32(1)))
	})

	It("accepts the family of the class, pool or CIDR", func(ctx context.Context) {
		expectBound(ctx, specs.Created(ctx, k8s, build.Claim(team, "same-class").Class("family-four").With(ofFamily(v1alpha1.IPv4)).Obj()), "10.30.0.16/28")
		expectBound(ctx, specs.Created(ctx, k8s, build.Claim(team, "same-pool").Pool("family-a6").With(ofFamily(v1alpha1.IPv6)).Length(64).Obj()), "2001:db8:30:1::/64")
		expectBound(ctx, specs.Created(ctx, k8s, build.Claim(team, "same-cidr").Pool("family-b4").With(ofFamily(v1alpha1.IPv4)).CIDR("10.30.0.128/25").Obj()), "10.30.0.128/25")
	})

	DescribeTable("refuses a claim, and records nothing for it,", func(ctx context.Context, spec string, want refusal) {
		expectRefused(ctx, written("IPClaim", team, unused(), spec), want)
	},
		Entry("of IPv6 that names an IPv4 class", `{className: family-four, ipFamily: IPv6}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "class family-four hands out IPv4: remove ipFamily, or name another class"}),
		Entry("of IPv4 that names an IPv6 class", `{className: family-six, ipFamily: IPv4}`,
			refusal{field: "spec.ipFamily", value: `"IPv4"`, remedy: "class family-six hands out IPv6: remove ipFamily, or name another class"}),
		Entry("of IPv6 that names an IPv4 pool", `{poolRef: {name: family-b4}, ipFamily: IPv6, prefixLength: 64}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "pool family-b4 is IPv4: name a pool of the family that you need"}),
		Entry("of IPv4 that names an IPv6 pool", `{poolRef: {name: family-a6}, ipFamily: IPv4, prefixLength: 28}`,
			refusal{field: "spec.ipFamily", value: `"IPv4"`, remedy: "pool family-a6 is IPv6: name a pool of the family that you need"}),
		Entry("for an IPv6 block of an IPv4 pool", `{poolRef: {name: family-b4}, cidr: "2001:db8:30::/64"}`,
			refusal{field: "spec.cidr", value: `"2001:db8:30::/64"`}),
		Entry("for an IPv4 block of an IPv6 pool", `{poolRef: {name: family-a6}, cidr: 10.30.0.64/28}`,
			refusal{field: "spec.cidr", value: `"10.30.0.64/28"`}),
	)

	It("makes a claim of a class that only pools of the other family back wait for a pool of it", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("family-lonely").Length(28).Obj())
		specs.Pool(ctx, k8s, build.Pool("family-lonely-six").Domain("family-mismatch").CIDR("2001:db8:31::/48").Classes("family-lonely").Obj())
		claim := specs.Created(ctx, k8s, build.Claim(team, "lonely").Class("family-lonely").Obj())
		Expect(claim.Spec.CIDR).To(BeEmpty())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }).Should(Equal("True/NoPoolForClass"))
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }).Should(Equal("True/NoPools"))
		specs.Created(ctx, k8s, build.Pool("family-lonely-four").Domain("family-mismatch").CIDR("10.30.9.0/28").Classes("family-lonely").Obj())
		expectBound(ctx, claim, "10.30.9.0/28")
	})

	It("serves a claim that selects pools of both families from those of the family that it states", func(ctx context.Context) {
		four := specs.Created(ctx, k8s, build.Claim(team, "select-four").Selecting("family", "any").With(ofFamily(v1alpha1.IPv4)).Length(32).Obj())
		expectBound(ctx, four, "10.30.0.32/32")
		six := specs.Created(ctx, k8s, build.Claim(team, "select-six").Selecting("family", "any").With(ofFamily(v1alpha1.IPv6)).Length(64).Obj())
		expectBound(ctx, six, "2001:db8:30:2::/64")
	})
})
