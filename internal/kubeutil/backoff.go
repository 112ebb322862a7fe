package kubeutil

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// firstDelay is the time from the first failure of an object until it is tried again. It
	// doubles each time, up to lastDelay.
	firstDelay = 5 * time.Millisecond
	lastDelay  = time.Minute
	// probeEvery is the interval at which one of the objects that failed for one cause is tried
	// in any case: within that time the end of the cause is noticed.
	probeEvery = time.Second
	// perCause bounds the number of objects that are tried again: together 20 a second, or as
	// many as it takes to try each once in lastDelay.
	perCause = 50 * time.Millisecond
	// startedBySuccess is the number of further objects of a cause that are tried at once when
	// one of them succeeded: a cause that has ended is noticed for a thousand of them in ten
	// steps, and the success of one object alone causes two tries at most.
	startedBySuccess = 2
)

// Backoff decides when an object is reconciled again whose last pass failed. Nothing else
// decides it: an event, such as one that the failed pass caused itself, brings the next pass
// forward, but not below the delay, and not below probeEvery.
//
// Objects of a namespace that failed for one cause, such as a quota, are tried one at a time.
// Each has a delay that doubles; the first of them is tried after probeEvery at the latest.
// When one succeeds, the others follow. So a thousand refused objects cost as much as a few,
// and are served when the cause ends, which no watch reports.
//
// A Backoff serves one controller. It is a source of its requests, and is to be started as
// such. Its methods may be called concurrently.
type Backoff struct {
	clock      clock.WithDelayedExecution
	controller string
	passes     PassCounter
	mu         sync.Mutex
	enqueue    func(reconcile.Request)
	failed     map[reconcile.Request]*failedObject
	causes     map[causeKey]*failureCause
}

// PassCounter counts the passes of controllers by their results.
type PassCounter interface {
	Passed(controller, result string)
}

// The results of a pass: it changes something, changes nothing, or fails.
const (
	PassChanged   = "changed"
	PassUnchanged = "unchanged"
	PassFailed    = "failed"
)

// NewBackoff returns a Backoff of a controller of which no object has failed. A nil counter counts
// nothing.
func NewBackoff(c clock.WithDelayedExecution, controller string, passes PassCounter) *Backoff {
	return &Backoff{clock: c, controller: controller, passes: passes, failed: map[reconcile.Request]*failedObject{}, causes: map[causeKey]*failureCause{}}
}

// Start implements source.Source.
func (b *Backoff) Start(ctx context.Context, q Queue) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.enqueue = func(req reconcile.Request) {
		if ctx.Err() == nil {
			q.Add(req)
		}
	}
	return nil
}

// Limiter returns the rate limiter of the controller's queue. It decides nothing: Backoff does.
// Its long delay is for the retries of controller-runtime itself.
func (b *Backoff) Limiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](10*lastDelay, 10*lastDelay)
}

// Reported marks an error that the status of the object reports, so that it is not logged
// each time. A nil error stays nil.
func Reported(err error) error {
	if err == nil {
		return nil
	}
	return &reportedError{err}
}

type reportedError struct{ error }

func (e *reportedError) Unwrap() error { return e.error }

// isReported reports whether an error need not be logged: the status has it, or there is a
// newer version of the object.
func isReported(err error) bool {
	_, reported := errors.AsType[*reportedError](err)
	return reported || apierrors.IsConflict(err)
}

// Passes returns a reconciler that lets r reconcile the objects that have not failed, or are
// due.
func (b *Backoff) Passes(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (result reconcile.Result, _ error) {
		if after, ok := b.defers(req); ok {
			return reconcile.Result{RequeueAfter: after}, nil
		}
		ctx, writes := countWrites(ctx)
		err := errors.New("the pass did not end") // if r panics
		defer func() { b.ended(req, err, writes.Load() > 0) }()
		if result, err = r.Reconcile(ctx, req); isReported(err) {
			log.FromContext(ctx).V(1).Info("Trying again later", "error", err.Error())
			return reconcile.Result{}, nil
		}
		return result, err
	})
}

