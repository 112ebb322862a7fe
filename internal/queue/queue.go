// Package queue keeps who waits for a block, for what, and whose turn it is.
//
// A waiter is a claim or a child pool for which there was no room. What it would take,
// a prefix length or one very block, and the pools that could give it that, are resolved
// by the catalogue when the waiter joins and when a pool, a class or a namespace changes.
// The waiter is then in the line of each of these pools:
//
//	pool p   one block   10.0.0.7/32  a, c        those that ask for that block alone
//	         /24         b, f                     the others by length, each oldest first
//	         /32         d, e, g, ...
//
// A pool without line costs a create one look into a map, whatever waits elsewhere. In
// the pool's own line the first of each length is compared, and of those that ask for
// one block only those are checked whose block may have become free since.
//
// # Whose turn it is
//
// The oldest waiter for which there is room comes first; of the same age the one whose
// name comes first. Before them come those that ask for one block and asked before the
// pool opened: see Waiter. A newcomer, which is behind all, takes nothing from a pool
// while a waiter could be served from it, unless there is plenty for all.
//
// # Who keeps its place
//
// Only a waiter that fails for want of room does. One that cannot be served for another
// reason is parked: it keeps its age, but nobody waits behind it. The waiters of a
// namespace are bounded; those beyond the bound stand in no line until one of the
// others leaves.
//
// # Concurrency
//
// All methods may be called from any goroutine. The lines have one lock, under which
// nothing of another package is called but the Room that is an argument. It may be taken
// under the ledger's lock, never the other way round.
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

// Queue is the waiters, with whose turn it is. The zero value is not usable.
type Queue struct {
	lines     *lines
	ledger    *ledger.Ledger
	catalogue *inventory.Catalogue
	// watched is the only namespace whose claims are served; empty: all are.
	watched string
	log     logr.Logger
	// wake is the pools where a waiter may now be served.
	wake workqueue.TypedInterface[ipam.PoolKey]
	// turns is who serves holders of a kind when it is their turn.
	turnsLock sync.Mutex
	turns     map[string]*turnHandler
	// sources report whether the first list of each is complete.
	sourcesLock sync.RWMutex
	sources     []func() bool
	// isResolved is whether what the waiters want has been resolved since everything was
	// seen once; resolving is held while it is found out and noted.
	resolving  sync.Mutex
	isResolved atomic.Bool
}

// Close ends Run, wherever it waits.
func (q *Queue) Close() { q.wake.ShutDown() }

// Place is a waiter's place, whether or not it is in line; false where it does not wait.
func (q *Queue) Place(holder ipam.Holder) (Waiter, bool) { return q.lines.Place(holder) }

// Has reports whether a holder waits.
func (q *Queue) Has(holder ipam.Holder) bool { return q.lines.Has(holder) }

// Len is how many wait, whether or not they are in line.
func (q *Queue) Len() int { return q.lines.Len() }

// WaitingForClass are those that wait for a class by its name, oldest first.
func (q *Queue) WaitingForClass(class string) []ipam.Holder { return q.lines.WaitingForClass(class) }

// WaitingFor are the holders that wait for what has changed in the catalogue.
func (q *Queue) WaitingFor(c inventory.Change) []ipam.Holder { return q.lines.WaitingFor(c) }

// Turn returns what the ledger asks before it holds a block of the pool for a holder. The holder's
// place is zero for a newcomer, which is behind all that wait.
func (q *Queue) Turn(pool ipam.Pool, holder ipam.Holder, place Waiter) ledger.Turn {
	return turn{q.lines, pool, holder, place}
}

type turn struct {
	lines  *lines
	pool   ipam.Pool
	holder ipam.Holder
	place  Waiter
}

// MayTake implements ledger.Turn.
func (t turn) MayTake(room ledger.Room, block netip.Prefix) (may bool, wanted netip.Prefix) {
	return t.lines.MayTake(t.pool, room, t.holder, t.place, block)
}

// Options are what a Queue is given when it is made.
type Options struct {
	// Ledger is asked for free blocks, and notifies of releases.
	Ledger *ledger.Ledger
	// Catalogue resolves what waiters want, and notifies of changes.
	Catalogue *inventory.Catalogue
	// Limit bounds the claims of a namespace that wait; 0: any number.
	Limit int
	// WatchNamespace is the only namespace whose claims this operator's controllers
	// serve; empty: of all.
	WatchNamespace string
	// Log says of claims that lose their turn.
	Log logr.Logger
}

