package kubeutil

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/utils/clock"
)

const (
	// A namespace has eventsBurst events at once, and eventsPerSecond from then on: each is a
	// write, and a user who may create claims could cause any number of them.
	eventsBurst     = 25
	eventsPerSecond = 0.2
	// noteLength is how long the note of an event may be, in bytes (events.k8s.io/v1).
	noteLength = 1024
)

// Events is an event recorder that bounds what it writes: how many events a namespace has,
// and how long their notes are. Events of one object with the same reason are a series,
// whatever was written to the object meanwhile. It may be used concurrently.
type Events struct {
	recorder events.EventRecorder
	scheme   *runtime.Scheme
	log      logr.Logger
	// left is what each namespace has. Cluster-scoped objects need nothing of it: tenants
	// cannot create them.
	left *Budget
}

// NewEvents returns a recorder that writes to the given one.
func NewEvents(recorder events.EventRecorder, scheme *runtime.Scheme, c clock.PassiveClock, log logr.Logger) *Events {
	return &Events{recorder: recorder, scheme: scheme, log: log, left: NewBudget(c, eventsBurst, eventsPerSecond)}
}

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) { //nolint:revive // the arguments are those of events.EventRecorder
	ref, err := reference.GetReference(e.scheme, regarding)
	if err != nil {
		e.log.Error(err, "Could not refer to the object of an event", "reason", reason)
		return
	}
	if !e.mayWrite(ref.Namespace) {
		e.log.V(1).Info("Left out an event: the namespace has had many", "namespace", ref.Namespace, "object", ref.Kind+" "+ref.Name, "reason", reason)
		return
	}
	ref.ResourceVersion = "" // by which the recorder would tell two events of one series apart
	e.recorder.Eventf(ref, related, kind, reason, action, "%s", Cut(fmt.Sprintf(note, args...), noteLength))
}

func (e *Events) mayWrite(namespace string) bool {
	if namespace == "" {
		return true
	}
	_, ok := e.left.Spend(namespace)
	return ok
}

// Cut is a text of so many bytes at most.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const more = "…"
	text = text[:most-len(more)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return strings.TrimSpace(text) + more
}
