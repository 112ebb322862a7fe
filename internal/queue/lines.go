package queue

import (
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// poolQueues holds the waiters in the order of each pool. The zero value is not usable.
type poolQueues struct {
	// limit is the largest number of waiters of one namespace in line; 0 means any number.
	limit int

	mu      sync.Mutex
	waiters map[ipam.Holder]*waiter
	// byPool contains the pool queues, by the pool that their waiters wait for.
	byPool map[ipam.PoolKey]*poolQueue
	// targets contains the waiters by the target that they name.
	targets map[target]map[*waiter]bool
	// namespaces contains the waiters by their namespace, which is empty for cluster-scoped pools.
	namespaces map[string]*tenant
	// provisional contains the waiters that have not joined yet.
	provisional map[*waiter]bool
	// awaiting contains the parked waiters, by the change that they await if that is known.
	awaiting map[ipam.Awaited]map[*waiter]bool
}

// newPoolQueues returns empty pool queues in which a namespace can have at most limit waiters; 0 means
// any number.
func newPoolQueues(limit int) *poolQueues {
	return &poolQueues{
		limit: limit, waiters: map[ipam.Holder]*waiter{}, byPool: map[ipam.PoolKey]*poolQueue{},
		targets: map[target]map[*waiter]bool{}, namespaces: map[string]*tenant{}, provisional: map[*waiter]bool{},
		awaiting: map[ipam.Awaited]map[*waiter]bool{},
	}
}

// Join puts a waiter in line, or notes its present wants, and reports whether the waiter is new. A
// parked waiter stays parked, unless its status states otherwise.
func (q *poolQueues) Join(w Waiter, wants ipam.Wants) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	previous := q.waiters[w.Holder]
	p := &waiter{Waiter: w, wants: wants}
	if previous != nil {
		p.failures, p.parked, p.awaitedChange, p.isBeyondLimit = previous.failures, previous.parked, previous.awaitedChange, previous.isBeyondLimit
		p.refusal, p.probation = previous.refusal, previous.probation
		p.knowsConflict = previous.knowsConflict && targetOf(previous.Request) == targetOf(w.Request) && previous.Request.Block == w.Request.Block
		q.unregister(previous)
	} else {
		p.isBeyondLimit = q.isFull(p)
	}
	switch w.Reason {
	case ReasonNoRoom:
		p.parked = false
	case ReasonRefused:
		p.parked = !p.probation
	}
	q.register(p)
	return previous == nil
}

// JoinProvisionally adds a waiter for a holder that is not in the queue, until the holder joins or
// leaves, or RemoveProvisional removes the waiter.
func (q *poolQueues) JoinProvisionally(w Waiter, wants ipam.Wants) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.waiters[w.Holder] != nil {
		return
	}
	p := &waiter{Waiter: w, wants: wants, provisional: true, parked: w.Reason == ReasonRefused}
	p.isBeyondLimit = q.isFull(p)
	q.register(p)
}

// RemoveProvisional removes the waiters that were added provisionally and did not join.
func (q *poolQueues) RemoveProvisional() []LeaveResult {
	q.mu.Lock()
	defer q.mu.Unlock()
	var results []LeaveResult
	for p := range q.provisional {
		results = append(results, q.removeAndMoveUp(p))
	}
	return results
}

// LeaveResult holds the effects of a waiter's leaving.
type LeaveResult struct {
	// Pools contains the pools for which the waiter waited: the turn of another waiter may have
	// come there.
	Pools []ipam.PoolKey
	// MovedUp contains the waiters of its namespace that are in line instead of it, and were beyond
	// the bound before.
	MovedUp []ipam.Holder
}

// Remove removes a waiter. It returns false if the holder does not wait.
func (q *poolQueues) Remove(holder ipam.Holder) (LeaveResult, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	if p == nil {
		return LeaveResult{}, false
	}
	return q.removeAndMoveUp(p), true
}

func (q *poolQueues) removeAndMoveUp(p *waiter) LeaveResult {
	q.unregister(p)
	return LeaveResult{Pools: p.wants.Pools, MovedUp: q.moveUp(p)}
}

// register adds a waiter everywhere, and take removes it from everywhere.
func (q *poolQueues) register(p *waiter) {
	q.waiters[p.Holder] = p
	if p.provisional {
		q.provisional[p] = true
	}
	t := targetOf(p.Request)
	if q.targets[t] == nil {
		q.targets[t] = map[*waiter]bool{}
	}
	q.targets[t][p] = true
	q.addToTenant(p)
	q.indexAwaited(p)
	q.enqueue(p)
}

func (q *poolQueues) unregister(p *waiter) {
	q.dequeue(p)
	q.unindexAwaited(p)
	delete(q.waiters, p.Holder)
	delete(q.provisional, p)
	t := targetOf(p.Request)
	if delete(q.targets[t], p); len(q.targets[t]) == 0 {
		delete(q.targets, t)
	}
	q.removeFromTenant(p)
}

// Waiter returns the waiter of a holder, in line or not. It returns false if the holder does not
// wait.
func (q *poolQueues) Waiter(holder ipam.Holder) (Waiter, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.waiters[holder]; p != nil {
		return p.Waiter, true
	}
	return Waiter{}, false
}

