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

// A record is made before its holder, so that at first none has one, and nearly
// all have one within milliseconds. To look at each at once would mean to look at
// it again when its grace is over, and to keep it in mind until then: at 500
// claims a second and 180 seconds, 90,000 of them. So those that are new are gone
// through together, a moment later, and only those without a holder are reconciled.

// arriveWithin is how long the holder of a new record has to come, before the
// record's grace begins.
const arriveWithin = time.Second

// arrivals enqueues those of the new records whose holders do not come.
func (c *Controller) arrivals() source.Source {
	return source.Func(func(ctx context.Context, q kubeutil.Queue) error {
		c.Metrics.Lead()
		go func() {
			tick := clock.RealClock{}.NewTicker(arriveWithin)
			defer tick.Stop()
			for {
				select {
				case <-tick.C():
					c.scan(ctx, q)
				case <-ctx.Done():
					return
				}
			}
		}()
		return nil
	})
}

// scan goes through the records that are new. It costs O(1) for each, and passes
// on those of which the cache does not say that their holder exists. Those that had none
// before, and have one now, have no grace any more.
func (c *Controller) scan(ctx context.Context, q kubeutil.Queue) {
	c.mu.Lock()
	news, unheld := c.news, slices.Collect(maps.Keys(c.unheld))
	c.news = nil
	c.mu.Unlock()
	for _, name := range unheld {
		if c.isHeld(ctx, name) {
			c.clear(name)
		}
	}
	for _, name := range news {
		if !c.isHeld(ctx, name) {
			q.Add(requestFor(name))
		}
	}
}

// isHeld reports whether the cache has the holder of the record, and it names it.
func (c *Controller) isHeld(ctx context.Context, name ipam.Name) bool {
	record, ok := c.Ledger.Record(name)
	if !ok {
		return false
	}
	held, err := c.holds(ctx, c.Client, record)
	return err == nil && held
}
