package kubeutil

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	fcache "k8s.io/client-go/tools/cache/testing"
)

// packedSecret holds a Secret of one value.
type packedSecret struct{ namespace, name, version, value string }

func (f packedSecret) Unpack() any { return secret(f.namespace, f.name, f.version, f.value) }

func (f packedSecret) GetObjectMeta() metav1.Object { return f.Unpack().(*corev1.Secret) }

func secret(namespace, name, version, value string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, ResourceVersion: version},
		StringData: map[string]string{"value": value},
	}
}

// packSecret packs Secrets, but not those that are named whole.
func packSecret(obj any) any {
	if s := obj.(*corev1.Secret); s.Name != "whole" {
		return packedSecret{s.Namespace, s.Name, s.ResourceVersion, s.StringData["value"]}
	}
	return obj
}

// notified holds the notifications of a handler, in words.
type notified chan string

func (c notified) OnAdd(obj any, initial bool) {
	kind := "added "
	if initial {
		kind = "listed "
	}
	c <- kind + text(obj)
}

func (c notified) OnUpdate(before, obj any) { c <- "changed " + text(before) + " to " + text(obj) }

func (c notified) OnDelete(obj any) {
	if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		c <- "missed that " + missed.Key + " is gone, last " + text(missed.Obj)
		return
	}
	c <- "deleted " + text(obj)
}

// text prints an object, and fails for any other value.
func text(obj any) string {
	s, ok := obj.(*corev1.Secret)
	if !ok {
		return "no Secret"
	}
	return s.Name + "=" + s.StringData["value"]
}

// next returns the next n notifications, in any order.
func (c notified) next(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		select {
		case one := <-c:
			all = append(all, one)
		case <-t.Context().Done():
			t.Fatal("no notification")
		}
	}
	slices.Sort(all)
	return all
}

