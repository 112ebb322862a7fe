package ipclass

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/catalogue"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kube"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// changes enqueues those classes that changed, or of which a pool did. Only
// cluster-scoped pools are counted.
func (c *Controller) changes() source.Source {
	return kube.Subscription(func(_ context.Context, q kube.Queue) (stop func()) {
		return c.Catalogue.Listen(func(e catalogue.Change) {
			if e.Pool.Namespace != "" {
				return
			}
			for _, class := range e.Classes {
				q.Add(kube.RequestFor("", class))
			}
		})
	})
}

// records has the classes counted when anything in one of their pools changes,
// in turn: what happens until then is counted along.
func (c *Controller) records() source.Source {
	return kube.Subscription(func(_ context.Context, q kube.Queue) (stop func()) {
		return c.Ledger.Listen(func(change ledger.Change) {
			if change.Kind == ledger.Changed {
				return
			}
			c.enqueue(q, change.Pool)
			if change.Record.Purpose == ipam.PurposePool { // that pool may be ready now
				c.enqueue(q, adapt.PoolOf(change.Record.Holder))
			}
		})
	})
}

func (c *Controller) enqueue(q kube.Queue, key ipam.PoolKey) {
	if key.Kind != ipam.PoolKindIPPool {
		return
	}
	pool, _ := c.Catalogue.Pool(key)
	for _, class := range pool.Classes {
		q.AddAfter(kube.RequestFor("", class), c.Throttle.Delay(class))
	}
}
