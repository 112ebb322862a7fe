package kubeutil

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

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
