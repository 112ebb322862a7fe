package kubeutil

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// VerifiedSource implements a source for a Reflector that notices when the store behind the API
// server has gone back, as when a snapshot of etcd is restored with its own revisions. Then
// revisions that were seen come again with other content. A watch that is resumed at the last
// one of them would hide the events before that. So
//
//   - every list is a quorum read;
//   - before each watch, one object is listed by quorum: if the revision of that list is
//     below the highest that was seen, the store has gone back;
//   - a watch is resumed before the last event that was seen, and begins with that same
//     event again: otherwise the store has gone back and has passed the revision since.
//
// The Reflector then lists again. One case is left, which only the source of another resource
// can notice, and report by GoneBack: if no event was seen since the last list, and the store has
// gone back behind that list and passed it before the watch is resumed.
//
// Resource versions of one resource are compared as numbers, as Kubernetes documents since 1.35
// (KEP-5504). Versions that are not numbers are not compared.
//
// It feeds one Reflector at a time. Its other methods may be called concurrently.
type VerifiedSource struct {
	listerWatcher cache.ListerWatcherWithContext
	options       Verification

	mu sync.Mutex
	// attempt counts lists and watches: results of earlier ones are not recorded.
	attempt int
	// revision is the highest one that was seen, in a list, an event or a bookmark.
	revision string
	// last is the last event since the list; the zero mark if there was none. before is the
	// revision that was seen before that: of an event, or of the list.
	last   mark
	before string
	// running reports whether a watch runs that goes on in the history that was seen.
	running bool
	// isRefuted reports whether the store has gone back since the last list.
	isRefuted bool
	// compared is the time when the revisions were last compared.
	compared time.Time
}

// mark identifies an event.
type mark struct {
	uid     types.UID
	version string
}

// Verification configures a VerifiedSource.
type Verification struct {
	// Clock and Random pace the comparisons before a watch: each comes after a pause of up
	// to comparedJitter, and at least comparedEvery after the one before. Without Random
	// there is no pause. Used under the lock.
	Clock  clock.WithTicker
	Random *rand.Rand
	// WentBack is called each time that the store has gone back, with the highest revision of
	// it that was seen, and the revision that showed it.
	WentBack func(seenRevision, foundRevision string)
}

const (
	comparedJitter = 200 * time.Millisecond
	comparedEvery  = time.Second
)

// NewVerifiedSource returns a source that lists and watches as the given one does.
func NewVerifiedSource(listerWatcher cache.ListerWatcher, options Verification) *VerifiedSource {
	return &VerifiedSource{listerWatcher: cache.ToListerWatcherWithContext(listerWatcher), options: options}
}

// IsWatchListSemanticsUnSupported reports to client-go that the list is not requested as
// events of a watch.
func (*VerifiedSource) IsWatchListSemanticsUnSupported() bool { return true }

// List implements cache.ListerWatcher.
func (s *VerifiedSource) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options)
}

// Watch implements cache.ListerWatcher.
func (s *VerifiedSource) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options)
}

// Revision returns the highest revision that was seen; empty if there is none.
func (s *VerifiedSource) Revision() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.revision
}

// IsRunning reports whether a watch runs that goes on in the history that was seen. While none
// does, the store may have gone back.
func (s *VerifiedSource) IsRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// ListWithContext implements cache.ListerWatcherWithContext.
func (s *VerifiedSource) ListWithContext(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
	if options.Continue == "" {
		options.ResourceVersion, options.ResourceVersionMatch, options.Limit = "", "", 0
	}
	list, foundRevision, err := s.list(ctx, options)
	if err != nil {
		return nil, err
	}
	s.refute(foundRevision)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begin()
	s.revision, s.before, s.last, s.isRefuted = foundRevision, foundRevision, mark{}, false
	return list, nil
}

func (s *VerifiedSource) list(ctx context.Context, options metav1.ListOptions) (_ runtime.Object, revision string, _ error) {
	list, err := s.listerWatcher.ListWithContext(ctx, options)
	if err != nil {
		return nil, "", err
	}
	accessor, err := meta.ListAccessor(list)
	if err != nil {
		return nil, "", err
	}
	return list, accessor.GetResourceVersion(), nil
}

// refute compares the revision of a quorum read with the highest that was seen, and reports
// whether the store has gone back.
func (s *VerifiedSource) refute(foundRevision string) bool {
	seenRevision := s.Revision()
	if !isOlder(foundRevision, seenRevision) {
		return false
	}
	s.GoneBack(seenRevision, foundRevision)
	return true
}

