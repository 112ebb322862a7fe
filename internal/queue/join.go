package queue

import (
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
