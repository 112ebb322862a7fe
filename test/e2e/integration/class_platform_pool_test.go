package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

var _ = Describe("class-platform-pool", Ordered, func() {
	const ours, theirs = "class-platform-pool-ours", "class-platform-pool-theirs"
	BeforeAll(func(ctx context.Context) {
		created(ctx, build.NamespaceOf(platformProject, ours))
		namespace(ctx, theirs)
		created(ctx, build.Class("class-platform-pool").Length(32).Obj())
		ready(ctx, created(ctx, build.Pool("class-platform-pool").CIDR("10.67.0.0/24").Classes("class-platform-pool").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility = v1alpha1.VisibilityPlatform
		}).Obj()))
	})

	It("backs a class for the platform's own claims", func(ctx context.Context) {
		Expect(created(ctx, build.Claim(ours, "a").Class("class-platform-pool").Obj()).Spec.CIDR).To(Equal("10.67.0.0/32"))
	})

	It("does not back it for other claims, which wait for another pool", func(ctx context.Context) {
		claim := created(ctx, build.Claim(theirs, "a").Class("class-platform-pool").Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimPending))
		Expect(reasons(claim.Status.Conditions)["Pending"]).To(Equal("True/NoPoolForClass"))
		ready(ctx, created(ctx, build.Pool("class-platform-pool-for-all").CIDR("10.67.1.0/24").Classes("class-platform-pool").Obj()))
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(claim.Spec.CIDR).To(Equal("10.67.1.0/32"))
	})
})
