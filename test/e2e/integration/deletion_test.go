package integration

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

var _ = Describe("namespace-deletion", Ordered, func() {
	It("releases the blocks of a namespace, except those that a finalizer still holds", func(ctx context.Context) {
		team := namespace(ctx, "namespace-deletion")
		ready(ctx, created(ctx, build.Pool("namespace-deletion").CIDR("10.63.0.0/24").Obj()))
		for i := range 5 {
			created(ctx, build.Claim(team, fmt.Sprintf("free-%d", i)).Pool("namespace-deletion").Length(32).Obj())
		}
		vm := created(ctx, build.Claim(team, "vm").Pool("namespace-deletion").Length(32).Finalizer("example.com/vm").Obj())
		gone := build.Namespace(team)
		deleted(ctx, gone)
		Eventually(func() []string { return cidrs(recordsIn(ctx, "namespace-deletion")) }).Should(Equal([]string{vm.Spec.CIDR}))
		edited(ctx, vm, func(c *v1alpha1.IPClaim) { c.Finalizers = nil })
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(gone), gone))
		}).WithTimeout(60e9).Should(BeTrue())
		Eventually(available(ctx, "namespace-deletion")).Should(Equal("256"))
	})
})

var _ = Describe("operator-down", Ordered, Serial, func() {
	It("settles the claims that were deleted in the meantime", func(ctx context.Context) {
		team := namespace(ctx, "operator-down")
		ready(ctx, created(ctx, build.Pool("operator-down").CIDR("10.64.0.0/24").Obj()))
		stays := created(ctx, build.Claim(team, "stays").Pool("operator-down").Length(32).Obj())
		goes := created(ctx, build.Claim(team, "goes").Pool("operator-down").Length(32).Obj())
		Expect(running.Managers[0].Kill()).To(Succeed())
		deleted(ctx, goes)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(goes), goes)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(k8s.Create(ctx, build.Claim(team, "refused").Pool("operator-down").Length(32).Obj())).To(MatchError(ContainSubstring("webhook")))
		edited(ctx, stays, func(c *v1alpha1.IPClaim) { c.Labels = map[string]string{"edited": "while-down"} })
		Expect(running.Managers[0].Restart(ctx)).To(Succeed())
		Eventually(func() []string { return cidrs(recordsIn(ctx, "operator-down")) }).Should(Equal([]string{stays.Spec.CIDR}))
	})
})

var _ = Describe("operator-down, classes", Ordered, Serial, func() {
	It("allows edits of classes in the meantime, but no new default", func(ctx context.Context) {
		class := created(ctx, build.Class("operator-down").Length(32).Obj())
		Expect(running.Managers[0].Kill()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(running.Managers[0].Restart(ctx)).To(Succeed()) })
		fresh(ctx, class) // its status is not written any more
		class.Labels = map[string]string{"edited": "while-down"}
		Expect(k8s.Update(ctx, class)).To(Succeed())
		class.Spec.DefaultPrefixLength = new(int32(30))
		Expect(k8s.Update(ctx, class)).To(Succeed())
		class.Spec.DefaultPrefixLength = new(int32(33))
		Expect(k8s.Update(ctx, class.DeepCopy())).To(MatchError(ContainSubstring("must be 32 or less in an IPv4 class")))
		class.Spec.DefaultPrefixLength = new(int32(30))
		class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
		Expect(k8s.Update(ctx, class)).To(MatchError(ContainSubstring("failed calling webhook")))
	})
})

// cidrs returns the blocks of records.
func cidrs(records []v1alpha1.IPAllocation) []string {
	var blocks []string
	for _, r := range records {
		blocks = append(blocks, r.Spec.CIDR)
	}
	return blocks
}
