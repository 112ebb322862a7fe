package provisioner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// controller makes and removes the pools of classes.
type controller struct {
	provisioner Provisioner
	options     Options
	client      client.Client
	live        client.Reader
	keys        *keys
	clock       clock.PassiveClock
	events      events.EventRecorder
	metrics     *instruments
	// cluster is the UID of the kube-system Namespace.
	cluster string

	mu sync.Mutex
	// openedAt, emptySince, ensuredAt and releasedAt contain, by pool, the time at which this process opened
	// it, the time since which it has been seen empty, the time at which Provision last returned its range,
	// and the time at which Release first succeeded.
	openedAt, emptySince, ensuredAt, releasedAt map[string]time.Time
	// attempts contains the failed attempts that are repeated, by their subject.
	attempts map[string]attempt
}

// attempt holds how often something has failed in a row, why, and when it is tried again.
type attempt struct {
	failure
	count int
	until time.Time
}

// scope holds one pass over a class.
type scope struct {
	// class is nil if it does not exist, or has another provisioner: then its pools are removed.
	class *v1alpha1.IPClass
	// parameters are those of the class, unless one of them is invalid.
	parameters parameters
	areInvalid bool
	entries    map[string]entry
	pools      map[string]*v1alpha1.IPPool
	// failures are the reasons of the condition, in order.
	failures []failure
	// hasFailedCall reports whether a call of the Provisioner has failed in this pass, which makes no further
	// one: it may have taken all of its time.
	hasFailedCall bool
	// requeueAfter is the time until the next pass is due; 0 means none is.
	requeueAfter time.Duration
}

// failure holds a reason and a message of the condition.
type failure struct{ reason, message string }

func (s *scope) fail(reason, format string, args ...any) {
	s.failures = append(s.failures, failure{reason, fmt.Sprintf(format, args...)})
}

// after schedules another pass.
func (s *scope) after(d time.Duration) {
	if d = max(d, time.Millisecond); s.requeueAfter == 0 || d < s.requeueAfter {
		s.requeueAfter = d
	}
}

// The shortest and longest time after which a failed call is repeated. It doubles each time.
const (
	firstRetry = time.Second
	lastRetry  = 5 * time.Minute
)

// failed notes a failed attempt, and schedules the next one.
func (c *controller) failed(s *scope, what, reason string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.attempts[what]
	delay := min(firstRetry<<min(a.count, 9), lastRetry)
	a = attempt{failure: failure{reason, err.Error()}, count: a.count + 1, until: c.clock.Now().Add(delay)}
	c.attempts[what] = a
	s.failures = append(s.failures, a.failure)
	s.after(delay)
}

// mayTry reports whether an attempt may be made now. If it has to wait, its last failure still counts.
func (c *controller) mayTry(s *scope, what string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.attempts[what]
	if left := a.until.Sub(c.clock.Now()); ok && left > 0 {
		s.failures = append(s.failures, a.failure)
		s.after(left)
		return false
	}
	if s.hasFailedCall {
		s.after(firstRetry)
		return false
	}
	return true
}

func (c *controller) succeeded(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attempts, what)
}

// Reconcile implements reconcile.Reconciler for a class.
func (c *controller) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	s, err := c.observe(ctx, request.Name)
	if err != nil || s.class == nil && len(s.entries)+len(s.pools) == 0 {
		return reconcile.Result{}, err
	}
	err = c.advance(ctx, s)
	c.metrics.observe(request.Name, s.entries)
	if err == nil || len(s.failures) > 0 {
		err = errors.Join(err, c.writeCondition(ctx, s))
	}
	return reconcile.Result{RequeueAfter: s.requeueAfter}, err
}

