package kubeutil

import (
	"sync"

	"k8s.io/apimachinery/pkg/watch"
)

// filteredWatch passes on the events of a watch that a function keeps, and changes. The
// Filter of apimachinery blocks for good when it is stopped while it passes on an event.
type filteredWatch struct {
	watch.Interface
	events  chan watch.Event
	stopped chan struct{}
	stop    sync.Once
	// ended is called when the watch has ended.
	ended func()
}

func newFilteredWatch(from watch.Interface, filter watch.FilterFunc, ended func()) *filteredWatch {
	w := &filteredWatch{Interface: from, events: make(chan watch.Event), stopped: make(chan struct{}), ended: ended}
	go w.run(filter)
	return w
}

// ResultChan implements watch.Interface.
func (w *filteredWatch) ResultChan() <-chan watch.Event { return w.events }

// Stop implements watch.Interface.
func (w *filteredWatch) Stop() {
	w.stop.Do(func() { close(w.stopped) })
	w.Interface.Stop()
}

func (w *filteredWatch) run(filter watch.FilterFunc) {
	defer close(w.events)
	defer w.ended()
	for event := range w.Interface.ResultChan() {
		passed, keep := filter(event)
		if !keep {
			continue
		}
		select {
		case w.events <- passed:
		case <-w.stopped:
			return
		}
	}
}
