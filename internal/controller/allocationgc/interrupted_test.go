package allocationgc

import (
	"fmt"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// TestOrphanTakenOverIsNotCollected lets an admission or another leader act between any
// two calls of a collection.
func TestOrphanTakenOverIsNotCollected(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*orphans){
		"a record that was never claimed is taken over":              recordTakenOver,
		"a record whose claim was seen to be deleted is taken over":  deletedTakenOver,
		"a record is written into its claim by a leader that paused": writtenByLeader,
		"a record is taken over again for its claim":                 func(e *orphans) { servedAgain(e, true) },
		"a record is taken over again for the claim of before":       func(e *orphans) { servedAgain(e, false) },
		"a record is given up a second time":                         givenUpAgain,
		"a pool that was seen to be deleted is made again":           recreatedPool,
	} {
		t.Run(name, func(t *testing.T) { tell(newOrphans(t, plane)) })
	}
	for name, uid := range map[string]string{"never had a claim": "", "had a claim": "former"} {
		t.Run("a record that "+name+" is collected although a call fails", func(t *testing.T) { collectionFails(newOrphans(t, plane), uid) })
	}
	t.Run("the record of a pool is collected although a call fails", func(t *testing.T) { poolCollectionFails(newOrphans(t, plane)) })
	t.Run("a block is retained although a call fails", func(t *testing.T) { retentionFails(newOrphans(t, plane)) })
	t.Run("the record of an earlier claim or pool is not kept by the next one of its name", func(t *testing.T) { recordsOfFormerHolders(newOrphans(t, plane)) })
}

// recordTakenOver lets admission take a record over for a claim that was deleted and is restored: it
// names the record, and is stored up to a minute later.
func recordTakenOver(e *orphans) {
	e.Interrupted(func(n int) story.Interruption {
		record := e.orphan(n, "")
		e.graceOver(record)
		return e.interruption(record, func() { e.restored(record) })
	})
}

func deletedTakenOver(e *orphans) {
	e.Interrupted(func(n int) story.Interruption {
		record := e.orphan(n, "")
		e.controller.deletedHolders[record.Name] = "former"
		return e.interruption(record, func() { e.restored(record) })
	})
}

// writtenByLeader lets a leader that was paused write a record into its claim, from its former
// read.
func writtenByLeader(e *orphans) {
	e.Interrupted(func(n int) story.Interruption {
		claim := build.Claim(story.Team, fmt.Sprintf("a%02d", n)).Pool("p").Length(28).Obj()
		e.Created(claim)
		record := e.orphan(n, string(claim.UID))
		e.graceOver(record)
		return e.interruption(record, func() { e.written(claim, record) })
	})
}

// servedAgain lets the leader try again to serve a claim, after a try that took its record over. It
// reads the claim then, or has read it before.
func servedAgain(e *orphans, readsAgain bool) {
	e.Interrupted(func(n int) story.Interruption {
		claim, record := e.takenOverFor(n, func(*v1alpha1.IPClaim, ipam.Record) {})
		return e.interruption(record, func() {
			if readsAgain {
				claim = story.Stored(e.World, claim)
			}
			if record, err := e.taken(claim); err == nil {
				e.written(claim, record)
			}
		})
	})
}

// givenUpAgain lets a leader write a record into its claim that was paused since it took the record
// over, after an earlier attempt to give the record up.
func givenUpAgain(e *orphans) {
	e.Interrupted(func(n int) story.Interruption {
		claim, record := e.takenOverFor(n, func(claim *v1alpha1.IPClaim, record ipam.Record) {
			suite.Must(e.t, e.Allocator.Fence(e.t.Context(), record))
			*claim = *story.Stored(e.World, claim)
		})
		return e.interruption(record, func() { e.written(claim, record) })
	})
}

