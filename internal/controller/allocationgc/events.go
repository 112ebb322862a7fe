package allocationgc

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// records returns a source that enqueues every record that has changed. A new record is reconciled
// if its holder has not appeared a moment later.
func (c *Controller) records() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		c.mu.Lock()
		c.queue = q
		c.mu.Unlock()
		return c.Ledger.Listen(func(change ledger.Change) {
			if change.Kind == ledger.Added && change.Record.State == ipam.StateBound && !change.Record.Terminating {
				c.noteNew(change.Record.Name)
				return
			}
			q.Add(requestFor(change.Record.Name))
			if pool := change.Pool; change.Kind == ledger.Removed && pool.Kind.IsPool() {
				c.reconcileMissing(q, pool)
			}
		})
	})
}

// reconcileMissing enqueues the own record of a pool that is gone and of which a block was
// released: that block may have been the last.
func (c *Controller) reconcileMissing(q kubeutil.Queue, pool ipam.PoolKey) {
	if _, ok := c.Catalog.Pool(pool); !ok {
		q.Add(requestFor(c.Catalog.RecordOfPool(pool)))
	}
}

// claims returns a handler that notes the deletion of claims, and enqueues their records. The last
// version of a claim that was seen may be one in which it waited; then the records of the claim are
// reconciled without a note.
func (c *Controller) claims() handler.EventHandler {
	return kubeutil.SplitReplacements(handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q kubeutil.Queue) {
		claim := e.Object.(*v1alpha1.IPClaim)
		if name := (ipam.Name{Namespace: claim.Namespace, Name: claim.Spec.AllocationName}); name.Name != "" {
			c.noteDeletion(string(claim.UID), name)
			q.Add(requestFor(name))
			return
		}
		for _, record := range c.Ledger.HeldBy(convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name})) {
			q.Add(requestFor(record.Name))
		}
	}})
}

// pools returns a handler that notes the deletion of pools, and enqueues their records.
func (c *Controller) pools() handler.EventHandler {
	return kubeutil.SplitReplacements(handler.Funcs{DeleteFunc: func(_ context.Context, e event.DeleteEvent, q kubeutil.Queue) {
		for _, record := range c.Ledger.HeldBy(convert.HolderOfPool(convert.KeyOf(e.Object.(v1alpha1.Pool)))) {
			c.noteDeletion(string(e.Object.GetUID()), record.Name)
			q.Add(requestFor(record.Name))
		}
	}})
}

func (c *Controller) noteDeletion(uid string, record ipam.Name) {
	if !c.Within.Has(record.Namespace) {
		return // no pass would forget it again
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deletedHolders[record] = uid
}

// ReportDeleted notes that the holder of the record was deleted, if no watch of this controller reports it.
func (c *Controller) ReportDeleted(uid string, record ipam.Name) {
	c.noteDeletion(uid, record)
	c.Enqueue(record)
}

// Judge registers f as the judge of the records of holders of the kind from now on.
func (c *Controller) Judge(kind string, f func(context.Context, client.Reader, ipam.Record) (bool, error)) {
	c.mu.Lock()
	c.judges[kind] = f
	c.mu.Unlock()
	for _, record := range c.Ledger.RecordsOfKind(kind) {
		c.noteNew(record.Name)
	}
}

// noteNew notes a new record.
func (c *Controller) noteNew(name ipam.Name) {
	if !c.Within.Has(name.Namespace) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != nil { // else this replica does not lead
		c.newRecords = append(c.newRecords, name)
	}
}

// Enqueue enqueues a record for judgment, if this replica leads.
func (c *Controller) Enqueue(name ipam.Name) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.queue != nil {
		c.queue.Add(requestFor(name))
	}
}

func requestFor(name ipam.Name) reconcile.Request {
	return kubeutil.RequestFor(name.Namespace, name.Name)
}

// A record is made before its holder, so that at first no record has one, and nearly all have one
// within milliseconds. To look at each record at once would mean to look at it again when its grace
// is over, and to remember it until then: at 500 claims a second and 180 seconds, 90,000 records.
// So new records are scanned together, a moment later, and only records without a holder are
// reconciled.

// arrivalInterval is the time in which the holder of a new record must appear, before the record's
// grace begins.
const arrivalInterval = time.Second

// arrivals returns a source that enqueues the new records whose holders do not appear.
func (c *Controller) arrivals() source.Source {
	return source.Func(func(ctx context.Context, q kubeutil.Queue) error {
		c.Metrics.Lead()
		go func() {
			ticker := clock.RealClock{}.NewTicker(arrivalInterval)
			defer ticker.Stop()
			for {
				select {
				case <-ticker.C():
					c.scan(ctx, q)
				case <-ctx.Done():
					return
				}
			}
		}()
		return nil
	})
}

// scan checks the new records. It costs O(1) for each, and enqueues the records for which the cache
// does not show that their holder exists. It ends the grace of records that had no holder before,
// and have one now.
func (c *Controller) scan(ctx context.Context, q kubeutil.Queue) {
	c.mu.Lock()
	newRecords, unheldNames := c.newRecords, slices.Collect(maps.Keys(c.sightings))
	c.newRecords = nil
	c.mu.Unlock()
	for _, name := range unheldNames {
		if c.isHeld(ctx, name) {
			c.clear(name)
		}
	}
	for _, name := range newRecords {
		if !c.isHeld(ctx, name) {
			q.Add(requestFor(name))
		}
	}
}

// isHeld reports whether the cache has the holder of the record, and the holder names the record.
func (c *Controller) isHeld(ctx context.Context, name ipam.Name) bool {
	record, ok := c.Ledger.Record(name)
	if !ok {
		return false
	}
	hasHolder, err := c.holds(ctx, c.Client, record)
	return err == nil && hasHolder
}
