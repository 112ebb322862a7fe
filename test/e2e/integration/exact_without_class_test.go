package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// This topic has 10.69.0.0/24 of a separate routing domain.
var _ = Describe("exact-without-class", Ordered, func() {
	It("binds a claim of an exact block that was made before there was a default class", func(ctx context.Context) {
		team := namespace(ctx, "exact-without-class")
		claim := created(ctx, build.Claim(team, "early").CIDR("10.69.0.128/28").Obj())
		Eventually(func() string { return reasons(fresh(ctx, claim).Status.Conditions)["Pending"] }).Should(Equal("True/NoDefaultClass"))
		class := created(ctx, build.Class("exact-late").Length(28).Default().Obj())
		DeferCleanup(withoutDefault, class)
		ready(ctx, created(ctx, build.Pool("exact-late").Domain("exact-without-class").CIDR("10.69.0.0/24").Classes("exact-late").Obj()))
		expectBound(ctx, claim, "10.69.0.128/28")
		Expect(claim.Spec.ClassName).To(Equal("exact-late"))

		By("keeping the class from then on")
		expectUnchangeable(ctx, claim, `{className: exact-other}`, refusal{field: "spec.className", remedy: "is immutable: make a new claim"})
		Expect(fresh(ctx, claim).Status.Phase).To(Equal(v1alpha1.ClaimBound))
	})
})
