package kubeutil

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
)

// history represents a store whose events are at the revisions that they state. A watch shows the
// events above the revision from which it starts, and then a bookmark.
type history struct {
	revision int
	events   []watch.Event
	lists    []metav1.ListOptions
}

func newEvent(kind watch.EventType, uid string, revision int) watch.Event {
	return watch.Event{Type: kind, Object: &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "c", UID: types.UID(uid), ResourceVersion: strconv.Itoa(revision),
	}}}
}

// write adds an event of another object, unless kind is empty: then of another resource.
func (h *history) write(kind watch.EventType, uid string) {
	if h.revision++; kind != "" {
		h.events = append(h.events, newEvent(kind, uid, h.revision))
	}
}

// restore puts the store back.
func (h *history) restore(revision int) {
	h.revision = revision
	h.events = slices.DeleteFunc(h.events, func(e watch.Event) bool { return revisionOf(e) > revision })
}

func revisionOf(e watch.Event) int {
	n, _ := strconv.Atoi(e.Object.(metav1.Object).GetResourceVersion())
	return n
}

func (h *history) source() *cache.ListWatch {
	return &cache.ListWatch{
		ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
			h.lists = append(h.lists, options)
			return &corev1.ConfigMapList{ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(h.revision)}}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			from, err := strconv.Atoi(options.ResourceVersion)
			if err != nil {
				return nil, err
			}
			shown := slices.DeleteFunc(slices.Clone(h.events), func(e watch.Event) bool { return revisionOf(e) <= from })
			if h.revision > from {
				shown = append(shown, newEvent(watch.Bookmark, "", h.revision))
			}
			w := watch.NewFakeWithChanSize(len(shown), false)
			for _, e := range shown {
				w.Action(e.Type, e.Object)
			}
			w.Stop()
			return w, nil
		},
	}
}

// watchEvents returns the events of one watch, in short.
func watchEvents(t *testing.T, s *VerifiedSource) []string {
	t.Helper()
	w, err := s.Watch(metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return []string{string(apierrors.ReasonForError(err))}
	}
	defer w.Stop()
	texts := []string{}
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return append(texts, string(apierrors.ReasonForError(apierrors.FromObject(e.Object))))
		}
		texts = append(texts, fmt.Sprintf("%s %s %d", e.Type, e.Object.(metav1.Object).GetUID(), revisionOf(e)))
	}
	return texts
}

