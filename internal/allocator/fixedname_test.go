package allocator

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
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
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// steady implements a link on which only the failures of the test happen.
type steady struct {
	link
	fails error // the error of create calls, which then create nothing
	// afterWrite, if set, is called once: when a record has been created or changed, before the answer.
	afterWrite func()
	// refuses, if set, is called before every other call, and returns the error of that call.
	refuses func(verb string, obj client.Object) error
	// otherObjects holds the objects that are stored beside records, written the patches of them.
	otherObjects []client.Object
	written      []string
	// lists and events pass once these are closed. down reports whether no watch can begin.
	lists, events chan struct{}
	down          bool
}

func newSteady(pools ...ipam.Pool) *steady {
	return &steady{link: link{server: newAPIServer(pools...)}, lists: make(chan struct{}), events: make(chan struct{})}
}

// pass lets lists and events pass.
func (c *steady) pass() {
	close(c.lists)
	close(c.events)
}

// Create implements client.Writer.
func (c *steady) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if c.fails != nil {
		return c.fails
	}
	defer c.answer()
	return c.server.create(obj.(*v1alpha1.IPAllocation))
}

func (c *steady) answer() {
	if call := c.afterWrite; call != nil {
		c.afterWrite = nil
		call()
	}
}

func (c *steady) refused(verb string, obj client.Object) error {
	if c.refuses == nil {
		return nil
	}
	return c.refuses(verb, obj)
}

// Delete implements client.Writer.
func (c *steady) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if err := c.refused("delete", obj); err != nil {
		return err
	}
	return c.server.delete(obj, (&client.DeleteOptions{}).ApplyOptions(opts).Preconditions)
}

// Get implements client.Reader.
func (c *steady) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if err := c.refused("get", into); err != nil {
		return err
	}
	there := slices.Clone(c.otherObjects)
	for _, record := range c.server.list().Items {
		there = append(there, &record)
	}
	for _, obj := range there {
		same := reflect.TypeOf(obj) == reflect.TypeOf(into) && obj.GetObjectKind().GroupVersionKind().Kind == into.GetObjectKind().GroupVersionKind().Kind
		if same && client.ObjectKeyFromObject(obj) == key {
			reflect.ValueOf(into).Elem().Set(reflect.ValueOf(obj.DeepCopyObject()).Elem())
			return nil
		}
	}
	return apierrors.NewNotFound(resource, key.Name)
}

// Patch implements client.Writer.
func (c *steady) Patch(_ context.Context, obj client.Object, patch client.Patch, _ ...client.PatchOption) error {
	if err := c.refused("patch", obj); err != nil {
		return err
	}
	if _, ok := obj.(*v1alpha1.IPAllocation); !ok {
		data, err := patch.Data(obj)
		c.written = append(c.written, string(data))
		return err
	}
	defer c.answer()
	return c.server.patch(obj, patch)
}

// testOptions holds the options of an allocator that tests vary.
type testOptions struct {
	Ledger                       *ledger.Ledger
	Client                       client.Client
	UnclaimedLimit, WaitingLimit int
	WatchNamespace               string
}

// newAllocator returns an allocator with a new catalog and queue.
func newAllocator(o testOptions) *Allocator {
	return New(o.Ledger, inventory.Options{Namespace: "system"}, queue.Options{Limit: o.WaitingLimit, WatchNamespace: o.WatchNamespace}, Options{
		Client: o.Client, UnclaimedLimit: o.UnclaimedLimit, PoolRanges: true,
		Metrics: metrics.New(clock.RealClock{}), History: history.New(history.Options{Clock: clock.RealClock{}}), Log: logr.Discard(),
	})
}

// newUnsyncedAllocator returns an allocator that has seen nothing yet.
func newUnsyncedAllocator() *Allocator {
	return newAllocator(testOptions{Ledger: ledger.New(ledger.Options{})})
}

// parent returns the pool that a replica of runOnReplica knows.
func parent() ipam.Pool {
	return ipam.Pool{Key: ipam.PoolNamed("parent"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: netip.MustParsePrefix("10.0.0.0/16"), Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit}
}

// runOnReplica runs a test on a replica that has seen all stored records, within a bubble that has its
// own time.
func runOnReplica(t *testing.T, test func(*testing.T, *Allocator, *steady)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := newSteady(parent())
		api.pass()
		a, stop := newReplica(api, parent())
		defer stop()
		synctest.Wait()
		test(t, a, api)
	})
}

// newReplica returns an allocator whose view of the pool follows the API server until stop.
func newReplica(api *steady, pool ipam.Pool) (a *Allocator, stop func()) {
	view := ledger.New(ledger.Options{Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 1))})
	view.Describe(pool)
	a = newAllocator(testOptions{Ledger: view, Client: api})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { view.Run(ctx, watched{api}, &v1alpha1.IPAllocation{}) })
	return a, func() {
		cancel()
		running.Wait()
		a.Close()
	}
}

// runNamedOnReplica runs a subtest on a replica.
func runNamedOnReplica(t *testing.T, name string, test func(*testing.T, *Allocator, *steady)) {
	t.Run(name, func(t *testing.T) { runOnReplica(t, test) })
}

// expectThere expects that every stored object stays, and is not being deleted.
func (c *steady) expectThere(t *testing.T) {
	t.Helper()
	time.Sleep(time.Minute)
	list := c.server.records()
	if len(list) != 1 || list[0].DeletionTimestamp != nil {
		t.Errorf("stored are %v, want the other's record", list)
	}
}

// watched lists and watches as the test lets it.
type watched struct{ *steady }

// IsWatchListSemanticsUnSupported makes the reflector list first, then watch.
func (watched) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (w watched) List(metav1.ListOptions) (runtime.Object, error) {
	<-w.lists
	return w.server.list(), nil
}

