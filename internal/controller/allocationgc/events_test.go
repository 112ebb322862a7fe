package allocationgc

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestEventsReconcileRecords covers the events that make records reconciled, and the counts of records.
func TestEventsReconcileRecords(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*orphans){
		"a record that has changed or is gone is reconciled":     changedRecords,
		"a record that is new is scanned":                        newRecords,
		"the record of a pool that is gone follows its last":     lastRecordOfPool,
		"the deletion of a holder is noted for its records":      deletedHolders,
		"the records of a kind are judged when that is known":    kindRegistered,
		"records without holder are counted, and their releases": countedOrphans,
		"the fate of a block without holder is in the history":   orphansHistory,
		"a release is counted once, until the view shows it":     releasedOnce,
		"nothing is kept after a claim that never had its block": func(e *orphans) { keptBlocks(e, plane) },
	} {
		t.Run(name, func(t *testing.T) { tell(newOrphans(t, plane)) })
	}
}

func changedRecords(e *orphans) {
	q := e.Started(e.controller.records())
	record := convert.Allocation(e.orphan(1, ""))
	q.Enqueued()
	story.Edited(e.World, record, func(r *v1alpha1.IPAllocation) { r.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	q.Enqueued("team/a01-12345678")
	e.Deleted(record) // its finalizer keeps it
	q.Enqueued("team/a01-12345678")
	e.Started(e.controller.records()).Enqueued("team/a01-12345678") // by a leader that is new
	e.Forced(record)
	q.Enqueued("team/a01-12345678")
	kept := story.Block("b", "p", "172.16.2.0/28")
	kept.State, kept.ReleaseAfter = ipam.StateRetained, e.Clock.Now().Add(time.Hour)
	e.Recorded(kept)
	q.Enqueued("team/b-12345678")
}

// newRecords lets the holder of a record come before the record is scanned, or not.
func newRecords(e *orphans) {
	q := e.Started(e.controller.records())
	e.controller.scan(e.t.Context(), q)
	q.Enqueued()
	held, orphan, gone := e.orphan(1, ""), e.orphan(2, ""), e.orphan(3, "")
	e.Created(claimOf(held))
	e.Forced(convert.Allocation(gone))
	q.Enqueued("team/a03-12345678")
	e.controller.sightings = map[ipam.Name]sighting{held.Name: {}, orphan.Name: {}, gone.Name: {}}
	e.controller.scan(e.t.Context(), q)
	q.Enqueued("team/a02-12345678", "team/a03-12345678")
	if _, is := e.controller.sightings[held.Name]; is || len(e.controller.sightings) != 2 {
		e.t.Errorf("without holder are %v, want %s and %s", e.controller.sightings, orphan.Name, gone.Name)
	}
	e.controller.scan(e.t.Context(), q)
	q.Enqueued()
}

func lastRecordOfPool(e *orphans) {
	pool := build.Pool("q").CIDR("10.0.0.0/24").Obj()
	e.Applied(pool)
	own := e.RecordsOf(convert.HolderOfPool(ipam.PoolNamed("q")))[0]
	for _, name := range []string{"a", "b"} {
		e.Recorded(story.Block(name, "q", map[string]string{"a": "10.0.0.0/28", "b": "10.0.0.16/28"}[name]))
	}
	q := e.Started(e.controller.records())
	e.Forced(convert.Allocation(story.Block("a", "q", "10.0.0.0/28")))
	q.Enqueued("team/a-12345678") // the pool exists
	e.Forced(pool)
	q.Enqueued()
	e.Forced(convert.Allocation(story.Block("b", "q", "10.0.0.16/28")))
	q.Enqueued("team/b-12345678", own.Name.String())
}

func deletedHolders(e *orphans) {
	record := e.orphan(1, "")
	own := e.RecordsOf(convert.HolderOfPool(ipam.PoolNamed("p")))[0]
	q := e.Started(e.controller.arrivals()) // no event comes in this time
	bound, waiting := claimOf(record), claimOf(record)
	bound.UID, waiting.UID, waiting.Spec.AllocationName = "bound", "waiting", ""
	for _, test := range []struct {
		deleted client.Object
		record  ipam.Name
		noted   string
	}{
		{waiting, record.Name, ""},
		{bound, record.Name, "bound"},
		{&v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pool"}}, own.Name, "pool"},
	} {
		handler := e.controller.claims()
		if _, is := test.deleted.(v1alpha1.Pool); is {
			handler = e.controller.pools()
		}
		handler.Delete(e.t.Context(), event.DeleteEvent{Object: test.deleted}, q)
		q.Enqueued(test.record.String())
		if got := e.controller.deletedHolders[test.record]; got != test.noted {
			e.t.Errorf("the deletion of %q is noted for %s, want that of %q", got, test.record, test.noted)
		}
	}
	e.controller.pools().Delete(e.t.Context(), event.DeleteEvent{Object: &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "unrecorded"}}}, q)
	q.Enqueued()
}

// kindRegistered registers the kind of a record's holder while the leader waits for it.
func kindRegistered(e *orphans) {
	record := recordNamed("a", ipam.StateBound)
	record.Pool, record.Block = ipam.PoolNamed("p"), story.Block("a", "p", "172.16.1.0/32").Block
	e.Recorded(record)
	e.controller.Enqueue(record.Name) // on a replica that does not lead
	q := e.Started(e.controller.records())
	e.controller.newRecords = nil
	e.controller.judges = map[string]Judge{}
	none := func(context.Context, client.Reader, ipam.Record) (bool, error) { return false, nil }
	e.controller.Judge("Thing", none)
	e.controller.scan(e.t.Context(), q)
	q.Enqueued("team/a")
	e.controller.Enqueue(record.Name)
	q.Enqueued("team/a")
	e.controller.ReportDeleted("uid", record.Name)
	q.Enqueued("team/a")
	if got := e.controller.deletedHolders[record.Name]; got != "uid" {
		e.t.Errorf("the deletion of %q is noted, want that of uid", got)
	}
}

func countedOrphans(e *orphans) {
	const unheld, releases = "cadastre_unheld_allocations", "cadastre_releases_total"
	held, orphan, forced := e.orphan(1, ""), e.orphan(2, ""), e.orphan(3, "")
	for i, record := range []ipam.Record{held, orphan, forced} {
		e.reconciled(record).After(e.controller.Grace)
		e.Measured(float64(i+1), unheld)
	}
	e.Created(claimOf(held))
	e.reconciled(held).After(0)
	e.Measured(2, unheld)
	e.controller.deletedHolders[forced.Name] = "uid"
	e.Forced(convert.Allocation(forced))
	e.reconciled(forced).After(0)
	e.Measured(1, unheld)
	waiting := claimOf(orphan)
	waiting.Spec.AllocationName = ""
	e.Created(waiting)
	e.Passes(e.controller.Grace)
	e.reconciled(orphan).Wrote("delete IPAllocation", "patch IPAllocation") // it was not made for that claim
	e.Measured(1, releases, "orphaned")
	e.Measured(1, releases)
	e.reconciled(orphan).After(0)
	e.Measured(0, unheld)
	if n := len(e.controller.deletedHolders) + len(e.controller.releases) + len(e.controller.sightings); n != 0 {
		e.t.Errorf("%d notes are left of records that are gone", n)
	}
}

func orphansHistory(e *orphans) {
	e.Applied(build.Pool("slow").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.ReuseDelay = &metav1.Duration{Duration: time.Hour} }).Obj())
	orphan := e.orphan(1, "")
	cooling, retained := story.Block("b", "slow", "10.0.0.0/28"), story.Block("c", "p", "172.16.3.0/28")
	retained.Reclaim = ipam.ReclaimRetain
	for _, record := range []*ipam.Record{&cooling, &retained} {
		record.HolderUID = "former"
		e.Recorded(*record)
		e.controller.deletedHolders[record.Name] = "former"
	}
	e.graceOver(orphan)
	reconciled := func(records ...ipam.Record) {
		for _, record := range records {
			e.reconciled(record)
		}
	}
	reconciled(orphan, cooling, retained)
	e.HasHistory("Released 172.16.1.0/28 Orphaned", "Retained 10.0.0.0/28 HolderDeleted, Cooling for 1h0m0s", "Retained 172.16.3.0/28 HolderDeleted, Retained for 720h0m0s")
	e.World.HasEvents(convert.Allocation(cooling))
	e.World.HasEvents(convert.Allocation(retained), "Normal Retained")
	e.controller.deletedHolders = map[ipam.Name]string{} // as of a leader that is new
	e.Passes(time.Hour)
	reconciled(cooling, retained)
	e.HasHistory("Released 10.0.0.0/28 ReuseDelayOver")
	e.Passes(720 * time.Hour)
	reconciled(retained)
	e.HasHistory("Released 172.16.3.0/28 RetentionExpired")
}

