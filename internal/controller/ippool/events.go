package ippool

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// records enqueues a pool when its own record changes, and throttled when a record of
// the pool does: the status of the pool counts all that have changed until then.
func (c *Controller) records(kind ipam.PoolKind) source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Ledger.Listen(func(change ledger.Change) {
			if holder := change.Record.Holder; holder.Kind == string(kind) {
				q.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
			}
			if pool := change.Pool; pool.Kind == kind && change.Kind != ledger.Changed {
				q.AddAfter(kubeutil.RequestFor(pool.Namespace, pool.Name), c.Throttle.Delay(pool.String()))
			}
		})
	})
}

// changes enqueues a pool that changed, and those that wait for it as
// their parent.
func (c *Controller) changes(kind ipam.PoolKind) source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Catalogue.Listen(func(e inventory.Change) {
			if e.Pool.Kind == kind {
				q.Add(kubeutil.RequestFor(e.Pool.Namespace, e.Pool.Name))
			}
			c.EnqueueWaiting(q, string(kind), e)
		})
	})
}
