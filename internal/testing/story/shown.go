package story

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/changes"
)

// shown records the version of each object that the view, the catalog and the queue have been
// shown, once they have taken it in.
type shown struct {
	mu      changes.Mutex
	objects map[key]version
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
	s.mu.Changed()
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

// has reports whether an object has been shown as it is stored, or in a newer version. The caller
// has locked s.mu.
func (s *shown) has(k key, stored version) bool {
	seen, ok := s.objects[k]
	order, err := resourceversion.CompareResourceVersion(seen.version, stored.version)
	return ok && seen.uid == stored.uid && err == nil && order >= 0
}

// isGone reports whether an object is not shown, or not any more. The caller has locked s.mu.
func (s *shown) isGone(k key) bool {
	_, ok := s.objects[k]
	return !ok
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

// writes holds the writes of a client.
type writes struct {
	mu sync.Mutex
	// calls are in order, as Pass.Wrote has them.
	calls []string
	// hooks are called just before the next call of that description.
	hooks map[string]func()
	// objects are the written objects that the story has not yet seen to be shown.
	objects []client.Object
}

// take returns the calls since it was last called.
func (w *writes) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.calls
	w.calls = nil
	return taken
}

// written returns the objects that were written to since it was last called.
func (w *writes) written() []client.Object {
	w.mu.Lock()
	defer w.mu.Unlock()
	taken := w.objects
	w.objects = nil
	return taken
}

// call makes a call, and notes it when it is over.
func (w *writes) call(what string, obj client.Object, do func() error) error {
	if meanwhile := w.hook(what); meanwhile != nil {
		meanwhile()
	}
	err := do()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.calls = append(w.calls, what)
	w.objects = append(w.objects, obj.DeepCopyObject().(client.Object))
	return err
}

// hook returns the function to call just before a call, once.
func (w *writes) hook(what string) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	hook := w.hooks[what]
	delete(w.hooks, what)
	return hook
}

// Meanwhile makes the next write of that description call f just before it, as an actor that
// comes in between: see Pass.Wrote.
func (w *World) Meanwhile(what string, f func()) {
	w.writes.mu.Lock()
	defer w.writes.mu.Unlock()
	w.writes.hooks[what] = f
}

// observed returns a client whose writes are noted, with a moment before and after each call.
func (w *World) observed(k8s client.WithWatch) client.WithWatch {
	write := func(what string, obj client.Object, do func() error) error {
		return w.moments.around(what, func() error { return w.writes.call(what, obj, do) })
	}
	return interceptor.NewClient(k8s, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return w.moments.around("get "+kindOf(obj), func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return w.moments.around("a list", func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return write("create "+kindOf(obj), obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return w.writes.call("update "+kindOf(obj), obj, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return write("patch "+kindOf(obj), obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return write("delete "+kindOf(obj), obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return write("patch "+kindOf(obj)+"/"+sub, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
}

// Failing runs a story twice for each call of the API that a pass makes: once the API server
// fails without doing the request, and once it does the request and then fails. The pass is
// expected to end with an error, so that it is tried again. The passes after it do the rest.
// The Interruption that begin returns has no Act.
func (w *World) Failing(begin func(n int) Interruption) {
	w.t.Helper()
	for n, failed := 0, true; failed; n++ {
		i := begin(n)
		failed = false
		w.kept = nil
		w.moments.arm(n, func(what string) error {
			w.t.Logf("n=%d: the API server fails %s", n, what)
			failed = true
			return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
		})
		for range passesInterrupted {
			before := failed
			if err := w.passed(i); err == nil && failed != before {
				w.t.Fatal("a call failed, and the pass ended without an error: it is not tried again")
			}
		}
		w.moments.disarm()
		w.settled(i)
	}
}
