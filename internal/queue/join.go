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

// Wait puts a holder into the queue, and has it served if its turn has come already. What
// no controller of this operator serves does not wait.
func (q *Queue) Wait(w Waiter) {
	if !q.Serves(w.Holder) {
		q.Leave(w.Holder)
		return
	}
	if joined, wants := q.join(w); joined {
		q.wakePools(wants.Pools)
	}
}

// WaitProvisionally keeps a place for a holder until it waits or leaves, or
// LeaveProvisional ends that.
func (q *Queue) WaitProvisionally(w Waiter) {
	if !q.Serves(w.Holder) {
		return
	}
	q.resolving.Lock()
	defer q.resolving.Unlock()
	q.lines.JoinProvisionally(w, q.wants(w.Request))
}

// LeaveProvisional takes those out that have not waited since WaitProvisionally.
func (q *Queue) LeaveProvisional() {
	for _, left := range q.lines.LeaveProvisional() {
		q.hasLeft(left)
	}
}

// Serves reports whether the controllers of this operator serve the holder: with
// --namespace, claims of one namespace alone.
func (q *Queue) Serves(holder ipam.Holder) bool {
	return q.watched == "" || holder.IsPool() || holder.Namespace == q.watched
}

// Leave takes a holder out of the queue, if it is there, and has those behind it served:
// it has what it waited for, or does not want it any more.
func (q *Queue) Leave(holder ipam.Holder) {
	if left, ok := q.lines.Leave(holder); ok {
		q.hasLeft(left)
	}
}

func (q *Queue) hasLeft(left Left) {
	q.wakePools(left.Pools)
	for _, moved := range left.Moved {
		q.serve(moved) // so that its status says so
	}
}

// join resolves what a waiter wants, and enters it. What is resolved under the lock is
// resolved again by the next change of the catalogue, once that has the lock.
func (q *Queue) join(w Waiter) (bool, ipam.Wants) {
	q.resolving.Lock()
	defer q.resolving.Unlock()
	wants := q.wants(w.Request)
	return q.lines.Join(w, wants), wants
}

// wants is what a request would take; nothing until everything has been seen once.
func (q *Queue) wants(req ipam.Request) ipam.Wants {
	if !q.isResolved.Load() {
		return ipam.Wants{}
	}
	return q.catalogue.Wants(req)
}

// resolveAll resolves what all wait for, when everything has been seen once. Until
// then nobody is served, and it would have to be done again for every pool.
func (q *Queue) resolveAll() {
	q.resolving.Lock()
	defer q.resolving.Unlock()
	if q.isResolved.Load() {
		return
	}
	q.isResolved.Store(true)
	requests := q.catalogue.Shared()
	for _, w := range q.lines.All() {
		q.lines.Update(w.Holder, requests.Wants(w.Request))
	}
	q.wakePools(q.lines.Pools())
}

// resolveAgain resolves what the waiters want that a change of the catalogue concerns.
func (q *Queue) resolveAgain(c inventory.Change) {
	q.resolving.Lock()
	defer q.resolving.Unlock()
	if !q.isResolved.Load() {
		return
	}
	requests, pools := q.catalogue.Shared(), map[ipam.PoolKey]bool{}
	for _, w := range q.lines.Concerned(c) {
		wants := requests.Wants(w.Request)
		if q.lines.Update(w.Holder, wants) {
			for _, pool := range wants.Pools {
				pools[pool] = true
			}
		}
	}
	for pool := range pools {
		q.wake.Add(pool)
	}
}

// changed follows a change of the catalogue, before any other listener.
func (q *Queue) changed(c inventory.Change) {
	q.resolveAgain(c)
	if c.Pool != (ipam.PoolKey{}) {
		q.wake.Add(c.Pool)
		return
	}
	for _, class := range c.Classes {
		q.wakePools(q.catalogue.PoolsNaming(class))
	}
}

// followPool has a pool wait for its parent while the watch shows that it does. A live
// read does not: the pool may be gone by then, and nothing would take it out again.
func (q *Queue) followPool(obj v1alpha1.Pool, exists bool) {
	pool, errs := q.catalogue.ReadPool(obj)
	if !exists || len(errs) > 0 || pool.Terminating || !awaitsParent(obj, pool) {
		q.Leave(convert.HolderOfPool(convert.KeyOf(obj)))
		return
	}
	q.Wait(WaiterOfPool(pool, obj.GetCreationTimestamp().Time))
}

