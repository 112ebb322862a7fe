// Package queue keeps the holders that wait for a block, their wants, and the order of their
// turns.
//
// A waiter is a claim or a child pool for which there was no room. Its wants are a prefix
// length or one particular block, and the pools that could give it that. The catalog resolves
// them when the waiter joins and when a pool, a class or a namespace changes. The waiter is
// then in the pool queue of each of these pools:
//
//	pool p   one block   10.0.0.7/32  a, c        the waiters for that block alone
//	         /24         b, f                     the others by length, each oldest first
//	         /32         d, e, g, ...
//
// A pool without a pool queue costs a create one look into a map, regardless of the waiters
// elsewhere. In a pool queue, the first waiters of all lengths are compared. Of the waiters
// that ask for one block, only those are checked whose block may have become free since.
//
// # Turns
//
// The oldest waiter for which there is room comes first; of the same age the one whose
// name comes first. The waiters that ask for one block, and asked before the pool opened,
// come before them: see Waiter. A newcomer, which is behind all, takes nothing from a pool
// while a waiter could be served from it, unless there is plenty for all.
//
// # Parked waiters
//
// Only a waiter that fails for want of room keeps its position. A waiter that cannot be
// served for another reason is parked: it keeps its age, but no holder waits behind it. The
// waiters of a namespace are bounded; the waiters beyond the bound are in no pool queue until
// one of the others leaves.
//
// # Concurrency
//
// All methods can be called from any goroutine. The pool queues have one lock, under which
// nothing of another package is called but the Room that is an argument, and the listener of
// ListenDemand, which calls no other. The lock can be taken under the ledger's lock, never the
// other way round.
package queue

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Queue holds the waiters and the order of their turns. The zero value is not usable.
type Queue struct {
	poolQueues     *poolQueues
	ledger         *ledger.Ledger
	catalog        *inventory.Catalog
	watchNamespace string
	log            logr.Logger
	// wake contains the pools where a waiter may now be served.
	wake workqueue.TypedInterface[ipam.PoolKey]
	// turns contains the handlers that serve the holders of a kind when it is their turn.
	turnsLock sync.Mutex
	turns     map[string]*turnHandler
	// sources report whether the first list of each is complete.
	sourcesLock sync.RWMutex
	sources     []func() bool
	// isResolved reports whether wants have been resolved since everything was seen once; resolveLock
	// is held while they are resolved and noted.
	resolveLock sync.Mutex
	isResolved  atomic.Bool
}

// Close ends Run, even while Run waits.
func (q *Queue) Close() { q.wake.ShutDown() }

// Waiter returns the waiter of a holder, in line or not, if it waits.
func (q *Queue) Waiter(holder ipam.Holder) (Waiter, bool) { return q.poolQueues.Waiter(holder) }

// Has reports whether a holder waits.
func (q *Queue) Has(holder ipam.Holder) bool { return q.poolQueues.Has(holder) }

// Len returns the number of waiting holders, in line or not.
func (q *Queue) Len() int { return q.poolQueues.Len() }

// WaitingForClass returns the holders that wait for a class by its name, oldest first.
func (q *Queue) WaitingForClass(class string) []ipam.Holder {
	return q.poolQueues.WaitingForClass(class)
}

// WaitingFor returns the holders that wait for the object of a change in the catalog.
func (q *Queue) WaitingFor(c inventory.Change) []ipam.Holder { return q.poolQueues.WaitingFor(c) }

// Turn returns the decision that the ledger asks for before it holds a block for a holder. The
// position is zero for a newcomer, which is behind all waiters.
func (q *Queue) Turn(pool ipam.Pool, holder ipam.Holder, position Waiter) ledger.Turn {
	return func(room ledger.Room, block netip.Prefix) (isTurn bool, wantedBlock netip.Prefix) {
		return q.poolQueues.MayTake(pool, room, holder, position, block)
	}
}

