package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// This topic has 10.67.0.0/16 and 2001:db8:67::/48 of a separate routing domain. The operator runs
// with the default of --default-ip-family, IPv4.
var _ = Describe("default-family", Ordered, ContinueOnFailure, func() {
	const team = "default-family"
	const none = "the claim names no class and no pool, and there is no default class for IPv4: " +
		"set spec.className, or annotate an IPv4 class with ipam.cadastre.dev/is-default-class=true"
	var six *v1alpha1.IPClass

	annotated := func(ctx context.Context, class *v1alpha1.IPClass, value string) {
		GinkgoHelper()
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"ipam.cadastre.dev/is-default-class":`+value+`}}}`))
		Expect(k8s.Patch(ctx, class, patch)).To(Succeed())
	}

	BeforeAll(func(ctx context.Context) {
		namespace(ctx, team)
		ready(ctx, created(ctx, build.Pool("default-family-six").Domain("default-family").CIDR("2001:db8:67::/48").Classes("default-family-six").Obj()))
		ready(ctx, created(ctx, build.Pool("default-family-four").Domain("default-family").CIDR("10.67.0.0/24").Classes("default-family-a", "default-family-b").Obj()))
		six = created(ctx, build.Class("default-family-six").V6().Length(64).Default().Obj())
		DeferCleanup(withoutDefault, six)
		expectBound(ctx, created(ctx, build.Claim(team, "six").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Obj()), "2001:db8:67::/64")
	})

	It("leaves a claim that names nothing waiting, and does not serve it from the other family", func(ctx context.Context) {
		claim := created(ctx, build.Claim(team, "empty").Obj())
		expectPending(ctx, claim, v1alpha1.ReasonNoDefaultClass, none)
		Expect(claim.Spec.IPFamily).To(BeEmpty())
		deleted(ctx, claim)
	})

	It("serves a claim that names nothing, while the default class is switched, by the next default alone", func(ctx context.Context) {
		a := created(ctx, build.Class("default-family-a").Length(28).Default().Obj())
		DeferCleanup(withoutDefault, a)
		Eventually(func() string {
			claim := build.Claim(team, "as-a").Obj()
			Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			return claim.Spec.ClassName
		}).Should(Equal("default-family-a"))
		annotated(ctx, a, "null")
		Eventually(func() string {
			claim := build.Claim(team, "as-none").Obj()
			Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			Expect(claim.Spec.IPFamily).NotTo(Equal(v1alpha1.IPv6))
			return claim.Spec.ClassName
		}).Should(BeEmpty())
		claim := created(ctx, build.Claim(team, "switched").Obj())
		expectPending(ctx, claim, v1alpha1.ReasonNoDefaultClass, none)
		b := created(ctx, build.Class("default-family-b").Length(26).Default().Obj())
		DeferCleanup(withoutDefault, b)
		expectBound(ctx, claim, "10.67.0.0/26")
		Expect(claim.Spec.ClassName).To(Equal("default-family-b"))
	})
})
