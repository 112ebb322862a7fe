package allocator

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Waiting is a claim or a child pool that waits for a block, and its place in line.
type Waiting = queue.Waiter

// wants is what a request would take by what this process has seen of pools and classes,
// whether or not the pools are ready: whose turn it is in a pool is asked of those only
// that are. Where something is missing or not allowed it is nothing. It calls neither
// the ledger nor the queue.
func (a *Allocator) wants(req ipam.Request) queue.Wants {
	req, err := a.onBehalf(req)
	if err != nil {
		return queue.Wants{}
	}
	class, err := a.classOf(req)
	if err != nil {
		return queue.Wants{}
	}
	named, err := a.poolsOf(req, class)
	if err != nil {
		return queue.Wants{}
	}
	terms, err := ipam.Fold(req, class, named)
	if err != nil {
		return queue.Wants{}
	}
	fitting, err := terms.Fitting(named)
	if err != nil || req.Child != (ipam.PoolKey{}) && allOfParent(terms, fitting[0]) != nil {
		return queue.Wants{}
	}
	wants := queue.Wants{Length: terms.Length, Account: ipam.Account{Project: req.Tenant.Project, Class: terms.Class}}
	if class != nil {
		wants.Account.ClassLimit = class.Limit
	}
	for _, pool := range fitting {
		wants.Pools = append(wants.Pools, pool.Key)
	}
	return wants
}

// shape is what the wants of a request follow from. Of many that wait, most are alike.
type shape struct {
	class, selector string
	pool, child     ipam.PoolKey
	namespace       string
	family          ipam.Family
	length          int
	granted, single bool
}

// wantsOf is wants for one of many requests: those that are alike are resolved once.
// Known are those that were resolved already.
func (a *Allocator) wantsOf(req ipam.Request, known map[shape]queue.Wants) queue.Wants {
	if req.Block.IsValid() || req.Selects != nil && req.Selector == "" {
		return a.wants(req)
	}
	s := shape{
		class: req.Class, selector: req.Selector, pool: req.Pool, child: req.Child, namespace: req.Namespace(),
		family: req.Family, length: req.Length, granted: req.Granted, single: req.Single,
	}
	wants, ok := known[s]
	if !ok {
		wants = a.wants(req)
		known[s] = wants
	}
	return wants
}

// Wait puts a holder in line, and has it served if its turn has come already. What no
// controller of this operator serves is not put in line.
func (a *Allocator) Wait(w Waiting) {
	if !a.Serves(w.Holder) {
		a.leave(w.Holder)
		return
	}
	if joined, wants := a.join(w); joined {
		a.wakePools(wants.Pools)
	}
}

// Serves reports whether the controllers of this operator serve the holder: with
// --namespace, claims of one namespace alone.
func (a *Allocator) Serves(holder ipam.Holder) bool {
	return a.watched == "" || holder.IsPool() || holder.Namespace == a.watched
}

// Leave takes a holder out of the line, if it is there: it has what it waited
// for, or does not want it any more.
func (a *Allocator) Leave(holder ipam.Holder) { a.leave(holder) }

// leave takes a holder out of the queue, and has those behind it served.
func (a *Allocator) leave(holder ipam.Holder) {
	if left, ok := a.queue.Leave(holder); ok {
		a.hasLeft(left)
	}
}

func (a *Allocator) hasLeft(left queue.Left) {
	a.wakePools(left.Pools)
	if left.Moved != (ipam.Holder{}) {
		a.serve(left.Moved) // so that its status says so
	}
}

func (a *Allocator) wakePools(pools []ipam.PoolKey) {
	for _, pool := range pools {
		a.wake.Add(pool)
	}
}

// join resolves what a waiter wants, and enters it. What is resolved under the lock is
// resolved again by whoever changes the catalogue meanwhile, once it has the lock.
func (a *Allocator) join(w Waiting) (bool, queue.Wants) {
	a.resolving.Lock()
	defer a.resolving.Unlock()
	var wants queue.Wants
	if a.isResolved.Load() {
		wants = a.wants(w.Request)
	}
	return a.queue.Join(w, wants), wants
}

func (a *Allocator) waitProvisionally(w Waiting) {
	a.resolving.Lock()
	defer a.resolving.Unlock()
	var wants queue.Wants
	if a.isResolved.Load() {
		wants = a.wants(w.Request)
	}
	a.queue.JoinProvisionally(w, wants)
}

// resolveWaiting resolves what all wait for, when everything has been seen once. Until
// then nobody is served, and it would have to be done again for every pool.
func (a *Allocator) resolveWaiting() {
	a.resolving.Lock()
	defer a.resolving.Unlock()
	if a.isResolved.Load() {
		return
	}
	a.isResolved.Store(true)
	known := map[shape]queue.Wants{}
	for _, w := range a.queue.All() {
		a.queue.Update(w.Holder, a.wantsOf(w.Request, known))
	}
	a.wakePools(a.queue.Pools())
}

// resolveAgain resolves what those wait for whom a change of the catalogue concerns.
func (a *Allocator) resolveAgain(c queue.Change) {
	a.resolving.Lock()
	defer a.resolving.Unlock()
	if !a.isResolved.Load() {
		return
	}
	known, pools := map[shape]queue.Wants{}, map[ipam.PoolKey]bool{}
	for _, w := range a.queue.Concerned(c) {
		wants := a.wantsOf(w.Request, known)
		if a.queue.Update(w.Holder, wants) {
			for _, pool := range wants.Pools {
				pools[pool] = true
			}
		}
	}
	for pool := range pools {
		a.wake.Add(pool)
	}
}

// changed follows a change of the catalogue, before any other listener.
func (a *Allocator) changed(e Entry) {
	a.resolveAgain(e.change())
	if e.Pool != (ipam.PoolKey{}) {
		a.wake.Add(e.Pool)
		return
	}
	for _, class := range e.Classes {
		a.wakePools(a.catalogue.PoolsOfAll(class))
	}
}

func (e Entry) change() queue.Change {
	return queue.Change{Namespace: e.Namespace, Pool: e.Pool, Labels: e.Labels, Classes: e.Classes}
}

// WaitingFor are those who wait for what has changed in the catalogue.
func (a *Allocator) WaitingFor(e Entry) []ipam.Holder { return a.queue.WaitingFor(e.change()) }

// mayTake is what the ledger asks before it holds a block of the pool for the order.
func (a *Allocator) mayTake(order Order, pool ipam.Pool) func(ledger.Room, netip.Prefix) (bool, netip.Prefix) {
	return func(room ledger.Room, block netip.Prefix) (bool, netip.Prefix) {
		return a.queue.MayTake(pool, room, order.Holder, order.Waiting, block)
	}
}
