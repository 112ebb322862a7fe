package allocationgc

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

func TestOrphan(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*orphans){
		"a record whose claim was never seen is released after the grace, not before":              releasedAfterGrace,
		"a claim that turns up within the grace keeps its record":                                  claimTurnsUp,
		"a claim that the cache does not show is looked for again":                                 claimBehind,
		"a record whose claim is back after its deletion was seen stays":                           claimIsBack,
		"a record is kept whose claim is stored when the collector looks for it":                   claimInFlight,
		"a leader that was paused cannot write a record that is given up into its claim":           pausedLeader,
		"a record that is left in a namespace that is gone is released when that exists again":     leftBehind,
		"a release of which nothing is seen is done again":                                         unseenRelease,
		"a released block cools down for the reuse delay":                                          reuseDelay,
		"a retained block stays for 30 days, or until a person deletes the record":                 retainedBlock,
		"nothing is retained for a claim that was never stored":                                    func(e *orphans) { neverStored(e, plane) },
		"nothing is retained for a claim whose record lost its block to another one":               lostBlock,
		"a pool's own record that another replica is about to release is left to it for the grace": releasingPool,
		"the deletion of an earlier holder does not release a record that was taken over":          takenOver,
		"the deletion of a claim's former life does not release the record its restored one has":   restoredClaim,
		"a record is not given the UID of a claim that is gone by now":                             stampedRecord,
		"a record that changed after it was judged is not released":                                changedAfterJudgment,
		"what a pool held before an edit of its ranges stays until the edit is recorded":           editedPool,
		"a pool whose ranges were edited keeps one own record":                                     editedTwice,
	} {
		t.Run(name, func(t *testing.T) { tell(newOrphans(t, plane)) })
	}
}

func releasedAfterGrace(e *orphans) {
	record := e.orphan(1, "")
	e.reconciled(record).After(180 * time.Second)
	e.Passes(179 * time.Second)
	e.reconciled(record).After(time.Second)
	e.Passes(time.Second)
	e.reconciledAway(record)
}

func claimTurnsUp(e *orphans) {
	record := e.orphan(1, "")
	e.reconciled(record)
	e.Created(claimOf(record))
	e.Passes(time.Hour)
	e.reconciled(record).After(0)
	e.stays(record)
}

func claimBehind(e *orphans) {
	record := e.orphan(1, "")
	e.controller.Client = blind{}
	e.reconciled(record)
	claim := claimOf(record)
	e.Created(claim)
	e.Passes(time.Hour)
	e.reconciled(record).After(180 * time.Second) // the end of the claim can lack an event
	e.stays(record)
	e.Deleted(claim)
	e.reconciledAway(record)
}

func claimIsBack(e *orphans) {
	record := e.orphan(1, "")
	claim := claimOf(record)
	e.Created(claim)
	e.controller.Client = blind{}
	e.controller.deletedHolders[record.Name] = "uid"
	e.reconciled(record).After(180 * time.Second)
	e.stays(record)
	e.Deleted(claim)
	e.reconciledAway(record)
}

// claimInFlight persists the claim at the moment when the collector looks for it, and not before.
func claimInFlight(e *orphans) {
	record := e.orphan(1, "")
	e.controller.Live = persisting{e.K8s, func() { suite.Must(e.t, e.K8s.Create(e.t.Context(), claimOf(record))) }}
	e.graceOver(record)
	e.reconciled(record) // the cache showed no claim, the API server does
	story.Stored(e.World, claimOf(record))
	e.stays(record)
}

func pausedLeader(e *orphans) {
	record := e.orphan(1, "")
	claim := waitingClaimOf(record)
	e.Created(claim)
	_, err := e.Allocator.Stamp(e.t.Context(), record, claim)
	suite.Must(e.t, err)
	e.Seen()
	e.reconciled(record)
	e.Passes(time.Hour)
	e.reconciledAway(record)

	late := claim.DeepCopy() // as the leader had read it, before it was paused
	late.Spec = claimOf(record).Spec
	if err := e.K8s.Update(e.t.Context(), late); !apierrors.IsConflict(err) {
		e.t.Errorf("the claim names a record that is gone: got %v, want a conflict", err)
	}
}

func leftBehind(e *orphans) {
	namespace := build.Namespace("left-behind")
	suite.Must(e.t, client.IgnoreAlreadyExists(e.K8s.Create(e.t.Context(), namespace.DeepCopy())))
	record := story.Block("a", "p", "172.16.1.0/28")
	record.Name.Namespace, record.Holder.Namespace = namespace.Name, namespace.Name
	e.Recorded(record)
	suite.Must(e.t, e.K8s.Delete(e.t.Context(), namespace.DeepCopy()))
	ending := story.Stored(e.World, namespace.DeepCopy())
	ending.Spec.Finalizers = nil
	suite.Must(e.t, e.K8s.SubResource("finalize").Update(e.t.Context(), ending))
	for probe := (error)(nil); !apierrors.IsNotFound(probe); { // until the API server has noticed
		probe = e.K8s.Create(e.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Name, Name: "probe"}}, client.DryRunAll)
		suite.Must(e.t, e.t.Context().Err())
	}
	e.controller.deletedHolders[record.Name] = "uid"
	e.reconciled(record).After(180 * time.Second)
	if !e.recordOf(record.Name).Terminating {
		e.t.Error("the record is not being deleted")
	}
	suite.Must(e.t, e.K8s.Create(e.t.Context(), namespace.DeepCopy()))
	e.reconciledAway(record)
}

