package story

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Events records the events of a story, in the order in which they were made. It implements
// events.EventRecorder.
type Events struct {
	mu sync.Mutex
	// of is the object of each event, such as IPClaim a, and texts holds the texts of the
	// events, such as "Warning PoolExhausted: no free /24".
	of, texts []string
}

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) { //nolint:revive // the arguments of events.EventRecorder
	e.mu.Lock()
	defer e.mu.Unlock()
	obj := regarding.(client.Object)
	e.of = append(e.of, kindOf(obj)+" "+obj.GetName())
	e.texts = append(e.texts, fmt.Sprintf("%s %s: %s", kind, reason, fmt.Sprintf(note, args...)))
}

func (e *Events) count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.texts)
}

// Of returns the events of one object, without their notes, such as "Warning PoolExhausted".
func (e *Events) Of(obj client.Object) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []string
	for i, text := range e.texts {
		if e.of[i] == kindOf(obj)+" "+obj.GetName() {
			event, _, _ := strings.Cut(text, ":")
			all = append(all, event)
		}
	}
	return all
}

// HasEvents expects the events that an object has had since the story began, each once and in
// this order.
func (w *World) HasEvents(obj client.Object, want ...string) {
	w.t.Helper()
	if got := w.Events.Of(obj); !slices.Equal(got, want) {
		w.t.Fatalf("%s %s has the events %q, want %q", kindOf(obj), obj.GetName(), got, want)
	}
}