// takenOverFor returns a claim that waits, and its record, which a leader has taken over, and whose grace
// is over.
func (e *orphans) takenOverFor(n int, before func(*v1alpha1.IPClaim, ipam.Record)) (*v1alpha1.IPClaim, ipam.Record) {
	e.t.Helper()
	claim := build.Claim(story.Team, fmt.Sprintf("a%02d", n)).Pool("p").Length(28).Obj()
	e.Created(claim)
	record := e.orphan(n, string(claim.UID))
	before(claim, record)
	record, err := e.taken(claim)
	suite.Must(e.t, err)
	e.Seen()
	e.graceOver(record)
	return claim, record
}

// taken takes over the record of a claim, as its controller does.
func (e *orphans) taken(claim *v1alpha1.IPClaim) (ipam.Record, error) {
	order := allocator.Order{Holder: story.Claim(claim.Name), Resolution: inventory.Resolution{Terms: ipam.Terms{Length: 28}}}
	order.SetHolder(claim)
	return e.Allocator.Allocate(e.t.Context(), order)
}

// written writes a record into its claim, if that is as it was read. The record is kept then.
func (e *orphans) written(claim *v1alpha1.IPClaim, record ipam.Record) {
	claim.Spec.AllocationName, claim.Spec.CIDR = record.Name.Name, record.Block.String()
	if e.K8s.Update(e.t.Context(), claim) == nil {
		e.Seen()
		e.Keeps(convert.Allocation(record))
	}
}

// recreatedPool lets admission record the CIDR of a pool that is made again.
func recreatedPool(e *orphans) {
	e.Interrupted(func(n int) story.Interruption {
		pool := build.Pool(fmt.Sprintf("p%d", n)).CIDR(fmt.Sprintf("10.%d.0.0/16", n)).Obj()
		e.Applied(pool)
		own := e.RecordsOf(convert.HolderOfPool(convert.KeyOf(pool)))[0]
		own, err := e.Allocator.Stamp(e.t.Context(), own, pool)
		suite.Must(e.t, err)
		e.Forced(pool.DeepCopy())
		e.controller.deletedHolders[own.Name] = own.HolderUID
		return e.interruption(own, func() {
			read, errs := convert.Pool(pool)
			suite.Must(e.t, errs.ToAggregate())
			order, err := e.Allocator.PoolOrder(read)
			suite.Must(e.t, err)
			order.Origin = allocator.OriginAdmission
			if again, err := e.Allocator.Allocate(e.t.Context(), order); err == nil {
				e.Seen()
				e.Replaced(pool)
				e.Keeps(convert.Allocation(again))
			}
		})
	})
}

// recordsOfFormerHolders restores a claim and a pool while no admission takes their records over. Their
// controllers record the blocks again once these records are gone.
func recordsOfFormerHolders(e *orphans) {
	record := e.orphan(1, "former")
	e.Created(build.Claim(story.Team, record.Holder.Name).Pool("p").CIDR(record.Block.String()).
		With(func(s *v1alpha1.IPClaimSpec) { s.AllocationName = record.Name.Name }).Obj())
	pool := build.Pool("q").CIDR("10.0.0.0/16").Obj()
	e.Applied(pool)
	own := e.RecordsOf(convert.HolderOfPool(convert.KeyOf(pool)))[0]
	own, err := e.Allocator.Stamp(e.t.Context(), own, pool)
	suite.Must(e.t, err)
	e.Replaced(pool)
	e.controller.deletedHolders[record.Name], e.controller.deletedHolders[own.Name] = "former", own.HolderUID
	for _, rec := range []ipam.Record{record, own} {
		e.reconciledAway(rec)
	}
}

// collectionFails makes each call fail that collects a record.
func collectionFails(e *orphans, uid string) {
	e.Failing(func(n int) story.Interruption {
		record := e.orphan(n, uid)
		e.graceOver(record)
		return e.collected(record)
	})
}

// poolCollectionFails makes each call fail that collects the record of a pool.
func poolCollectionFails(e *orphans) {
	e.Failing(func(n int) story.Interruption {
		pool := build.Pool(fmt.Sprintf("p%d", n)).CIDR(fmt.Sprintf("10.%d.0.0/16", n)).Obj()
		e.Applied(pool)
		own := e.RecordsOf(convert.HolderOfPool(convert.KeyOf(pool)))[0]
		e.Forced(pool)
		e.graceOver(own)
		return e.collected(own)
	})
}