// GoneBack makes the source forget the revisions that it has seen, end its watch with the next event
// or bookmark, and have everything listed again. Call it if a read or a write has found a revision
// that shows that the store has gone back behind a seen one. If that was noticed already, the call has
// no effect.
func (s *VerifiedSource) GoneBack(seenRevision, foundRevision string) {
	s.mu.Lock()
	isNew := s.revision != "" && !isOlder(s.revision, seenRevision)
	if isNew {
		s.begin()
		s.revision, s.before, s.last, s.isRefuted = "", "", mark{}, true
	}
	s.mu.Unlock()
	if isNew {
		s.options.WentBack(seenRevision, foundRevision)
	}
}

// WatchWithContext implements cache.ListerWatcherWithContext.
func (s *VerifiedSource) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	if err := s.pause(ctx); err != nil {
		return nil, err
	}
	_, foundRevision, err := s.list(ctx, metav1.ListOptions{Limit: 1})
	if err != nil {
		return nil, err
	}
	if s.refute(foundRevision) {
		return nil, errGoneBack()
	}
	check := s.resume(&options)
	if check == nil {
		return nil, errGoneBack()
	}
	watching, err := s.listerWatcher.WatchWithContext(ctx, options)
	if err != nil {
		return nil, err
	}
	s.run(check.attempt, check.again == mark{})
	return filterWatch(watching, check.filter, func() { s.run(check.attempt, false) }), nil
}

// begin starts an attempt to list or to watch.
func (s *VerifiedSource) begin() { s.attempt, s.running = s.attempt+1, false }

// run records whether the watch of an attempt runs.
func (s *VerifiedSource) run(attempt int, running bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if attempt == s.attempt {
		s.running = running
	}
}

// errGoneBack returns the error on which a Reflector lists again.
func errGoneBack() *apierrors.StatusError {
	return apierrors.NewResourceExpired("the store has gone back to an earlier revision")
}

// pause waits as the options demand.
func (s *VerifiedSource) pause(ctx context.Context) error {
	if s.options.Random == nil {
		return nil
	}
	s.mu.Lock()
	now := s.options.Clock.Now()
	at := now.Add(time.Duration(s.options.Random.Int64N(int64(comparedJitter))))
	if earliest := s.compared.Add(comparedEvery); at.Before(earliest) {
		at = earliest
	}
	s.compared = at
	s.mu.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-s.options.Clock.After(at.Sub(now)):
		return nil
	}
}

// resume sets the revision at which a watch begins. It returns nil if everything must be listed before.
func (s *VerifiedSource) resume(options *metav1.ListOptions) *resumption {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isRefuted {
		return nil
	}
	s.begin()
	if s.before != "" {
		options.ResourceVersion = s.before
	}
	return &resumption{source: s, attempt: s.attempt, again: s.last}
}

// resumption holds the check of the events of one watch.
type resumption struct {
	source  *VerifiedSource
	attempt int
	// again is the event with which the watch has to begin; the zero mark once it did.
	again mark
	// isOver reports whether a later list or watch has taken its place, or the store has gone back.
	isOver bool
}

// filter returns an event as it is passed on, and whether it is.
func (r *resumption) filter(e watch.Event) (watch.Event, bool) {
	object, err := meta.Accessor(e.Object)
	if e.Type == watch.Error || err != nil {
		return e, true
	}
	event, again := mark{uid: object.GetUID(), version: object.GetResourceVersion()}, r.again
	keep, ok := r.judge(event, e.Type == watch.Bookmark)
	if ok {
		return e, keep
	}
	if !r.isOver {
		r.source.GoneBack(again.version, event.version)
	}
	return watch.Event{Type: watch.Error, Object: new(errGoneBack().Status())}, true
}

// judge records an event. It returns whether the event is passed on, and whether it can come in
// the history that was seen.
func (r *resumption) judge(event mark, isBookmark bool) (keep, ok bool) {
	s := r.source
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.attempt != s.attempt:
		r.isOver = true
	case r.again == mark{}:
		s.note(event, isBookmark)
		return true, true
	case isBookmark:
		return false, isOlder(event.version, r.again.version)
	case event == r.again:
		r.again, s.running = mark{}, true
		return false, true
	}
	return false, false
}

// note records an event that a watch has shown.
func (s *VerifiedSource) note(event mark, isBookmark bool) {
	if !isOlder(event.version, s.revision) {
		s.revision = event.version
	}
	if isBookmark {
		return
	}
	if s.last != (mark{}) {
		s.before = s.last.version
	}
	s.last = event
}

// isOlder reports whether a revision is below another one; false if that is not known.
func isOlder(revision, than string) bool {
	order, err := resourceversion.CompareResourceVersion(revision, than)
	return err == nil && order < 0
}
