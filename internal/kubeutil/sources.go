package kubeutil

import (
	"context"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Queue is the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// RequestFor is the request to reconcile the object of a name; the namespace is empty for
// one that is cluster-scoped.
func RequestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Subscription returns a source that calls subscribe when the controller starts, and what
// that returns when the controller ends.
func Subscription(subscribe func(context.Context, Queue) (stop func())) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		context.AfterFunc(ctx, subscribe(ctx, q))
		return nil
	})
}

// OrderedSources returns a source that starts the given ones one after the other, each
// when the one before it has synced. A controller that skips what is up to date in its
// first pass relies on being notified of every later change, so the sources of changes
// start before the source of the objects themselves. controller-runtime starts the
// sources of a controller all at once.
func OrderedSources(all ...source.Source) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		for _, one := range all {
			if err := startAndSync(ctx, one, q); err != nil {
				return err
			}
		}
		return nil
	})
}

func startAndSync(ctx context.Context, one source.TypedSource[reconcile.Request], q Queue) error {
	if err := one.Start(ctx, q); err != nil {
		return err
	}
	if syncing, ok := one.(source.SyncingSource); ok {
		return syncing.WaitForSync(ctx)
	}
	return nil
}
