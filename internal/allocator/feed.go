package allocator

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kube"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Feed keeps the catalogue and the ledger's knowledge of pools up to date from the
// informers of a cache. To be called once, before the cache is started; FeedClaims
// does the rest.
func (a *Allocator) Feed(ctx context.Context, from ctrlcache.Cache) error {
	for _, f := range []struct {
		obj     client.Object
		handler cache.ResourceEventHandler
	}{
		{namespaces(), handler(a.takeNamespace, a.loseNamespace)},
		{&v1alpha1.IPPool{}, handler(a.takePool, a.losePool)},
		{&v1alpha1.LocalIPPool{}, handler(a.takePool, a.losePool)},
		{&v1alpha1.IPClass{}, handler(a.takeClass, a.loseClass)},
	} {
		informer, err := from.GetInformer(ctx, f.obj)
		if err != nil {
			return fmt.Errorf("watching %T: %w", f.obj, err)
		}
		registration, err := informer.AddEventHandler(f.handler)
		if err != nil {
			return fmt.Errorf("watching %T: %w", f.obj, err)
		}
		a.FedBy(registration.HasSynced)
	}
	a.fedLock.Lock()
	defer a.fedLock.Unlock()
	a.claims = func() bool { return false }
	a.fed = append(a.fed, func() bool { return a.waitersSeen || a.claims() })
	return nil
}

// Synced is ipam.ErrNotSynced until all that decisions rest on has been seen
// once: records, pools, classes and the claims that wait. Nothing is handed out
// before.
func (a *Allocator) Synced() error {
	a.fedLock.RLock()
	defer a.fedLock.RUnlock()
	for _, synced := range a.fed {
		if !synced() {
			return ipam.ErrNotSynced
		}
	}
	if !a.isResolved.Load() {
		a.resolveWaiting()
	}
	return nil
}

// FedBy adds a source on which decisions rest; synced reports whether its first list
// is complete. It must be called before the cache is started: when the list of a source
// that is added later is complete, claims that wait are not looked at again.
func (a *Allocator) FedBy(synced func() bool) {
	a.fedLock.Lock()
	defer a.fedLock.Unlock()
	a.fed = append(a.fed, synced)
}

// namespaces are watched for their labels alone.
func namespaces() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Namespace"}}
}

// KnowNamespace sees to it that the namespace's project is known: one that was
// just made may not have been seen yet.
func (a *Allocator) KnowNamespace(ctx context.Context, live client.Reader, name string) error {
	if _, ok := a.catalogue.Tenant(name); ok {
		return nil
	}
	namespace := namespaces()
	namespace.Name = name
	return refresh(ctx, live, "namespace", namespace, a.takeNamespace)
}

func (a *Allocator) takeNamespace(obj *metav1.PartialObjectMetadata) {
	_, known := a.catalogue.Tenant(obj.Name)
	a.catalogue.SetProject(obj.Name, obj.Labels[v1alpha1.LabelProject])
	if !known { // which the catalogue does not report as a change
		a.resolveAgain(queue.Change{Namespace: obj.Name})
	}
}

func (a *Allocator) loseNamespace(obj *metav1.PartialObjectMetadata) {
	a.catalogue.DropNamespace(obj.Name)
	a.resolveAgain(queue.Change{Namespace: obj.Name})
}

// takePool takes over a pool as the watch shows it.
func (a *Allocator) takePool(obj v1alpha1.Pool) {
	a.live.shown(obj, func() { a.enterPool(obj) })
	pool, errs := a.ReadPool(obj)
	holder := HolderOfPool(adapt.KeyOf(obj))
	if len(errs) > 0 || pool.Terminating || !waits(obj, pool) {
		a.leave(holder)
		return
	}
	a.Wait(PoolWaiting(pool, obj.GetCreationTimestamp().Time))
}

// enterPool enters a pool into the catalogue and the ledger. Whether it waits for a
// parent is for the watch to say: a pool that was read live may be gone by now, and
// nobody would take it out of the line again.
func (a *Allocator) enterPool(obj v1alpha1.Pool) {
	pool, errs := a.ReadPool(obj)
	if len(errs) > 0 { // the pool's controller says so in its condition
		a.forgetPool(adapt.KeyOf(obj))
		return
	}
	pool.OpenSince = openSince(obj)
	a.ledger.Describe(pool)
	a.catalogue.SetPool(pool)
}

// ReadPool reads a pool. Its spec is read once for each generation.
func (a *Allocator) ReadPool(obj v1alpha1.Pool) (ipam.Pool, field.ErrorList) {
	before, _ := a.catalogue.Pool(adapt.KeyOf(obj))
	return adapt.PoolAfter(before, obj)
}