func unseenRelease(e *orphans) {
	record := e.orphan(1, "")
	e.controller.deletedHolders[record.Name] = "uid"
	e.controller.releases[record.Name] = lastRelease{uid: record.UID, at: e.Clock.Now()} // as an API server answered that had just started
	live := e.controller.Live
	e.controller.Live = nil // it is not asked again
	e.reconciled(record).After(180 * time.Second)
	e.controller.Live = live
	e.stays(record)
	e.Passes(180 * time.Second)
	e.reconciledAway(record)
}

func reuseDelay(e *orphans) {
	e.Applied(build.Pool("slow").CIDR("10.0.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.ReuseDelay = &metav1.Duration{Duration: time.Hour} }).Obj())
	record := story.Block("b", "slow", "10.0.0.0/28")
	e.Recorded(record)
	e.controller.deletedHolders[record.Name] = "uid"
	e.reconciledTo(record, ipam.StateCooling)
	e.reconciledInOneHour(record)
	e.Passes(59 * time.Minute)
	e.reconciledTo(record, ipam.StateCooling)
	e.Passes(2 * time.Minute)
	e.reconciledAway(record)
}

func retainedBlock(e *orphans) {
	record := e.retainable(1, "172.16.1.0/28", "")
	e.controller.deletedHolders[record.Name] = "uid"
	e.reconciledTo(record, ipam.StateRetained)
	e.Passes(719 * time.Hour)
	e.reconciledInOneHour(record)
	e.World.HasEvents(convert.Allocation(record), "Normal Retained")
	e.Deleted(convert.Allocation(record)) // its finalizer keeps it
	e.reconciledAway(record)
}

func neverStored(e *orphans, plane *story.Plane) {
	record, before := e.retainable(1, "172.16.1.0/28", ""), e.retainable(2, "172.16.2.0/28", "")
	e.graceOver(record)
	e.reconciledAway(record)

	later := attachOrphans(e.t, plane) // its age is unknown to a process that starts later
	later.graceOver(before)
	later.reconciledTo(before, ipam.StateRetained)
}

func lostBlock(e *orphans) {
	e.orphan(1, "")
	lost := e.retainable(2, "172.16.1.0/30", "former")
	e.controller.deletedHolders[lost.Name] = "former"
	e.reconciledAway(lost)
}

// ranges applies a pool that occupies some ranges, edits them, and returns the record from before.
func (e *orphans) ranges(before, after string) (pool *v1alpha1.IPPool, former ipam.Record) {
	e.t.Helper()
	pool = build.Pool("r").CIDR("10.0.0.0/24").Occupies(before).Obj()
	e.Applied(pool)
	former = e.RecordsOf(convert.HolderOfPool(ipam.PoolNamed("r")))[0]
	_, err := e.Allocator.Stamp(e.t.Context(), former, pool)
	suite.Must(e.t, err)
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Spec.Ranges = []string{after} })
	return pool, e.RecordsOf(convert.HolderOfPool(ipam.PoolNamed("r")))[0]
}

// recordedEdit records what the pool r holds since its ranges were edited.
func (e *orphans) recordedEdit(pool *v1alpha1.IPPool) {
	e.t.Helper()
	read, _ := convert.Pool(pool)
	order, err := e.Allocator.PoolOrder(read)
	suite.Must(e.t, err)
	order.Origin, order.HolderUID = allocator.OriginController, string(pool.UID)
	_, err = e.Allocator.Allocate(e.t.Context(), order)
	suite.Must(e.t, err)
	e.Seen()
}

func editedPool(e *orphans) {
	pool, former := e.ranges("10.0.0.0/24", "10.0.0.0/30") // all of its subnet
	e.reconciled(former).After(0)
	e.Passes(time.Hour)
	e.reconciled(former).After(0)
	e.stays(former)
	e.recordedEdit(pool)
	removed := story.Block("a", "r", "10.0.0.4/32")
	e.Recorded(removed)
	e.reconciled(former)
	e.Passes(time.Hour)
	e.reconciled(former).After(180 * time.Second)
	e.stays(former)
	e.Collected(removed.Holder)
	e.reconciledAway(former)
	if left := e.RecordsOf(former.Holder); len(left) != 1 || left[0].Block.String() != "10.0.0.0/30" {
		e.t.Errorf("the pool holds %v, want what it has since the edit", left)
	}
}

// editedTwice lets an edit's record lose its place between the judgment and the release.
func editedTwice(e *orphans) {
	pool, former := e.ranges("10.0.0.0/29", "10.0.0.0/30")
	e.recordedEdit(pool)
	e.reconciled(former)
	e.Passes(time.Hour)
	e.Meanwhile("patch IPAllocation", func() {
		for _, record := range e.RecordsOf(former.Holder) {
			if record.Name != former.Name {
				e.Forced(convert.Allocation(record))
			}
		}
	})
	e.reconciled(former).After(180 * time.Second)
	e.stays(former)
}