// keptBlocks retains records and lets them cool down, unless that is useless.
func keptBlocks(e *orphans, plane *story.Plane) {
	orphan := func(n int, change func(*ipam.Record)) ipam.Name {
		record := story.Block(fmt.Sprintf("a%02d", n), "p", fmt.Sprintf("172.16.%d.0/28", n))
		record.Reclaim = ipam.ReclaimRetain
		change(&record)
		e.Recorded(record)
		return record.Name
	}
	asItIs := func(*ipam.Record) {}
	holderUID := func(uid string) func(*ipam.Record) { return func(r *ipam.Record) { r.HolderUID = uid } }
	kept := map[ipam.Name]bool{}
	never := orphan(1, asItIs)
	kept[never] = false // its claim was never stored
	kept[orphan(2, holderUID("former"))] = true
	seen, claimed := orphan(3, asItIs), orphan(4, asItIs)
	kept[seen], e.controller.deletedHolders[seen] = true, "former"
	claim := claimOf(e.recordOf(claimed))
	e.Created(claim)
	e.Deleted(claim)
	kept[claimed] = true
	kept[orphan(5, func(r *ipam.Record) { r.Adopted, r.ReleaseAfter = true, e.Clock.Now().Add(time.Hour) })] = true // it was retained before
	kept[orphan(6, func(r *ipam.Record) { r.State, r.ReleaseAfter = ipam.StateRetained, e.Clock.Now() })] = true
	first, second := orphan(7, holderUID("former")), orphan(8, func(r *ipam.Record) { r.HolderUID, r.Block = "former", netip.MustParsePrefix("172.16.7.0/30") })
	kept[first], kept[second] = true, false
	disputed := orphan(9, asItIs) // its claim names it
	e.Created(claimOf(e.recordOf(disputed)))
	e.Recorded(story.Block("rival", "p", "172.16.9.0/30"))
	kept[disputed] = true
	e.keeps(e.controller, kept)

	// Another process lists all of them: the age of some is unknown to it.
	kept = map[ipam.Name]bool{never: true, first: false, second: false, disputed: false}
	other := plane.Begin(e.t)
	e.keeps(attachReplica(other.Replica, &Controller{}), kept)
}

