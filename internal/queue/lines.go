package queue

import (
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

// lines are the waiters in the order of each pool. The zero value is not usable.
type lines struct {
	// limit is how many waiters of one namespace are in line; 0: any number.
	limit int

	mu     sync.Mutex
	places map[ipam.Holder]*place
	// byPool are the waiters beside the pools that they wait for.
	byPool map[ipam.PoolKey]*line
	// targets are the waiters by what they name.
	targets map[target]map[*place]bool
	// namespaces are the waiters by their namespace, which is empty for cluster-scoped
	// pools.
	namespaces map[string]*tenant
	// provisional are those that nobody has joined yet.
	provisional map[*place]bool
	// awaiting are those that are parked, by what they await where that is known.
	awaiting map[ipam.Awaited]map[*place]bool
}

// newLines are empty lines, in which a namespace has at most so many waiters; 0 is any
// number.
func newLines(limit int) *lines {
	return &lines{
		limit: limit, places: map[ipam.Holder]*place{}, byPool: map[ipam.PoolKey]*line{},
		targets: map[target]map[*place]bool{}, namespaces: map[string]*tenant{}, provisional: map[*place]bool{},
		awaiting: map[ipam.Awaited]map[*place]bool{},
	}
}

// Join puts a waiter in line, or notes what it wants by now, and reports whether it was
// not there before. One that is parked stays so, unless its status says otherwise.
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

// JoinProvisionally keeps a place for a waiter that is not there, until it joins or leaves, or
// LeaveProvisional ends that.
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

// LeaveProvisional takes out those for which a place was kept, and that did not join.
func (q *lines) LeaveProvisional() []Left {
	q.mu.Lock()
	defer q.mu.Unlock()
	var left []Left
	for p := range q.provisional {
		left = append(left, q.leave(p))
	}
	return left
}

// Left is what follows when a waiter leaves.
type Left struct {
	// Pools for which it waited: another's turn may have come there.
	Pools []ipam.PoolKey
	// Moved are the waiters of its namespace that are in line in its stead, and were beyond
	// the bound before.
	Moved []ipam.Holder
}

// Leave takes a waiter out; false where it was not there.
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

// put enters a place everywhere, and take takes it out of everywhere.
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

// Place is a waiter's place, wherever it stands; false where it does not wait.
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

// Len is how many wait, whether or not they are in line.
func (q *lines) Len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.places)
}

// Pools are those that somebody is in line for.
func (q *lines) Pools() []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys := make([]ipam.PoolKey, 0, len(q.byPool))
	for key := range q.byPool {
		keys = append(keys, key)
	}
	return keys
}

// IsQueued reports whether a holder is in the line of a pool.
func (q *lines) IsQueued(holder ipam.Holder, pool ipam.PoolKey) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	return p != nil && p.inLine() && slices.Contains(p.wants.Pools, pool)
}

// Yield decides what the outcome of an attempt to serve a holder that waits means for
// its turn. It returns the error for its status, and, where a limit is reached, after how
// long it is to be tried again. An *ipam.ParkedError with a cause is for the back-off.
//
// Who fails for want of room keeps its place. Who waits for something that is missing,
// or not allowed, has none, and is notified when that changes. Everybody else loses its
// turn: at once where the API server refuses the record, or the error says so itself,
// and otherwise when that has happened a few times in a row.
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
	failed := *parked // not what keep returns: it is tried then when it has its turn
	failed.Cause = err
	return 0, &failed
}

// keep has a holder keep its place, unless its namespace has too many.
func (q *Queue) keep(holder ipam.Holder, err error) error {
	if q.lines.IsBeyond(holder) {
		return &ipam.ParkedError{Reason: v1alpha1.ReasonTooManyWaiting, Message: q.tooManyWaiting(holder.Namespace).Error()}
	}
	if refusal := q.lines.Keep(holder); refusal != nil {
		return refusal
	}
	return err
}

// Park has a holder that waits lose its turn until Resume is called with what it awaits,
// and returns after how long it is to be tried again all the same. Those behind it are
// served. Tried again without room it is in line again, as what was in its way may be
// gone; its status says the same until that is known.
func (q *Queue) Park(holder ipam.Holder, why *ipam.ParkedError) time.Duration {
	parked := q.lines.Park(holder, why.Awaits, why)
	q.wakePools(parked.Pools)
	return parked.Retry
}

// Resume puts those back in line that are parked until just that has changed, and has the
// first served whose turn it is. It may be called under the ledger's lock.
func (q *Queue) Resume(changed ipam.Awaited) { q.wakePools(q.lines.Resume(changed)) }

// resumeLimited resumes those that wait until the project of a record, which is gone, holds
// less: of its pool, which is woken anyway, or of its class, whose other pools may have
// room for them.
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

// passes reports whether an error is of a kind that passes by itself: another process
// changes the same, or the API server or the watch is late.
func passes(err error) bool {
	return !kubeutil.IsRejected(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
}

// IsRefused reports whether the API server refuses something, and will again until
// something else changes.
func IsRefused(err error) bool { return !passes(err) }

// MayWait returns a *ipam.TooManyWaitingError if a claim of the namespace with this request that is
// created now would be beyond the bound of those that wait.
func (q *Queue) MayWait(namespace string, request ipam.Request) error {
	if q.lines.IsFull(namespace, request) {
		return q.tooManyWaiting(namespace)
	}
	return nil
}

func (q *Queue) tooManyWaiting(namespace string) error {
	return &ipam.TooManyWaitingError{Namespace: namespace, Limit: q.lines.Limit()}
}
