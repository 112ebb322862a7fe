package kubeutil

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// IsNotFound reports whether the error means that the object does not exist. An API server that
// has just started also answers 404 for every object of a kind whose definition it has not read
// yet. That answer is about the path, not about the object, and does not count;
// apierrors.IsNotFound counts it.
func IsNotFound(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse)
}

// IgnoreNotFound returns nil if the object does not exist, and otherwise the error.
func IgnoreNotFound(err error) error {
	if IsNotFound(err) {
		return nil
	}
	return err
}

// IsNamespaceTerminating reports whether the error means that nothing can be created any more
// in a namespace that is being deleted. The objects that wait in that namespace are deleted
// soon, and are not retried.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsRejected reports whether the API server surely did nothing of the request. If the error is
// not an answer of the API server, or is a time-out or internal error of it, the request may
// have been done; but a request for which it could not call a webhook is not done.
func IsRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 || uncalledWebhook.MatchString(status.Status().Message)
}

var (
	// uncalledWebhook is the start of the API server's error about a webhook that it could not
	// call; the rest has addresses of connections, and differs each time.
	// (k8s.io/apiserver/pkg/admission/plugin/webhook/errors.go)
	uncalledWebhook = regexp.MustCompile(`failed calling webhook "[^"]*"`)
	// quotaUsage is the part of an exceeded quota that changes with each object.
	quotaUsage = regexp.MustCompile(`, used: \S*, limited: \S*`)
	// refusedBy names the cause of a refused request.
	refusedBy = regexp.MustCompile(uncalledWebhook.String() + `|admission webhook "[^"]*" denied|exceeded quota: [^,]*|ValidatingAdmissionPolicy '[^']*'`)
)

// StableText returns the text of an error as a condition can have it: without the parts that
// differ each time that the error occurs.
func StableText(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Refusal(err)
	}
	return strings.Replace(err.Error(), status.Status().Message, Refusal(err), 1)
}

// Refusal returns the StableText without the attempted action.
func Refusal(err error) string {
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
	case errors.Is(err, context.DeadlineExceeded):
		return "the API server does not answer in time"
	default:
		return err.Error()
	}
	message := status.Status().Message
	if uncalled := uncalledWebhook.FindString(message); uncalled != "" {
		return uncalled + ", which does not answer"
	}
	return quotaUsage.ReplaceAllString(message, "")
}

// Cause returns the cause for which the API server refuses a request: the quota, policy or
// webhook, or else the reason that it states; empty for other errors. A cause that refuses one
// object may refuse others of its namespace.
func Cause(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return ""
	}
	return cmp.Or(refusedBy.FindString(status.Status().Message), string(status.Status().Reason))
}

// causeKey identifies the cause for which passes fail.
type causeKey struct{ namespace, cause string }

// failureCause holds the objects that failed for one cause.
type failureCause struct {
	key causeKey
	// idle are the objects that are not tried at the moment; trying is the number of those that
	// are.
	idle   []*failedObject // the first is due first
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