// recordOf returns the record of a name.
func (e *orphans) recordOf(name ipam.Name) ipam.Record {
	record, _ := e.Ledger.Record(name)
	return record
}

// keeps expects the controller to keep exactly these records.
func (e *orphans) keeps(by *Controller, kept map[ipam.Name]bool) {
	e.t.Helper()
	for name, want := range kept {
		record, _ := by.Ledger.Record(name)
		record, keeping := by.effectiveRecord(record, ipam.Keeping{ReuseDelay: time.Hour})
		if got := record.Reclaim == ipam.ReclaimRetain; got != want || (keeping.ReuseDelay > 0) != want {
			e.t.Errorf("%s is kept: %t, and cools down for %s; want %t", name, got, keeping.ReuseDelay, want)
		}
	}
}

func releasedOnce(e *orphans) {
	record := e.orphan(1, "")
	suite.Must(e.t, e.controller.release(e.t.Context(), record))
	e.HasHistory("Released 172.16.1.0/28 Orphaned")
	another := record
	another.UID = "another of the name"
	if !e.controller.isReleased(record) || e.controller.isReleased(another) {
		e.t.Error("a record is not the one that was released, or another is")
	}
}

// claimOf returns the claim that has a record.
func claimOf(record ipam.Record) *v1alpha1.IPClaim {
	claim := &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: record.Holder.Namespace, Name: record.Holder.Name}}
	claim.Spec.CIDR, claim.Spec.AllocationName = record.Block.String(), record.Name.Name
	return claim
}

