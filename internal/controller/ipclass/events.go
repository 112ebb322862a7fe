package ipclass

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// catalogue enqueues those classes that changed, or of which a pool did. Only
// cluster-scoped pools are counted.
func (c *Controller) catalogue() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		context.AfterFunc(ctx, c.Allocator.Catalogue().Listen(func(e allocator.Entry) {
			if e.Pool.Namespace != "" {
				return
			}
			for _, class := range e.Classes {
				q.Add(requestFor(class))
			}
		}))
		return nil
	})
}

// records has the classes counted when anything in one of their pools changes,
// in turn: what happens until then is counted along.
func (c *Controller) records() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		context.AfterFunc(ctx, c.Allocator.Ledger().Listen(func(change ledger.Change) {
			if change.Kind == ledger.Changed {
				return
			}
			c.enqueue(q, change.Pool)
			if change.Record.Purpose == ipam.PurposePool { // that pool may be ready now
				c.enqueue(q, allocator.PoolOf(change.Record.Holder))
			}
		}))
		return nil
	})
}

func (c *Controller) enqueue(q queue, key ipam.PoolKey) {
	if key.Kind != ipam.PoolKindIPPool {
		return
	}
	pool, _ := c.Allocator.Catalogue().Pool(key)
	for _, class := range pool.Classes {
		q.AddAfter(requestFor(class), c.Throttle.Delay(class))
	}
}

func requestFor(class string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: class}}
}
