package ipclass

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// changes returns a source that enqueues the classes that changed, and the classes of a pool that
// changed. Only cluster-scoped pools are counted.
func (c *Controller) changes() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Catalog.Listen(func(e inventory.Change) {
			if e.Pool.Namespace != "" {
				return
			}
			for _, class := range e.Classes {
				q.Add(kubeutil.RequestFor("", class))
			}
		})
	})
}

// records returns a source that enqueues the classes of a pool, throttled, when anything in the
// pool changes: a pass counts all changes until then.
func (c *Controller) records() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Ledger.Listen(func(change ledger.Change) {
			if change.Kind == ledger.Changed {
				return
			}
			c.enqueue(q, change.Pool)
			if change.Record.Purpose == ipam.PurposePool { // that pool may be ready now
				c.enqueue(q, convert.PoolOf(change.Record.Holder))
			}
		})
	})
}

func (c *Controller) enqueue(q kubeutil.Queue, key ipam.PoolKey) {
	if key.Kind != ipam.PoolKindIPPool {
		return
	}
	pool, _ := c.Catalog.Pool(key)
	for _, class := range pool.Classes {
		q.AddAfter(kubeutil.RequestFor("", class), c.Throttle.Delay(class))
	}
}
