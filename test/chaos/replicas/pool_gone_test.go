package replicas

import (
	"context"
	"fmt"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/proxy"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// heldBack bounds for how long the record of x is held back. An attempt is given up after 3.5 s,
// which would show nothing.
const heldBack = 2500 * time.Millisecond

// rivals holds two pools on one CIDR, the second to be made when the first is gone, and the objects
// to be created in each.
type rivals struct {
	team           string
	oldPool, again v1alpha1.Pool
	x, y           client.Object
	// recordedIn is the namespace of x's record.
	recordedIn string
}

// rivalsOf returns the rivals for one kind of pool. All are named after the team.
func rivalsOf(team string, pool func(name string) v1alpha1.Pool, claim func(b *build.ClaimBuilder, pool string) *build.ClaimBuilder) rivals {
	ask := func(name, suffix string) client.Object {
		return claim(build.Claim(team, name), team+suffix).Length(32).Obj()
	}
	return rivals{
		team: team, recordedIn: team, oldPool: pool(team + "-old"), again: pool(team + "-new"),
		x: ask("x", "-old"), y: ask("y", "-new"),
	}
}

func inPool(b *build.ClaimBuilder, pool string) *build.ClaimBuilder { return b.Pool(pool) }

func inLocalPool(b *build.ClaimBuilder, pool string) *build.ClaimBuilder { return b.LocalPool(pool) }

func rootPools(cidr string) func(string) v1alpha1.Pool {
	return func(name string) v1alpha1.Pool { return build.Pool(name).CIDR(cidr).Obj() }
}

var _ = Describe("a pool is deleted, and another is made on its CIDR, while a block of it is being recorded", Ordered, ContinueOnFailure, func() {
	var w *world

	BeforeAll(func() {
		w = start(cluster.Options{Managers: 2, Proxied: true})
	})

	// race holds x's record back, lets the old pool go, makes the new one and y in it, and releases
	// x. It expects that exactly one of x and y holds its block.
	race := func(ctx context.Context, r rivals, remove func(context.Context, client.Object)) {
		GinkgoHelper()
		w.Pools(r.oldPool)
		release := w.during(ctx, r)
		remove(ctx, r.oldPool)
		Eventually(func() error { return w.Create(ctx, r.again) }).Should(Succeed())
		Eventually(func() error { return w.Create(ctx, r.y) }).Should(Succeed())
		release()
		both := func() []string { return w.held(ctx, r.x, r.y) }
		Eventually(both, 15*time.Second).Should(HaveLen(1), "exactly one of x and y holds its block")
		Consistently(both, 2*time.Second).Should(HaveLen(1), "exactly one of x and y holds its block")
	}

	It("root pools: one of two claims gives way", func(ctx context.Context) {
		w.Namespace("root")
		race(ctx, rivalsOf("root", rootPools("10.1.0.0/28"), inPool), w.removed)
	})

	It("child pools: one of two claims gives way", func(ctx context.Context) {
		w.Namespace("child")
		w.Pools(build.Pool("child-parent").CIDR("10.2.0.0/24").Obj())
		race(ctx, rivalsOf("child", func(name string) v1alpha1.Pool {
			return build.Pool(name).Child("child-parent", 28).CIDR("10.2.0.16/28").Obj()
		}, inPool), w.removed)
	})

	It("LocalIPPools: one of two claims gives way", func(ctx context.Context) {
		w.Namespace("local")
		race(ctx, rivalsOf("local", func(name string) v1alpha1.Pool {
			return build.Pool(name).CIDR("10.3.0.0/28").In("local")
		}, inLocalPool), w.removed)
	})

	It("a child pool that is being recorded, and its parent goes: one of it and a claim gives way", func(ctx context.Context) {
		w.Namespace("parent")
		r := rivalsOf("parent", rootPools("10.4.0.0/28"), inPool)
		r.x, r.recordedIn = build.Pool("parent-x").Child("parent-old", 29).Obj(), cluster.Namespace
		race(ctx, r, w.removed)
	})

	It("a pool that is forced away: one of two claims gives way", func(ctx context.Context) {
		w.Namespace("forced")
		race(ctx, rivalsOf("forced", rootPools("10.5.0.0/28"), inPool), w.forced)
	})

	It("a pool that is forced away with a block in it: no other claim gets that", func(ctx context.Context) {
		w.Namespace("used")
		// The cluster deletes a namespace's own pools without asking the operator.
		r := rivalsOf("used", func(name string) v1alpha1.Pool {
			return build.Pool(name).CIDR("10.6.0.0/28").In("used")
		}, inLocalPool)
		w.Pools(r.oldPool)
		z := build.Claim("used", "z").LocalPool("used-old").Length(32).Obj()
		Expect(w.Create(ctx, z)).To(Succeed())
		Eventually(func() []string { return w.held(ctx, z) }).Should(HaveLen(1))
		release := w.during(ctx, r)
		w.forced(ctx, r.oldPool)
		release()
		Consistently(func() error { return w.Create(ctx, r.again.DeepCopyObject().(client.Object)) }, 3*time.Second).
			Should(HaveOccurred(), "a pool was made on the CIDR of blocks that are in use")
		Expect(w.held(ctx, z)).To(HaveLen(1))

		Expect(w.Delete(ctx, z)).To(Succeed())
		Expect(w.Delete(ctx, r.x)).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "not found")))
		Eventually(func() error { return w.Create(ctx, r.again) }).Should(Succeed())
		Eventually(func() error { return w.Create(ctx, r.y) }).Should(Succeed())
		Eventually(func() []string { return w.held(ctx, r.y) }).Should(HaveLen(1))
	})
})

