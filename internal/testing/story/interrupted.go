package story

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Interruption holds a few passes over one object, in which a second actor comes in once.
type Interruption struct {
	// By reconciles Object.
	By     reconcile.Reconciler
	Object client.Object
	// Act is the action of the second actor. It uses the verbs of the story, so that the pass
	// that it interrupts decides with the result of the action.
	Act func()
	// Check expects the end state, besides the expectations of Consistent and Keeps.
	Check func()
}

const (
	// passesInterrupted is the number of passes that are made while the actor may come in, and
	// passesAfter the number that follow: they finish the work that a pass leaves to the next.
	passesInterrupted = 2
	passesAfter       = 4
	// passesEvery is the time between two of them. It is longer than the controllers wait
	// for their caches, and 4 of them are shorter than the grace of a record.
	passesEvery = 10 * time.Second
)

// Interrupted runs a story once for each moment at which another actor can come in while
// Reconcile works: just before and just after each of its calls of the API, and after the last.
// The data that has been read from the view is old then, or is not read yet. Each time begin
// sets up other objects, whose names contain n.
func (w *World) Interrupted(begin func(n int) Interruption) {
	w.t.Helper()
	for n, acted := 0, true; acted; n++ {
		i := begin(n)
		w.kept = nil
		w.moments.arm(n, func(what string) error {
			w.t.Logf("n=%d: the other actor comes in %s", n, what)
			i.Act()
			return nil
		})
		for range passesInterrupted {
			_ = w.passed(i)
		}
		if acted = !w.moments.disarm(); !acted {
			w.t.Logf("n=%d: the other actor comes in when all calls are made", n)
			i.Act()
		}
		w.settled(i)
	}
}

// settled makes the passes that are left, and expects that everything is as it should be.
func (w *World) settled(i Interruption) {
	w.t.Helper()
	for range passesAfter {
		w.Passes(passesEvery)
		_ = w.passed(i)
	}
	w.Consistent()
	w.expectKept()
	if i.Check != nil {
		i.Check()
	}
}

// passed makes a pass, which may fail: a controller tries again if it cannot do something at
// the moment.
func (w *World) passed(i Interruption) error {
	w.t.Helper()
	_, err := w.pass(i.By, i.Object.DeepCopyObject().(client.Object))
	if err != nil {
		w.t.Logf("the pass ended with: %v", err)
	}
	return err
}

// moments counts the moments at which another actor may come in, and lets it act at one. If the
// actor returns an error, so does the call.
type moments struct {
	mu   sync.Mutex
	left int
	act  func(what string) error
}

func (m *moments) arm(after int, act func(string) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.left, m.act = after, act
}

// disarm reports whether the moment has not come.
func (m *moments) disarm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	waits := m.act != nil
	m.act = nil
	return waits
}

// around makes a call, with a moment before and one after it. The calls of the actor itself
// have none.
func (m *moments) around(what string, do func() error) error {
	if err := m.pass("before " + what); err != nil {
		return err
	}
	err := do()
	if failed := m.pass("after " + what); failed != nil {
		return failed
	}
	return err
}

func (m *moments) pass(what string) error {
	m.mu.Lock()
	act := m.act
	if m.left--; m.left >= 0 {
		act = nil
	}
	if act != nil {
		m.act = nil
	}
	m.mu.Unlock()
	if act == nil {
		return nil
	}
	return act(what)
}

// OthersFinalizer is the finalizer of another controller.
const OthersFinalizer = "example.com/other"

// Replaced deletes an object, whatever finalizers it has, and creates another one of its name,
// which has the finalizer of another controller and is kept. The object is then updated to the
// stored state.
func (w *World) Replaced(obj client.Object) {
	w.t.Helper()
	w.Forced(obj.DeepCopyObject().(client.Object))
	obj.SetUID("")
	obj.SetResourceVersion("")
	obj.SetDeletionTimestamp(nil)
	obj.SetFinalizers(append(obj.GetFinalizers(), OthersFinalizer))
	w.Created(obj)
	w.Keeps(obj)
}

// Finalized puts the finalizer of another controller on an object, if it is stored, and keeps
// it.
func Finalized[T client.Object](w *World, obj T) {
	w.t.Helper()
	if w.isStored(obj) {
		Edited(w, obj, func(obj T) { obj.SetFinalizers(append(obj.GetFinalizers(), OthersFinalizer)) })
		w.Keeps(obj)
	}
}

func hasOthers(obj client.Object) bool {
	return slices.Contains(obj.GetFinalizers(), OthersFinalizer)
}

// Keeps makes the end of an interruption expect that the object is still stored, no more
// deleted than now, and with the finalizer of another controller if it has that now.
func (w *World) Keeps(obj client.Object) {
	w.t.Helper()
	w.kept = append(w.kept, Stored(w, obj.DeepCopyObject().(client.Object)))
}

func (w *World) expectKept() {
	w.t.Helper()
	for _, before := range w.kept {
		now := before.DeepCopyObject().(client.Object)
		if what := fmt.Sprintf("%s %s", kindOf(before), client.ObjectKeyFromObject(before)); !w.isStored(now) || now.GetUID() != before.GetUID() {
			w.t.Fatalf("%s is gone", what)
		} else if now.GetDeletionTimestamp() != nil && before.GetDeletionTimestamp() == nil {
			w.t.Fatalf("%s is deleted", what)
		} else if hasOthers(before) && !hasOthers(now) {
			w.t.Fatalf("%s has the finalizers %q, want that another controller's stays", what, now.GetFinalizers())
		}
	}
}

// interruptible returns the client with a moment before and after each of its calls.
func interruptible(k8s client.WithWatch, m *moments) client.WithWatch {
	return interceptor.NewClient(k8s, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return m.around("get "+kindOf(obj), func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return m.around("a list", func() error { return c.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return m.around("create "+kindOf(obj), func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return m.around("patch "+kindOf(obj), func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return m.around("delete "+kindOf(obj), func() error { return c.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return m.around("patch "+kindOf(obj)+"/"+sub, func() error { return c.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
}
