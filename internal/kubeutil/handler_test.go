package kubeutil

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestHandlerCallsForInformerEvents covers also deletions that the informer missed.
func TestHandlerCallsForInformerEvents(t *testing.T) {
	var calls []string
	h := Handler(
		func(c *v1alpha1.IPClaim) { calls = append(calls, "take "+string(c.UID)) },
		func(c *v1alpha1.IPClaim) { calls = append(calls, "lose "+string(c.UID)) })
	a, b := claimOf("a"), claimOf("b")
	for name, c := range map[string]struct {
		do   func()
		want []string
	}{
		"it comes":                               {func() { h.OnAdd(a, false) }, []string{"take a"}},
		"it changes":                             {func() { h.OnUpdate(a, a) }, []string{"take a"}},
		"another is in its place":                {func() { h.OnUpdate(a, b) }, []string{"lose a", "take b"}},
		"it goes":                                {func() { h.OnDelete(a) }, []string{"lose a"}},
		"it is gone, and was missed":             {func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: a}) }, []string{"lose a"}},
		"the deleted object was not of the kind": {func() { h.OnDelete(cache.DeletedFinalStateUnknown{Obj: "x"}) }, nil},
	} {
		calls = nil
		if c.do(); !slices.Equal(calls, c.want) {
			t.Errorf("%s: calls %v, want %v", name, calls, c.want)
		}
	}
}

func claimOf(uid types.UID) *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "x", UID: uid}}
}

func TestOnlyRequestsOfServedNamespacesPass(t *testing.T) {
	for name, test := range map[string]struct {
		namespaces Namespaces
		pass       []string
	}{
		"all of them when none is named":       {NamespacesOf(""), []string{"", "a", "b", "c"}},
		"objects in one namespace, or in none": {NamespacesOf("", "b"), []string{"", "b"}},
		"objects in one of two namespaces":     {NamespacesOf("a", "c"), []string{"", "a", "c"}},
	} {
		t.Run(name, func(t *testing.T) {
			var passed []string
			limited := test.namespaces.Limit(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				passed = append(passed, req.Namespace)
				return reconcile.Result{}, nil
			}))
			for _, namespace := range []string{"", "a", "b", "c"} {
				req := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: "x"}}
				if _, err := limited.Reconcile(t.Context(), req); err != nil {
					t.Fatal(err)
				}
			}
			if !slices.Equal(passed, test.pass) {
				t.Errorf("requests of namespaces %q pass, want %q", passed, test.pass)
			}
		})
	}
}

func TestReplacementIsDeletionAndCreation(t *testing.T) {
	var notified []string
	h := SplitReplacements(handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ Queue) {
			notified = append(notified, "new "+string(e.Object.GetUID()))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ Queue) {
			notified = append(notified, "changed "+string(e.ObjectNew.GetUID()))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ Queue) {
			notified = append(notified, "gone "+string(e.Object.GetUID()))
		},
	})
	object := func(uid types.UID) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
	}
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("1")}, nil)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: object("1"), ObjectNew: object("2")}, nil)
	if want := []string{"changed 1", "gone 1", "new 2"}; !slices.Equal(notified, want) {
		t.Errorf("notified %q, want %q", notified, want)
	}
}

// syncing notes the times of its start and of the wait for it.
type syncing struct {
	name  string
	notes *[]string
	err   error
}

func (s syncing) Start(context.Context, Queue) error {
	*s.notes = append(*s.notes, s.name+" starts")
	return nil
}

func (s syncing) WaitForSync(context.Context) error {
	*s.notes = append(*s.notes, s.name+" has synced")
	return s.err
}

func TestSourceStartsAfterPreviousHasSynced(t *testing.T) {
	var notes []string
	plain := source.Func(func(context.Context, Queue) error {
		notes = append(notes, "plain starts")
		return nil
	})
	if err := OrderedSources(plain, syncing{"first", &notes, nil}, syncing{"second", &notes, nil}).Start(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	want := []string{"plain starts", "first starts", "first has synced", "second starts", "second has synced"}
	if !slices.Equal(notes, want) {
		t.Errorf("got %q, want %q", notes, want)
	}
}

func TestFailedSourceEndsStart(t *testing.T) {
	var notes []string
	failed := errors.New("no cache")
	err := OrderedSources(syncing{"first", &notes, failed}, syncing{"second", &notes, nil}).Start(t.Context(), nil)
	if !errors.Is(err, failed) || len(notes) != 2 {
		t.Errorf("got %v after %q, want %v before the second starts", err, notes, failed)
	}
}

func TestTallyCountsObjectsByLastKey(t *testing.T) {
	tally := NewTally[string]()
	h := tally.Handler(func(obj any) (string, bool) {
		key, _ := obj.(string)
		return key, key != "" && key != "foreign"
	})
	want := func(counts map[string]int) {
		t.Helper()
		if diff := cmp.Diff(counts, tally.Counts()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
	}
	h.OnAdd("pending", true)
	h.OnAdd("pending", false)
	h.OnAdd("foreign", false)
	want(map[string]int{"pending": 2})
	h.OnUpdate("pending", "bound")
	h.OnUpdate("foreign", "pending")
	want(map[string]int{"pending": 2, "bound": 1})
	h.OnDelete(cache.DeletedFinalStateUnknown{Key: "a", Obj: "pending"})
	h.OnDelete("bound")
	want(map[string]int{"pending": 1})
}

// BenchmarkTally counts 60,000 packed objects, as a scrape does: by a Tally, and by the store.
func BenchmarkTally(b *testing.B) {
	keyOf := func(obj any) (string, bool) { return obj.(*corev1.Secret).StringData["value"], true }
	tally, store := NewTally[string](), cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for n := range 60_000 {
		obj := packedSecret{"a", fmt.Sprint(n), "1", "bound"}
		if err := store.Add(obj); err != nil {
			b.Fatal(err)
		}
		tally.Handler(keyOf).OnAdd(obj.Unpack(), true)
	}
	b.Run("tally", func(b *testing.B) {
		for b.Loop() {
			tally.Counts()
		}
	})
	b.Run("store", func(b *testing.B) {
		for b.Loop() {
			counts := map[string]int{}
			for _, obj := range (unpackingIndexer{store}).List() {
				key, _ := keyOf(obj)
				counts[key]++
			}
		}
	})
}

func TestStoppedListenerIsNotNotified(t *testing.T) {
	var lock sync.Mutex
	var listeners Listeners[string]
	var notifications []string
	note := func(name string) func(string) {
		return func(v string) { notifications = append(notifications, name+" of "+v) }
	}
	stop := listeners.Add(&lock, note("a"))
	listeners.Add(&lock, note("b"))
	before := listeners
	listeners.Notify("1")
	stop()
	listeners.Add(&lock, note("c"))
	listeners.Notify("2")
	before.Notify("3")
	if want := []string{"a of 1", "b of 1", "b of 2", "c of 2", "a of 3", "b of 3"}; !slices.Equal(notifications, want) {
		t.Errorf("notified: %q, want %q", notifications, want)
	}
}