// MayTake reports whether a holder can take the free block from the pool: no waiter for which there
// is room comes before it, or there is plenty for all. If there is plenty, but a waiter asks for a
// block that overlaps this one, MayTake returns that block: the holder can take another.
//
// It costs O(lengths that are waited for), and if there is plenty as much again for each waiter
// that asks for a block that overlaps this one.
func (q *poolQueues) MayTake(pool ipam.Pool, room Room, holder ipam.Holder, position Waiter, block netip.Prefix) (isTurn bool, wantedBlock netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	pq := q.byPool[pool.Key]
	if pq == nil {
		return true, netip.Prefix{}
	}
	if p := q.waiters[holder]; p != nil && p.isBeyondLimit {
		position = Waiter{}
	}
	first := pq.nextWaiter(pool, room, holder)
	if first == nil || !position.IsZero() && !first.isAheadOf(position, pool) {
		return true, netip.Prefix{}
	}
	if !pq.hasPlenty(room, block.Bits()) {
		return false, netip.Prefix{}
	}
	wantedBlock = pq.wantedBlock(room, block, holder)
	return !wantedBlock.IsValid(), wantedBlock
}

// Options holds the parameters of a new Queue.
type Options struct {
	// Ledger is asked for free blocks, and notifies of releases.
	Ledger *ledger.Ledger
	// Catalog resolves the wants of waiters, and notifies of changes.
	Catalog *inventory.Catalog
	// Limit bounds the waiting claims of a namespace; 0 means any number.
	Limit int
	// WatchNamespace is the only namespace whose claims are served; empty means all.
	WatchNamespace string
	// Log reports claims that lose their turn.
	Log logr.Logger
}

// New returns an empty queue that follows the catalog and the ledger from now on.
func New(o Options) *Queue {
	q := &Queue{
		poolQueues: newPoolQueues(o.Limit), ledger: o.Ledger, catalog: o.Catalog, watchNamespace: o.WatchNamespace, log: o.Log,
		wake:  workqueue.NewTyped[ipam.PoolKey](),
		turns: map[string]*turnHandler{},
	}
	q.AddSource(q.ledger.Synced)
	q.catalog.Follow(inventory.Follower{
		Pool:      q.followPool,
		Namespace: func(name string) { q.refreshWants(inventory.Change{Namespace: name}) },
	})
	q.catalog.Listen(q.onCatalogChange)
	q.ledger.OnFree(func(pool ipam.PoolKey, block netip.Prefix) {
		q.poolQueues.NoteFreed(pool, block)
		q.wake.Add(pool)
	})
	q.ledger.Listen(func(c ledger.Change) {
		switch c.Kind {
		case ledger.Removed:
			q.resumeLimited(c.Record)
		case ledger.Added, ledger.Changed:
			if c.Record.Purpose == ipam.PurposePool { // that pool may be ready now
				q.wake.Add(convert.PoolOf(c.Record.Holder))
			}
		}
	})
	return q
}

// AddSource adds a source on which decisions rest, before the cache is started; synced reports
// whether its first list is complete.
func (q *Queue) AddSource(synced func() bool) {
	q.sourcesLock.Lock()
	defer q.sourcesLock.Unlock()
	q.sources = append(q.sources, synced)
}

// Synced returns ipam.ErrNotSynced until all sources have been seen once. No holder is served
// before.
func (q *Queue) Synced() error {
	q.sourcesLock.RLock()
	defer q.sourcesLock.RUnlock()
	for _, synced := range q.sources {
		if !synced() {
			return ipam.ErrNotSynced
		}
	}
	if !q.isResolved.Load() {
		q.resolveAllWants()
	}
	return nil
}

// Standing represents the state of a waiter in the queue.
type Standing int

const (
	// Queued waiters are served when there is room, and it is their turn.
	Queued Standing = iota
	// Missing waiters wait for no pool: the target that they name does not exist.
	Missing
	// PassedOver waiters cannot be served for another reason than want of room.
	PassedOver
	// BeyondLimit waiters are beyond the bound of their namespace, and in no pool queue.
	BeyondLimit
)

// CountKey identifies the waiters of the same pool and standing.
type CountKey struct {
	// Pool is the pool of waiters that are in line; zero for others.
	Pool     ipam.PoolKey
	Standing Standing
}

// Count holds the number of waiters in a Line, and the time since which the oldest waits.
type Count struct {
	Waiters int
	Oldest  time.Time
}

// Counts returns the counts of all pool queues and standings that are not empty. A waiter for
// several pools is in the queue of each. It costs O(waiters).
func (q *Queue) Counts() map[CountKey]Count { return q.poolQueues.Counts() }

// Counts implements Queue.Counts.
func (q *poolQueues) Counts() map[CountKey]Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := map[CountKey]Count{}
	for pool, pq := range q.byPool {
		counts[CountKey{Pool: pool}] = pq.count()
	}
	for _, p := range q.waiters {
		if standing := p.standing(); standing != Queued {
			key := CountKey{Standing: standing}
			count := counts[key]
			count.add(1, p.Since)
			counts[key] = count
		}
	}
	return counts
}

