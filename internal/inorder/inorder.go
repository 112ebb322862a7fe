// Package inorder starts the sources of a controller one after the other. A
// controller that leaves out what is settled when it is first told of it must
// hear of every change from then on, so the sources that tell of changes have to
// be there before the one that tells of what there is.
package inorder

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// Sources is the given ones as one: each is started when the one before it has
// told of all that there was.
func Sources(all ...source.Source) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		for _, one := range all {
			if err := start(ctx, one, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func start(ctx context.Context, one source.Source, q queue) error {
	if err := one.Start(ctx, q); err != nil {
		return err
	}
	if syncing, ok := one.(source.SyncingSource); ok {
		return syncing.WaitForSync(ctx)
	}
	return nil
}
