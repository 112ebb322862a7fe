package allocationgc

import (
	"context"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// recordStory holds one record on a real API server, a view of it, and a controller with the test's
// clock.
type recordStory struct {
	t          *testing.T
	k8s        client.WithWatch
	clock      *clocktesting.FakePassiveClock
	controller *Controller
	events     *events.FakeRecorder
	name       ipam.Name
}

func newRecordStory(t *testing.T, plane *story.Plane, pool ipam.Pool, reclaim ipam.Reclaim) *recordStory {
	t.Helper()
	scheme := runtime.NewScheme()
	suite.Must(t, clientgoscheme.AddToScheme(scheme))
	suite.Must(t, v1alpha1.AddToScheme(scheme))
	k8s, err := client.NewWithWatch(plane.Config(), client.Options{Scheme: scheme})
	suite.Must(t, err)
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute})
	parts := replica.New(replica.Options{Ledger: view, Client: k8s})
	pool.Home = ipam.DomainNamed(pool.Key.Name, ipam.FamilyOf(pool.CIDR))
	parts.Catalog.SetPool(pool)
	view.Describe(pool)
	over, err := rest.HTTPClientFor(plane.Config())
	suite.Must(t, err)
	records, err := kubeutil.NewStreamingSource[v1alpha1.IPAllocation](plane.Config(), over, scheme, "ipallocations", ctrlcache.TransformStripManagedFields())
	suite.Must(t, err)
	go view.Run(t.Context(), records, &v1alpha1.IPAllocation{})
	s := &recordStory{
		events: events.NewFakeRecorder(100),
		t:      t, k8s: k8s, clock: clocktesting.NewFakePassiveClock(time.Now()),
		name: ipam.Name{Namespace: pool.Key.Name, Name: "record"},
	}
	s.controller = &Controller{
		Ledger: parts.Ledger, Catalog: parts.Catalog, Allocator: parts.Allocator, Metrics: parts.Metrics, History: parts.History,
		Client: k8s, Live: k8s, Clock: s.clock, Grace: 180 * time.Second,
		Events: s.events, sightings: map[ipam.Name]sighting{}, deletedHolders: map[ipam.Name]string{}, releases: map[ipam.Name]lastRelease{},
	}
	suite.Must(t, client.IgnoreAlreadyExists(k8s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name.Namespace}})))
	suite.Must(t, k8s.Create(t.Context(), convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: s.name.Namespace, Name: "own"}, Block: pool.CIDR, Pool: pool.Home, Purpose: ipam.PurposePool,
		State: ipam.StateBound, Holder: convert.HolderOfPool(pool.Key),
	})))
	suite.Must(t, k8s.Create(t.Context(), convert.Allocation(ipam.Record{
		Name: s.name, Block: pool.CIDR, Pool: pool.Key, Purpose: ipam.PurposeClaim, Reclaim: reclaim, State: ipam.StateBound,
		Holder: ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: s.name.Namespace, Name: "claim"},
	})))
	s.awaitRecord(func(_ ipam.Record, ok bool) bool { return ok })
	return s
}

// changed changes a record by a merge patch, as another client does.
func (s *recordStory) changed(record ipam.Record, patch string) {
	s.t.Helper()
	suite.Must(s.t, s.k8s.Patch(s.t.Context(), convert.Allocation(record), client.RawPatch(types.MergePatchType, []byte(patch))))
}

// awaitRecord waits until the view shows the record in this state.
func (s *recordStory) awaitRecord(matches func(ipam.Record, bool) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	changed := make(chan struct{}, 1)
	s.controller.Ledger.Listen(func(ledger.Change) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for !matches(s.controller.Ledger.Record(s.name)) {
		select {
		case <-changed:
		case <-ctx.Done():
			s.t.Fatal("the view does not show it")
		}
	}
}

// sawDeletion shows the deletion of the claim to the controller.
func (s *recordStory) sawDeletion() { s.controller.deletedHolders[s.name] = "uid" }

// reconciled returns the time after which the controller looks again.
func (s *recordStory) reconciled() time.Duration {
	s.t.Helper()
	result, err := s.controller.Reconcile(s.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: s.name.Namespace, Name: s.name.Name}})
	suite.Must(s.t, err)
	return result.RequeueAfter
}

// reconciledTo expects the record to be in a state afterwards.
func (s *recordStory) reconciledTo(state ipam.State) {
	s.t.Helper()
	s.reconciled()
	s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.State == state })
}