func releasingPool(e *orphans) {
	own := e.RecordsOf(convert.HolderOfPool(ipam.PoolNamed("p")))[0]
	e.Forced(build.Pool("p").CIDR("172.16.0.0/16").Obj())
	story.Edited(e.World, convert.Allocation(own), func(r *v1alpha1.IPAllocation) { r.Spec.State = v1alpha1.AllocationReleasing })
	e.reconciled(own).After(180 * time.Second)
	e.stays(own)
}

func takenOver(e *orphans) {
	record := e.orphan(1, "")
	e.adopted(record)
	e.controller.deletedHolders[record.Name] = "uid"
	e.reconciled(record).After(180 * time.Second) // it is no longer that claim's
	e.stays(record)
}

func restoredClaim(e *orphans) {
	record := e.orphan(1, "")
	former := waitingClaimOf(record)
	e.Created(former)
	_, err := e.Allocator.Stamp(e.t.Context(), record, former)
	suite.Must(e.t, err)
	e.Deleted(former)
	for _, test := range []struct {
		class string
		pool  ipam.PoolKey
		want  bool
	}{{record.Class, ipam.PoolNamed("another"), false}, {"another", record.Pool, false}, {record.Class, record.Pool, true}} {
		order := restoreOrder(record)
		order.Terms.Class, order.Pools[0].Key = test.class, test.pool
		if _, ok := e.Allocator.Restore(e.t.Context(), order, record.Name.Name); ok != test.want {
			e.t.Fatalf("it is taken over for a claim of class %q and pool %s: %t, want %t", test.class, test.pool, ok, test.want)
		}
	}
	e.Seen()
	e.controller.deletedHolders[record.Name] = string(former.UID)
	e.reconciled(record).After(180 * time.Second) // it is the restored claim's now
	e.stays(record)
}

func stampedRecord(e *orphans) {
	record := e.orphan(1, "")
	former, present := waitingClaimOf(record), waitingClaimOf(record)
	e.Created(former)
	e.Deleted(former)
	if _, err := e.Allocator.Stamp(e.t.Context(), record, former); !apierrors.IsNotFound(err) {
		e.t.Errorf("error %v, want that there is none", err)
	}
	e.Created(present)
	if _, err := e.Allocator.Stamp(e.t.Context(), record, former); !apierrors.IsConflict(err) {
		e.t.Errorf("error %v, want a conflict", err)
	}
	_, err := e.Allocator.Stamp(e.t.Context(), record, present)
	suite.Must(e.t, err)
}

func changedAfterJudgment(e *orphans) {
	judged := e.orphan(1, "")
	e.adopted(judged)
	if err := e.Allocator.Release(e.t.Context(), judged); err == nil {
		e.t.Error("it was released")
	}
}

// reconciledTo expects the record to be in a state afterwards.
func (e *orphans) reconciledTo(record ipam.Record, state ipam.State) {
	e.t.Helper()
	e.reconciled(record)
	if got := e.recordOf(record.Name).State; got != state {
		e.t.Fatalf("the record is %s, want %s", got, state)
	}
}

// reconciledAway expects the record to be gone afterwards.
func (e *orphans) reconciledAway(record ipam.Record) {
	e.t.Helper()
	e.reconciled(record)
	e.Gone(convert.Allocation(record))
}

// stays expects that the record is stored, and not being deleted.
func (e *orphans) stays(record ipam.Record) {
	e.t.Helper()
	if stored := story.Stored(e.World, convert.Allocation(record)); !stored.DeletionTimestamp.IsZero() {
		e.t.Fatalf("the record %s is being deleted", record.Name)
	}
}

func (e *orphans) reconciledInOneHour(record ipam.Record) {
	e.t.Helper()
	if again := e.reconciled(record).RequeueAfter(); again <= 59*time.Minute || again > time.Hour {
		e.t.Errorf("looks again after %s, want about 1h", again)
	}
}

// adopted marks a record as taken over by another process.
func (e *orphans) adopted(record ipam.Record) {
	e.t.Helper()
	story.Edited(e.World, convert.Allocation(record), func(r *v1alpha1.IPAllocation) {
		metav1.SetMetaDataAnnotation(&r.ObjectMeta, v1alpha1.AnnotationAdopted, "true")
	})
}

// waitingClaimOf returns the holder of a record as a claim that does not name it yet.
func waitingClaimOf(record ipam.Record) *v1alpha1.IPClaim {
	claim := claimOf(record)
	claim.Spec = v1alpha1.IPClaimSpec{}
	return claim
}

// blind implements a cache that shows nothing.
type blind struct{ client.Reader }

func (blind) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
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

// attachReplica sets the parts of a replica in a controller.
func attachReplica(r replica.Replica, c *Controller) *Controller {
	c.Ledger, c.Catalog, c.Allocator, c.Metrics, c.History = r.Ledger, r.Catalog, r.Allocator, r.Metrics, r.History
	return c
}