// observe reads the class, its keys and its pools.
func (c *controller) observe(ctx context.Context, name string) (*scope, error) {
	s := &scope{class: &v1alpha1.IPClass{}, pools: map[string]*v1alpha1.IPPool{}}
	if err := c.client.Get(ctx, client.ObjectKey{Name: name}, s.class); client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	if s.class.Spec.Provisioner != c.options.Name || !s.class.DeletionTimestamp.IsZero() {
		s.class = nil
	}
	entries, err := c.keys.list(ctx)
	if err != nil {
		return nil, err
	}
	pools := &v1alpha1.IPPoolList{}
	if err := c.client.List(ctx, pools, client.MatchingLabels{LabelProvisioner: c.options.identity()}); err != nil {
		return nil, err
	}
	for i := range pools.Items {
		pool := &pools.Items[i]
		if e, ok := entries[pool.Name]; e.Class == name || !ok && classOf(pool) == name {
			s.pools[pool.Name] = pool
		}
	}
	maps.DeleteFunc(entries, func(_ string, e entry) bool { return e.Class != name })
	s.entries = entries
	for pool := range entries {
		if s.pools[pool] != nil {
			continue
		}
		found, err := c.find(ctx, pool) // the cache may be behind
		if err != nil {
			return nil, err
		}
		if found != nil {
			s.pools[pool] = found
		}
	}
	return s, nil
}

// find reads a pool past the cache; nil if it does not exist.
func (c *controller) find(ctx context.Context, name string) (*v1alpha1.IPPool, error) {
	pool := &v1alpha1.IPPool{}
	if err := c.live.Get(ctx, client.ObjectKey{Name: name}, pool); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return pool, nil
}

// classOf returns the class of a pool that a provisioner made, if the pool has no key.
func classOf(pool *v1alpha1.IPPool) string {
	if len(pool.Spec.ClassNames) == 0 {
		return ""
	}
	return pool.Spec.ClassNames[0]
}

// advance takes each range a step further, and then decides whether the class needs another one, or one
// less. The error is one of the API server.
func (c *controller) advance(ctx context.Context, s *scope) error {
	if s.class != nil {
		var err error
		if s.parameters, err = parametersOf(s.class); err != nil {
			s.areInvalid = true
			s.fail(ReasonInvalidParameters, "%v", err)
		}
	}
	if err := c.adopt(ctx, s); err != nil {
		return err
	}
	for _, isReady := range []bool{false, true} { // one failed call ends those of a pass, so confirmations are last
		for _, name := range slices.Sorted(maps.Keys(s.entries)) {
			if (s.entries[name].State == ready) != isReady {
				continue
			}
			if err := c.advanceRange(ctx, s, name); err != nil {
				return err
			}
		}
	}
	if s.areInvalid {
		return nil
	}
	return c.resize(ctx, s)
}

// writeCondition writes the condition of the class, if it changes, and an event if its reason does.
func (c *controller) writeCondition(ctx context.Context, s *scope) error {
	if s.class == nil {
		return nil
	}
	condition := metav1.Condition{
		Type: ConditionProvisioned, Status: metav1.ConditionTrue, Reason: ReasonProvisioned, ObservedGeneration: s.class.Generation,
		Message: "the pools have room for the claims that wait, or are being made",
	}
	if len(s.failures) > 0 {
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, s.failures[0].reason, truncate(s.failures[0].message)
	}
	before := s.class.DeepCopy()
	if !meta.SetStatusCondition(&s.class.Status.Conditions, condition) {
		return nil
	}
	if err := c.client.Status().Patch(ctx, s.class, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		if apierrors.IsConflict(err) { // the operator has written the status: the watch shows it
			s.after(firstRetry)
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	previous := meta.FindStatusCondition(before.Status.Conditions, ConditionProvisioned)
	if condition.Status == metav1.ConditionFalse && (previous == nil || previous.Reason != condition.Reason) {
		c.events.Eventf(s.class, nil, corev1.EventTypeWarning, condition.Reason, "Provision", "%s", condition.Message)
	}
	return nil
}

// longestMessage bounds the message of the condition, in characters: an event has room for 1024 bytes.
const longestMessage = 256

func truncate(message string) string {
	if runes := []rune(message); len(runes) > longestMessage {
		return string(runes[:longestMessage-1]) + "…"
	}
	return message
}
