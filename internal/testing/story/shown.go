package story

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// shown records the version of each object that the view, the catalog and the queue have been
// shown, once they have taken it in.
type shown struct {
	mu      sync.Mutex
	objects map[key]version
	// changed is closed at the next change.
	changed chan struct{}
}

// key names an object, and version one state of it.
type key struct {
	kind string
	types.NamespacedName
}

type version struct {
	uid     types.UID
	version string
}

func newShown() *shown {
	return &shown{objects: map[key]version{}, changed: make(chan struct{})}
}

func keyOf(obj client.Object) key { return key{kindOf(obj), client.ObjectKeyFromObject(obj)} }

// kindOf returns the name of the object's type.
func kindOf(obj client.Object) string {
	name := fmt.Sprintf("%T", obj)
	return name[strings.LastIndex(name, ".")+1:]
}

func versionOf(obj client.Object) version { return version{obj.GetUID(), obj.GetResourceVersion()} }

func (s *shown) set(k key, v version) {
	s.note(func() { s.objects[k] = v })
}

func (s *shown) drop(k key) {
	s.note(func() { delete(s.objects, k) })
}

func (s *shown) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	close(s.changed)
	s.changed = make(chan struct{})
}

// record notes the changes that the view of allocations shows.
func (s *shown) record(c ledger.Change) {
	k := key{kindOf(&v1alpha1.IPAllocation{}), types.NamespacedName(c.Record.Name)}
	switch {
	case c.Record.UID == "": // a pool has changed
	case c.Kind == ledger.Removed:
		s.drop(k)
	default:
		s.set(k, version{types.UID(c.Record.UID), c.Record.Version})
	}
}

// has reports whether an object has been shown as it is stored, or in a newer version.
func (s *shown) has(k key, stored version) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen, ok := s.objects[k]
	order, err := resourceversion.CompareResourceVersion(seen.version, stored.version)
	return ok && seen.uid == stored.uid && err == nil && order >= 0
}

// isGone reports whether an object is not shown, or not any more.
func (s *shown) isGone(k key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.objects[k]
	return !ok
}

// until waits until a condition holds, and reports false if ctx is done before. The condition is
// called again after each change since its call began: what it reads of the API server may
// change while it is compared.
func (s *shown) until(ctx context.Context, condition func() bool) bool {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if condition() {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// noting implements a cache that notes the objects that its handlers have been shown.
type noting struct {
	ctrlcache.Cache
	shown *shown
}

// GetInformer implements cache.Informers.
func (n noting) GetInformer(ctx context.Context, obj client.Object, opts ...ctrlcache.InformerGetOption) (ctrlcache.Informer, error) {
	informer, err := n.Cache.GetInformer(ctx, obj, opts...)
	return notingInformer{informer, n.shown}, err
}

type notingInformer struct {
	ctrlcache.Informer
	shown *shown
}

// AddEventHandler implements cache.Informer. There is one handler for each kind.
func (i notingInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(notingHandler{handler, i.shown})
}

type notingHandler struct {
	toolscache.ResourceEventHandler
	shown *shown
}

// OnAdd implements cache.ResourceEventHandler.
func (h notingHandler) OnAdd(obj any, initial bool) {
	h.ResourceEventHandler.OnAdd(obj, initial)
	h.shown.set(keyOf(obj.(client.Object)), versionOf(obj.(client.Object)))
}

// OnUpdate implements cache.ResourceEventHandler.
func (h notingHandler) OnUpdate(before, obj any) {
	h.ResourceEventHandler.OnUpdate(before, obj)
	h.shown.set(keyOf(obj.(client.Object)), versionOf(obj.(client.Object)))
}

// OnDelete implements cache.ResourceEventHandler.
func (h notingHandler) OnDelete(obj any) {
	h.ResourceEventHandler.OnDelete(obj)
	if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	h.shown.drop(keyOf(obj.(client.Object)))
}
