package replicas

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

var _ = Describe("32 clients create 2,000 claims at two replicas", Ordered, func() {
	const clients = 32
	each := suite.Sized(63, 20) // 2,016
	var w *world

	BeforeAll(func() {
		w = start(cluster.Options{Managers: 2})
		w.Namespace("load")
		w.Pools(build.Pool("load").CIDR("10.0.0.0/12").Obj())
	})

	It("answers each with a block, no two of which overlap", func(ctx context.Context) {
		var mu sync.Mutex
		var blocks []netip.Prefix
		var failures []error
		var creating sync.WaitGroup
		for n := range clients {
			creating.Go(func() {
				as := w.Client(w.Config())
				for i := range each {
					claim := build.Claim("load", fmt.Sprintf("c-%d-%d", n, i)).Pool("load").Length(int32(24 + i%9)).Obj()
					err := as.Create(ctx, claim)
					mu.Lock()
					if err != nil {
						failures = append(failures, err)
					} else {
						blocks = append(blocks, netip.MustParsePrefix(claim.Spec.CIDR)) // panics if there is none
					}
					mu.Unlock()
				}
			})
		}
		creating.Wait()
		Expect(failures).To(BeEmpty())
		Expect(blocks).To(HaveLen(clients * each))
		expectDisjoint(blocks)
		served := w.Balancer.Stats()
		AddReportEntry("connections by replica", fmt.Sprint(served))
	})

	It("binds every one of them", func(ctx context.Context) {
		Eventually(func() int {
			bound := 0
			for _, c := range w.claims(ctx, "load") {
				if c.Status.Phase == v1alpha1.ClaimBound {
					bound++
				}
			}
			return bound
		}).Should(Equal(clients * each))
		expectHeld(w.claims(ctx, "load"), w.records(ctx, "load"))
	})

	It("is as free as before when all are deleted", func(ctx context.Context) {
		var deleting errgroup.Group // one call for all of them takes the API server more than the minute that it has
		for n := range clients {
			as := w.Client(w.Config())
			deleting.Go(func() error {
				for i := range each {
					claim := build.Claim("load", fmt.Sprintf("c-%d-%d", n, i)).Obj()
					if err := as.Delete(ctx, claim); err != nil {
						return err
					}
				}
				return nil
			})
		}
		Expect(deleting.Wait()).To(Succeed())
		Eventually(func() int { return len(w.records(ctx, "load")) }).Should(BeZero())
		Eventually(func() string { return w.available(ctx, "load") }).Should(Equal("1048576"))
	})
})

var _ = Describe("a replica is killed between record and answer", Ordered, func() {
	const clients = 16
	kills := suite.Sized(12, 5)
	var w *world

	BeforeAll(func() {
		w = start(cluster.Options{Managers: 2})
		w.Namespace("kill")
		w.Pools(build.Pool("kill").CIDR("10.0.0.0/16").Obj())
	})

	It("hands out nothing twice, and collects the orphans", func(ctx context.Context) {
		done := make(chan struct{})
		var creating sync.WaitGroup
		for n := range clients {
			creating.Go(func() {
				as := w.Client(w.Config())
				for i := 0; ; i++ {
					select {
					case <-done:
						return
					default: // a failed create is tried under the next name
						_ = as.Create(ctx, build.Claim("kill", fmt.Sprintf("c-%d-%d", n, i)).Pool("kill").Length(32).Obj())
					}
				}
			})
		}
		for n := range kills {
			before := len(w.claims(ctx, "kill"))
			Eventually(func() int { return len(w.claims(ctx, "kill")) }).Should(BeNumerically(">", before+20))
			Expect(w.Managers[n%2].Kill()).To(Succeed())
			Expect(w.Managers[n%2].Restart(ctx)).To(Succeed())
		}
		close(done)
		creating.Wait()

		claims, records := w.claims(ctx, "kill"), w.records(ctx, "kill")
		orphans := len(records) - len(claims)
		AddReportEntry("orphans", fmt.Sprintf("%d of %d records after %d kills", orphans, len(records), kills))
		Expect(orphans).To(BeNumerically(">", 0), "no kill hit between record and answer: this shows nothing")
		expectHeld(claims, records)
		expectDisjoint(blocksOf(claims))
		Eventually(func() int { return len(w.records(ctx, "kill")) }).Should(Equal(len(w.claims(ctx, "kill"))))
		expectHeld(w.claims(ctx, "kill"), w.records(ctx, "kill"))
	})
})

// blocksOf returns the blocks of the claims that have one.
func blocksOf(claims []v1alpha1.IPClaim) []netip.Prefix {
	var blocks []netip.Prefix
	for _, c := range claims {
		if c.Spec.CIDR != "" {
			blocks = append(blocks, netip.MustParsePrefix(c.Spec.CIDR))
		}
	}
	return blocks
}
