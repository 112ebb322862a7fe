package kubeutil

import (
	"maps"
	"sync"

	"k8s.io/client-go/tools/cache"
)

// Tally counts the objects of informers by a key, and keeps only the counts. It may be used
// concurrently. The zero value is not usable.
type Tally[K comparable] struct {
	mu     sync.Mutex
	counts map[K]int
}

// NewTally returns an empty tally.
func NewTally[K comparable]() *Tally[K] { return &Tally[K]{counts: map[K]int{}} }

// Counts returns the number of objects of each key that has any.
func (t *Tally[K]) Counts() map[K]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.counts)
}

// Handler returns a handler that counts the objects of an informer. keyOf returns the key of an
// object, and false if the object is not to be counted.
func (t *Tally[K]) Handler(keyOf func(obj any) (K, bool)) cache.ResourceEventHandler {
	add := func(obj any, n int) {
		if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
			obj = missed.Obj // as it was last counted
		}
		if key, ok := keyOf(obj); ok {
			t.add(key, n)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { add(obj, 1) },
		UpdateFunc: func(before, obj any) {
			add(before, -1)
			add(obj, 1)
		},
		DeleteFunc: func(obj any) { add(obj, -1) },
	}
}

func (t *Tally[K]) add(key K, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[key] += n; t.counts[key] == 0 {
		delete(t.counts, key)
	}
}
