package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// world holds the state that all participants share.
type world struct {
	*cluster.Cluster
	config   Config
	admin    client.Client
	operator client.Client // under the operator's account, for acts of people by force
	unasked  client.Client // the operator is not asked about its deletions of pools
	tenant   *rest.Config
	witness  *witness.Witness
	timeline *timeline
	service  *service

	lastAttempt atomic.Int64
	mu          sync.Mutex
	// asked is when an attempt was first made; releasing when the end of a holder was first
	// requested, by UID.
	asked, releasing map[string]time.Time
	// freed holds blocks that were released lately, to be asked for again.
	freed []netip.Prefix
}

// The pools of the harness. All are small enough for the witness to count them
// address by address.
const (
	poolBig    = "big"    // room for all claims, all sizes, backs the class shared
	poolTight  = "tight"  // never enough: claims wait
	poolReject = "reject" // never enough: claims are refused
	poolHosts  = "hosts"  // single addresses, some of them withheld
	poolKeep   = "keep"   // blocks are retained, backs the class keeping
	poolCool   = "cool"   // blocks cool down
	poolRandom = "random" // strategy Random
	poolParent = "parent" // of child pools
)

// namespaces is the number of namespaces, team-0 and so on. The nemesis deletes them.
const namespaces = 6

func namespaceName(n int) string { return "team-" + strconv.Itoa(n) }

// holdFinalizer is the finalizer of a user of a block.
const holdFinalizer = "torture/in-use"

// furnish makes the tenant, namespaces, classes and pools.
func (w *world) furnish(ctx context.Context) error {
	keeping := build.Class("keeping").Length(28).With(func(s *v1alpha1.IPClassSpec) {
		s.ReclaimPolicy, s.RetentionPeriod = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: retention}
	}).Obj()
	objects := []client.Object{
		build.ClusterBinding("torture", "cluster-admin", build.User("torture")), keeping, build.Class("shared").Length(28).Obj(),
		build.Pool(poolBig).CIDR("10.0.0.0/12").Classes("shared").Obj(),
		build.Pool(poolTight).CIDR("10.64.0.0/26").Obj(),
		build.Pool(poolReject).CIDR("10.65.0.0/26").Rejects().Obj(),
		build.Pool(poolHosts).CIDR("10.66.0.0/24").Network(24, "10.66.0.1").Reserved("10.66.0.64-10.66.0.95").Obj(),
		build.Pool(poolKeep).CIDR("10.67.0.0/22").Classes("keeping").Obj(),
		build.Pool(poolCool).CIDR("10.68.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.ReuseDelay = &metav1.Duration{Duration: time.Second}
		}).Obj(),
		build.Pool(poolRandom).CIDR("10.69.0.0/22").Strategy(v1alpha1.StrategyRandom).Obj(),
		build.Pool(poolParent).CIDR("10.80.0.0/18").Obj(),
	}
	for site := range sites {
		objects = append(objects, sitePool(site, 0))
	}
	objects = append(objects, build.Namespace(siteNamespace))
	for n := range namespaces {
		objects = append(objects, build.Namespace(namespaceName(n)))
	}
	for _, obj := range objects {
		if pool, ok := obj.(*v1alpha1.IPPool); ok {
			pool.Annotations = map[string]string{witness.AskedAnnotation: "yes"}
		}
		if err := w.admin.Create(ctx, obj); err != nil {
			return fmt.Errorf("furnishing the world: %w", err)
		}
	}
	return errors.Join(w.leaveUnasked(ctx), w.refuseClusters(ctx))
}

// wait waits for so long; false if ctx is done before.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// between returns any time from one to the other.
func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

// until checks a condition again and again, at most for so long, and reports whether it became
// true.
func until(ctx context.Context, within time.Duration, condition func() bool) bool {
	return untilEvery(ctx, within, 50*time.Millisecond, condition)
}

func untilEvery(ctx context.Context, within, every time.Duration, condition func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for !condition() {
		if !wait(ctx, every) {
			return false
		}
	}
	return true
}

// quietWithin bounds how long it takes until all is as required when nothing happens any more.
const quietWithin = orphanGrace + 40*time.Second

// quiet waits until the witness has no complaint.
func (w *world) quiet(ctx context.Context, when string) error {
	var open []string
	w.letGoOfAll(ctx)
	settled := untilEvery(ctx, quietWithin, 500*time.Millisecond, func() bool {
		open = w.witness.Unsettled()
		return len(open) == 0
	})
	if settled || ctx.Err() != nil {
		return ctx.Err()
	}
	return w.broken("%s, this is still wrong after %s:\n  %s", when, quietWithin, strings.Join(open[:min(20, len(open))], "\n  "))
}

// broken returns the error for a promise that the end found broken.
func (w *world) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrViolated, fmt.Sprintf(format, args...))
}

