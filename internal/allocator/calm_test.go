package allocator

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// calm implements a connection to the API server on which nothing fails by chance: only a test
// makes a call or an event late.
type calm struct {
	client.Client // only the methods below are called
	server        *apiServer
	// lists and events are passed on once these are closed.
	lists, events chan struct{}
	// down reports whether no watch can begin.
	down   bool
	claims map[client.ObjectKey]*v1alpha1.IPClaim
	fenced int
}

// Create implements client.Writer.
func (c *calm) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return c.server.create(obj.(*v1alpha1.IPAllocation))
}

// Delete implements client.Writer.
func (c *calm) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if options.Preconditions == nil {
		options.Preconditions = &metav1.Preconditions{}
	}
	return c.server.delete(obj, options.Preconditions)
}

// Get implements client.Reader.
func (c *calm) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if claim := c.claims[key]; claim != nil {
		claim.DeepCopyInto(into.(*v1alpha1.IPClaim))
		return nil
	}
	return apierrors.NewNotFound(resource, key.Name)
}

// Patch implements client.Writer.
func (c *calm) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if claim, ok := obj.(*v1alpha1.IPClaim); ok {
		c.fenced++
		c.claims[client.ObjectKeyFromObject(claim)].ResourceVersion += "+"
		return nil
	}
	return c.server.patch(obj, patch)
}

// calmly lists and watches over a calm link.
type calmly struct{ *calm }

// IsWatchListSemanticsUnSupported makes the reflector list first, then watch.
func (calmly) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (c calmly) List(metav1.ListOptions) (runtime.Object, error) {
	<-c.lists
	return c.server.list(), nil
}

// Watch implements cache.Watcher.
func (c calmly) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if c.down {
		return nil, apierrors.NewServiceUnavailable("down")
	}
	return c.server.watch(options, func(ctx context.Context) bool {
		select {
		case <-c.events:
			return true
		case <-ctx.Done():
			return false
		}
	})
}

// scene holds one replica on a calm link, in a bubble of synctest.
type scene struct {
	*calm
	t         *testing.T
	pool      ipam.Pool
	allocator *Allocator
}

// inScene plays a scene: synctest.Wait returns when every goroutine in it waits. The list and the
// events are held up until the scene lets them through.
func runScene(t *testing.T, play func(*scene)) {
	klog.SetLogger(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		block := netip.MustParsePrefix("10.0.0.0/29")
		pool := ipam.Pool{Key: ipam.PoolNamed("p"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: block, Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit}
		s := &scene{
			t: t, pool: pool,
			calm: &calm{server: newAPIServer(pool), lists: make(chan struct{}), events: make(chan struct{}), claims: map[client.ObjectKey]*v1alpha1.IPClaim{}},
		}
		view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 2))})
		view.Describe(s.pool)
		s.allocator = newAllocator(testOptions{Ledger: view, Client: s.calm})
		ctx, end := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { view.Run(ctx, calmly{s.calm}, &v1alpha1.IPAllocation{}) })
		play(s)
		end()
		running.Wait()
		s.allocator.Close()
	})
}

// order returns an order for a block of a claim that does not exist yet.
func (s *scene) order(claim string, bits int) Order {
	holder := convert.HolderOfClaim(ipam.Name{Namespace: "ns", Name: claim})
	order := Order{Holder: holder, Record: newAttempt(holder)}
	order.Pools = []ipam.Pool{s.pool}
	order.Terms = ipam.Terms{Length: bits, Reclaim: ipam.ReclaimDelete, OnExhaustion: ipam.OnExhaustionReject}
	return order
}

// bound returns an order for a block of a claim that waits, under a name made from its UID.
func (s *scene) bound(claim, uid string, bits int) Order {
	order := s.order(claim, bits)
	order.existsAs(uid)
	order.Record = convert.RecordOfHolder(order.Holder, uid)
	return order
}

// recorded makes a record behind the replica's back.
func (s *scene) recorded(order Order, block string) ipam.Record {
	s.t.Helper()
	record := order.recordOf(s.pool, netip.MustParsePrefix(block))
	obj := convert.Allocation(record)
	if err := s.server.create(obj); err != nil {
		s.t.Fatal(err)
	}
	record.UID, record.Version = string(obj.UID), obj.ResourceVersion
	return record
}

// isStored reports whether the API server stores exactly this record, and does not delete it.
func (s *scene) isStored(record ipam.Record) bool {
	for _, obj := range s.server.records() {
		if string(obj.UID) == record.UID && obj.DeletionTimestamp == nil {
			return true
		}
	}
	return false
}

// deliverAll lets the list and all events through.
func (s *scene) deliverAll() {
	close(s.lists)
	close(s.events)
	synctest.Wait()
}

// open lets the list and all events through, and shows the scene's pool with the project of the
// claims' namespace.
func (s *scene) open() {
	s.t.Helper()
	s.deliverAll()
	s.pool.Lengths = ipam.Lengths{Min: 29, Max: 32}
	s.allocator.catalog.SetProject("ns", "ns")
	s.allocator.catalog.SetPool(s.pool)
	if err := s.allocator.checkSynced(); err != nil {
		s.t.Fatal(err)
	}
}