// New is an empty queue, which follows the catalogue and the ledger from now on.
func New(o Options) *Queue {
	q := &Queue{
		lines: newLines(o.Limit), ledger: o.Ledger, catalogue: o.Catalogue, watched: o.WatchNamespace, log: o.Log,
		wake:  workqueue.NewTyped[ipam.PoolKey](),
		turns: map[string]*turnHandler{},
	}
	q.FedBy(q.ledger.Synced)
	q.catalogue.Follow(inventory.Follower{
		Pool:      q.followPool,
		Namespace: func(name string) { q.resolveAgain(inventory.Change{Namespace: name}) },
	})
	q.catalogue.Listen(q.changed)
	q.ledger.OnFree(func(pool ipam.PoolKey, block netip.Prefix) {
		q.lines.Freed(pool, block)
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

// FedBy adds a source on which decisions rest; synced reports whether its first list
// is complete. It must be called before the cache is started: when the list of a source
// that is added later is complete, what the waiters want is not resolved again.
func (q *Queue) FedBy(synced func() bool) {
	q.sourcesLock.Lock()
	defer q.sourcesLock.Unlock()
	q.sources = append(q.sources, synced)
}

// Synced is ipam.ErrNotSynced until all that decisions rest on has been seen
// once: records, pools, classes and the claims that wait. Nobody is served before.
func (q *Queue) Synced() error {
	q.sourcesLock.RLock()
	defer q.sourcesLock.RUnlock()
	for _, synced := range q.sources {
		if !synced() {
			return ipam.ErrNotSynced
		}
	}
	if !q.isResolved.Load() {
		q.resolveAll()
	}
	return nil
}

// Standing is how a waiter stands in the queue.
type Standing int

const (
	// InLine waiters are served when there is room, and it is their turn.
	InLine Standing = iota
	// Missing is what those wait for that wait for no pool: what they name is not there.
	Missing
	// PassedOver waiters cannot be served for another reason than want of room.
	PassedOver
	// BeyondLimit are those beyond the bound of their namespace, and in no line.
	BeyondLimit
)

// Line is the waiters that stand alike.
type Line struct {
	// Pool is that of those that are in line; zero for others.
	Pool     ipam.PoolKey
	Standing Standing
}

// Count is how many wait in a line, and since when the oldest.
type Count struct {
	Waiters int
	Oldest  time.Time
}

// Counts are those of all lines that are not empty. A waiter that waits for several pools is
// in the line of each. It costs O(waiters), with little for each, whatever number of pools
// it waits for.
func (q *Queue) Counts() map[Line]Count { return q.lines.Counts() }

// Counts is that of Queue.
func (q *lines) Counts() map[Line]Count {
	q.mu.Lock()
	defer q.mu.Unlock()
	counts := map[Line]Count{}
	for pool, l := range q.byPool {
		counts[Line{Pool: pool}] = l.count()
	}
	var others [BeyondLimit + 1]Count
	for _, p := range q.places {
		if standing := p.standing(); standing != InLine {
			others[standing].add(1, p.Since)
		}
	}
	for standing, count := range others {
		if count.Waiters > 0 {
			counts[Line{Standing: Standing(standing)}] = count
		}
	}
	return counts
}

func (p *place) standing() Standing {
	switch {
	case p.beyond:
		return BeyondLimit
	case p.parked:
		return PassedOver
	case len(p.wants.Pools) == 0:
		return Missing
	}
	return InLine
}

// count counts those of the line. Each group and each list of one block is in order.
func (l *line) count() Count {
	count := Count{}
	for _, r := range l.byLength {
		for _, g := range r.groups {
			count.add(len(g.places), g.places[0].Since)
		}
	}
	for _, same := range l.exact.All() {
		count.add(len(same), same[0].Since)
	}
	return count
}

// add adds so many waiters, of which the oldest has waited since then.
func (c *Count) add(waiters int, oldest time.Time) {
	if c.Waiters == 0 || oldest.Before(c.Oldest) {
		c.Oldest = oldest
	}
	c.Waiters += waiters
}

// WaitingForClass are those that wait for a class by its name, oldest first.
func (q *lines) WaitingForClass(class string) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	return holders(sorted(q.targets[target{class: class}]))
}

// WaitingFor are those that wait for what has changed, oldest first: a class, by its
// name or as the default; a pool, by its name or its labels; or what they may use, with
// the project of their namespace.
// Selectors are evaluated outside the lock, which every create takes.
func (q *lines) WaitingFor(c inventory.Change) []ipam.Holder {
	var waiting []ipam.Holder
	for _, w := range q.Concerned(c) {
		if w.Request.Selects == nil || c.Pool == (ipam.PoolKey{}) || w.Request.Selects(c.Labels) {
			waiting = append(waiting, w.Holder)
		}
	}
	return waiting
}

// Concerned are the waiters of which the change may alter what they want: those of
// WaitingFor, and all that select pools by labels, as the pool may have had others.
func (q *lines) Concerned(c inventory.Change) []Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	return waitersAt(q.concerned(c))
}

// All are all waiters, oldest first.
func (q *lines) All() []Waiter {
	q.mu.Lock()
	defer q.mu.Unlock()
	var sets []map[*place]bool
	for _, set := range q.targets {
		sets = append(sets, set)
	}
	return waitersAt(sorted(sets...))
}

func (q *lines) concerned(c inventory.Change) []*place {
	if c.Namespace != "" {
		if t := q.namespaces[c.Namespace]; t != nil {
			return sorted(t.places)
		}
		return nil
	}
	targets := targetsOf(c)
	if c.Pool.Namespace != "" {
		return q.inNamespace(c.Pool.Namespace, targets)
	}
	var sets []map[*place]bool
	for t := range targets {
		sets = append(sets, q.targets[t])
	}
	return sorted(sets...)
}

// targetsOf are what the waiters name that the change may concern.
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

// inNamespace are those of a namespace, which alone sees its pools, that name one of the
// targets. What it costs is up to the namespace alone, however many wait in others.
func (q *lines) inNamespace(namespace string, targets map[target]bool) []*place {
	t := q.namespaces[namespace]
	if t == nil {
		return nil
	}
	theirs := map[*place]bool{}
	for p := range t.places {
		if targets[targetOf(p.Request)] {
			theirs[p] = true
		}
	}
	return sorted(theirs)
}

func waitersAt(places []*place) []Waiter {
	all := make([]Waiter, len(places))
	for i, p := range places {
		all[i] = p.Waiter
	}
	return all
}

// Update notes what a waiter wants by now, and reports whether that is something else
// than before. One that was parked is then in line again.
func (q *lines) Update(holder ipam.Holder, wants ipam.Wants) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.places[holder]
	if p == nil || p.wants.Equal(wants) {
		return false
	}
	q.stepOut(p)
	p.wants = wants
	if !q.resume(p) {
		q.lineUp(p)
	}
	return true
}
