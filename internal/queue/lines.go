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

// lines holds the waiters in the order of each pool. The zero value is not usable.
type lines struct {
	// limit is the largest number of waiters of one namespace in line; 0 means any number.
	limit int

	mu     sync.Mutex
	places map[ipam.Holder]*place
	// byPool contains the pool queues, by the pool that their waiters wait for.
	byPool map[ipam.PoolKey]*line
	// targets contains the waiters by the target that they name.
	targets map[target]map[*place]bool
	// namespaces contains the waiters by their namespace, which is empty for cluster-scoped pools.
	namespaces map[string]*tenant
	// provisional contains the waiters that have not joined yet.
	provisional map[*place]bool
	// awaiting contains the parked waiters, by the change that they await if that is known.
	awaiting map[ipam.Awaited]map[*place]bool
}

// newLines returns empty pool queues in which a namespace can have at most limit waiters; 0 means
// any number.
func newLines(limit int) *lines {
	return &lines{
		limit: limit, places: map[ipam.Holder]*place{}, byPool: map[ipam.PoolKey]*line{},
		targets: map[target]map[*place]bool{}, namespaces: map[string]*tenant{}, provisional: map[*place]bool{},
		awaiting: map[ipam.Awaited]map[*place]bool{},
	}
}

// Join puts a waiter in line, or notes its present wants, and reports whether the waiter is new. A
// parked waiter stays parked, unless its status states otherwise.
func (q *lines) Join(w Waiter, wants ipam.Wants) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.places[w.Holder]
	p := &place{Waiter: w, wants: wants}
	if old != nil {
		p.failures, p.parked, p.awaits, p.beyond = old.failures, old.parked, old.awaits, old.beyond
		p.refusal, p.probation = old.refusal, old.probation
		p.knowsConflict = old.knowsConflict && targetOf(old.Request) == targetOf(w.Request) && old.Request.Block == w.Request.Block
		q.take(old)
	} else {
		p.beyond = q.isFull(p)
	}
	switch w.Reason {
	case ReasonNoRoom:
		p.parked = false
	case ReasonRefused:
		p.parked = !p.probation
	}
	q.put(p)
	return old == nil
}

// JoinProvisionally adds a waiter for a holder that is not in the queue, until the holder joins or
// leaves, or LeaveProvisional removes the waiter.
func (q *lines) JoinProvisionally(w Waiter, wants ipam.Wants) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places[w.Holder] != nil {
		return
	}
	p := &place{Waiter: w, wants: wants, provisional: true, parked: w.Reason == ReasonRefused}
	p.beyond = q.isFull(p)
	q.put(p)
}

// LeaveProvisional removes the waiters that were added provisionally and did not join.
func (q *lines) LeaveProvisional() []Left {
	q.mu.Lock()
	defer q.mu.Unlock()
	var left []Left
	for p := range q.provisional {
		left = append(left, q.leave(p))
	}
	return left
}

// Left holds the effects of a waiter's leaving.
type Left struct {
	// Pools contains the pools for which the waiter waited: the turn of another waiter may have
	// come there.
	Pools []ipam.PoolKey
	// Moved contains the waiters of its namespace that are in line instead of it, and were beyond
	// the bound before.
	Moved []ipam.Holder
}

// Leave removes a waiter. It returns false if the holder does not wait.
func (q *lines) Leave(holder ipam.Holder) (Left, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil {
		return Left{}, false
	}
	return q.leave(p), true
}

func (q *lines) leave(p *place) Left {
	q.take(p)
	return Left{Pools: p.wants.Pools, Moved: q.moveUp(p)}
}

// put adds a waiter everywhere, and take removes it from everywhere.
func (q *lines) put(p *place) {
	q.places[p.Holder] = p
	if p.provisional {
		q.provisional[p] = true
	}
	t := targetOf(p.Request)
	if q.targets[t] == nil {
		q.targets[t] = map[*place]bool{}
	}
	q.targets[t][p] = true
	q.enroll(p)
	q.await(p)
	q.lineUp(p)
}