func (p *waiter) standing() Standing {
	switch {
	case p.isBeyondLimit:
		return BeyondLimit
	case p.parked:
		return PassedOver
	case len(p.wants.Pools) == 0:
		return Missing
	}
	return Queued
}

// count counts the waiters. Each account group and each list of one block is in order.
func (pq *poolQueue) count() Count {
	count := Count{}
	for _, r := range pq.byLength {
		for _, g := range r.accountGroups {
			count.add(len(g.waiters), g.waiters[0].Since)
		}
	}
	for _, waiters := range pq.byBlock.All() {
		count.add(len(waiters), waiters[0].Since)
	}
	return count
}

// add adds a number of waiters, of which the oldest has waited since the given time.
func (c *Count) add(waiters int, oldest time.Time) {
	if c.Waiters == 0 || oldest.Before(c.Oldest) {
		c.Oldest = oldest
	}
	c.Waiters += waiters
}

// WaitingForClass returns the holders that wait for a class by its name, oldest first.
func (q *poolQueues) WaitingForClass(class string) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	return holders(sortWaiters(q.targets[target{class: class}]))
}

// WaitingFor returns the holders that wait for the object of a change, oldest first. Selectors are
// evaluated outside the lock, which every create takes.
func (q *poolQueues) WaitingFor(c inventory.Change) []ipam.Holder {
	var waiting []ipam.Holder
	for _, w := range q.AffectedWaiters(c) {
		if w.Request.Selects == nil || c.Pool == (ipam.PoolKey{}) || w.Request.Selects(c.Labels) {
			waiting = append(waiting, w.Holder)
		}
	}
	return waiting
}

// AffectedWaiters returns the waiters whose wants the change may alter: also all that select pools
// by labels, as the pool may have had other labels.
func (q *poolQueues) AffectedWaiters(c inventory.Change) []Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return waitersAt(q.affectedWaiters(c))
}

// AllWaiters returns all waiters, oldest first.
func (q *poolQueues) AllWaiters() []Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sets []map[*waiter]bool
	for _, set := range q.targets {
		sets = append(sets, set)
	}
	return waitersAt(sortWaiters(sets...))
}

func (q *poolQueues) affectedWaiters(c inventory.Change) []*waiter {
	if c.Namespace != "" {
		if t := q.namespaces[c.Namespace]; t != nil {
			return sortWaiters(t.waiters)
		}
		return nil
	}
	targets := targetsOf(c)
	if c.Pool.Namespace != "" {
		return q.inNamespace(c.Pool.Namespace, targets)
	}
	var sets []map[*waiter]bool
	for t := range targets {
		sets = append(sets, q.targets[t])
	}
	return sortWaiters(sets...)
}

// targetsOf returns the targets that the change may concern, as waiters name them.
func targetsOf(c inventory.Change) map[target]bool {
	targets := map[target]bool{{}: true}
	for _, class := range c.Classes {
		targets[target{class: class}] = true
	}
	if c.Pool != (ipam.PoolKey{}) {
		targets[target{pool: c.Pool}], targets[target{selector: true}] = true, true
	}
	return targets
}

// inNamespace returns the waiters of a namespace, which alone sees its pools, that name one of the
// targets. It costs O(waiters of the namespace).
func (q *poolQueues) inNamespace(namespace string, targets map[target]bool) []*waiter {
	t := q.namespaces[namespace]
	if t == nil {
		return nil
	}
	waiters := map[*waiter]bool{}
	for p := range t.waiters {
		if targets[targetOf(p.Request)] {
			waiters[p] = true
		}
	}
	return sortWaiters(waiters)
}

func waitersAt(waiters []*waiter) []Waiter {
	all := make([]Waiter, len(waiters))
	for i, p := range waiters {
		all[i] = p.Waiter
	}
	return all
}

// Update notes a waiter's present wants, and reports whether they are new: it is not parked then.
func (q *poolQueues) Update(holder ipam.Holder, wants ipam.Wants) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.waiters[holder]
	if p == nil || p.wants.Equal(wants) {
		return false
	}
	q.dequeue(p)
	p.wants = wants
	if !q.reset(p) {
		q.enqueue(p)
	}
	return true
}
