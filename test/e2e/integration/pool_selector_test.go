package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// selecting returns an edit for claims that select pools by an expression.
func selecting(key string, operator metav1.LabelSelectorOperator, values ...string) func(*v1alpha1.IPClaimSpec) {
	return func(s *v1alpha1.IPClaimSpec) {
		by := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
		s.PoolSelector = v1alpha1.PoolSelectorOf(&by)
	}
}

// This topic has 10.29.0.0/16 and 2001:db8:29::/48 of a separate routing domain.
var _ = Describe("pool-selector", Ordered, ContinueOnFailure, func() {
	const team = "pool-selector"

	BeforeAll(func(ctx context.Context) {
		namespace(ctx, team)
		for name, pool := range map[string]struct{ zone, cidr string }{
			"select-a1": {"a", "10.29.0.0/31"}, "select-a2": {"a", "10.29.1.0/24"},
			"select-b1": {"b", "10.29.2.0/24"}, "select-b6": {"b", "2001:db8:29::/64"},
		} {
			ready(ctx, created(ctx, build.Pool(name).Domain("pool-selector").CIDR(pool.cidr).Label("select-zone", pool.zone).Obj()))
		}
		ready(ctx, created(ctx, build.Pool("select-none").Domain("pool-selector").CIDR("10.29.9.0/24").Obj()))
	})

	It("serves a claim from the first pool by name that has the label and room", func(ctx context.Context) {
		for _, want := range []struct{ cidr, pool string }{
			{"10.29.0.0/32", "select-a1"}, {"10.29.0.1/32", "select-a1"}, {"10.29.1.0/32", "select-a2"},
		} {
			claim := created(ctx, build.Claim(team, "").Generated("a-").Selecting("select-zone", "a").Length(32).Obj())
			expectBound(ctx, claim, want.cidr)
			Expect(claim.Status.PoolRef.Name).To(Equal(want.pool))
			Expect(claim.Spec.PoolRef).To(BeNil())
			Expect(claim.Spec.ClassName).To(BeEmpty())
		}
	})

	It("skips the pools that are too small", func(ctx context.Context) {
		claim := created(ctx, build.Claim(team, "large").Selecting("select-zone", "a").Length(28).Obj())
		expectBound(ctx, claim, "10.29.1.16/28")
	})

	It("serves a claim from a pool of its family", func(ctx context.Context) {
		four := created(ctx, build.Claim(team, "four").Selecting("select-zone", "b").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv4 }).Length(28).Obj())
		expectBound(ctx, four, "10.29.2.0/28")
		six := created(ctx, build.Claim(team, "six").Selecting("select-zone", "b").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Length(80).Obj())
		expectBound(ctx, six, "2001:db8:29::/80")
	})

	It("understands expressions", func(ctx context.Context) {
		in := created(ctx, build.Claim(team, "in").With(selecting("select-zone", metav1.LabelSelectorOpIn, "b", "c")).Length(28).Obj())
		expectBound(ctx, in, "10.29.2.16/28")
		exists := created(ctx, build.Claim(team, "exists").With(selecting("select-zone", metav1.LabelSelectorOpExists)).Length(26).Obj())
		expectBound(ctx, exists, "10.29.1.64/26")
	})

	It("asks for an exact block among those selected", func(ctx context.Context) {
		claim := created(ctx, build.Claim(team, "exact").Selecting("select-zone", "a").CIDR("10.29.1.128/25").Obj())
		expectBound(ctx, claim, "10.29.1.128/25")
		Expect(claim.Status.PoolRef.Name).To(Equal("select-a2"))
	})

	It("looks at labels when a claim is made, and not again once it is bound", func(ctx context.Context) {
		bound := created(ctx, build.Claim(team, "before").Selecting("select-zone", "b").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv4 }).Length(32).Obj())
		expectBound(ctx, bound, "10.29.2.32/32")
		edited(ctx, build.Pool("select-b1").Obj(), func(p *v1alpha1.IPPool) { p.Labels = map[string]string{"select-zone": "moved"} })
		Eventually(func() string { // as soon as the operator has seen it
			moved := created(ctx, build.Claim(team, "").Generated("moved-").Selecting("select-zone", "moved").Length(32).Obj())
			return moved.Spec.CIDR
		}).Should(Equal("10.29.2.33/32"))
		Consistently(phase(ctx, bound), "500ms").Should(Equal(v1alpha1.ClaimBound))
		Expect(bound.Spec.CIDR).To(Equal("10.29.2.32/32"))
	})

	It("never uses a pool that is not selected", func(ctx context.Context) {
		Expect(recordsIn(ctx, "select-none")).To(BeEmpty())
	})
})
