package story

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/testing/entries"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// shownWithin bounds the time that the watches may take. It is far more than they need.
const shownWithin = time.Minute

// World holds the state of one story.
type World struct {
	// Replica holds the parts, which are fed by watches.
	replica.Replica
	// K8s reads and writes as a controller does, but without a cache: a pass sees the stored
	// state. Its writes are noted in the pass.
	K8s client.WithWatch
	// Clock is the controller's.
	Clock *clocktesting.FakeClock
	// Events holds the events that the controller has made.
	Events *Events

	t       *testing.T
	plane   *Plane
	shown   *shown
	writes  *writes
	moments *moments
	entries *entries.Kept
	// kept are the objects that an interruption is expected to leave.
	kept []client.Object
	// ordered are the objects created so far that the operator puts into an order.
	ordered []client.Object
}

// Begin begins a story: as a process that has just started, and has seen everything that
// exists. The test's end ends it.
func (p *Plane) Begin(t *testing.T) *World {
	t.Helper()
	w := &World{
		Clock: clocktesting.NewFakeClock(time.Now()), Events: &Events{},
		t: t, plane: p, shown: newShown(), writes: &writes{hooks: map[string]func(){}}, moments: &moments{}, entries: &entries.Kept{},
	}
	w.K8s = interruptible(noteWrites(p.admin, w.writes), w.moments)
	w.Replica = replica.New(replica.Options{
		Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: shownWithin}),
		Client: w.K8s, Namespace: System, UnclaimedLimit: 1000, Sinks: map[string]history.Sink{"story": w.entries},
	})
	w.Ledger.Listen(w.shown.record) // after the queue, which listens too
	w.feed()
	return w
}

// feed starts the feeds of all parts, which run until the test ends, and returns when
// everything has been seen once.
func (w *World) feed() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	var wg sync.WaitGroup
	w.t.Cleanup(func() {
		w.Allocator.Close()
		cancel()
		wg.Wait()
		suite.Must(w.t, w.plane.wipe(context.Background()))
	})
	cfg := w.plane.Config()
	httpClient, err := rest.HTTPClientFor(cfg)
	suite.Must(w.t, err)
	records, err := kubeutil.NewStreamingSource[v1alpha1.IPAllocation](cfg, httpClient, w.plane.admin.Scheme(), kubeutil.Selection{Resource: "ipallocations"}, ctrlcache.TransformStripManagedFields())
	suite.Must(w.t, err)
	informerCache := w.cache(cfg, httpClient)
	suite.Must(w.t, w.Allocator.Feed(ctx, informerCache))
	claimsFed := make(chan struct{})
	wg.Go(func() { w.Ledger.Run(ctx, records, &v1alpha1.IPAllocation{}) })
	wg.Go(func() { _ = informerCache.Start(ctx) }) // it returns when ctx is done
	wg.Go(func() { w.Queue.Run(ctx) })
	wg.Go(func() {
		w.Allocator.FeedClaims(ctx, w.plane.admin, informerCache)
		close(claimsFed)
	})
	limitedCtx, stop := context.WithTimeout(ctx, shownWithin)
	defer stop()
	if !toolscache.WaitForCacheSync(limitedCtx.Done(), func() bool { return w.Queue.Synced() == nil }) {
		w.t.Fatalf("not everything was seen within %s", shownWithin)
	}
	select {
	case <-claimsFed:
	case <-limitedCtx.Done():
		w.t.Fatalf("the claims were not seen within %s", shownWithin)
	}
}

func (w *World) cache(cfg *rest.Config, httpClient *http.Client) ctrlcache.Cache {
	w.t.Helper()
	informerCache, err := ctrlcache.New(cfg, ctrlcache.Options{Scheme: w.plane.admin.Scheme(), Mapper: w.plane.admin.RESTMapper(), HTTPClient: httpClient})
	suite.Must(w.t, err)
	return noting{informerCache, w.shown}
}

// Seen waits until the view, the catalog and the queue have been shown everything that the
// story has written. Every verb does so itself.
func (w *World) Seen() {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), shownWithin)
	defer cancel()
	for _, obj := range w.writes.written() {
		if !isFed(obj) {
			continue
		}
		if !w.shown.until(ctx, func() bool { return w.isShown(ctx, obj) }) {
			w.t.Fatalf("%s %s was not shown within %s as it is stored", kindOf(obj), client.ObjectKeyFromObject(obj), shownWithin)
		}
	}
	w.Ledger.Synced() // the ledger notifies under its lock: wait until it has done the rest
}

// isShown reads an object, and reports whether it has been shown as it is stored, or in a newer
// version.
func (w *World) isShown(ctx context.Context, obj client.Object) bool {
	w.t.Helper()
	err := w.plane.admin.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	if ctx.Err() != nil {
		return false
	}
	suite.Must(w.t, client.IgnoreNotFound(err))
	if err != nil {
		return w.shown.isGone(keyOf(obj))
	}
	return w.shown.has(keyOf(obj), versionOf(obj))
}

// isFed reports whether the view, the catalog or the queue is fed with such objects.
func isFed(obj client.Object) bool {
	switch obj.(type) {
	case *v1alpha1.IPClaim, v1alpha1.Pool, *v1alpha1.IPClass, *v1alpha1.IPAllocation:
		return true
	}
	return false
}
