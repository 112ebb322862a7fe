package queue

import (
	"maps"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Wait adds a holder to the queue, and wakes its pools. A holder that no controller of this
// operator serves does not wait.
func (q *Queue) Wait(w Waiter) {
	if !q.Serves(w.Holder) {
		q.Leave(w.Holder)
		return
	}
	q.resolveLock.Lock() // held until the wants are noted, so that a later change resolves them again
	defer q.resolveLock.Unlock()
	wants := q.resolveWants(w.Request)
	if q.poolQueues.Join(w, wants) {
		q.wakePools(wants.Pools)
	}
}

// WaitProvisionally adds a waiter until its holder waits or leaves, or LeaveProvisional is called.
func (q *Queue) WaitProvisionally(w Waiter) {
	if !q.Serves(w.Holder) {
		return
	}
	q.resolveLock.Lock()
	defer q.resolveLock.Unlock()
	q.poolQueues.JoinProvisionally(w, q.resolveWants(w.Request))
}

// LeaveProvisional removes the holders that have not waited since WaitProvisionally.
func (q *Queue) LeaveProvisional() {
	for _, result := range q.poolQueues.RemoveProvisional() {
		q.wakeAfterLeave(result)
	}
}

// Serves reports whether this operator serves the holder: with --namespace, claims of one
// namespace.
func (q *Queue) Serves(holder ipam.Holder) bool {
	return q.watchNamespace == "" || holder.IsPool() || holder.Namespace == q.watchNamespace
}

// Leave removes a holder from the queue, if it waits, and wakes the pools of the waiters behind it.
func (q *Queue) Leave(holder ipam.Holder) {
	if result, ok := q.poolQueues.Remove(holder); ok {
		q.wakeAfterLeave(result)
	}
}

func (q *Queue) wakeAfterLeave(result LeaveResult) {
	q.wakePools(result.Pools)
	for _, holder := range result.MovedUp {
		q.notifyTurn(holder) // so that its status states that
	}
}

// resolveWants returns the wants of a request, and none until everything has been seen once.
func (q *Queue) resolveWants(req ipam.Request) ipam.Wants {
	if !q.isResolved.Load() {
		return ipam.Wants{}
	}
	return q.catalog.Wants(req)
}

// resolveAllWants resolves the wants of all waiters once everything has been seen: earlier, every
// pool would require the work again.
func (q *Queue) resolveAllWants() {
	q.resolveLock.Lock()
	defer q.resolveLock.Unlock()
	if q.isResolved.Load() {
		return
	}
	q.isResolved.Store(true)
	requests := q.catalog.NewWantsCache()
	for _, w := range q.poolQueues.AllWaiters() {
		q.poolQueues.Update(w.Holder, requests.Wants(w.Request))
	}
	q.wakePools(q.poolQueues.Pools())
}

// refreshWants resolves the wants of the waiters that a change of the catalog concerns.
func (q *Queue) refreshWants(c inventory.Change) {
	q.resolveLock.Lock()
	defer q.resolveLock.Unlock()
	if !q.isResolved.Load() {
		return
	}
	requests, pools := q.catalog.NewWantsCache(), map[ipam.PoolKey]bool{}
	for _, w := range q.poolQueues.AffectedWaiters(c) {
		wants := requests.Wants(w.Request)
		if q.poolQueues.Update(w.Holder, wants) {
			for _, pool := range wants.Pools {
				pools[pool] = true
			}
		}
	}
	for pool := range pools {
		q.wake.Add(pool)
	}
}

// onCatalogChange follows a change of the catalog, before any other listener.
func (q *Queue) onCatalogChange(c inventory.Change) {
	q.refreshWants(c)
	if c.Pool != (ipam.PoolKey{}) {
		q.wake.Add(c.Pool)
		return
	}
	for _, class := range c.Classes {
		q.wakePools(q.catalog.PoolsNaming(class))
	}
}

// followPool keeps a pool in the queue for its parent while the watch shows that it waits. A live
// read does not: nothing would remove a pool that is gone.
func (q *Queue) followPool(obj v1alpha1.Pool, exists bool) {
	pool, errs := q.catalog.ReadPool(obj)
	if !exists || len(errs) > 0 || pool.Terminating || !awaitsParent(obj, pool) {
		q.Leave(convert.HolderOfPool(convert.KeyOf(obj)))
		return
	}
	q.Wait(WaiterOfPool(pool, obj.GetCreationTimestamp().Time))
}

// awaitsParent reports whether a pool waits for any block, or, returning from a backup, for its
// own. One that occupies its ranges does not: its controller tries again.
func awaitsParent(obj v1alpha1.Pool, pool ipam.Pool) bool {
	return !pool.CIDR.IsValid() || pool.IsChild() && pool.Occupied == nil && obj.PoolStatus().AllocatedCIDR == ""
}

// WaiterOfPool returns the waiter of a pool that was created at the given time.
func WaiterOfPool(pool ipam.Pool, created time.Time) Waiter {
	return Waiter{Since: created, Holder: convert.HolderOfPool(pool.Key), Request: pool.ParentRequest()}
}

const (
	// firstRetry is the time after which a waiter that is parked for the first time is tried again.
	// It doubles each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// toleratedFailures is the number of times in a row that an attempt can fail for a reason that
	// passes by itself before the waiter is parked.
	toleratedFailures = 4
)

// Park takes the turn of a waiter away that cannot be served for another reason than want of room:
// no holder waits behind it until RestorePosition, ResumeAwaiting or new wants end that. The
// refusal, which may be nil, is the error in its status.
//
// It returns the pools in which the turn of another waiter may have come, and the time after which the
// waiter is to be tried again, unless it is resumed before.
func (q *poolQueues) Park(holder ipam.Holder, awaits ipam.Awaited, refusal error) (pools []ipam.PoolKey, retry time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	if p == nil {
		return nil, lastRetry
	}
	q.dequeue(p)
	q.unindexAwaited(p)
	p.parked, p.awaitedChange, p.refusal, p.probation = true, awaits, refusal, false
	p.failures++
	q.indexAwaited(p)
	return p.wants.Pools, min(firstRetry<<min(p.failures-1, 6), lastRetry)
}

// RecordFailure notes a failure that passes by itself, and reports whether to park the waiter for
// it.
func (q *poolQueues) RecordFailure(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	if p == nil {
		return false
	}
	p.failures++
	return p.failures > toleratedFailures
}

// RestorePosition lets a waiter that failed for want of room keep its position, or get it back. It
// returns the refusal with which the waiter was parked: it counts until there is room again.
func (q *poolQueues) RestorePosition(holder ipam.Holder) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	if p == nil {
		return nil
	}
	if p.refusal == nil {
		p.failures = 0
	}
	p.probation = p.refusal != nil
	q.unpark(p)
	return p.refusal
}