// retentionFails makes each call fail that retains a block.
func retentionFails(e *orphans) {
	e.Failing(func(n int) story.Interruption {
		record := e.retainable(n, fmt.Sprintf("172.16.%d.0/28", n), "former")
		e.controller.deletedHolders[record.Name] = "former"
		i := e.interruption(record, nil)
		i.Check = func() {
			if record, _ := e.Ledger.Record(record.Name); record.State != ipam.StateRetained {
				e.t.Fatalf("the record is %s, want Retained", record.State)
			}
		}
		return i
	})
}

// collected returns the passes over a record that is gone in the end. A record that is being
// deleted when a pass fails is a new state of the record, which has another grace.
func (e *orphans) collected(record ipam.Record) story.Interruption {
	i := e.interruption(record, nil)
	i.Check = func() {
		e.Passes(e.controller.Grace)
		e.reconciledAway(record)
	}
	return i
}

// orphans holds the verbs for records without a holder.
type orphans struct {
	*story.World
	t          *testing.T
	controller *Controller
}

func newOrphans(t *testing.T, plane *story.Plane) *orphans {
	t.Helper()
	e := attachOrphans(t, plane)
	e.Applied(build.Pool("p").CIDR("172.16.0.0/16").Obj())
	return e
}

// attachOrphans begins a story on a plane that may have pools and records.
func attachOrphans(t *testing.T, plane *story.Plane) *orphans {
	t.Helper()
	e := &orphans{World: plane.Begin(t), t: t}
	e.controller = attachReplica(e.Replica, &Controller{
		Client: e.K8s, Live: e.K8s, Clock: e.Clock, Grace: 180 * time.Second, Events: e.Events,
		sightings: map[ipam.Name]sighting{}, deletedHolders: map[ipam.Name]string{}, releases: map[ipam.Name]lastRelease{},
	})
	return e
}

// retainable records a block for the claim of that number, of a UID, whose policy is Retain.
func (e *orphans) retainable(n int, cidr, uid string) ipam.Record {
	e.t.Helper()
	record := story.Block(fmt.Sprintf("a%02d", n), "p", cidr)
	record.HolderUID, record.Reclaim = uid, ipam.ReclaimRetain
	e.Recorded(record)
	return e.recordOf(record.Name)
}

func (e *orphans) reconciled(record ipam.Record) *story.Pass {
	e.t.Helper()
	return e.Reconciled(e.controller, convert.Allocation(record))
}

// orphan records a block for the claim of that number.
func (e *orphans) orphan(n int, uid string) ipam.Record {
	e.t.Helper()
	record := story.Block(fmt.Sprintf("a%02d", n), "p", fmt.Sprintf("172.16.%d.0/28", n))
	record.HolderUID = uid
	e.Recorded(record)
	return e.recordOf(record.Name)
}

// graceOver lets the grace of a record pass.
func (e *orphans) graceOver(record ipam.Record) {
	e.t.Helper()
	e.reconciled(record).After(e.controller.Grace)
	e.Passes(e.controller.Grace)
}

// restored takes a record over as admission does, and keeps it.
func (e *orphans) restored(record ipam.Record) {
	e.t.Helper()
	if _, ok := e.Allocator.Restore(e.t.Context(), restoreOrder(record), record.Name.Name); ok {
		e.Seen()
		e.Keeps(convert.Allocation(record))
	}
}

// restoreOrder returns the order with which admission takes a record over for its claim.
func restoreOrder(record ipam.Record) allocator.Order {
	return allocator.Order{Holder: record.Holder, Resolution: inventory.Resolution{
		Terms: ipam.Terms{Class: record.Class, Block: record.Block}, Pools: []ipam.Pool{{Key: record.Pool}},
	}}
}

func (e *orphans) interruption(record ipam.Record, act func()) story.Interruption {
	return story.Interruption{By: e.controller, Object: client.Object(convert.Allocation(record)), Act: act}
}