// waits reports whether a pool waits for its parent: for any block, or, when it comes
// back from a backup, for the one that it had.
func waits(obj v1alpha1.Pool, pool ipam.Pool) bool {
	return !pool.CIDR.IsValid() || pool.IsChild() && obj.PoolStatus().AllocatedCIDR == ""
}

// openSince is when a pool last began to hand out blocks, as its status says.
func openSince(obj v1alpha1.Pool) time.Time {
	ready := meta.FindStatusCondition(obj.PoolStatus().Conditions, v1alpha1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return time.Time{}
	}
	return ready.LastTransitionTime.Time
}

func (a *Allocator) losePool(obj v1alpha1.Pool) {
	key := adapt.KeyOf(obj)
	a.live.gone(obj, func() { a.forgetPool(key) })
	a.leave(HolderOfPool(key))
}

func (a *Allocator) forgetPool(key ipam.PoolKey) {
	a.catalogue.DropPool(key)
	a.ledger.Forget(key)
}

func (a *Allocator) takeClass(obj *v1alpha1.IPClass) {
	a.live.shown(obj, func() { a.enterClass(obj) })
}

func (a *Allocator) enterClass(obj *v1alpha1.IPClass) {
	class, errs := adapt.Class(obj)
	if len(errs) > 0 {
		a.catalogue.DropClass(obj.Name)
		return
	}
	a.catalogue.SetClass(ClassEntry{
		Class: class, Created: obj.CreationTimestamp.Time,
		Default: obj.Annotations[v1alpha1.AnnotationDefaultClass] == "true",
	})
}

func (a *Allocator) loseClass(obj *v1alpha1.IPClass) {
	a.live.gone(obj, func() { a.catalogue.DropClass(obj.Name) })
}

func (a *Allocator) takeClaim(obj *v1alpha1.IPClaim) {
	name := ipam.Name{Namespace: obj.Namespace, Name: obj.Name}
	holder := HolderOfClaim(name)
	if record := obj.Spec.AllocationName; record != "" {
		a.leave(holder)
		a.ledger.Claimed(ipam.Name{Namespace: obj.Namespace, Name: record}, true)
		if !obj.DeletionTimestamp.IsZero() {
			a.ledger.Leaving(ipam.Name{Namespace: obj.Namespace, Name: record})
		}
		return
	}
	if w, ok := waiting(obj); ok {
		a.Wait(w)
	} else {
		a.leave(holder)
	}
}

// waiting is the place of a claim without a record; false where it wants none.
func waiting(obj *v1alpha1.IPClaim) (Waiting, bool) {
	req, errs := adapt.Claim(obj)
	return Waiting{
		Since: obj.CreationTimestamp.Time, Holder: HolderOfClaim(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}), Request: req,
		Standing: standing(obj.Status.Conditions),
	}, len(errs) == 0 && obj.DeletionTimestamp.IsZero()
}

// standing is what the conditions of a claim say of its turn. Every replica reads it from
// there, whichever serves the claim.
func standing(conditions []metav1.Condition) queue.Standing {
	switch ready := meta.FindStatusCondition(conditions, v1alpha1.ConditionReady); {
	case ready == nil:
		return queue.Unknown
	case ready.Reason == v1alpha1.ReasonRecordRefused, ready.Reason == v1alpha1.ReasonLimitReached:
		return queue.Refused
	case ready.Reason == v1alpha1.ReasonPoolExhausted:
		return queue.WantsRoom
	}
	return queue.Unknown
}

func (a *Allocator) loseClaim(obj *v1alpha1.IPClaim) {
	a.leave(HolderOfClaim(ipam.Name{Namespace: obj.Namespace, Name: obj.Name}))
	if record := obj.Spec.AllocationName; record != "" {
		a.ledger.Claimed(ipam.Name{Namespace: obj.Namespace, Name: record}, false)
	}
}

// handler is an informer's handler from two functions; a deletion that was
// missed comes with the last state that was seen, or as a change into another
// object.
func handler[T client.Object](take, lose func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { take(obj.(T)) },
		UpdateFunc: func(before, obj any) {
			if kube.Replaced(before.(T), obj.(T)) {
				lose(before.(T))
			}
			take(obj.(T))
		},
		DeleteFunc: func(obj any) {
			if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = missed.Obj
			}
			if gone, ok := obj.(T); ok {
				lose(gone)
			}
		},
	}
}