// reset makes a waiter one that was never parked, and reports whether it was parked.
func (q *poolQueues) reset(p *waiter) bool {
	p.failures, p.refusal, p.probation = 0, nil, false
	return q.unpark(p)
}

// unpark puts a waiter back in line, and reports whether it was parked.
func (q *poolQueues) unpark(p *waiter) bool {
	if !p.parked {
		return false
	}
	q.unindexAwaited(p)
	p.parked, p.awaitedChange = false, ipam.Awaited{}
	q.enqueue(p)
	return true
}

func (q *poolQueues) indexAwaited(p *waiter) {
	if !p.parked || p.awaitedChange == (ipam.Awaited{}) {
		return
	}
	if q.awaiting[p.awaitedChange] == nil {
		q.awaiting[p.awaitedChange] = map[*waiter]bool{}
	}
	q.awaiting[p.awaitedChange][p] = true
}

func (q *poolQueues) unindexAwaited(p *waiter) {
	if delete(q.awaiting[p.awaitedChange], p); len(q.awaiting[p.awaitedChange]) == 0 {
		delete(q.awaiting, p.awaitedChange)
	}
}

// ResumeAwaiting puts the waiters back in line that are parked until exactly this has changed, and
// returns their pools. Each is passed over as long as it cannot have a block.
func (q *poolQueues) ResumeAwaiting(change ipam.Awaited) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	pools := map[ipam.PoolKey]bool{}
	for p := range maps.Clone(q.awaiting[change]) {
		q.reset(p)
		for _, pool := range p.wants.Pools {
			pools[pool] = true
		}
	}
	return slices.Collect(maps.Keys(pools))
}

// PoolsWithWaiters returns those of the pools that have a waiter in line.
func (q *poolQueues) PoolsWithWaiters(pools []ipam.PoolKey) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(pools), func(pool ipam.PoolKey) bool { return q.byPool[pool] == nil })
}
