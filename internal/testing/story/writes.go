package story

import (
	"context"
	"errors"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

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
	what = strings.Replace(what, " ", " "+kindOf(obj), 1)
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

// noteWrites returns the client with its writes noted.
func noteWrites(k8s client.WithWatch, w *writes) client.WithWatch {
	return interceptor.NewClient(k8s, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return w.call("create ", obj, func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			return w.call("update ", obj, func() error { return c.Update(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return w.call("patch ", obj, func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return w.call("delete ", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return w.call("patch /"+sub, obj, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
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
