package queue

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Waiter represents a claim or a child pool that waits for a block, and its position in line: the
// older first, then by name.
type Waiter struct {
	Since time.Time
	// Holder is the claim or the child pool; Request is its request, as far as it is known.
	Holder  ipam.Holder
	Request ipam.Request
	// Reason is the reason that the waiter's own status states.
	Reason WaitReason
}

// WaitReason represents the reason in a waiter's status, from which other replicas learn which are
// passed over.
type WaitReason int

// The reasons that a status can state.
const (
	// ReasonUnknown means that the status states nothing that decides it.
	ReasonUnknown WaitReason = iota
	// ReasonNoRoom means that there is no room. The waiter is in line.
	ReasonNoRoom
	// ReasonRefused means that the waiter cannot be served for another reason. It is parked.
	ReasonRefused
)

// IsZero reports whether the waiter has no holder.
func (w Waiter) IsZero() bool { return w.Holder == (ipam.Holder{}) }

func (w Waiter) isBefore(other Waiter) bool { return compare(w, other) < 0 }

// isReturning reports whether the waiter asked for one block alone before the pool was first ready,
// as after a restore, or in a pool that is paused from the start. Such waiters are served first,
// because no other block serves them. A waiter that asks later has no such right: it would be a way
// past the waiters for a full pool.
func (w Waiter) isReturning(pool ipam.Pool) bool {
	return w.Request.Block.IsValid() && (pool.OpenSince.IsZero() || !w.Since.After(pool.OpenSince))
}

// isAheadOf reports whether the pool serves the waiter before the other.
func (w Waiter) isAheadOf(other Waiter, pool ipam.Pool) bool {
	if first := w.isReturning(pool); first != other.isReturning(pool) {
		return first
	}
	return w.isBefore(other)
}

func compare(a, b Waiter) int {
	return cmp.Or(
		a.Since.Compare(b.Since),
		cmp.Compare(a.Holder.Namespace, b.Holder.Namespace),
		cmp.Compare(a.Holder.Name, b.Holder.Name),
		cmp.Compare(a.Holder.Kind, b.Holder.Kind),
	)
}

// waiter holds one waiter in the queue.
type waiter struct {
	Waiter
	wants ipam.Wants
	// provisional reports that the waiter has not joined yet.
	provisional bool
	// knowsConflict reports that its status states that another holder has its one block.
	knowsConflict bool
	// parked reports that it cannot be served for another reason than want of room; awaitedChange is
	// the change that it needs, if known.
	parked        bool
	awaitedChange ipam.Awaited
	// refusal is the error in its status from when it was parked until it is served: a lack of room
	// is then no news. With probation it is in line again.
	refusal   error
	probation bool
	// failures counts attempts to serve it that failed for such a reason.
	failures int
	// isBeyondLimit reports that the waiter is beyond the bound of its namespace.
	isBeyondLimit bool
}

func compareWaiters(a, b *waiter) int { return compare(a.Waiter, b.Waiter) }

// insert adds a waiter to a sorted list. It costs O(log n) and a move of memory, as remove does.
func insert(list []*waiter, p *waiter) []*waiter {
	if n := len(list); n == 0 || compareWaiters(list[n-1], p) < 0 {
		return append(list, p)
	}
	at, _ := slices.BinarySearchFunc(list, p, compareWaiters)
	return slices.Insert(list, at, p)
}

func remove(list []*waiter, p *waiter) []*waiter {
	at, found := slices.BinarySearchFunc(list, p, compareWaiters)
	if !found {
		return list
	}
	return slices.Delete(list, at, at+1)
}

// target represents the object that a waiter names. Zero means the default class.
type target struct {
	class    string
	pool     ipam.PoolKey
	selector bool
}

func targetOf(r ipam.Request) target {
	if r.Selects != nil {
		return target{selector: true}
	}
	return target{class: r.Class, pool: r.Pool}
}

// sortWaiters returns the waiters of the sets, in order.
func sortWaiters(sets ...map[*waiter]bool) []*waiter {
	var all []*waiter
	for _, set := range sets {
		for p := range set {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, compareWaiters)
	return all
}

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
	// onDemand is called under the lock with a class that has a provisioner when its demand may have
	// changed; nil: nothing listens.
	onDemand func(class string)
}

func newPoolQueues(limit int) *poolQueues {
	return &poolQueues{
		limit: limit, waiters: map[ipam.Holder]*waiter{}, byPool: map[ipam.PoolKey]*poolQueue{},
		targets: map[target]map[*waiter]bool{}, namespaces: map[string]*tenant{}, provisional: map[*waiter]bool{},
		awaiting: map[ipam.Awaited]map[*waiter]bool{},
	}
}

// Join puts a waiter in line, or notes its wants, and reports whether it is new. A parked waiter
// stays parked, unless its status states otherwise.
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

// JoinProvisionally adds a waiter that is not in the queue, until it joins, leaves, or
// RemoveProvisional is called.
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
	// Pools contains the pools in which the turn of another waiter may have come.
	Pools []ipam.PoolKey
	// MovedUp contains waiters of its namespace that were beyond the bound, and are in line instead.
	MovedUp []ipam.Holder
}

// Remove removes a waiter, if the holder waits.
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
// again. An *ipam.ParkedError with a cause is for the back-off.
//
// A holder that fails for want of room keeps its position. A holder that waits for something
// missing, or not allowed, has no position, and is notified of changes. Every other holder loses
// its turn: at once if the API server refuses the record or the error states that, otherwise after
// a few times in a row.
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
// awaits, and returns the time after which to try the holder nevertheless. If it is then tried
// without room, it is in line again, with the same status until it is known whether the obstacle is
// gone.
func (q *Queue) Park(holder ipam.Holder, cause *ipam.ParkedError) time.Duration {
	pools, retry := q.poolQueues.Park(holder, cause.Awaits, cause)
	q.wakePools(pools)
	return retry
}

// Resume puts the waiters back in line that are parked until exactly this has changed. It can be
// called under the ledger's lock.
func (q *Queue) Resume(change ipam.Awaited) { q.wakePools(q.poolQueues.ResumeAwaiting(change)) }

// resumeLimited resumes the waiters that wait until the project of a deleted record holds less of
// its pool, or of its class, whose other pools may have room for them.
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

// isTransient reports whether an error passes by itself: another process changes the object, or the
// API server or the watch is late.
func isTransient(err error) bool {
	return !kubeutil.IsRejected(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
}

// IsRefused reports whether the API server will refuse something again until something else
// changes.
func IsRefused(err error) bool { return !isTransient(err) }

// MayWait returns a *ipam.TooManyWaitingError if a new claim would be beyond the bound of the
// waiters.
func (q *Queue) MayWait(namespace string, request ipam.Request) error {
	if q.poolQueues.IsFull(namespace, request) {
		return q.tooManyWaiting(namespace)
	}
	return nil
}

func (q *Queue) tooManyWaiting(namespace string) error {
	return &ipam.TooManyWaitingError{Namespace: namespace, Limit: q.poolQueues.Limit()}
}