// awaitsParent reports whether a pool waits for its parent: for any block, or, when it
// returns from a backup, for the one that it had.
func awaitsParent(obj v1alpha1.Pool, pool ipam.Pool) bool {
	return !pool.CIDR.IsValid() || pool.IsChild() && obj.PoolStatus().AllocatedCIDR == ""
}

// WaiterOfPool is the place of a pool that was created then.
func WaiterOfPool(pool ipam.Pool, created time.Time) Waiter {
	return Waiter{Since: created, Holder: convert.HolderOfPool(pool.Key), Request: pool.ParentRequest()}
}

const (
	// firstRetry is after how long a waiter is tried again that was parked for the first
	// time. It is twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// tolerated is how often in a row an attempt may fail for a reason that passes by
	// itself before the waiter is parked all the same.
	tolerated = 4
)

// Parked is what follows when a waiter is parked.
type Parked struct {
	// Pools for which it waited: another's turn may have come there.
	Pools []ipam.PoolKey
	// Retry is after how long it is to be tried again, unless Resume says so before.
	Retry time.Duration
}

// Park has a waiter lose its turn, because it cannot be served for another reason than
// want of room: nobody waits behind it from now on. Keep, Resume and a change of what
// it wants end that. The refusal, which may be nil, is what its status says.
func (q *lines) Park(holder ipam.Holder, awaits ipam.Awaited, refusal error) Parked {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil {
		return Parked{Retry: lastRetry}
	}
	q.stepOut(p)
	q.stopAwaiting(p)
	p.parked, p.awaits, p.refusal, p.probation = true, awaits, refusal, false
	p.failures++
	q.await(p)
	retry := min(firstRetry<<min(p.failures-1, 6), lastRetry)
	return Parked{Pools: p.wants.Pools, Retry: retry}
}

// Stumble notes an attempt that failed for a reason which passes by itself, and reports
// whether that has happened so often in a row that the waiter is to be parked.
func (q *lines) Stumble(holder ipam.Holder) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil {
		return false
	}
	p.failures++
	return p.failures > tolerated
}

// Keep has a waiter that failed for want of room keep its place, or have it again. It
// returns the refusal with which it was parked: whether that holds still is known when
// there is room again.
func (q *lines) Keep(holder ipam.Holder) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
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

// resume has a waiter be as one that was never parked.
func (q *lines) resume(p *place) bool {
	p.failures, p.refusal, p.probation = 0, nil, false
	return q.unpark(p)
}

// unpark puts a waiter back in line, and reports whether it was parked.
func (q *lines) unpark(p *place) bool {
	if !p.parked {
		return false
	}
	q.stopAwaiting(p)
	p.parked, p.awaits = false, ipam.Awaited{}
	q.lineUp(p)
	return true
}

// await enters a place that is parked under what it awaits, and stopAwaiting takes it out.
func (q *lines) await(p *place) {
	if !p.parked || p.awaits == (ipam.Awaited{}) {
		return
	}
	if q.awaiting[p.awaits] == nil {
		q.awaiting[p.awaits] = map[*place]bool{}
	}
	q.awaiting[p.awaits][p] = true
}

func (q *lines) stopAwaiting(p *place) {
	if delete(q.awaiting[p.awaits], p); len(q.awaiting[p.awaits]) == 0 {
		delete(q.awaiting, p.awaits)
	}
}

// Resume puts those back in line that are parked until just that has changed, and returns
// the pools for which they wait: the turn of one of them may have come there. Each is
// passed over as long as it may not have a block. It costs O(1) where there are none.
func (q *lines) Resume(changed ipam.Awaited) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	pools := map[ipam.PoolKey]bool{}
	for p := range maps.Clone(q.awaiting[changed]) {
		q.resume(p)
		for _, pool := range p.wants.Pools {
			pools[pool] = true
		}
	}
	return slices.Collect(maps.Keys(pools))
}

// Waited are those of the pools that somebody is in line for.
func (q *lines) Waited(pools []ipam.PoolKey) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(pools), func(pool ipam.PoolKey) bool { return q.byPool[pool] == nil })
}
