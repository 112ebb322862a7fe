package kube

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// OrderedSources returns a source that starts the given ones one after the other, each
// when the one before it has synced. A controller that skips what is up to date in its
// first pass relies on being notified of every later change, so the sources of changes
// start before the source of the objects themselves. controller-runtime starts the
// sources of a controller all at once.
func OrderedSources(all ...source.Source) source.Source {
	return source.Func(func(ctx context.Context, q requestQueue) error {
		for _, one := range all {
			if err := startAndSync(ctx, one, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func startAndSync(ctx context.Context, one source.TypedSource[reconcile.Request], q requestQueue) error {
	if err := one.Start(ctx, q); err != nil {
		return err
	}
	if syncing, ok := one.(source.SyncingSource); ok {
		return syncing.WaitForSync(ctx)
	}
	return nil
}
