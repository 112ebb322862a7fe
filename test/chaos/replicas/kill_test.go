package replicas

import (
	"context"
	"fmt"
	"net/netip"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

var _ = Describe("a replica is killed between record and answer", Ordered, func() {
	const clients = 16
	kills := sized(12, 5)
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
