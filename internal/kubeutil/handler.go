package kubeutil

import (
	"context"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Handler returns an informer's handler that calls two functions. An informer reports an object
// that was replaced by another of its name as an update: the handler calls lose for the old
// object and then take for the new one. For a deletion that the informer missed, it calls lose
// with the last state that the informer saw.
func Handler[T client.Object](take, lose func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { take(obj.(T)) },
		UpdateFunc: func(before, obj any) {
			if Replaced(before.(T), obj.(T)) {
				lose(before.(T))
			}
			take(obj.(T))
		},
		DeleteFunc: func(obj any) {
			if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = missed.Obj
			}
			if typed, ok := obj.(T); ok {
				lose(typed)
			}
		},
	}
}

// NewNamespace returns an object by which the metadata of namespaces is read and watched, without the rest.
func NewNamespace() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// Queue represents the work queue of a controller.
type Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// RequestFor returns the request to reconcile the object of a name; the namespace is empty if
// the object is cluster-scoped.
func RequestFor(namespace, name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}
}

// Subscription returns a source that calls subscribe when the controller starts, and the
// returned stop function when the controller ends.
func Subscription(subscribe func(context.Context, Queue) (stop func())) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		context.AfterFunc(ctx, subscribe(ctx, q))
		return nil
	})
}

// Listener returns a source that calls enqueue for each change of which listen notifies it while the
// controller runs.
func Listener[T any](listen func(func(T)) (stop func()), enqueue func(Queue, T)) source.Source {
	return Subscription(func(_ context.Context, q Queue) (stop func()) {
		return listen(func(change T) { enqueue(q, change) })
	})
}

// OrderedSources returns a source that starts the given ones one after the other, each when the
// one before it has synced. A controller that skips up-to-date objects in its first pass relies
// on being notified of every later change, so the sources of changes start before the source of
// the objects themselves. controller-runtime starts the sources of a controller all at once.
func OrderedSources(sources ...source.Source) source.Source {
	return source.Func(func(ctx context.Context, q Queue) error {
		for _, one := range sources {
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

// Namespaces holds the namespaces whose objects a controller reconciles; an empty list means
// all of them. It is for an operator that was started with --namespace. The content of the
// caches is not limited: a block is in use in whatever namespace its holder is.
type Namespaces []string

// NamespacesOf returns the named namespaces. Empty names do not count.
func NamespacesOf(names ...string) Namespaces {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
}

// Has reports whether objects of the namespace are reconciled. Objects without a
// namespace always are.
func (n Namespaces) Has(namespace string) bool {
	return len(n) == 0 || namespace == "" || slices.Contains(n, namespace)
}

// Limit returns a reconciler that passes requests on to r if Has reports true of their
// namespace, and drops the others.
func (n Namespaces) Limit(r reconcile.Reconciler) reconcile.Reconciler {
	if len(n) == 0 {
		return r
	}
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if !n.Has(req.Namespace) {
			return reconcile.Result{}, nil
		}
		return r.Reconcile(ctx, req)
	})
}

// Replaced reports whether after is another object than before, of the same name.
func Replaced(before, after client.Object) bool { return before.GetUID() != after.GetUID() }

// SplitReplacements returns a handler that is notified of a deletion and a creation if an
// informer reports both as one update. An informer does that when it lists again, and an object
// has been deleted and another created under its name in between.
func SplitReplacements(h handler.Funcs) handler.EventHandler {
	split := h
	split.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q Queue) {
		if !Replaced(e.ObjectOld, e.ObjectNew) {
			h.Update(ctx, e, q)
			return
		}
		h.Delete(ctx, event.DeleteEvent{Object: e.ObjectOld}, q)
		h.Create(ctx, event.CreateEvent{Object: e.ObjectNew}, q)
	}
	return split
}

// Tally counts the objects of informers by a key, and keeps only the counts. It may be used
// concurrently. The zero value is not usable.
type Tally[K comparable] struct {
	mu     sync.Mutex
	counts map[K]int
}

// NewTally returns an empty tally.
func NewTally[K comparable]() *Tally[K] { return &Tally[K]{counts: map[K]int{}} }

// Counts returns the number of objects of each key that has any.
func (t *Tally[K]) Counts() map[K]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// Handler returns a handler that counts the objects of an informer. keyOf returns the key of an
// object, and false if the object is not to be counted.
func (t *Tally[K]) Handler(keyOf func(obj any) (K, bool)) cache.ResourceEventHandler {
	add := func(obj any, n int) {
		if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = missed.Obj // as it was last counted
		}
		if key, ok := keyOf(obj); ok {
			t.add(key, n)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { add(obj, 1) },
		UpdateFunc: func(before, obj any) {
			add(before, -1)
			add(obj, 1)
		},
		DeleteFunc: func(obj any) { add(obj, -1) },
	}
}

func (t *Tally[K]) add(key K, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[key] += n; t.counts[key] == 0 {
		delete(t.counts, key)
	}
}

// Listeners holds functions that are notified of values. A lock of the caller guards it. Add and the
// removal replace the slice, so that a copy can be notified outside the lock.
type Listeners[T any] []*func(T)

// Add adds a function. The caller holds the lock, and the returned function takes it to remove f.
func (l *Listeners[T]) Add(lock sync.Locker, f func(T)) (remove func()) {
	*l = append(slices.Clip(*l), &f)
	return func() {
		lock.Lock()
		defer lock.Unlock()
		*l = slices.DeleteFunc(slices.Clone(*l), func(other *func(T)) bool { return other == &f })
	}
}

// Notify calls each function.
func (l Listeners[T]) Notify(v T) {
	for _, f := range l {
		(*f)(v)
	}
}
