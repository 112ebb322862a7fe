package kube

import (
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/reference"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
)

const (
	// A namespace has eventsBurst events at once, and eventsPerSecond from then on: each is a
	// write, and a user who may create claims could cause any number of them.
	eventsBurst     = 25
	eventsPerSecond = 0.2
	// eventBuckets is how many namespaces are kept in mind. When there are more, all begin
	// anew.
	eventBuckets = 4096
	// noteLength is how long the note of an event may be, in bytes (events.k8s.io/v1).
	noteLength = 1024
)

// Events is an event recorder that bounds what it writes: how many events a namespace has,
// and how long their notes are. Events of one object with the same reason are a series,
// whatever was written to the object meanwhile. It may be used concurrently.
type Events struct {
	recorder events.EventRecorder
	scheme   *runtime.Scheme
	clock    clock.PassiveClock
	log      logr.Logger

	mu sync.Mutex
	// buckets are what each namespace has left. Cluster-scoped objects have none: tenants
	// cannot create them.
	buckets map[string]flowcontrol.PassiveRateLimiter
}

// NewEvents returns a recorder that writes to the given one.
func NewEvents(recorder events.EventRecorder, scheme *runtime.Scheme, c clock.PassiveClock, log logr.Logger) *Events {
	return &Events{recorder: recorder, scheme: scheme, clock: c, log: log, buckets: map[string]flowcontrol.PassiveRateLimiter{}}
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
	e.recorder.Eventf(ref, related, kind, reason, action, "%s", cut(fmt.Sprintf(note, args...), noteLength))
}

func (e *Events) mayWrite(namespace string) bool {
	if namespace == "" {
		return true
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	bucket := e.buckets[namespace]
	if bucket == nil {
		if len(e.buckets) >= eventBuckets {
			clear(e.buckets)
		}
		bucket = flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(eventsPerSecond, eventsBurst, e.clock)
		e.buckets[namespace] = bucket
	}
	return bucket.TryAccept()
}

// cut is a text of so many bytes at most.
func cut(text string, most int) string {
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
