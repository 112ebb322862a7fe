package allocator

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
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
	// refuses, if set, is called before every other call, and returns the error of that call.
	refuses func(verb string, obj client.Object) error
	// others holds the objects that are stored beside records.
	otherObjects []client.Object
}

// Create implements client.Writer.
func (c *steady) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	if c.fails != nil {
		return c.fails
	}
	return c.server.create(obj.(*v1alpha1.IPAllocation))
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
	catalog := inventory.New(inventory.Options{Ledger: o.Ledger, Namespace: "system", Clock: clock.RealClock{}})
	waiting := queue.New(queue.Options{Ledger: o.Ledger, Catalog: catalog, Limit: o.WaitingLimit, WatchNamespace: o.WatchNamespace, Log: logr.Discard()})
	return New(Options{
		Ledger: o.Ledger, Catalog: catalog, Queue: waiting, Client: o.Client, UnclaimedLimit: o.UnclaimedLimit,
		Metrics: metrics.New(clock.RealClock{}), History: history.New(history.Options{Clock: clock.RealClock{}}), Log: logr.Discard(),
	})
}

// unstarted returns an allocator that has seen nothing yet.
func newUnsyncedAllocator() *Allocator {
	return newAllocator(testOptions{Ledger: ledger.New(ledger.Options{})})
}

// parent returns the pool that a replica of onReplica knows.
func parent() ipam.Pool {
	return ipam.Pool{Key: ipam.PoolNamed("parent"), Home: ipam.DomainNamed("default", ipam.IPv4), CIDR: netip.MustParsePrefix("10.0.0.0/16"), Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit}
}

// onReplica runs a test on a replica that has seen all stored records, within a bubble that has its
// own time.
func runOnReplica(t *testing.T, test func(*testing.T, *Allocator, *steady)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		api := &steady{link: link{server: newAPIServer(parent())}}
		view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 1))})
		a := newAllocator(testOptions{Ledger: view, Client: api})
		view.Describe(parent())
		ctx, stop := context.WithCancel(context.Background())
		defer a.Close()
		defer stop()
		go view.Run(ctx, quick{api.server}, &v1alpha1.IPAllocation{})
		synctest.Wait()
		test(t, a, api)
	})
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

// quick lists and watches without delay.
type quick struct{ *apiServer }

// IsWatchListSemanticsUnSupported makes the reflector list first, then watch.
func (quick) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.Lister.
func (q quick) List(metav1.ListOptions) (runtime.Object, error) { return q.list(), nil }

// Watch implements cache.Watcher.
func (q quick) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return q.watch(options, func(context.Context) bool { return true })
}

// childOrder returns the order for a child pool of a length that does not exist yet.
func childOrder(a *Allocator, length int) Order {
	order := Order{Holder: convert.HolderOfPool(ipam.PoolNamed("child")), Record: a.catalog.RecordOfPool(ipam.PoolNamed("child"))}
	order.Terms = ipam.Terms{Family: ipam.IPv4, Length: length, Reclaim: ipam.ReclaimDelete}
	order.Pools = []ipam.Pool{parent()}
	return order
}

// rivalRecord returns the record of another replica's attempt to make the same pool.
func rivalRecord(a *Allocator) *v1alpha1.IPAllocation {
	return convert.Allocation(childOrder(a, 24).recordOf(ipam.Pool{Key: ipam.PoolNamed("parent")}, netip.MustParsePrefix("10.0.7.0/24")))
}

func TestFailedAttemptKeepsRecordOfAnotherForSamePool(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.fails = errors.New("connection reset")
		if _, err := a.Allocate(t.Context(), childOrder(a, 24)); err == nil {
			t.Fatal("it was carved")
		}
		if err := api.server.create(rivalRecord(a)); err != nil {
			t.Fatal(err)
		}
		api.expectThere(t)
	})
}

func TestAttemptDoesNotReleaseRecordOfAnotherForSamePool(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		if err := api.server.create(rivalRecord(a)); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
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
		if _, err := a.RecordExisting(t.Context(), order, parent().Key); err != nil {
			t.Fatal(err)
		}
		api.expectThere(t)
	})
}

func TestQueuedHolderDoesNotWaitForRelease(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		order := childOrder(a, 8) // larger than the parent
		order.Terms.OnExhaustion = ipam.OnExhaustionWait
		for _, inLine := range []bool{false, true} {
			if inLine {
				a.queue.Wait(queue.Waiter{Holder: order.Holder})
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