// letGoOfAll removes the finalizers of others from claims that are being deleted.
func (w *world) letGoOfAll(ctx context.Context) {
	n := &nemesis{party: &party{world: w, who: "end", Client: w.admin}}
	for ns := range namespaces {
		n.letGoOfClaims(ctx, namespaceName(ns))
	}
	n.letGoOfClaims(ctx, siteNamespace)
	n.letGoOfAddresses(ctx, "", never)
}

// inLine is the number of claims that are made to wait at the end: as many as fit into the tight
// pool, and as many again that wait for these.
const inLine = 16

// serveInOrder makes claims wait in the tight pool and releases its blocks one after the other. The
// witness judges whether waiting claims are served in order: no fault excuses the treatment of
// claims that came after the last.
func (w *world) serveInOrder(ctx context.Context) error {
	p := &party{world: w, who: "end", Client: w.admin}
	for i := range inLine {
		claim := build.Claim(namespaceName(0), fmt.Sprintf("end-%02d", i)).Pool(poolTight).Length(29).Obj()
		if err := p.create(ctx, said("create", claim), claim); err != nil {
			return fmt.Errorf("making claims wait: %w", err)
		}
	}
	countWaiting := func() int { return w.witness.Waiting(poolTight) }
	countReported := func() int { return w.witness.CountReported(poolTight, time.Now()) }
	if !until(ctx, quietWithin, func() bool { return countReported() == countWaiting() }) {
		return w.broken("of %d claims that wait, only %d are reported as waiting", countWaiting(), countReported())
	}
	if countWaiting() == 0 {
		return errors.New("making claims wait: all of them were served")
	}
	inTight := func(c *v1alpha1.IPClaim) bool {
		return c.Spec.PoolRef != nil && c.Spec.PoolRef.Name == poolTight && c.Spec.AllocationName != ""
	}
	for left := 1; left > 0 && countWaiting() > 0 && ctx.Err() == nil; {
		before := countWaiting()
		left = w.endSome(ctx, p, 1, inTight)
		until(ctx, servedWithin, func() bool { return countWaiting() < before }) // a block may be too small for the first
	}
	return w.endClaims(ctx, p, inTight)
}

// servedWithin bounds the wait for the first claim to be served, before another block is released.
const servedWithin = time.Second

// endClaims deletes the selected claims, those that are made to wait included as they are served,
// until none is left.
func (w *world) endClaims(ctx context.Context, p *party, meant func(*v1alpha1.IPClaim) bool) error {
	done := untilEvery(ctx, 2*quietWithin, 300*time.Millisecond, func() bool {
		left := w.endSome(ctx, p, math.MaxInt, meant)
		return left == 0 && w.witness.Waiting(poolTight) == 0
	})
	if !done && ctx.Err() == nil {
		return w.broken("%d claims still wait in pool %s, though all its blocks were given back", w.witness.Waiting(poolTight), poolTight)
	}
	return ctx.Err()
}

// endSome deletes at most so many of the selected claims, and returns how many of them there were.
func (w *world) endSome(ctx context.Context, p *party, most int, meant func(*v1alpha1.IPClaim) bool) int {
	claims := &v1alpha1.IPClaimList{}
	if err := p.List(ctx, claims); err != nil {
		return math.MaxInt // not known
	}
	count := 0
	for i := range claims.Items {
		if !meant(&claims.Items[i]) {
			continue
		}
		if count++; count <= most {
			_ = p.remove(ctx, &claims.Items[i])
		}
	}
	w.letGoOfAll(ctx)
	return count
}

// giveBack deletes everything, after which nothing may be left, and every pool must be as free as before.
func (w *world) giveBack(ctx context.Context) error {
	p := &party{world: w, who: "end", Client: w.admin}
	if !untilEvery(ctx, quietWithin, 500*time.Millisecond, func() bool { return p.endClusters(ctx) }) {
		return w.broken("Clusters do not go away")
	}
	if err := w.endClaims(ctx, p, func(*v1alpha1.IPClaim) bool { return true }); err != nil {
		return err
	}
	if !untilEvery(ctx, quietWithin, 500*time.Millisecond, func() bool { return p.endAddresses(ctx) }) {
		return w.broken("IPAddressClaims do not go away:\n  %s", strings.Join(w.witness.Left(), "\n  "))
	}
	ended := sharedPools()
	for i := range children {
		ended = append(ended, fmt.Sprintf("child-%d", i))
	}
	for i := range sites {
		ended = append(ended, siteName(i, 0), siteName(i, 1))
	}
	for _, name := range ended {
		pool := build.Pool(name).Obj()
		if !until(ctx, quietWithin, func() bool { return client.IgnoreNotFound(p.remove(ctx, pool)) == nil }) {
			return w.broken("pool %s cannot be deleted, though it has no claims", pool.Name)
		}
	}
	if err := w.quiet(ctx, "when everything was given back"); err != nil {
		return err
	}
	if left := w.witness.Left(); len(left) > 0 {
		return w.broken("these are left when everything was given back:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}