// Watch implements cache.Watcher.
func (w watched) Watch(options metav1.ListOptions) (watch.Interface, error) {
	if w.down {
		return nil, apierrors.NewServiceUnavailable("down")
	}
	return w.server.watch(options, func(ctx context.Context) bool {
		select {
		case <-w.events:
			return true
		case <-ctx.Done():
			return false
		}
	})
}

// childOrder returns the order for a child pool of a length that does not exist yet.
func childOrder(a *Allocator, length int) Order {
	order := Order{Holder: convert.HolderOfPool(ipam.PoolNamed("child")), Record: a.Catalog.RecordOfPool(ipam.PoolNamed("child"))}
	order.Terms = ipam.Terms{Family: ipam.IPv4, Length: length, Reclaim: ipam.ReclaimDelete}
	order.Pools = []ipam.Pool{parent()}
	return order
}

// rivalRecord returns the record of another replica's attempt to make the same pool.
func rivalRecord(a *Allocator) ipam.Record {
	return childOrder(a, 24).recordOf(parent(), netip.MustParsePrefix("10.0.7.0/24"))
}

func TestFailedAttemptKeepsRecordOfAnotherForSamePool(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.fails = errors.New("connection reset")
		if _, err := a.Allocate(t.Context(), childOrder(a, 24)); err == nil {
			t.Fatal("it was carved")
		}
		api.creates(t, rivalRecord(a))
		api.expectThere(t)
	})
}

func TestAttemptDoesNotReleaseRecordOfAnotherForSamePool(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.stores(t, rivalRecord(a))
		if _, err := a.Allocate(t.Context(), childOrder(a, 25)); !errors.Is(err, ipam.ErrUnconfirmed) {
			t.Errorf("error %v, want that another request is under way", err)
		}
		api.expectThere(t)
	})
}

// TestAddressWithoutClaimKeepsRecordOfLaterAttempt covers a record whose name is made from
// its holder's too, though no UID is known.
func TestAddressWithoutClaimKeepsRecordOfLaterAttempt(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		order := Order{Holder: convert.HolderOfAddressClaim(ipam.Name{Namespace: "ns", Name: "node"})}
		order.Origin, order.Record = OriginAddress, convert.RecordOfHolder(order.Holder, "")
		order.Terms = ipam.Terms{Block: netip.MustParsePrefix("10.0.0.7/32"), Length: 32, Reclaim: ipam.ReclaimDelete}
		api.fails = errors.New("connection reset")
		if _, err := a.RecordExisting(t.Context(), order, parent().Key); err == nil {
			t.Fatal("it was recorded")
		}
		api.fails = nil
		_, err := a.RecordExisting(t.Context(), order, parent().Key)
		must(t, err)
		api.expectThere(t)
	})
}

func TestQueuedHolderDoesNotWaitForRelease(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		order := childOrder(a, 8) // larger than the parent
		order.Terms.OnExhaustion = ipam.OnExhaustionWait
		for _, inLine := range []bool{false, true} {
			if inLine {
				a.Queue.Wait(queue.Waiter{Holder: order.Holder})
			}
			began := time.Now()
			if _, err := a.Allocate(t.Context(), order); !ipam.IsNoRoom(err) {
				t.Fatal(err)
			}
			if waited := time.Since(began) > 0; waited == inLine {
				t.Errorf("queued: %v, waited: %v", inLine, waited)
			}
		}
	})
}

// existsAs turns the order into one of a holder with this UID; if it is empty, of a holder that is
// not stored yet.
func (o *Order) existsAs(uid string) {
	o.HolderUID, o.Origin = uid, OriginAdmission
	if uid == "" {
		return
	}
	o.Origin = OriginController
	if !o.Holder.IsPool() {
		o.Record = convert.RecordOfHolder(o.Holder, uid)
	}
}

// scene holds one replica on a calm link, in a bubble of synctest.
type scene struct {
	*steady
	t         *testing.T
	pool      ipam.Pool
	allocator *Allocator
}

// runScene plays a scene: synctest.Wait returns when every goroutine in it waits. The list and the
// events are held up until the scene lets them through.
func runScene(t *testing.T, play func(*scene)) {
	klog.SetLogger(logr.Discard())
	synctest.Test(t, func(t *testing.T) {
		block := netip.MustParsePrefix("10.0.0.0/29")
		pool := ipam.Pool{Key: ipam.PoolNamed("p"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: block, Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit}
		s := &scene{t: t, pool: pool, steady: newSteady(pool)}
		var stop func()
		s.allocator, stop = newReplica(s.steady, pool)
		play(s)
		stop()
	})
}

// runNamedScene plays a scene as a subtest.
func runNamedScene(t *testing.T, name string, play func(*testing.T, *scene)) {
	t.Run(name, func(t *testing.T) { runScene(t, func(s *scene) { play(t, s) }) })
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
	return s.creates(s.t, order.recordOf(s.pool, netip.MustParsePrefix(block)))
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

// list lets the list through.
func (s *scene) list() {
	close(s.lists)
	synctest.Wait()
}

// deliverAll lets the list and all events through.
func (s *scene) deliverAll() {
	s.pass()
	synctest.Wait()
}

// open lets the list and all events through, and shows the scene's pool with the project of the
// claims' namespace.
func (s *scene) open() {
	s.t.Helper()
	s.deliverAll()
	s.pool.Lengths = ipam.Lengths{Min: 29, Max: 32}
	s.allocator.Catalog.SetProject("ns", "ns")
	s.allocator.Catalog.SetPool(s.pool)
	if err := s.allocator.checkSynced(); err != nil {
		s.t.Fatal(err)
	}
}
