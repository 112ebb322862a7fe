package queue

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/catalogue"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Options are what a Queue is given when it is made.
type Options struct {
	// Ledger is asked for free blocks, and notifies of releases.
	Ledger *ledger.Ledger
	// Catalogue resolves what waiters want, and notifies of changes.
	Catalogue *catalogue.Catalogue
	// Limit bounds the claims of a namespace that wait; 0: any number.
	Limit int
	// WatchNamespace is the only namespace whose claims this operator's controllers
	// serve; empty: of all.
	WatchNamespace string
	// Log says of claims that lose their turn.
	Log logr.Logger
}

// Queue is the waiters, with whose turn it is. The zero value is not usable.
type Queue struct {
	lines     *lines
	ledger    *ledger.Ledger
	catalogue *catalogue.Catalogue
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

// New is an empty queue, which follows the catalogue and the ledger from now on.
func New(o Options) *Queue {
	q := &Queue{
		lines: newLines(o.Limit), ledger: o.Ledger, catalogue: o.Catalogue, watched: o.WatchNamespace, log: o.Log,
		wake:  workqueue.NewTyped[ipam.PoolKey](),
		turns: map[string]*turnHandler{},
	}
	q.FedBy(q.ledger.Synced)
	q.catalogue.Follow(catalogue.Follower{
		Pool:      q.followPool,
		Namespace: func(name string) { q.resolveAgain(catalogue.Change{Namespace: name}) },
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
				q.wake.Add(adapt.PoolOf(c.Record.Holder))
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

// WaitingFor are those who wait for what has changed in the catalogue.
func (q *Queue) WaitingFor(c catalogue.Change) []ipam.Holder { return q.lines.WaitingFor(c) }

// MayTake is what the ledger asks before it holds a block of the pool for a holder: see
// ledger.Ask. The holder's place is zero for a newcomer, which is behind all that wait.
func (q *Queue) MayTake(pool ipam.Pool, holder ipam.Holder, place Waiter) func(ledger.Room, netip.Prefix) (bool, netip.Prefix) {
	return func(room ledger.Room, block netip.Prefix) (bool, netip.Prefix) {
		return q.lines.MayTake(pool, room, holder, place, block)
	}
}
