package integration

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

var _ = Describe("queue-order", Ordered, func() {
	var team string
	var holding, waiting []*v1alpha1.IPClaim
	var late *v1alpha1.IPClaim

	BeforeAll(func(ctx context.Context) {
		team = namespace(ctx, "queue-order")
		ready(ctx, created(ctx, build.Pool("queue-order").CIDR("10.65.0.0/27").Obj()))
		for i := range 8 {
			holding = append(holding, created(ctx, build.Claim(team, fmt.Sprintf("holds-%d", i)).Pool("queue-order").Length(30).Obj()))
		}
	})

	bound := func(ctx context.Context) []string {
		var names []string
		for _, claim := range waiting {
			if fresh(ctx, claim).Status.Phase == v1alpha1.ClaimBound {
				names = append(names, claim.Name)
			}
		}
		return names
	}

	It("queues 20 claims of mixed sizes", func(ctx context.Context) {
		for i := range 20 {
			// Ages have a resolution of one second; within one, the name decides.
			claim := created(ctx, build.Claim(team, fmt.Sprintf("waits-%02d", i)).Pool("queue-order").Length(int32(30-i%2)).Obj())
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
		late = created(ctx, build.Claim(team, "zz-late").Pool("queue-order").Length(30).Obj())
		Expect(late.Spec.CIDR).To(BeEmpty())
		deleted(ctx, holding[4])
		Eventually(bound).WithContext(ctx).Should(Equal([]string{"waits-00", "waits-02", "waits-04", "waits-06"}))
		Consistently(func() string { return fresh(ctx, late).Spec.CIDR }).WithTimeout(time.Second).Should(BeEmpty())
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
		if fresh(ctx, claims[i]).Status.Phase == v1alpha1.ClaimBound {
			names = append(names, claims[i].Name)
		}
	}
	return names
}
