package kubeutil

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
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

// causeKey identifies the cause for which passes fail.
type causeKey struct{ namespace, cause string }

// failureCause holds the objects that failed for one cause.
type failureCause struct {
	key causeKey
	// idle are the objects that are not tried at the moment, in the order in which they are due;
	// trying is the number of those that are. With 100,000 idle objects a change of the order costs
	// 50 µs.
	idle   []*failedObject
	trying int
	// failures is the number of passes that failed in a row, and last is the time when the last
	// one did.
	failures int
	last     time.Time
	timer    clock.Timer
	// round counts timers: one that was stopped too late has no effect.
	round int
}

// failedObject represents an object whose last pass failed.
type failedObject struct {
	request  reconcile.Request
	cause    *failureCause
	failures int
	last     time.Time
	// due is the time when the delay is over. It orders the objects of a cause.
	due     time.Time
	isTried bool
}

// defers reports whether an object is not to be reconciled yet although an event asks for it.
// The object is then the next of its cause; or it is due after the returned time, if it has
// just failed.
func (b *Backoff) defers(req reconcile.Request) (after time.Duration, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := b.failed[req]
	if o == nil || o.isTried {
		return 0, false
	}
	if remaining := o.last.Add(min(delayAfter(o.failures), probeEvery)).Sub(b.clock.Now()); remaining > 0 {
		return remaining, true
	}
	at := slices.Index(o.cause.idle, o)
	o.due = o.cause.idle[0].due.Add(-1)
	o.cause.idle = slices.Insert(slices.Delete(o.cause.idle, at, at+1), 0, o)
	b.schedule(o.cause)
	return 0, true
}

// failedFor records that a pass of an object failed.
func (b *Backoff) failedFor(req reconcile.Request, key causeKey) {
	o := b.failed[req]
	if o == nil {
		o = &failedObject{request: req}
		b.failed[req] = o
	} else if former := o.cause; former.key != key {
		b.leave(former)
		b.schedule(former)
	} else {
		o.cause.trying--
	}
	c := b.causes[key]
	if c == nil {
		c = &failureCause{key: key}
		b.causes[key] = c
	}
	now := b.clock.Now()
	c.failures++
	o.failures++
	c.last, o.last, o.due, o.cause = now, now, now.Add(delayAfter(o.failures)), c
	o.isTried = false
	at := sort.Search(len(c.idle), func(i int) bool { return c.idle[i].due.After(o.due) })
	c.idle = slices.Insert(c.idle, at, o)
	b.schedule(c)
}

// succeeded records that a pass of an object did not fail. If an earlier one did, its cause may
// have ended for others too.
func (b *Backoff) succeeded(req reconcile.Request) {
	o := b.failed[req]
	if o == nil {
		return
	}
	delete(b.failed, req)
	b.leave(o.cause)
	for range min(startedBySuccess, len(o.cause.idle)) {
		b.try(o.cause)
	}
	b.schedule(o.cause)
}

// leave records that an object that was tried does not fail for the cause any more.
func (b *Backoff) leave(c *failureCause) {
	if c.trying--; c.trying == 0 && len(c.idle) == 0 {
		delete(b.causes, c.key)
	}
}

// schedule starts the timer that tries the first object of a cause when it is due, unless one
// is tried now.
func (b *Backoff) schedule(c *failureCause) {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
	c.round++
	if c.trying > 0 || len(c.idle) == 0 {
		return
	}
	at := c.idle[0].due
	if probe := c.last.Add(probeEvery); probe.Before(at) {
		at = probe
	}
	gap := min(delayAfter(c.failures), perCause*time.Duration(len(b.causes)), lastDelay/time.Duration(len(c.idle)))
	if soonest := c.last.Add(gap); at.Before(soonest) {
		at = soonest
	}
	round := c.round
	c.timer = b.clock.AfterFunc(max(0, at.Sub(b.clock.Now())), func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if c.round == round {
			b.try(c)
		}
	})
}

// try enqueues the first object of a cause.
func (b *Backoff) try(c *failureCause) {
	o := c.idle[0]
	c.idle = slices.Delete(c.idle, 0, 1)
	o.isTried = true
	c.trying++
	b.enqueue(o.request)
}

// delayAfter returns the delay after that many failures in a row.
func delayAfter(failures int) time.Duration {
	return min(firstDelay<<min(failures-1, 20), lastDelay)
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
