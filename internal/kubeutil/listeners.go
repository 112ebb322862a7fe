package kubeutil

import (
	"slices"
	"sync"
)

// Listeners holds functions that are notified of values. A lock of the caller guards it. Add and the
// removal replace the slice, so that a copy can be notified outside the lock.
type Listeners[T any] []*func(T)

// Add adds a function. The caller holds the lock, and the returned function takes it to remove f.
func (l *Listeners[T]) Add(lock sync.Locker, f func(T)) (remove func()) {
	*l = append(slices.Clip(*l), &f)
	return func() {
		lock.Lock()
		defer lock.Unlock()
		*l = slices.DeleteFunc(slices.Clone(*l), func(other *func(T)) bool { return other == &f })
	}
}

// Notify calls each function.
func (l Listeners[T]) Notify(v T) {
	for _, f := range l {
		(*f)(v)
	}
}
