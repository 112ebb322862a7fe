package allocationgc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// holds reports whether the holder that the record names exists and names it.
func (c *Controller) holds(ctx context.Context, reader client.Reader, record ipam.Record) (bool, error) {
	switch holder := record.Holder; {
	case holder.Kind == "IPClaim":
		claim := &v1alpha1.IPClaim{}
		isHolder, err := findHolder(ctx, reader, record, claim)
		return isHolder && claim.Spec.AllocationName == record.Name.Name, err
	case ipam.PoolKind(holder.Kind).IsInCluster() && !c.InCluster:
		return true, nil // such pools are not served at the moment
	case holder.IsPool():
		pool := convert.NewPool(ipam.PoolKind(holder.Kind))
		isHolder, err := findHolder(ctx, reader, record, pool)
		return isHolder && c.isOwn(pool, record), err
	}
	c.mu.Lock()
	judge := c.judges[record.Holder.Kind]
	c.mu.Unlock()
	if judge == nil {
		return true, nil // it is not known at the moment
	}
	return judge(ctx, reader, record)
}

// isOwn reports whether a record is what a pool holds by its spec, or has what it held before an edit
// and the edit is not recorded yet. Every record is one of a pool with ranges that cannot be read.
func (c *Controller) isOwn(obj v1alpha1.Pool, record ipam.Record) bool {
	spec := obj.PoolSpec()
	if ipam.PoolKind(obj.PoolKind()).IsInCluster() { // its controller releases what it gives up
		return true
	}
	if spec.Occupies != v1alpha1.OccupiesRanges {
		return spec.CIDR == record.Block.String()
	}
	pool, errs := convert.Pool(obj)
	blocks := pool.Blocks()
	if len(errs) > 0 || blocks == nil || slices.Equal(blocks, record.Blocks()) { // nil: it has no CIDR yet
		return true
	}
	return record.IsStamped() && !c.Catalog.PoolState(pool).Recorded
}

// findHolder reads the object that the record names, and reports whether it exists and has the
// record's UID. A record that was made before its holder has none, and matches any holder.
func findHolder(ctx context.Context, reader client.Reader, record ipam.Record, obj client.Object) (bool, error) {
	holder := record.Holder
	err := reader.Get(ctx, client.ObjectKey{Namespace: holder.Namespace, Name: holder.Name}, obj)
	if err != nil && !kubeutil.IsNotFound(err) {
		return false, fmt.Errorf("looking for %s: %w", holder, err)
	}
	return err == nil && record.MayBeOf(string(obj.GetUID())), nil
}

// collect acts on the decision about a record without holder, in the state in which it was judged.
// A record that is gone is judged again when the view shows that, or after another grace period.
func (c *Controller) collect(ctx context.Context, record ipam.Record) (reconcile.Result, error) {
	now := c.Clock.Now()
	reason := history.ReasonOf(c.reasonOf(record))
	held, keeping := c.effectiveRecord(record, c.Catalog.Keeping(record))
	transition := ipam.NextState(held, keeping, now)
	var err error
	switch {
	case transition.Release:
		if err = c.release(ctx, record); err == nil { // and check that it is gone: an API server that has just started may have reported that too early
			return reconcile.Result{RequeueAfter: c.Grace}, nil
		}
	case transition.State != "":
		if err = c.Allocator.ApplyTransition(ctx, record, transition); err == nil {
			c.recordEvent(record, transition)
			record.State, record.ReleaseAfter = transition.State, transition.ReleaseAfter
			c.History.Retained(record, reason)
		}
	case !transition.Again.IsZero():
		return reconcile.Result{RequeueAfter: transition.Again.Sub(now)}, nil
	}
	if kubeutil.IsNotFound(err) || errors.Is(err, ipam.ErrPoolInUse) {
		return reconcile.Result{RequeueAfter: c.Grace}, nil
	}
	return reconcile.Result{}, err
}

// recordEvent makes an event of a block that is retained: of its IPAllocation, as its claim is
// gone. It makes none of a block that is released: no object is left that the event could be of.
func (c *Controller) recordEvent(record ipam.Record, transition ipam.Transition) {
	if transition.State != ipam.StateRetained {
		return
	}
	c.Events.Eventf(convert.Allocation(record), nil, corev1.EventTypeNormal, v1alpha1.EventRetained, "Release", "%s", retained(record, transition.ReleaseAfter))
}

func retained(record ipam.Record, until time.Time) string {
	return fmt.Sprintf("%s of %s is kept until %s for the next %s: delete this IPAllocation to release it earlier",
		record.Block, record.Pool, until.UTC().Format(time.RFC3339), record.Holder)
}

