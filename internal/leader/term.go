package leader

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// term is the manager of one term of a leader. What is added to it runs until the term
// ends, and what it watches through its cache is watched until then.
type term struct {
	manager.Manager
	watches *watches
	ctx     context.Context //nolint:containedctx // of the term: what is set up runs with it
	running *errgroup.Group
	added   []manager.Runnable
}

// setup calls f, and then starts what f has added: a controller is added before it is
// told what to watch. That f fails because the term is over is no error.
func (t *term) setup(f Setup) error {
	if err := f(t); err != nil {
		return t.unlessOver(err)
	}
	for _, r := range t.added {
		t.running.Go(func() error { return t.unlessOver(r.Start(t.ctx)) })
	}
	t.added = nil
	return nil
}

func (t *term) unlessOver(err error) error {
	if t.ctx.Err() != nil {
		return nil //nolint:nilerr // what the end of a term stops is done again in the next
	}
	return err
}

// Add implements manager.Manager.
func (t *term) Add(r manager.Runnable) error {
	t.added = append(t.added, r)
	return nil
}

// GetCache implements cluster.Cluster.
func (t *term) GetCache() cache.Cache { return t.watches }

// GetControllerOptions implements manager.Manager. Each term has controllers of the same
// names.
func (t *term) GetControllerOptions() config.Controller {
	options := t.Manager.GetControllerOptions()
	options.SkipNameValidation = new(true)
	return options
}

// watches is a cache whose event handlers can be taken off again.
type watches struct {
	cache.Cache
	mu       sync.Mutex
	handlers []func() error // each takes one off
	ended    bool
}

// GetInformer implements cache.Informers.
func (w *watches) GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	i, err := w.Cache.GetInformer(ctx, obj, opts...)
	if err != nil {
		return nil, err
	}
	return &informer{Informer: i, watches: w}, nil
}

// end takes off all event handlers, and at once those that come later: a source adds its
// own from a goroutine for which its controller does not wait.
func (w *watches) end() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = true
	var errs []error
	for _, remove := range w.handlers {
		errs = append(errs, remove())
	}
	return errors.Join(errs...)
}

// informer notes the event handlers that it is given.
type informer struct {
	cache.Informer
	watches *watches
}

// AddEventHandler implements cache.Informer.
func (i *informer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{})
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i *informer) AddEventHandlerWithResyncPeriod(h toolscache.ResourceEventHandler, period time.Duration) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandlerWithOptions(h, toolscache.HandlerOptions{ResyncPeriod: &period})
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i *informer) AddEventHandlerWithOptions(h toolscache.ResourceEventHandler, o toolscache.HandlerOptions) (toolscache.ResourceEventHandlerRegistration, error) {
	registration, err := i.Informer.AddEventHandlerWithOptions(h, o)
	if err != nil {
		return nil, err
	}
	i.watches.mu.Lock()
	defer i.watches.mu.Unlock()
	if i.watches.ended {
		return registration, i.RemoveEventHandler(registration)
	}
	i.watches.handlers = append(i.watches.handlers, func() error { return i.RemoveEventHandler(registration) })
	return registration, nil
}
