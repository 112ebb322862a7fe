// Package story holds the verbs of the tests of controllers. A story runs on a real API server,
// without a manager: the test calls Reconcile itself, one pass at a time, and reads as a
// sequence of events:
//
//	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj(), build.Claim("team", "a").Pool("p").Obj())
//	e.Reconciled("a").Bound("10.0.0.0/32")
//
// Plane is the API server, and World the state of one story: the view of allocations, the
// catalog and the queue, fed by watches as in the operator. Every verb returns when these have
// been shown everything that is stored, so that the next pass decides with it: nothing is
// polled, and no test sleeps. A test adds the verbs for its own kind of object, such as Bound.
//
// Interrupted runs a story once for each moment at which another actor can come in between the
// calls that a pass makes. Failing runs it once for each call, which fails.
//
// The stories of a package are subtests of one test, which starts the API server once, and run
// one after the other. Each begins on an API server without objects of the operator, and takes
// its own away at the end, so that all may use the same names. Time is the story's clock,
// except for the clock of the API server, and for the time that the ledger waits for its watch.
package story

import (
	"context"
	"errors"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
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
		t: t, plane: p, shown: &shown{objects: map[key]version{}}, writes: &writes{hooks: map[string]func(){}}, moments: &moments{}, entries: &entries.Kept{},
	}
	w.K8s = w.observed(p.admin)
	w.Replica = replica.New(replica.Options{
		Ledger: ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: shownWithin}),
		Client: w.K8s, Namespace: System, UnclaimedLimit: 1000, InCluster: true, Sinks: map[string]history.Sink{"story": w.entries},
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
		if !w.shown.mu.Await(ctx, func() bool { return w.isShown(ctx, obj) }) {
			w.t.Fatalf("%s %s was not shown within %s as it is stored", kindOf(obj), client.ObjectKeyFromObject(obj), shownWithin)
		}
	}
	w.Ledger.Synced() // the ledger notifies under its lock: wait until it has done the rest
}

// isShown reads an object, and reports whether it has been shown as it is stored, or in a newer
// version. It is called again at each change: the object may change while it is compared.
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

const (
	// System is the operator's namespace.
	System = "system"
	// Team is the namespace of the claims.
	Team = "team"
)

// Plane represents a control plane for stories.
type Plane struct {
	config *rest.Config
	admin  client.WithWatch
	kinds  []client.Object
}

// Kubeconfig is the environment variable that names the kubeconfig of a control plane which
// runs already, with all CRDs. Stories use it in place of a new one, one test at a time, so
// that a test which is run again and again takes as long as its stories alone.
const Kubeconfig = "STORY_KUBECONFIG"

// Start starts a control plane, which stops when the test ends. Each story is a subtest,
// and begins with Begin. No managers run.
func Start(t *testing.T, options cluster.Options) *Plane {
	t.Helper()
	p := &Plane{}
	if running := os.Getenv(Kubeconfig); running != "" {
		p.attach(t, running)
	} else {
		w := suite.Start(t, options)
		suite.Must(t, w.Install(t.Context(), "config/in-cluster-pools"))
		suite.Must(t, w.AwaitKinds(t.Context()))
		p.config, p.admin = w.Config(), w.WithWatch
	}
	for _, name := range []string{System, Team} {
		suite.Must(t, client.IgnoreAlreadyExists(p.admin.Create(t.Context(), build.Namespace(name))))
	}
	suite.Must(t, p.entitle(t.Context()))
	p.kinds = []client.Object{&v1alpha1.IPClaim{}, &v1alpha1.IPPool{}, &v1alpha1.LocalIPPool{}, &v1alpha1.IPClass{}, &v1alpha1.IPAllocation{}, &incluster.InClusterIPPool{}, &incluster.GlobalInClusterIPPool{}}
	if options.ClusterAPICRDs {
		p.kinds = append(p.kinds, &ipamv1.IPAddressClaim{}, &ipamv1.IPAddress{}, &clusterv1.Cluster{})
	}
	suite.Must(t, p.wipe(t.Context())) // of the objects that a test that was cut off has left there
	return p
}

// attach connects to a control plane that runs already.
func (p *Plane) attach(t *testing.T, kubeconfig string) {
	t.Helper()
	log.SetLogger(logr.Discard()) // warnings of the API server
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	suite.Must(t, err)
	config.QPS = -1
	p.config = config
	p.admin, err = cluster.NewClient(config)
	suite.Must(t, err)
}

// Config returns the administrator's configuration, without a rate limit.
func (p *Plane) Config() *rest.Config { return rest.CopyConfig(p.config) }

// wipe deletes everything that a story has made, whatever finalizers it has.
func (p *Plane) wipe(ctx context.Context) error {
	var wiping errgroup.Group
	for _, kind := range p.kinds {
		gvk, err := p.admin.GroupVersionKindFor(kind)
		if err != nil {
			return err
		}
		wiping.Go(func() error {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(gvk)
			err := p.admin.List(ctx, list)
			for i := range list.Items {
				err = errors.Join(err, force(ctx, p.admin, &list.Items[i]))
			}
			return err
		})
	}
	return wiping.Wait()
}

// force removes the finalizers of an object and deletes it.
func force(ctx context.Context, k8s client.Client, obj client.Object) error {
	if err := k8s.Patch(ctx, obj, build.Merge(`{"metadata":{"finalizers":null}}`)); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(k8s.Delete(ctx, obj))
}