// TestOnlyRecordsWithoutHolderAreReconciled shows some records to a new leader: a record with a
// holder costs no pass; a record without, and a record that is not merely held, do.
func TestOnlyRecordsWithoutHolderAreReconciled(t *testing.T) {
	r := replica.WithRecords(t, replica.Options{}, recordNamed("held", ipam.StateBound), recordNamed("orphan", ipam.StateBound), recordNamed("kept", ipam.StateRetained))
	c := attachReplica(r, &Controller{
		judges: map[string]Judge{"Thing": func(_ context.Context, _ client.Reader, r ipam.Record) (bool, error) {
			return r.Holder.Name != "orphan", nil
		}},
	})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	if err := c.records().Start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	// They had no holder when they were reconciled; one has it now.
	c.sightings = map[ipam.Name]sighting{recordNamed("held", "").Name: {}, recordNamed("orphan", "").Name: {}}
	c.scan(t.Context(), q)
	if _, isUnheld := c.sightings[recordNamed("held", "").Name]; isUnheld || len(c.sightings) != 1 {
		t.Errorf("without holder are %v, want the orphan alone", c.sightings)
	}
	looked := map[string]bool{}
	for q.Len() > 0 {
		req, _ := q.Get()
		looked[req.Name] = true
	}
	if got := slices.Sorted(maps.Keys(looked)); !slices.Equal(got, []string{"kept", "orphan"}) {
		t.Errorf("%q are enqueued, want those without holder or not Bound", got)
	}
	if len(c.newRecords) != 0 {
		t.Errorf("%v are still news", c.newRecords)
	}
}

// TestNewRecordsAreScannedAfterDelay covers a leader, which exports the counts that it alone has
// from then on.
func TestNewRecordsAreScannedAfterDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		view := ledger.New(ledger.Options{Clock: clock.RealClock{}})
		r := replica.New(replica.Options{Ledger: view})
		c := attachReplica(r, &Controller{})
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		c.newRecords = []ipam.Name{{Name: "gone"}}
		suite.Must(t, c.arrivals().Start(t.Context(), q))
		registry := prometheus.NewRegistry()
		registry.MustRegister(c.Metrics.Collectors()...)
		if n, err := testutil.GatherAndCount(registry, metrics.Unheld); n != 1 || err != nil {
			t.Errorf("%d time series of %s, %v; want 1", n, metrics.Unheld, err)
		}
		for _, want := range []int{0, 1} {
			synctest.Wait()
			if got := q.Len(); got != want {
				t.Errorf("%d records are enqueued, want %d", got, want)
			}
			<-time.After(arrivalInterval)
		}
	})
}

func recordNamed(name string, state ipam.State) ipam.Record {
	return ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: name}, UID: name, Block: netip.MustParsePrefix("10.0.0.1/32"),
		Pool: ipam.PoolKey{Kind: ipam.PoolKindIPPool, Name: "hosts"}, Holder: ipam.Holder{Group: "g", Kind: "Thing", Namespace: "team", Name: name},
		Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: state,
	}
}

// TestOtherNamespacesLeaveNoNote covers requests of other namespaces, which are dropped before
// they reach the controller, so that a note of them would stay for ever.
func TestOtherNamespacesLeaveNoNote(t *testing.T) {
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	c := &Controller{Within: kubeutil.NamespacesOf("inside", "operator"), deletedHolders: map[ipam.Name]string{}, queue: q}
	claims := c.claims()
	for _, namespace := range []string{"inside", "outside"} {
		name := ipam.Name{Namespace: namespace, Name: "record"}
		c.noteNew(name)
		c.ReportDeleted("uid", ipam.Name{Namespace: namespace, Name: "other"})
		claim := &v1alpha1.IPClaim{}
		claim.Namespace, claim.UID, claim.Spec.AllocationName = namespace, "uid", name.Name
		claims.Delete(t.Context(), event.DeleteEvent{Object: claim}, q)
	}
	if len(c.newRecords) != 1 || c.newRecords[0].Namespace != "inside" {
		t.Errorf("new records: %v, want that of namespace inside alone", c.newRecords)
	}
	for name := range c.deletedHolders {
		if name.Namespace != "inside" {
			t.Errorf("the deletion of the holder of %s is noted", name)
		}
	}
	if len(c.deletedHolders) != 2 {
		t.Errorf("%d deletions of namespace inside are noted, want 2", len(c.deletedHolders))
	}
}
