package replicas

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

var _ = Describe("the border between two pools of one subnet moves under load", Ordered, func() {
	const clients, kept = 4, 6
	moves := suite.Sized(30, 8)
	var w *world

	BeforeAll(func() {
		w = start(cluster.Options{Managers: 2})
		w.Namespace("border")
		w.Pools(sharing("left", 0, 63), sharing("right", 64, 127))
	})

	It("no address has two holders, and each lies in what its pool holds", func(ctx context.Context) {
		done := make(chan struct{})
		var creating sync.WaitGroup
		for n := range clients {
			creating.Go(func() { w.comeAndGo(ctx, n, kept, done) })
		}
		for n := range moves {
			if n%2 == 1 {
				Expect(w.Managers[n/2%2].Kill()).To(Succeed())
			}
			w.moveBorder(ctx, 20+rand.IntN(88))
			w.expectCovered(ctx)
			if n%2 == 1 {
				Expect(w.Managers[n/2%2].Restart(ctx)).To(Succeed())
			}
		}
		close(done)
		creating.Wait()
		expectHeld(w.claims(ctx, "border"), w.records(ctx, "border"))
		w.expectCovered(ctx)
	})

	It("leaves one own record to each pool", func(ctx context.Context) {
		Eventually(func(g Gomega) {
			g.Expect(w.records(ctx, cluster.Namespace)).To(HaveLen(2))
		}).Should(Succeed())
		Expect(w.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace("border"))).To(Succeed())
		Eventually(func() int { return len(w.records(ctx, "border")) }).Should(BeZero())
		w.Deleted(sharing("left", 0, 63), sharing("right", 64, 127))
		Eventually(func() int { return len(w.records(ctx, cluster.Namespace)) }).Should(BeZero())
	})
})

// sharing returns a pool that occupies a range of 10.0.0.0/24.
func sharing(name string, from, to int) *v1alpha1.IPPool {
	return build.Pool(name).CIDR("10.0.0.0/24").Occupies(fmt.Sprintf("10.0.0.%d-10.0.0.%d", from, to)).Obj()
}

// comeAndGo creates claims in both pools, and deletes the oldest, until done is closed.
func (w *world) comeAndGo(ctx context.Context, n, kept int, done <-chan struct{}) {
	as := w.Client(w.Config())
	for i := 0; ; i++ {
		select {
		case <-done:
			return
		default: // a create that fails, as a replica is killed, is tried under the next name
			_ = as.Create(ctx, build.Claim("border", fmt.Sprintf("c-%d-%d", n, i)).Pool([]string{"left", "right"}[i%2]).Length(32).Obj())
			_ = as.Delete(ctx, build.Claim("border", fmt.Sprintf("c-%d-%d", n, i-kept)).Obj())
		}
	}
}

// moveBorder gives the left pool the addresses below the border, and the right one the others. One of
// them grows as soon as the other has released what it had there.
func (w *world) moveBorder(ctx context.Context, border int) {
	GinkgoHelper()
	for i, pool := range []*v1alpha1.IPPool{sharing("left", 0, border-1), sharing("right", border, 127), sharing("left", 0, border-1)} {
		Eventually(func() error {
			stored := &v1alpha1.IPPool{}
			if err := w.Get(ctx, client.ObjectKeyFromObject(pool), stored); err != nil {
				return err
			}
			stored.Spec.Ranges = pool.Spec.Ranges
			err := w.Update(ctx, stored)
			if i == 0 && apierrors.IsConflict(err) && strings.Contains(err.Error(), "held by IPPool right") {
				return nil // that is to be made smaller first
			}
			return err
		}).Should(Succeed())
	}
	for _, name := range []string{"left", "right"} {
		Eventually(func() bool {
			stored := &v1alpha1.IPPool{}
			Expect(w.Get(ctx, client.ObjectKey{Name: name}, stored)).To(Succeed())
			allocated := meta.FindStatusCondition(stored.Status.Conditions, v1alpha1.ConditionAllocated)
			return allocated.ObservedGeneration == stored.Generation && allocated.Reason == v1alpha1.ReasonRecorded
		}).Should(BeTrue(), "what %s holds is recorded", name)
	}
}

// expectCovered fails if two claims have one address, if two pools have, or if that of a claim is in no
// own record of its pool. The claims are listed first: what they lie in is released after them.
func (w *world) expectCovered(ctx context.Context) {
	GinkgoHelper()
	var addresses []netip.Prefix
	claims := w.claims(ctx, "border")
	held := map[string][]netip.Prefix{}
	for _, own := range w.records(ctx, cluster.Namespace) {
		record, err := convert.RecordOf(&own)
		Expect(err).NotTo(HaveOccurred())
		held[record.Holder.Name] = append(held[record.Holder.Name], record.Blocks()...)
	}
	for _, left := range held["left"] {
		for _, right := range held["right"] {
			Expect(left.Overlaps(right)).To(BeFalse(), "two pools hold %s and %s", left, right)
		}
	}
	for _, claim := range claims {
		if claim.Spec.AllocationName == "" || !claim.DeletionTimestamp.IsZero() {
			continue
		}
		address := netip.MustParsePrefix(claim.Spec.CIDR)
		addresses = append(addresses, address)
		if w.Get(ctx, client.ObjectKeyFromObject(&claim), &claim) != nil || !claim.DeletionTimestamp.IsZero() {
			continue // it may have been released before the own records were listed
		}
		Expect(held[claim.Spec.PoolRef.Name]).To(ContainElement(Satisfy(func(own netip.Prefix) bool { return own.Overlaps(address) })), "%s of %s", address, claim.Spec.PoolRef.Name)
	}
	expectDisjoint(addresses)
}
