package kubeutil

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
)

// noted implements a recorder that notes its events.
type noted struct {
	regarding []*corev1.ObjectReference
	notes     []string
}

func (n *noted) Eventf(regarding, _ runtime.Object, _, _, _, note string, args ...any) { //nolint:revive // the arguments of events.EventRecorder
	n.regarding = append(n.regarding, regarding.(*corev1.ObjectReference))
	n.notes = append(n.notes, fmt.Sprintf(note, args...))
}

func TestEventsOfNamespaceAreBounded(t *testing.T) {
	now, to := clocktesting.NewFakePassiveClock(time.Now()), &noted{}
	e := NewEvents(to, scheme.Scheme, now, logr.Discard())
	in := func(namespace string, times int) int {
		before := len(to.notes)
		for range times {
			obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "a", UID: "uid", ResourceVersion: "7"}}
			e.Eventf(obj, nil, corev1.EventTypeNormal, "Reason", "Action", "it is %d", 1)
		}
		return len(to.notes) - before
	}
	if got := in("loud", 1000); got != eventsBurst {
		t.Errorf("a namespace has %d events at once, want %d", got, eventsBurst)
	}
	if got := in("quiet", 3); got != 3 {
		t.Errorf("another one has %d events, want 3", got)
	}
	if got := in("", 1000); got != 1000 {
		t.Errorf("objects without namespace have %d events, want all", got)
	}
	now.SetTime(now.Now().Add(time.Minute))
	if got, want := in("loud", 1000), int(60*eventsPerSecond); got != want {
		t.Errorf("it has %d events in the next minute, want %d", got, want)
	}
}

// TestEventsOfOneObjectFormOneSeries covers an object that was written between two events, which is
// a difference to the recorder of client-go.
func TestEventsOfOneObjectFormOneSeries(t *testing.T) {
	to := &noted{}
	e := NewEvents(to, scheme.Scheme, clocktesting.NewFakePassiveClock(time.Now()), logr.Discard())
	for _, version := range []string{"7", "8"} {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "a", UID: "uid", ResourceVersion: version}}
		e.Eventf(obj, nil, corev1.EventTypeNormal, "Reason", "Action", "%s", strings.Repeat("ä", 1000))
	}
	want := corev1.ObjectReference{Kind: "ConfigMap", APIVersion: "v1", Namespace: "team", Name: "a", UID: "uid"}
	if len(to.regarding) != 2 || *to.regarding[0] != want || *to.regarding[1] != want {
		t.Errorf("got events regarding %v, want twice %v", to.regarding, want)
	}
	for _, note := range to.notes {
		if len(note) > noteLength || len(note) < noteLength-8 || !utf8.ValidString(note) || !strings.HasSuffix(note, "ä…") {
			t.Errorf("the note has %d bytes: %s", len(note), note)
		}
	}
}

func TestEventOfUnknownKindIsDropped(t *testing.T) {
	to := &noted{}
	NewEvents(to, runtime.NewScheme(), clocktesting.NewFakePassiveClock(time.Now()), logr.Discard()).
		Eventf(&corev1.ConfigMap{}, nil, corev1.EventTypeNormal, "Reason", "Action", "note")
	if len(to.notes) > 0 {
		t.Errorf("got %q", to.notes)
	}
}