// reconciledAway expects the record to be gone afterwards.
func (s *recordStory) reconciledAway() {
	s.t.Helper()
	s.reconciled()
	s.awaitRecord(func(_ ipam.Record, ok bool) bool { return !ok })
}

func (s *recordStory) passes(d time.Duration) { s.clock.SetTime(s.clock.Now().Add(d)) }

func TestOrphan(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	pool := func(name string, delay time.Duration) ipam.Pool {
		return ipam.Pool{Key: ipam.PoolNamed(name), CIDR: netip.MustParsePrefix("10.0.0.0/24"), Family: ipam.IPv4, ReuseDelay: delay}
	}

	t.Run("a record whose claim was never seen is released after the grace, not before", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("grace", 0), ipam.ReclaimDelete)
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s", again)
		}
		s.passes(179 * time.Second)
		if again := s.reconciled(); again != time.Second {
			t.Errorf("looks again after %s, want 1s", again)
		}
		s.passes(time.Second)
		s.reconciledAway()
	})

	t.Run("a claim that turns up within the grace keeps its record", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("turns-up", 0), ipam.ReclaimDelete)
		s.reconciled()
		claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
		claim.Spec.CIDR, claim.Spec.AllocationName = "10.0.0.0/24", s.name.Name
		suite.Must(t, s.k8s.Create(t.Context(), claim))
		s.passes(time.Hour)
		if again := s.reconciled(); again != 0 {
			t.Errorf("looks again after %s, want never", again)
		}
		s.awaitRecord(func(_ ipam.Record, ok bool) bool { return ok })
	})

	t.Run("a claim that the cache does not show is looked for again", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("behind", 0), ipam.ReclaimDelete)
		s.controller.Client = blind{}
		s.reconciled()
		claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
		claim.Spec.CIDR, claim.Spec.AllocationName = "10.0.0.0/24", s.name.Name
		suite.Must(t, s.k8s.Create(t.Context(), claim))
		s.passes(time.Hour)
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("checks again after %s, want 180s: the end of the claim can lack an event", again)
		}
		suite.Must(t, s.k8s.Delete(t.Context(), claim))
		s.reconciledAway()
	})

	t.Run("a record whose claim is back after its deletion was seen stays", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("claim-is-back", 0), ipam.ReclaimDelete)
		claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
		claim.Spec.CIDR, claim.Spec.AllocationName = "10.0.0.0/24", s.name.Name
		suite.Must(t, s.k8s.Create(t.Context(), claim))
		s.controller.Client = blind{}
		s.sawDeletion()
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s", again)
		}
		suite.Must(t, s.k8s.Delete(t.Context(), claim))
		s.reconciledAway()
	})

	t.Run("a leader that was paused cannot write a record that is given up into its claim", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("paused-leader", 0), ipam.ReclaimDelete)
		claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
		suite.Must(t, s.k8s.Create(t.Context(), claim))
		record, _ := s.controller.Ledger.Record(s.name)
		_, err := s.controller.Allocator.Stamp(t.Context(), record, claim)
		suite.Must(t, err)
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.HolderUID != "" })
		s.reconciled()
		s.passes(time.Hour)
		s.reconciledAway()

		late := claim.DeepCopy() // as the leader had read it, before it was paused
		late.Spec.CIDR, late.Spec.AllocationName = "10.0.0.0/24", s.name.Name
		if err := s.k8s.Update(t.Context(), late); !apierrors.IsConflict(err) {
			t.Errorf("the claim names a record that is gone: got %v, want a conflict", err)
		}
	})

	t.Run("a record that is left in a namespace that is gone is released when that exists again", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("left-behind", 0), ipam.ReclaimDelete)
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name.Namespace}}
		suite.Must(t, s.k8s.Delete(t.Context(), namespace))
		suite.Must(t, s.k8s.Get(t.Context(), client.ObjectKeyFromObject(namespace), namespace))
		namespace.Spec.Finalizers = nil
		suite.Must(t, s.k8s.SubResource("finalize").Update(t.Context(), namespace))
		for probe := (error)(nil); !apierrors.IsNotFound(probe); { // until the API server has noticed
			probe = s.k8s.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "probe"}}, client.DryRunAll)
			suite.Must(t, t.Context().Err())
		}
		s.sawDeletion()
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s", again)
		}
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.Terminating })
		suite.Must(t, s.k8s.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name.Namespace}}))
		s.reconciledAway()
	})

	t.Run("a release of which nothing is seen is done again", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("unseen-release", 0), ipam.ReclaimDelete)
		record, _ := s.controller.Ledger.Record(s.name)
		s.sawDeletion()
		s.controller.releases[s.name] = lastRelease{uid: record.UID, at: s.clock.Now()} // as an API server answered that had just started
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s", again)
		}
		s.awaitRecord(func(_ ipam.Record, ok bool) bool { return ok })
		s.passes(180 * time.Second)
		s.reconciledAway()
	})

	t.Run("a released block cools down for the reuse delay", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("reuse-delay", time.Hour), ipam.ReclaimDelete)
		s.sawDeletion()
		s.reconciledTo(ipam.StateCooling)
		if again := s.reconciled(); again <= 59*time.Minute || again > time.Hour {
			t.Errorf("looks again after %s, want about 1h", again)
		}
		s.passes(59 * time.Minute)
		s.reconciled()
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.State == ipam.StateCooling })
		s.passes(2 * time.Minute)
		s.reconciledAway()
	})

	t.Run("a retained block stays for 30 days, or until a person deletes the record", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("retained", 0), ipam.ReclaimRetain)
		s.sawDeletion()
		s.reconciledTo(ipam.StateRetained)
		s.passes(719 * time.Hour)
		if again := s.reconciled(); again <= 59*time.Minute || again > time.Hour {
			t.Errorf("looks again after %s, want about 1h", again)
		}
		if n := len(s.events.Events); n != 1 {
			t.Errorf("%d events report it, want 1", n)
		}
		record, _ := s.controller.Ledger.Record(s.name)
		suite.Must(t, s.k8s.Delete(t.Context(), convert.Allocation(record)))
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.Terminating })
		s.reconciledAway()
	})

	// another makes a record while all claims are known.
	another := func(s *recordStory, name, block string) {
		made, _ := s.controller.Ledger.Record(s.name)
		made.Name.Name, made.Version, made.Block, made.Reclaim = name, "", netip.MustParsePrefix(block), ipam.ReclaimRetain
		suite.Must(t, s.k8s.Create(t.Context(), convert.Allocation(made)))
		s.name = made.Name
		s.awaitRecord(func(_ ipam.Record, ok bool) bool { return ok })
	}

	t.Run("nothing is retained for a claim that was never stored, nor cools down", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("never-stored", time.Hour), ipam.ReclaimRetain)
		before := s.name
		s.controller.Ledger.MarkClaimsKnown()
		another(s, "never-stored", "10.0.1.0/24")
		s.reconciled()
		s.passes(180 * time.Second)
		s.reconciledAway()

		s.name = before // its age is unknown: it existed before
		s.reconciled()
		s.passes(180 * time.Second)
		s.reconciledTo(ipam.StateRetained)
	})

	t.Run("a block is retained for a claim of which only the end was seen", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("end-seen", 0), ipam.ReclaimRetain)
		s.controller.Ledger.MarkClaimsKnown()
		another(s, "end-seen", "10.0.1.0/24")
		s.sawDeletion()
		s.reconciledTo(ipam.StateRetained)
	})

	t.Run("nothing is retained for a claim whose record lost its block to another one", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("lost", 0), ipam.ReclaimDelete)
		another(s, "lost", "10.0.0.0/28")
		s.reconciled()
		s.passes(180 * time.Second)
		s.reconciledAway()
	})

	t.Run("a pool's own record that another replica is about to release is left to it for the grace", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("releasing", 0), ipam.ReclaimDelete)
		s.name.Name = "own"
		record, _ := s.controller.Ledger.Record(s.name)
		s.changed(record, `{"spec":{"state":"Releasing"}}`)
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.State == ipam.StateReleasing })
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s", again)
		}
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && !r.Terminating })
	})

	t.Run("the deletion of an earlier holder does not release a record that was taken over", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("taken-over", 0), ipam.ReclaimDelete)
		record, _ := s.controller.Ledger.Record(s.name)
		s.changed(record, `{"metadata":{"annotations":{"ipam.cadastre.dev/adopted":"true"}}}`)
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.Adopted })
		s.sawDeletion()
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s: it is no longer that claim's", again)
		}
	})

	t.Run("the deletion of a claim's former life does not release the record that its restored one took over", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("restored", 0), ipam.ReclaimDelete)
		record, _ := s.controller.Ledger.Record(s.name)
		former := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
		suite.Must(t, s.k8s.Create(t.Context(), former))
		_, err := s.controller.Allocator.Stamp(t.Context(), record, former)
		suite.Must(t, err)
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.HolderUID == string(former.UID) })
		suite.Must(t, s.k8s.Delete(t.Context(), former))
		order := allocator.Order{Holder: record.Holder, Resolution: inventory.Resolution{
			Terms: ipam.Terms{Class: record.Class, Block: record.Block}, Pools: []ipam.Pool{{Key: ipam.PoolNamed("another")}},
		}}
		if _, ok := s.controller.Allocator.Restore(t.Context(), order, s.name.Name); ok {
			t.Fatal("it was taken over for a claim of another pool")
		}
		order.Pools[0].Key = record.Pool
		order.Terms.Class = "another"
		if _, ok := s.controller.Allocator.Restore(t.Context(), order, s.name.Name); ok {
			t.Fatal("it was taken over for a claim of another class")
		}
		order.Terms.Class = record.Class
		if _, ok := s.controller.Allocator.Restore(t.Context(), order, s.name.Name); !ok {
			t.Fatal("it was not taken over")
		}
		s.awaitRecord(func(r ipam.Record, ok bool) bool { return ok && r.Adopted })
		s.controller.deletedHolders[s.name] = string(former.UID)
		if again := s.reconciled(); again != 180*time.Second {
			t.Errorf("looks again after %s, want 180s: it is the restored claim's now", again)
		}
	})

	t.Run("a record is not given the UID of a claim that is gone by now", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("stamped", 0), ipam.ReclaimDelete)
		record, _ := s.controller.Ledger.Record(s.name)
		claim := func() *v1alpha1.IPClaim {
			return &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
		}
		former, present := claim(), claim()
		suite.Must(t, s.k8s.Create(t.Context(), former))
		suite.Must(t, s.k8s.Delete(t.Context(), former))
		if _, err := s.controller.Allocator.Stamp(t.Context(), record, former); !apierrors.IsNotFound(err) {
			t.Errorf("error %v, want that there is none", err)
		}
		suite.Must(t, s.k8s.Create(t.Context(), present))
		if _, err := s.controller.Allocator.Stamp(t.Context(), record, former); !apierrors.IsConflict(err) {
			t.Errorf("error %v, want a conflict", err)
		}
		_, err := s.controller.Allocator.Stamp(t.Context(), record, present)
		suite.Must(t, err)
	})

	t.Run("a record that changed after it was judged is not released", func(t *testing.T) {
		s := newRecordStory(t, plane, pool("changed", 0), ipam.ReclaimDelete)
		judged, _ := s.controller.Ledger.Record(s.name)
		s.changed(judged, `{"metadata":{"annotations":{"ipam.cadastre.dev/adopted":"true"}}}`)
		if err := s.controller.Allocator.Release(t.Context(), judged); err == nil {
			t.Error("it was released")
		}
	})
}