// Has reports whether a holder waits.
func (q *poolQueues) Has(holder ipam.Holder) bool {
	_, ok := q.Waiter(holder)
	return ok
}

// Len returns the number of waiting holders, in line or not.
func (q *poolQueues) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.waiters)
}

// Pools returns the pools that have a waiter in line.
func (q *poolQueues) Pools() []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := make([]ipam.PoolKey, 0, len(q.byPool))
	for key := range q.byPool {
		keys = append(keys, key)
	}
	return keys
}

// Yield decides how the outcome of an attempt to serve a waiting holder affects its turn. It
// returns the error for the holder's status and, if a limit is reached, the time after which to try
// the holder again. An *ipam.ParkedError with a cause is for the back-off.
//
// A holder that fails for want of room keeps its position. A holder that waits for something that
// is missing, or not allowed, has no position, and is notified when that changes. Every other
// holder loses its turn: at once if the API server refuses the record, or if the error itself
// states that, and otherwise if that has happened a few times in a row.
func (q *Queue) Yield(holder ipam.Holder, err error) (time.Duration, error) {
	var missing *ipam.MissingError
	var policy *ipam.PolicyError
	var parked *ipam.ParkedError
	var limit *ipam.LimitError
	switch {
	case errors.As(err, &parked):
		return q.Park(holder, parked), err
	case errors.As(err, &limit):
		parked = &ipam.ParkedError{Reason: v1alpha1.ReasonLimitReached, Message: limit.Stable(), Awaits: limit.Awaits, Pools: ipam.PoolsOf(err)}
		return q.Park(holder, parked), parked
	case err == nil, errors.As(err, &missing), errors.As(err, &policy):
		return 0, err
	case ipam.IsNoRoom(err):
		return 0, q.keepPosition(holder, err)
	case isTransient(err) && !q.poolQueues.RecordFailure(holder):
		return 0, err
	}
	parked = &ipam.ParkedError{
		Reason:  v1alpha1.ReasonRecordRefused,
		Message: fmt.Sprintf("the IPAllocation cannot be recorded: %s: remove the cause; others are served first until it can", kubeutil.Refusal(err)),
	}
	q.Park(holder, parked)
	q.log.V(1).Info("Claim loses its turn in the queue", "claim", holder.String(), "error", err.Error())
	retryErr := *parked // not the error that keepPosition returns: then the holder is tried in its turn
	retryErr.Cause = err
	return 0, &retryErr
}

// keepPosition lets a holder keep its position, unless its namespace has too many waiters.
func (q *Queue) keepPosition(holder ipam.Holder, err error) error {
	if q.poolQueues.IsBeyondLimit(holder) {
		return &ipam.ParkedError{Reason: v1alpha1.ReasonTooManyWaiting, Message: q.tooManyWaiting(holder.Namespace).Error()}
	}
	if refusal := q.poolQueues.RestorePosition(holder); refusal != nil {
		return refusal
	}
	return err
}

// Park takes the turn of a waiting holder away until Resume is called with the change that it
// awaits, and returns the time after which to try the holder nevertheless. The waiters behind it
// are served. If it is tried again without room, it is in line again, as the obstacle may be gone;
// its status stays the same until that is known.
func (q *Queue) Park(holder ipam.Holder, cause *ipam.ParkedError) time.Duration {
	result := q.poolQueues.Park(holder, cause.Awaits, cause)
	q.wakePools(result.Pools)
	return result.Retry
}

// Resume puts the waiters back in line that are parked until exactly this has changed, and wakes
// their pools, so that the first waiter whose turn it is gets served. It can be called under the
// ledger's lock.
func (q *Queue) Resume(change ipam.Awaited) { q.wakePools(q.poolQueues.ResumeAwaiting(change)) }

// resumeLimited resumes the waiters that wait until the project of a record, which is gone, holds
// less: of its pool, which is woken anyway, or of its class, whose other pools may have room for
// them.
func (q *Queue) resumeLimited(record ipam.Record) {
	if record.Project == "" {
		return
	}
	q.Resume(ipam.Awaited{Project: record.Project, Pool: record.Pool})
	class, ok := q.catalog.Class(record.Class)
	if !ok || !class.Limit.IsSet() {
		return
	}
	q.Resume(ipam.Awaited{Project: record.Project, Class: record.Class})
	q.wakePools(q.poolQueues.PoolsWithWaiters(q.catalog.PoolsNaming(record.Class)))
}

// isTransient reports whether an error is of a kind that passes by itself: another process changes the
// same object, or the API server or the watch is late.
func isTransient(err error) bool {
	return !kubeutil.IsRejected(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
}

// IsRefused reports whether the API server refuses something, and will refuse it again until
// something else changes.
func IsRefused(err error) bool { return !isTransient(err) }

// MayWait returns a *ipam.TooManyWaitingError if a claim that is created now in the namespace with
// this request would be beyond the bound of the waiters.
func (q *Queue) MayWait(namespace string, request ipam.Request) error {
	if q.poolQueues.IsFull(namespace, request) {
		return q.tooManyWaiting(namespace)
	}
	return nil
}

func (q *Queue) tooManyWaiting(namespace string) error {
	return &ipam.TooManyWaitingError{Namespace: namespace, Limit: q.poolQueues.Limit()}
}