// during begins to create x, and returns when its record is on its way. The returned function
// releases the record, and waits for the answer to x.
func (w *world) during(ctx context.Context, r rivals) (release func()) {
	GinkgoHelper()
	var held []*proxy.HeldCreate
	for _, m := range w.Managers {
		held = append(held, m.API.HoldCreate(fmt.Sprintf("namespaces/%s/ipallocations", r.recordedIn)))
	}
	let := func() {
		for _, h := range held {
			h.Release()
		}
	}
	answered := make(chan error, 1)
	go func() { answered <- w.Client(w.Config()).Create(ctx, r.x.DeepCopyObject().(client.Object)) }()
	select {
	case <-held[0].Arrived():
		held[1].Release()
	case <-held[1].Arrived():
		held[0].Release()
	case err := <-answered:
		Fail(fmt.Sprintf("x was answered before it was recorded: %v", err))
	}
	late := time.AfterFunc(heldBack, let)
	return func() {
		GinkgoHelper()
		late.Stop()
		let()
		Eventually(answered).Should(Receive())
	}
}

// removed deletes a pool with the protections that apply to people.
func (w *world) removed(ctx context.Context, pool client.Object) {
	GinkgoHelper()
	Expect(w.Delete(ctx, pool)).To(Succeed())
	w.Gone(pool)
}

// forced deletes a pool as the cluster does, and removes its finalizers.
func (w *world) forced(ctx context.Context, pool client.Object) {
	GinkgoHelper()
	Expect(w.As("system:kube-controller-manager", "system:masters").Delete(ctx, pool)).To(Succeed())
	err := w.Patch(ctx, pool, build.Merge(`{"metadata":{"finalizers":null}}`))
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	w.Gone(pool)
}

// held returns the blocks that objects hold: claims that are Bound, pools that are Ready.
func (w *world) held(ctx context.Context, objects ...client.Object) []string {
	GinkgoHelper()
	var blocks []string
	for _, obj := range objects {
		err := w.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		if apierrors.IsNotFound(err) {
			continue
		}
		Expect(err).NotTo(HaveOccurred())
		switch o := obj.(type) {
		case *v1alpha1.IPClaim:
			if o.Status.Phase == v1alpha1.ClaimBound {
				blocks = append(blocks, fmt.Sprintf("IPClaim %s: %s", o.Name, o.Spec.CIDR))
			}
		case *v1alpha1.IPPool:
			if o.Status.Phase == v1alpha1.PoolReady {
				blocks = append(blocks, fmt.Sprintf("IPPool %s: %s", o.Name, o.Spec.CIDR))
			}
		}
	}
	return blocks
}

var _ = Describe("Creates of one pool's name at one instant, with different CIDRs", func() {
	const rivals = 4
	rounds := suite.Sized(12, 5)

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