func (q *lines) take(p *place) {
	q.stepOut(p)
	q.stopAwaiting(p)
	delete(q.places, p.Holder)
	delete(q.provisional, p)
	t := targetOf(p.Request)
	if delete(q.targets[t], p); len(q.targets[t]) == 0 {
		delete(q.targets, t)
	}
	q.dismiss(p)
}

// Place returns the waiter of a holder, in line or not. It returns false if the holder does not
// wait.
func (q *lines) Place(holder ipam.Holder) (Waiter, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.places[holder]; p != nil {
		return p.Waiter, true
	}
	return Waiter{}, false
}

// Has reports whether a holder waits.
func (q *lines) Has(holder ipam.Holder) bool {
	_, ok := q.Place(holder)
	return ok
}

// Len returns the number of waiting holders, in line or not.
func (q *lines) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.places)
}

// Pools returns the pools that have a waiter in line.
func (q *lines) Pools() []ipam.PoolKey {
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
		return 0, q.keep(holder, err)
	case passes(err) && !q.lines.Stumble(holder):
		return 0, err
	}
	parked = &ipam.ParkedError{
		Reason:  v1alpha1.ReasonRecordRefused,
		Message: fmt.Sprintf("the IPAllocation cannot be recorded: %s: remove the cause; others are served first until it can", kubeutil.Refusal(err)),
	}
	q.Park(holder, parked)
	q.log.V(1).Info("Claim loses its turn in the queue", "claim", holder.String(), "error", err.Error())
	failed := *parked // not the error that keep returns: then the holder is tried in its turn
	failed.Cause = err
	return 0, &failed
}

// keep lets a holder keep its position, unless its namespace has too many waiters.
func (q *Queue) keep(holder ipam.Holder, err error) error {
	if q.lines.IsBeyond(holder) {
		return &ipam.ParkedError{Reason: v1alpha1.ReasonTooManyWaiting, Message: q.tooManyWaiting(holder.Namespace).Error()}
	}
	if refusal := q.lines.Keep(holder); refusal != nil {
		return refusal
	}
	return err
}

// Park takes the turn of a waiting holder away until Resume is called with the change that it
// awaits, and returns the time after which to try the holder nevertheless. The waiters behind it
// are served. If it is tried again without room, it is in line again, as the obstacle may be gone;
// its status stays the same until that is known.
func (q *Queue) Park(holder ipam.Holder, why *ipam.ParkedError) time.Duration {
	parked := q.lines.Park(holder, why.Awaits, why)
	q.wakePools(parked.Pools)
	return parked.Retry
}

// Resume puts the waiters back in line that are parked until exactly this has changed, and wakes
// their pools, so that the first waiter whose turn it is gets served. It can be called under the
// ledger's lock.
func (q *Queue) Resume(changed ipam.Awaited) { q.wakePools(q.lines.Resume(changed)) }

// resumeLimited resumes the waiters that wait until the project of a record, which is gone, holds
// less: of its pool, which is woken anyway, or of its class, whose other pools may have room for
// them.
func (q *Queue) resumeLimited(record ipam.Record) {
	if record.Project == "" {
		return
	}
	q.Resume(ipam.Awaited{Project: record.Project, Pool: record.Pool})
	class, ok := q.catalogue.Class(record.Class)
	if !ok || !class.Limit.IsSet() {
		return
	}
	q.Resume(ipam.Awaited{Project: record.Project, Class: record.Class})
	q.wakePools(q.lines.Waited(q.catalogue.PoolsNaming(record.Class)))
}

// passes reports whether an error is of a kind that passes by itself: another process changes the
// same object, or the API server or the watch is late.
func passes(err error) bool {
	return !kubeutil.IsRejected(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
}

// IsRefused reports whether the API server refuses something, and will refuse it again until
// something else changes.
func IsRefused(err error) bool { return !passes(err) }

// MayWait returns a *ipam.TooManyWaitingError if a claim that is created now in the namespace with
// this request would be beyond the bound of the waiters.
func (q *Queue) MayWait(namespace string, request ipam.Request) error {
	if q.lines.IsFull(namespace, request) {
		return q.tooManyWaiting(namespace)
	}
	return nil
}

func (q *Queue) tooManyWaiting(namespace string) error {
	return &ipam.TooManyWaitingError{Namespace: namespace, Limit: q.lines.Limit()}
}
