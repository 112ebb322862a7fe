package kubeutil

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/tools/cache"
)

func TestObjectsAreCountedByTheirLastKey(t *testing.T) {
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
