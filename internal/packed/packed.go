// Package packed is an informer whose store keeps objects in a smaller form. Where there
// are a hundred thousand objects, of which little is read, the Go type of an API object
// alone, with its fields for everything that it could have, takes several times what is
// kept in it.
package packed

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Form is an object in its smaller form. client-go finds its key by its metadata.
type Form interface {
	metav1.ObjectMetaAccessor
	// Unpack makes the object that was packed, anew each time.
	Unpack() any
}

// Informer is an informer that keeps of each object what pack makes of it: a Form, or the
// object itself. Its handlers, its store and its index functions deal in objects alone.
func Informer(of cache.SharedIndexInformer, pack func(any) any) cache.SharedIndexInformer {
	i := &informer{SharedIndexInformer: of, pack: pack}
	_ = i.SetTransform(nil) // which fails only once it runs
	return i
}

type informer struct {
	cache.SharedIndexInformer
	pack func(any) any
}

// SetTransform has what f, which may be nil, makes of an object packed. What is packed
// already, and comes again, is left as it is.
func (i *informer) SetTransform(f cache.TransformFunc) error {
	return i.SharedIndexInformer.SetTransform(func(obj any) (any, error) {
		if form, ok := obj.(Form); ok {
			return form, nil
		}
		if f != nil {
			made, err := f(obj)
			if err != nil {
				return nil, err
			}
			obj = made
		}
		return i.pack(obj), nil
	})
}

func (i *informer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(handler{h})
}

func (i *informer) AddEventHandlerWithResyncPeriod(h cache.ResourceEventHandler, resync time.Duration) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(handler{h}, resync)
}

func (i *informer) AddEventHandlerWithOptions(h cache.ResourceEventHandler, options cache.HandlerOptions) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(handler{h}, options)
}

func (i *informer) AddIndexers(indexers cache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(unpacking(indexers))
}

func (i *informer) GetStore() cache.Store { return i.GetIndexer() }

func (i *informer) GetIndexer() cache.Indexer { return indexer{i.SharedIndexInformer.GetIndexer()} }

// unpack is the object, of what an informer deals in.
func unpack(obj any) any {
	switch kept := obj.(type) {
	case Form:
		return kept.Unpack()
	case cache.DeletedFinalStateUnknown:
		return cache.DeletedFinalStateUnknown{Key: kept.Key, Obj: unpack(kept.Obj)}
	}
	return obj
}

func unpackAll(objs []any) []any {
	for i := range objs {
		objs[i] = unpack(objs[i])
	}
	return objs
}

// unpacking has index functions see objects.
func unpacking(indexers cache.Indexers) cache.Indexers {
	all := cache.Indexers{}
	for name, f := range indexers {
		all[name] = func(obj any) ([]string, error) { return f(unpack(obj)) }
	}
	return all
}

type handler struct{ to cache.ResourceEventHandler }

func (h handler) OnAdd(obj any, initial bool) { h.to.OnAdd(unpack(obj), initial) }

func (h handler) OnUpdate(before, obj any) { h.to.OnUpdate(unpack(before), unpack(obj)) }

func (h handler) OnDelete(obj any) { h.to.OnDelete(unpack(obj)) }

// indexer is a store as its readers see it. Only an informer writes to its store.
type indexer struct{ cache.Indexer }

func (i indexer) Get(obj any) (any, bool, error) {
	kept, ok, err := i.Indexer.Get(obj)
	return unpack(kept), ok, err
}

func (i indexer) GetByKey(key string) (any, bool, error) {
	kept, ok, err := i.Indexer.GetByKey(key)
	return unpack(kept), ok, err
}

func (i indexer) List() []any { return unpackAll(i.Indexer.List()) }

func (i indexer) Index(name string, obj any) ([]any, error) {
	kept, err := i.Indexer.Index(name, obj)
	return unpackAll(kept), err
}

func (i indexer) ByIndex(name, value string) ([]any, error) {
	kept, err := i.Indexer.ByIndex(name, value)
	return unpackAll(kept), err
}

func (i indexer) AddIndexers(indexers cache.Indexers) error {
	return i.Indexer.AddIndexers(unpacking(indexers))
}