// effectiveRecord returns the record with which its next state is decided, and how it is kept: nothing is
// retained, and nothing cools down, after a claim that never had the block, or did not have it
// alone. That is so if the claim was not stored, as far as this process can determine, or if
// another record is on the block.
func (c *Controller) effectiveRecord(record ipam.Record, keeping ipam.Keeping) (ipam.Record, ipam.Keeping) {
	if record.State != ipam.StateBound || !record.ReleaseAfter.IsZero() {
		return record, keeping
	}
	_, isLost := errors.AsType[*ipam.TakenError](c.Allocator.CheckConfirmed(record))
	isLost = isLost || c.Ledger.Conflict(record) != nil
	if isLost || c.Ledger.WasNeverClaimed(record) && !record.IsStamped() && !c.sawDeletion(record) {
		record.Reclaim, record.Sticky, keeping.ReuseDelay = ipam.ReclaimDelete, "", 0
	}
	return record, keeping
}

// isKept reports whether a record is kept without a holder. A record that is being released is not:
// the replica that marked it is about to delete it, and to use its name again.
func isKept(record ipam.Record) bool {
	return record.State == ipam.StateRetained || record.State == ipam.StateCooling
}

// isReleased reports whether a record was released within the grace: its deletion is seen in two
// steps, and the first of them enqueues it again.
func (c *Controller) isReleased(record ipam.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	last := c.releases[record.Name]
	return last.uid == record.UID && c.Clock.Since(last.at) < c.Grace
}

// release releases a record, and notes that it is released.
func (c *Controller) release(ctx context.Context, record ipam.Record) error {
	release := c.Allocator.Release
	if record.Purpose == ipam.PurposePool && c.poolStays(record) {
		release = c.Allocator.ReleaseFormer
	}
	if err := release(ctx, record); err != nil {
		return err
	}
	reason := c.reasonOf(record)
	c.Metrics.Released(reason)
	c.History.Released(record, history.ReasonOf(reason))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.releases[record.Name] = lastRelease{uid: record.UID, at: c.Clock.Now()}
	return nil
}

// poolStays reports whether the pool of an own record exists, as far as this process has seen.
func (c *Controller) poolStays(record ipam.Record) bool {
	pool, ok := c.Catalog.Pool(convert.PoolOf(record.Holder))
	return ok && pool.Occupied != nil && record.HolderUID == pool.Spec.UID && !pool.Terminating && !c.sawDeletion(record)
}

// reasonOf returns the reason why a record is released.
func (c *Controller) reasonOf(record ipam.Record) metrics.ReleaseReason {
	switch {
	case record.State == ipam.StateRetained && record.Terminating:
		return metrics.Deleted
	case record.State == ipam.StateRetained:
		return metrics.RetentionExpired
	case record.State == ipam.StateCooling:
		return metrics.ReuseDelayOver
	case c.sawDeletion(record):
		return metrics.HolderDeleted
	}
	return metrics.Orphaned
}

// sawDeletion reports whether the deletion of this record's holder was seen. A name is used for one
// claim only, so for a claim the name is enough; a pool's record, and a record that was taken over,
// must carry the UID of the deleted holder.
func (c *Controller) sawDeletion(record ipam.Record) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok := c.deletedHolders[record.Name]
	if !ok {
		return false
	}
	if !record.IsStamped() {
		return record.Purpose == ipam.PurposeClaim && !record.Adopted
	}
	return record.HolderUID == uid
}

// graceLeft returns the time for which this state of the record can still be without holder.
func (c *Controller) graceLeft(record ipam.Record) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := c.sightings[record.Name]
	if seen.version != record.Version {
		seen = sighting{version: record.Version, at: c.Clock.Now()}
		c.sightings[record.Name] = seen
		c.Metrics.Unheld(len(c.sightings))
	}
	return c.Grace - c.Clock.Since(seen.at)
}

// clear ends the grace of a record that has a holder.
func (c *Controller) clear(name ipam.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.sightings, name)
	c.Metrics.Unheld(len(c.sightings))
}

// forget removes all notes about a record that is gone.
func (c *Controller) forget(name ipam.Name) {
	c.clear(name)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.deletedHolders, name)
	delete(c.releases, name)
}

// sighting holds the version of a record, and the time when it was first seen without its holder.
type sighting struct {
	version string
	at      time.Time
}

// lastRelease holds the UID of a record, and the time when it was released last.
type lastRelease struct {
	uid string
	at  time.Time
}