// runPacked runs an informer of the objects of the source, in which values are in upper case.
func runPacked(t *testing.T, source cache.ListerWatcher, resync time.Duration) (cache.SharedIndexInformer, notified) {
	t.Helper()
	i := PackedInformer(cache.NewSharedIndexInformer(source, &corev1.Secret{}, resync, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}), packSecret)
	err := i.SetTransform(func(obj any) (any, error) {
		made := obj.(*corev1.Secret).DeepCopy()
		made.StringData["value"] = strings.ToUpper(made.StringData["value"])
		return made, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	byValue := cache.Indexers{"value": func(obj any) ([]string, error) { return []string{text(obj)}, nil }}
	if err := i.AddIndexers(byValue); err != nil {
		t.Fatal(err)
	}
	notes := make(notified, 100)
	if _, err := i.AddEventHandlerWithResyncPeriod(notes, resync); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); i.RunWithContext(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return i, notes
}

// TestHandlersAreNotifiedOfObjects covers packed and other objects.
func TestHandlersAreNotifiedOfObjects(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	source.Add(secret("a", "one", "", "x"))
	source.Add(secret("b", "whole", "", "y"))
	i, notes := runPacked(t, source, 0)
	if got, want := notes.next(t, 2), []string{"listed one=X", "listed whole=Y"}; !slices.Equal(got, want) {
		t.Errorf("notified of %q, want %q", got, want)
	}
	other, another := make(notified, 10), make(notified, 10)
	if _, err := i.AddEventHandler(other); err != nil {
		t.Fatal(err)
	}
	late, err := i.AddEventHandlerWithOptions(another, cache.HandlerOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []notified{other, another} {
		if got, want := c.next(t, 2), []string{"listed one=X", "listed whole=Y"}; !slices.Equal(got, want) {
			t.Errorf("a later handler is notified of %q, want %q", got, want)
		}
	}
	if err := i.RemoveEventHandler(late); err != nil {
		t.Error(err)
	}
	source.Modify(secret("a", "one", "", "z"))
	source.Add(secret("a", "two", "", "v"))
	source.Delete(secret("a", "two", "", "v"))
	if got, want := notes.next(t, 3), []string{"added two=V", "changed one=X to one=Z", "deleted two=V"}; !slices.Equal(got, want) {
		t.Errorf("notified of %q, want %q", got, want)
	}
}

// TestMissedDeletionIsDeliveredAsObject covers a deletion that only the list after a broken watch
// shows.
func TestMissedDeletionIsDeliveredAsObject(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	source.Add(secret("a", "one", "", "x"))
	_, notes := runPacked(t, source, 0)
	notes.next(t, 1)
	source.DeleteDropWatch(secret("a", "one", "", "x"))
	source.ResetWatch()
	if got, want := notes.next(t, 1), []string{"missed that a/one is gone, last one=X"}; !slices.Equal(got, want) {
		t.Errorf("notified of %q, want %q", got, want)
	}
}

// TestPackedStoreReturnsObjects expects objects from a store that keeps them packed.
func TestPackedStoreReturnsObjects(t *testing.T) {
	source := fcache.NewFakeControllerSource()
	source.Add(secret("a", "one", "", "x"))
	source.Add(secret("b", "whole", "", "y"))
	i, notes := runPacked(t, source, 0)
	notes.next(t, 2)
	kept, _, _ := i.(*packedInformer).SharedIndexInformer.GetStore().GetByKey("a/one")
	if diff := cmp.Diff(packedSecret{"a", "one", "1", "X"}, kept, cmp.AllowUnexported(packedSecret{})); diff != "" {
		t.Errorf("the stored object: %s", diff)
	}
	store := i.GetIndexer()
	one := func(obj any, found bool, err error) ([]any, error) {
		if !found {
			err = errors.Join(err, errors.New("not found"))
		}
		return []any{obj}, err
	}
	for name, read := range map[string]func() ([]any, error){
		"Get":                 func() ([]any, error) { return one(store.Get(secret("a", "one", "", ""))) },
		"GetByKey":            func() ([]any, error) { return one(store.GetByKey("a/one")) },
		"List":                func() ([]any, error) { return store.List(), nil },
		"GetStore":            func() ([]any, error) { return i.GetStore().List(), nil },
		"Index":               func() ([]any, error) { return store.Index("value", secret("a", "one", "", "X")) },
		"ByIndex":             func() ([]any, error) { return store.ByIndex("value", "one=X") },
		"ByIndex, namespaces": func() ([]any, error) { return store.ByIndex(cache.NamespaceIndex, "a") },
	} {
		got, err := read()
		var words []string
		for _, obj := range got {
			words = append(words, text(obj))
		}
		if err != nil || !slices.Contains(words, "one=X") || slices.Contains(words, "no Secret") {
			t.Errorf("%s: %q, %v", name, words, err)
		}
	}
	if _, found, _ := store.GetByKey("a/none"); found {
		t.Error("a missing object is found")
	}
	if err := store.AddIndexers(cache.Indexers{"later": func(obj any) ([]string, error) { return []string{text(obj)}, nil }}); err != nil {
		t.Fatal(err)
	}
	if got, err := store.ByIndex("later", "one=X"); err != nil || len(got) != 1 {
		t.Errorf("by an index that came later: %v, %v", got, err)
	}
}

// TestPackedObjectIsNotPackedAgain covers client-go, which also transforms the objects that it has
// stored already.
func TestPackedObjectIsNotPackedAgain(t *testing.T) {
	var transform cache.TransformFunc
	i := PackedInformer(transforming{cache.NewSharedIndexInformer(nil, &corev1.Secret{}, 0, nil), &transform}, packSecret)
	if got, err := transform(secret("a", "one", "1", "x")); err != nil || got != (packedSecret{"a", "one", "1", "x"}) {
		t.Errorf("without another transform function: %v, %v", got, err)
	}
	failed := errors.New("failed")
	if err := i.SetTransform(func(any) (any, error) { return nil, failed }); err != nil {
		t.Fatal(err)
	}
	kept := packedSecret{"a", "one", "1", "x"}
	if got, err := transform(kept); err != nil || got != kept {
		t.Errorf("a stored object: %v, %v", got, err)
	}
	if _, err := transform(secret("a", "one", "1", "x")); !errors.Is(err, failed) {
		t.Errorf("got %v, want %v", err, failed)
	}
}

// transforming implements an informer that records its transform function.
type transforming struct {
	cache.SharedIndexInformer
	f *cache.TransformFunc
}

func (i transforming) SetTransform(f cache.TransformFunc) error {
	*i.f = f
	return nil
}
