package allocationgc

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

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
