package kubeutil

import (
	"slices"
	"sync"
	"testing"
)

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
