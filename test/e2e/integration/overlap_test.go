package integration

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has separate routing domains.
var _ = Describe("overlap", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("overlap-four").Domain("overlap").CIDR("10.1.0.0/16").Obj())
		specs.Pool(ctx, k8s, build.Pool("overlap-six").Domain("overlap").CIDR("2001:db8:1::/48").Obj())
		child := specs.Pool(ctx, k8s, build.Pool("overlap-child").Child("overlap-four", 24).Obj())
		Expect(recordsOf(ctx, child)).To(HaveLen(1))
	})

	DescribeTable("refuses a root pool that overlaps another of its routing domain, and names that one", func(ctx context.Context, cidr, overlaps, by string) {
		pool := build.Pool(unused()).Domain("overlap").CIDR(cidr).Obj()
		err := k8s.Create(ctx, pool.DeepCopy())
		Expect(err).To(Satisfy(apierrors.IsConflict))
		Expect(err.Error()).To(ContainSubstring(fmt.Sprintf(
			"spec.cidr: %s conflicts with %s of routing domain overlap, held by IPPool %s: choose another cidr, make this pool a child of the other, or give it another routingDomain",
			cidr, overlaps, by)))
		Expect(specs.IsGone(ctx, k8s, pool)()).To(BeTrue())
		Expect(recordsOf(ctx, pool)).To(BeEmpty())
	},
		Entry("being equal to it", "10.1.0.0/16", "10.1.0.0/16", "overlap-four"),
		Entry("lying inside of it", "10.1.128.0/20", "10.1.0.0/16", "overlap-four"),
		Entry("lying at its end", "10.1.255.255/32", "10.1.0.0/16", "overlap-four"),
		Entry("lying around it", "10.0.0.0/8", "10.1.0.0/16", "overlap-four"),
		Entry("being all of IPv4", "0.0.0.0/0", "10.1.0.0/16", "overlap-four"),
		Entry("being equal to a child of it", "10.1.0.0/24", "10.1.0.0/16", "overlap-four"),
		Entry("being equal to it in IPv6", "2001:db8:1::/48", "2001:db8:1::/48", "overlap-six"),
		Entry("lying inside of it in IPv6", "2001:db8:1:ffff::/64", "2001:db8:1::/48", "overlap-six"),
		Entry("lying around it in IPv6", "2001:db8::/32", "2001:db8:1::/48", "overlap-six"),
	)

	DescribeTable("admits a root pool", func(ctx context.Context, domain, cidr string) {
		pool := specs.Pool(ctx, k8s, build.Pool(unused()).Domain(domain).CIDR(cidr).Obj())
		Expect(recordOf(ctx, pool.Name).Spec.RoutingDomain).To(Equal(domain))
	},
		Entry("next to another, before it", "overlap", "10.0.0.0/16"),
		Entry("next to another, after it", "overlap", "10.2.0.0/15"),
		Entry("next to another in IPv6", "overlap", "2001:db8:2::/48"),
		Entry("equal to one of another routing domain", "overlap-other", "10.1.0.0/16"),
		Entry("around one of another routing domain", "overlap-around", "10.0.0.0/8"),
		Entry("equal to one of another routing domain in IPv6", "overlap-other", "2001:db8:1::/48"),
		Entry("that is all of IPv4", "overlap-all", "0.0.0.0/0"),
		Entry("that is all of IPv6, beside it", "overlap-all", "::/0"),
	)

	It("writes the default routing domain into a root pool that names none", func(ctx context.Context) {
		pool := specs.Created(ctx, k8s, build.Pool("overlap-default").CIDR("192.0.2.0/24").Obj())
		Expect(pool.Spec.RoutingDomain).To(Equal("default"))
		err := k8s.Create(ctx, build.Pool(unused()).Domain("default").CIDR("192.0.2.128/25").Obj())
		Expect(err).To(Satisfy(apierrors.IsConflict))
		Expect(err.Error()).To(ContainSubstring("IPPool overlap-default"))
	})

	It("admits one of many that are created at the same instant", func(ctx context.Context) {
		var creating sync.WaitGroup
		errs := make([]error, 16)
		for i := range errs {
			creating.Go(func() {
				cidr := fmt.Sprintf("10.0.0.0/%d", 8+i) // each lies inside the one before
				errs[i] = k8s.Create(ctx, build.Pool(fmt.Sprintf("overlap-race-%d", i)).Domain("overlap-race").CIDR(cidr).Obj())
			})
		}
		creating.Wait()
		admitted := 0
		for i, err := range errs {
			if err == nil {
				admitted++
				specs.Ready(ctx, k8s, build.Pool(fmt.Sprintf("overlap-race-%d", i)).Obj())
				continue
			}
			Expect(err).To(Satisfy(apierrors.IsConflict), "%v", err)
			Expect(err.Error()).To(ContainSubstring("overlap-race-"))
		}
		Expect(admitted).To(Equal(1))
	})

	It("frees the space of a root pool that is gone", func(ctx context.Context) {
		gone := specs.Pool(ctx, k8s, build.Pool("overlap-gone").Domain("overlap-again").CIDR("10.0.0.0/8").Obj())
		unwanted(ctx, gone)
		var next *v1alpha1.IPPool
		Eventually(func() error {
			next = build.Pool("overlap-next").Domain("overlap-again").CIDR("10.0.0.0/8").Obj()
			return k8s.Create(ctx, next)
		}).Should(Succeed())
		specs.Ready(ctx, k8s, next)
	})
})