// ended records how a pass ended, and whether it wrote anything.
func (b *Backoff) ended(req reconcile.Request, err error, wrote bool) {
	result := PassUnchanged
	switch {
	case err != nil:
		result = PassFailed
	case wrote:
		result = PassChanged
	}
	if b.passes != nil {
		b.passes.Passed(b.controller, result)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil || errors.Is(err, reconcile.TerminalError(nil)) {
		b.succeeded(req)
	} else {
		b.failedFor(req, causeKey{req.Namespace, Cause(err)})
	}
}

// Throttle limits something, such as status writes that only update counts, to once an interval
// for each name, without delaying the first after a quiet time. It may be used concurrently.
type Throttle struct {
	interval time.Duration
	clock    clock.PassiveClock

	mu sync.Mutex
	// scheduled is the last time that Delay has returned, by name, and taken the time when Take
	// last returned zero.
	scheduled, taken map[string]time.Time
}

// NewThrottle returns a throttle of that interval.
func NewThrottle(interval time.Duration, c clock.PassiveClock) *Throttle {
	return &Throttle{interval: interval, clock: c, scheduled: map[string]time.Time{}, taken: map[string]time.Time{}}
}

// Delay schedules the next time for the name, and returns the time left until then: zero when
// the last one was an interval ago. A scheduled time that has not come yet is shared by all
// callers before it.
func (t *Throttle) Delay(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now, last := t.clock.Now(), t.scheduled[name]
	if now.Before(last) {
		return last.Sub(now)
	}
	at := now
	if next := last.Add(t.interval); now.Before(next) {
		at = next
	}
	t.scheduled[name] = at
	return at.Sub(now)
}

// Take returns zero, once an interval for each name; otherwise it returns the time left until
// it will.
func (t *Throttle) Take(name string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.clock.Now()
	if remaining := t.taken[name].Add(t.interval).Sub(now); remaining > 0 {
		return remaining
	}
	t.taken[name] = now
	return 0
}

// budgetNames is the number of names that are kept in memory. When there are more, all start
// over.
const budgetNames = 4096

// Budget bounds how often something is done for each of many names, such as namespaces: a
// number of times at once, and a rate from then on. It may be used concurrently.
type Budget struct {
	clock     clock.PassiveClock
	burst     int
	perSecond float32

	mu    sync.Mutex
	names map[string]*account
}

// account holds the remaining budget of one name, and the number of refusals since it last had
// any.
type account struct {
	left    flowcontrol.PassiveRateLimiter
	refused int
}

// NewBudget returns a budget of which nothing is spent.
func NewBudget(c clock.PassiveClock, burst int, perSecond float32) *Budget {
	return &Budget{clock: c, burst: burst, perSecond: perSecond, names: map[string]*account{}}
}

// Spend reports whether it may be done once more for the name. If so, it returns the number of
// refusals since the last time that it might.
func (b *Budget) Spend(name string) (refused int, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := b.names[name]
	if a == nil {
		if len(b.names) >= budgetNames {
			clear(b.names)
		}
		a = &account{left: flowcontrol.NewTokenBucketPassiveRateLimiterWithClock(b.perSecond, b.burst, b.clock)}
		b.names[name] = a
	}
	if !a.left.TryAccept() {
		a.refused++
		return 0, false
	}
	refused, a.refused = a.refused, 0
	return refused, true
}

type writesKey struct{}

// countWrites returns a context in which CountingWrites counts the requests that change
// something.
func countWrites(ctx context.Context) (context.Context, *atomic.Int64) {
	writes := &atomic.Int64{}
	return context.WithValue(ctx, writesKey{}, writes), writes
}

// CountingWrites returns a transport that counts the requests by which the API server changed
// something, for the pass of a controller that makes them. Reviews of rights and tokens are
// stored nowhere.
func CountingWrites(base http.RoundTripper) http.RoundTripper { return countingWrites{base} }

type countingWrites struct{ http.RoundTripper }

var _ utilnet.RoundTripperWrapper = countingWrites{}

// WrappedRoundTripper implements utilnet.RoundTripperWrapper, by which client-go cancels a
// request.
func (t countingWrites) WrappedRoundTripper() http.RoundTripper { return t.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (t countingWrites) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := t.RoundTripper.RoundTrip(r)
	if writes, ok := r.Context().Value(writesKey{}).(*atomic.Int64); ok && err == nil && isWrite(r) && answer.StatusCode < http.StatusMultipleChoices {
		writes.Add(1)
	}
	return answer, err
}

func isWrite(r *http.Request) bool {
	return r.Method != http.MethodGet && !strings.HasPrefix(r.URL.Path, "/apis/authorization.k8s.io/") && !strings.HasPrefix(r.URL.Path, "/apis/authentication.k8s.io/")
}