// blind implements a cache that shows nothing.
type blind struct{ client.Reader }

func (blind) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// TestCollectorKeepsAllocationInFlight persists the claim at the moment when the collector
// looks for it, and not before.
func TestCollectorKeepsAllocationInFlight(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	s := newRecordStory(t, plane, ipam.Pool{Key: ipam.PoolNamed("in-flight"), CIDR: netip.MustParsePrefix("10.0.0.0/24"), Family: ipam.IPv4}, ipam.ReclaimDelete)
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: "claim"}}
	claim.Spec.CIDR, claim.Spec.AllocationName = "10.0.0.0/24", s.name.Name
	s.controller.Live = persisting{s.k8s, func() { suite.Must(t, s.k8s.Create(t.Context(), claim)) }}

	if again := s.reconciled(); again != s.controller.Grace {
		t.Errorf("a record that is new is enqueued again after %s, want the grace", again)
	}
	s.passes(s.controller.Grace)
	s.reconciled() // the cache showed no claim, the API server does
	suite.Must(t, s.k8s.Get(t.Context(), client.ObjectKeyFromObject(claim), claim))
	record := &v1alpha1.IPAllocation{}
	suite.Must(t, s.k8s.Get(t.Context(), client.ObjectKey{Namespace: s.name.Namespace, Name: s.name.Name}, record))
	if !record.DeletionTimestamp.IsZero() {
		t.Error("the record of a claim that was persisted before is released")
	}
}

// persisting implements an API server on which a callback runs just before each read.
type persisting struct {
	client.Reader
	first func()
}

// Get implements client.Reader.
func (p persisting) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	p.first()
	return p.Reader.Get(ctx, key, into, opts...)
}