func TestWatchIsResumedOnlyInSeenHistory(t *testing.T) {
	for _, c := range []struct {
		name string
		// then happens after a list at revision 1, and a watch that showed the
		// creation of a at 2, that of b at 3, and a bookmark at 4.
		then     func(h *history)
		want     []string
		wentBack []string
	}{
		{name: "nothing happens", then: func(*history) {}, want: []string{"BOOKMARK  4"}},
		{name: "it goes on", then: func(h *history) { h.write(watch.Deleted, "a") }, want: []string{"DELETED a 5", "BOOKMARK  5"}},
		{
			name: "it goes back behind the last event",
			then: func(h *history) { h.restore(2) },
			want: []string{"Expired"}, wentBack: []string{"4 2"},
		},
		{
			name: "it goes back behind a bookmark",
			then: func(h *history) { h.restore(3) },
			want: []string{"Expired"}, wentBack: []string{"4 3"},
		},
		{
			name: "it goes back behind the last event, and another is above all that was seen",
			then: func(h *history) {
				h.restore(2)
				h.write("", "")
				h.write("", "")
				h.write(watch.Added, "c")
			},
			want: []string{"Expired"}, wentBack: []string{"3 5"},
		},
		{
			name: "it goes back behind the last event, and another has its revision",
			then: func(h *history) {
				h.restore(2)
				h.write(watch.Added, "c")
				h.write("", "")
			},
			want: []string{"Expired"}, wentBack: []string{"3 3"},
		},
		{
			name: "it goes back behind the last event, and other resources pass the seen events",
			then: func(h *history) {
				h.restore(2)
				h.write("", "")
				h.write("", "")
				h.write("", "")
			},
			want: []string{"Expired"}, wentBack: []string{"3 5"},
		},
		{
			name: "it goes back behind a bookmark alone, and passes it",
			then: func(h *history) {
				h.restore(3)
				h.write(watch.Added, "c")
				h.write(watch.Added, "d")
			},
			want: []string{"ADDED c 4", "ADDED d 5", "BOOKMARK  5"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := &history{revision: 1}
			var wentBack []string
			s := NewVerifiedSource(h.source(), Verification{WentBack: func(seen, found string) { wentBack = append(wentBack, seen+" "+found) }})
			if _, err := s.List(metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			h.write(watch.Added, "a")
			h.write(watch.Added, "b")
			h.write("", "")
			if diff := cmp.Diff([]string{"ADDED a 2", "ADDED b 3", "BOOKMARK  4"}, watchEvents(t, s)); diff != "" {
				t.Fatalf("the first watch (-want +got):\n%s", diff)
			}
			c.then(h)
			if diff := cmp.Diff(c.want, watchEvents(t, s)); diff != "" {
				t.Errorf("the second watch (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.wentBack, wentBack); diff != "" {
				t.Errorf("reported (-want +got):\n%s", diff)
			}
			// What is listed is the truth from then on.
			if _, err := s.List(metav1.ListOptions{}); err != nil {
				t.Fatal(err)
			}
			if got := watchEvents(t, s); len(got) > 0 || len(wentBack) != len(c.wentBack) {
				t.Errorf("after another list: shown %q, reported %q", got, wentBack)
			}
		})
	}
}

func TestWatchRunsAfterLastEventRepeats(t *testing.T) {
	h, shows := &history{revision: 1}, watch.NewFake()
	from := h.source()
	s := NewVerifiedSource(from, Verification{WentBack: func(string, string) {}})
	if _, err := s.List(metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	h.write(watch.Added, "a")
	watchEvents(t, s)
	is := func(when string, want bool) {
		t.Helper()
		if got := s.IsRunning(); got != want {
			t.Errorf("%s it runs: %t", when, got)
		}
	}
	is("when it has ended,", false)
	from.WatchFuncWithContext = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return shows, nil }
	w, err := s.Watch(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	is("when it has begun,", false)
	shows.Add(newEvent(watch.Added, "a", 2).Object)
	shows.Add(newEvent(watch.Added, "b", 3).Object)
	<-w.ResultChan()
	is("when it has shown the last event,", true)
	w.Stop()
	for range w.ResultChan() { // ends
	}
	is("when it is stopped,", false)
}

func TestListThatShowsRollbackIsReported(t *testing.T) {
	h, reported := &history{revision: 7}, 0
	s := NewVerifiedSource(h.source(), Verification{WentBack: func(string, string) { reported++ }})
	for range 2 {
		if _, err := s.List(metav1.ListOptions{ResourceVersion: "7"}); err != nil {
			t.Fatal(err)
		}
		h.restore(5)
	}
	if reported != 1 {
		t.Errorf("reported %d times", reported)
	}
}

// TestRollbackIsReportedOnce covers any number of writes that show it.
func TestRollbackIsReportedOnce(t *testing.T) {
	h, reported := &history{revision: 7}, 0
	s := NewVerifiedSource(h.source(), Verification{WentBack: func(string, string) { reported++ }})
	if _, err := s.List(metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	h.restore(3)
	s.GoneBack("7", "4")
	s.GoneBack("7", "5")
	if _, err := s.List(metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	s.GoneBack("7", "6")
	if reported != 1 || s.Revision() != "3" {
		t.Errorf("reported %d times; the revision is %s", reported, s.Revision())
	}
}

// TestSourceListsAgainAfterReport covers a report by another source: none of the watches that run passes on an
// event, and none begins before everything is listed.
func TestSourceListsAgainAfterReport(t *testing.T) {
	h, reported := &history{revision: 1}, 0
	from := h.source()
	s := NewVerifiedSource(from, Verification{WentBack: func(string, string) { reported++ }})
	list := func() {
		t.Helper()
		if _, err := s.List(metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	list()
	h.write(watch.Added, "a")
	watchEvents(t, s)
	shows, recorded := watch.NewFake(), from.WatchFuncWithContext
	from.WatchFuncWithContext = func(context.Context, metav1.ListOptions) (watch.Interface, error) { return shows, nil }
	running, err := s.Watch(metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	from.WatchFuncWithContext = recorded
	s.GoneBack(s.Revision(), "1")
	if got := watchEvents(t, s); len(got) != 1 || got[0] != string(metav1.StatusReasonExpired) {
		t.Errorf("before a list, a watch shows %q", got)
	}
	list()
	go shows.Add(newEvent(watch.Added, "c", 3).Object)
	if e := <-running.ResultChan(); e.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(e.Object)) {
		t.Errorf("the watch that runs shows %v", e)
	}
	running.Stop()
	h.write(watch.Added, "b")
	if got := watchEvents(t, s); len(got) != 2 || got[0] != "ADDED b 3" || reported != 1 {
		t.Errorf("after a list, a watch shows %q, and %d reports were made", got, reported)
	}
}

func TestEveryListIsQuorumRead(t *testing.T) {
	h := &history{revision: 7}
	s := NewVerifiedSource(h.source(), Verification{})
	if _, err := s.List(metav1.ListOptions{ResourceVersion: "0", Limit: 500}); err != nil {
		t.Fatal(err)
	}
	watchEvents(t, s)
	if diff := cmp.Diff([]metav1.ListOptions{{}, {Limit: 1}}, h.lists); diff != "" {
		t.Errorf("requested (-want +got):\n%s", diff)
	}
}

func TestRevisionsAreComparedAtMostOncePerSecond(t *testing.T) {
	h, clock := &history{revision: 7}, clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
	s := NewVerifiedSource(h.source(), Verification{Clock: clock, Random: rand.New(rand.NewPCG(1, 2))})
	if _, err := s.List(metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	begin := clock.Now()
	for n := range 3 {
		watched(t, s, clock)
		if took := clock.Since(begin); took < time.Duration(n)*comparedEvery {
			t.Errorf("watch %d began after %v", n, took)
		}
	}
	if took := clock.Since(begin); took > 2*comparedEvery+2*comparedJitter {
		t.Errorf("three watches took %v", took)
	}
}

// TestSourcesCompareAtDifferentTimes covers the sources of all kinds, whose watches end together when the connection
// does.
func TestSourcesCompareAtDifferentTimes(t *testing.T) {
	delays := sets.New[time.Duration]()
	for seed := range uint64(5) {
		h, clock := &history{revision: 7}, clocktesting.NewFakeClock(time.Unix(1_800_000_000, 0))
		s := NewVerifiedSource(h.source(), Verification{Clock: clock, Random: rand.New(rand.NewPCG(seed, 2))})
		if _, err := s.List(metav1.ListOptions{}); err != nil {
			t.Fatal(err)
		}
		begin := clock.Now()
		watched(t, s, clock)
		delay := clock.Since(begin)
		if delay > comparedJitter {
			t.Errorf("a watch began after %v", delay)
		}
		delays.Insert(delay)
	}
	if delays.Len() < 4 {
		t.Errorf("the watches of five sources began after %v", delays.UnsortedList())
	}
}

// watched begins a watch, and lets time pass until it runs.
func watched(t *testing.T, s *VerifiedSource, clock *clocktesting.FakeClock) {
	t.Helper()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		watchEvents(t, s)
	}()
	for !isClosed(watching) {
		if clock.HasWaiters() {
			clock.Step(10 * time.Millisecond)
		}
	}
}

func isClosed(done chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(time.Millisecond):
		return false
	}
}

// TestFilteredWatchEndsWhenStopped covers a Reflector that stops a watch while an event is on
// its way.
func TestFilteredWatchEndsWhenStopped(*testing.T) {
	from := watch.NewFakeWithChanSize(1, false)
	w := filterWatch(from, func(e watch.Event) (watch.Event, bool) { return e, true }, func() {})
	from.Action(watch.Added, &corev1.ConfigMap{})
	for len(from.ResultChan()) > 0 {
		<-time.After(time.Millisecond)
	}
	w.Stop()
	for range w.ResultChan() { // ends
	}
}
