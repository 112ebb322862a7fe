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
	// eventsBurst bounds the events of a namespace at once, and eventsPerSecond those from then on:
	// each is a write, and a user that can create claims could cause any number of them.
	eventsBurst     = 25
	eventsPerSecond = 0.2
	// noteLength is the largest length of the note of an event, in bytes (events.k8s.io/v1).
	noteLength = 1024
)

// Events implements an event recorder that bounds its writes: the number of events of a
// namespace, and the length of their notes. Events of one object with the same reason are a
// series, even if the object was written between them. It may be used concurrently.
type Events struct {
	recorder events.EventRecorder
	scheme   *runtime.Scheme
	log      logr.Logger
	// left is the budget of each namespace. Cluster-scoped objects need none of it: tenants
	// cannot create them.
	left *Budget
}

// NewEvents returns a recorder that writes to the given one.
func NewEvents(recorder events.EventRecorder, scheme *runtime.Scheme, c clock.PassiveClock, log logr.Logger) *Events {
	return &Events{recorder: recorder, scheme: scheme, log: log, left: NewBudget(c, eventsBurst, eventsPerSecond)}
}

// Eventf implements events.EventRecorder.
func (e *Events) Eventf(regarding, related runtime.Object, kind, reason, action, note string, args ...any) { //nolint:revive // the arguments of events.EventRecorder
	ref, err := reference.GetReference(e.scheme, regarding)
	if err != nil {
		e.log.Error(err, "Could not refer to the object of an event", "reason", reason)
		return
	}
	if !e.mayWrite(ref.Namespace) {
		e.log.V(1).Info("Left out an event: the namespace has had many", "namespace", ref.Namespace, "object", ref.Kind+" "+ref.Name, "reason", reason)
		return
	}
	ref.ResourceVersion = "" // by which the recorder would separate two events of one series
	e.recorder.Eventf(ref, related, kind, reason, action, "%s", Truncate(fmt.Sprintf(note, args...), noteLength))
}

func (e *Events) mayWrite(namespace string) bool {
	if namespace == "" {
		return true
	}
	_, ok := e.left.Spend(namespace)
	return ok
}

// Truncate returns the text, shortened to at most that many bytes.
func Truncate(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	const ellipsis = "…"
	text = text[:limit-len(ellipsis)]
	for !utf8.ValidString(text) {
		text = text[:len(text)-1]
	}
	return strings.TrimSpace(text) + ellipsis
}
