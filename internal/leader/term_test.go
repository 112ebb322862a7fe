package leader

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
)

// handled is a cache and its only informer, with the event handlers that it has.
type handled struct {
	cache.Cache
	cache.Informer
	registered []*registration
	refuses    error // to give an informer, or to add a handler
	keeps      error // a handler that is to be taken off
}

type registration struct {
	toolscache.ResourceEventHandlerRegistration
	resync time.Duration
}

func (h *handled) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return h, h.refuses
}

func (h *handled) AddEventHandlerWithOptions(_ toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	added := &registration{}
	if o.ResyncPeriod != nil {
		added.resync = *o.ResyncPeriod
	}
	h.registered = append(h.registered, added)
	return added, h.refuses
}

func (h *handled) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	if h.keeps != nil {
		return h.keeps
	}
	h.registered = slices.DeleteFunc(h.registered, func(r *registration) bool { return r == handle })
	return nil
}

// watched is a cache, the watches of a term on it, and their informer.
func watched(t *testing.T) (*handled, *watches, cache.Informer) {
	t.Helper()
	all := &handled{}
	w := &watches{Cache: all}
	informer, err := w.GetInformer(t.Context(), &corev1.Pod{})
	if err != nil {
		t.Fatal(err)
	}
	return all, w, informer
}

func TestTheEventHandlersOfATermAreTakenOff(t *testing.T) {
	all, w, informer := watched(t)
	handler := toolscache.ResourceEventHandlerFuncs{}
	for name, add := range map[string]func() (toolscache.ResourceEventHandlerRegistration, error){
		"AddEventHandler": func() (toolscache.ResourceEventHandlerRegistration, error) { return informer.AddEventHandler(handler) },
		"AddEventHandlerWithResyncPeriod": func() (toolscache.ResourceEventHandlerRegistration, error) {
			return informer.AddEventHandlerWithResyncPeriod(handler, time.Hour)
		},
		"AddEventHandlerWithOptions": func() (toolscache.ResourceEventHandlerRegistration, error) {
			return informer.AddEventHandlerWithOptions(handler, toolscache.HandlerOptions{})
		},
	} {
		if _, err := add(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	resyncs := slices.ContainsFunc(all.registered, func(r *registration) bool { return r.resync == time.Hour })
	if len(all.registered) != 3 || !resyncs {
		t.Fatalf("%d event handlers are there, want 3, one with its own resync period: %t", len(all.registered), resyncs)
	}
	if err := w.end(); err != nil || len(all.registered) != 0 {
		t.Errorf("%d event handlers are there at the end of the term, %v", len(all.registered), err)
	}
	if _, err := informer.AddEventHandler(handler); err != nil || len(all.registered) != 0 {
		t.Errorf("%d event handlers are there after the end of the term, %v", len(all.registered), err)
	}
}

func TestEventHandlersThatCannotBeAddedOrTakenOffAreTold(t *testing.T) {
	all, w, informer := watched(t)
	handler := toolscache.ResourceEventHandlerFuncs{}
	if _, err := informer.AddEventHandler(handler); err != nil {
		t.Fatal(err)
	}
	all.refuses, all.keeps = errors.New("stopped"), errors.New("not ours")
	if _, err := informer.AddEventHandler(handler); !errors.Is(err, all.refuses) {
		t.Errorf("adding one: %v", err)
	}
	if _, err := w.GetInformer(t.Context(), &corev1.Pod{}); !errors.Is(err, all.refuses) {
		t.Errorf("getting the informer: %v", err)
	}
	if err := w.end(); !errors.Is(err, all.keeps) {
		t.Errorf("taking it off at the end of the term: %v", err)
	}
	all.refuses = nil
	if _, err := informer.AddEventHandler(handler); !errors.Is(err, all.keeps) {
		t.Errorf("taking off one that comes after the end of the term: %v", err)
	}
}

// configured is a manager with options for controllers.
type configured struct {
	replica
	options config.Controller
}

func (c *configured) GetControllerOptions() config.Controller { return c.options }

func TestTheControllersOfATermMayHaveNamesThatAreTaken(t *testing.T) {
	mgr := &configured{options: config.Controller{MaxConcurrentReconciles: 3}}
	options := (&term{Manager: mgr}).GetControllerOptions()
	if options.SkipNameValidation == nil || !*options.SkipNameValidation || options.MaxConcurrentReconciles != 3 {
		t.Errorf("got %+v, want the manager's options, without a check of names", options)
	}
	if mgr.options.SkipNameValidation != nil {
		t.Error("the manager's own options have changed")
	}
}
