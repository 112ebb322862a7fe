package replicas

import (
	"context"
	"fmt"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

var _ = Describe("Creates of one pool's name at one instant, with different CIDRs", func() {
	const rivals = 4
	rounds := sized(12, 5)

	It("leave one pool, which has its own CIDR recorded", func(ctx context.Context) {
		w := start(cluster.Options{Managers: 3})
		collided := 0
		for round := range rounds {
			created := w.race(ctx, round, rivals)
			if created == 0 { // each gave way to another: it can be created when that record is collected
				collided++
				pool := build.Pool(racer(round)).Domain(racer(round)).CIDR(rival(round, 0)).Obj()
				Eventually(func() error { return w.Create(ctx, pool) }).Should(Succeed())
			}
			Expect(created).To(BeNumerically("<=", 1))
		}
		for round := range rounds {
			w.expectRecorded(ctx, racer(round))
		}
		GinkgoWriter.Printf("%d rounds, in %d of them no create was first\n", rounds, collided)
	})
})

func racer(round int) string { return fmt.Sprintf("racer-%d", round) }

// rival returns a CIDR of a round: no two overlap.
func rival(round, n int) string { return fmt.Sprintf("10.%d.%d.0/24", round, n) }

// race creates a pool with several CIDRs at once, and returns how many creates succeeded.
func (w *world) race(ctx context.Context, round, rivals int) (created int) {
	var racing sync.WaitGroup
	errs := make([]error, rivals)
	for n := range errs {
		racing.Go(func() {
			errs[n] = w.Create(ctx, build.Pool(racer(round)).Domain(racer(round)).CIDR(rival(round, n)).Obj())
		})
	}
	racing.Wait()
	for _, err := range errs {
		if err == nil {
			created++
		}
	}
	return created
}

// expectRecorded waits until a pool is ready and its record has the same block.
func (w *world) expectRecorded(ctx context.Context, name string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		pool, record := &v1alpha1.IPPool{}, &v1alpha1.IPAllocation{}
		g.Expect(w.Get(ctx, client.ObjectKey{Name: name}, pool)).To(Succeed())
		g.Expect(pool.Status.Phase).To(Equal(v1alpha1.PoolReady), "%s: %v", name, pool.Status.Conditions)
		g.Expect(w.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: "ippool." + name}, record)).To(Succeed())
		g.Expect(record.Spec.CIDR).To(Equal(pool.Spec.CIDR))
		g.Expect(record.Spec.ClaimRef.UID).To(Equal(pool.UID))
	}).Should(Succeed())
}
