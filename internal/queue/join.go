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

// Wait adds a holder to the queue, and wakes its pools so that it is served if its turn has come
// already. A holder that no controller of this operator serves does not wait.
func (q *Queue) Wait(w Waiter) {
	if !q.Serves(w.Holder) {
		q.Leave(w.Holder)
		return
	}
	if joined, wants := q.join(w); joined {
		q.wakePools(wants.Pools)
	}
}

// WaitProvisionally adds a waiter for a holder until the holder waits or leaves, or
// LeaveProvisional removes the waiter.
func (q *Queue) WaitProvisionally(w Waiter) {
	if !q.Serves(w.Holder) {
		return
	}
	q.resolving.Lock()
	defer q.resolving.Unlock()
	q.lines.JoinProvisionally(w, q.wants(w.Request))
}

// LeaveProvisional removes the holders that have not waited since WaitProvisionally.
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

// Leave removes a holder from the queue, if it waits, and wakes the pools of the waiters behind it:
// the holder has its block, or does not want it any more.
func (q *Queue) Leave(holder ipam.Holder) {
	if left, ok := q.lines.Leave(holder); ok {
		q.hasLeft(left)
	}
}

func (q *Queue) hasLeft(left Left) {
	q.wakePools(left.Pools)
	for _, moved := range left.Moved {
		q.serve(moved) // so that its status states that
	}
}

// join resolves the wants of a waiter, and adds it to the queue. Wants that are resolved under the
// lock are resolved again by the next change of the catalog, once that has the lock.
func (q *Queue) join(w Waiter) (bool, ipam.Wants) {
	q.resolving.Lock()
	defer q.resolving.Unlock()
	wants := q.wants(w.Request)
	return q.lines.Join(w, wants), wants
}

// wants returns the wants of a request, and none until everything has been seen once.
func (q *Queue) wants(req ipam.Request) ipam.Wants {
	if !q.isResolved.Load() {
		return ipam.Wants{}
	}
	return q.catalogue.Wants(req)
}

// resolveAll resolves the wants of all waiters, when everything has been seen once. Until then no
// holder is served, and every pool would require the work again.
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

// resolveAgain resolves the wants of the waiters that a change of the catalog concerns.
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

// changed follows a change of the catalog, before any other listener.
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

// followPool keeps a pool in the queue for its parent while the watch shows that it waits. A live
// read does not: the pool may be gone already, and nothing would remove it again.
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

// WaiterOfPool returns the waiter of a pool that was created at the given time.
func WaiterOfPool(pool ipam.Pool, created time.Time) Waiter {
	return Waiter{Since: created, Holder: convert.HolderOfPool(pool.Key), Request: pool.ParentRequest()}
}

const (
	// firstRetry is the time after which a waiter is tried again that was parked for the first
	// time. It is twice as long each time, up to lastRetry.
	firstRetry = time.Second
	lastRetry  = time.Minute
	// tolerated is the number of times in a row that an attempt can fail for a reason that passes
	// by itself before the waiter is parked nevertheless.
	tolerated = 4
)

// Parked holds the effects of parking a waiter.
type Parked struct {
	// Pools contains the pools for which the waiter waited: the turn of another waiter may have
	// come there.
	Pools []ipam.PoolKey
	// Retry is the time after which the waiter is to be tried again, unless Resume resumes it
	// before.
	Retry time.Duration
}

// Park takes the turn of a waiter away, because it cannot be served for another reason than want of
// room: no holder waits behind it from now on. Keep, Resume and a change of its wants end that. The
// refusal, which may be nil, is the error in its status.
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

// Stumble notes an attempt that failed for a reason that passes by itself, and reports whether that
// has happened so often in a row that the waiter is to be parked.
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

// Keep lets a waiter that failed for want of room keep its position, or get it back. It returns the
// refusal with which the waiter was parked: whether that still holds is known when there is room
// again.
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

// resume resets a waiter to the state of one that was never parked, and reports whether it was
// parked.
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

// await adds a parked waiter to the index by the change that it awaits, and stopAwaiting removes
// it.
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

// Resume puts the waiters back in line that are parked until exactly this has changed, and returns
// the pools for which they wait: the turn of one of them may have come there. Each is passed over
// as long as it cannot have a block. It costs O(1) if there are none.
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

// Waited returns those of the pools that have a waiter in line.
func (q *lines) Waited(pools []ipam.PoolKey) []ipam.PoolKey {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(pools), func(pool ipam.PoolKey) bool { return q.byPool[pool] == nil })
}
