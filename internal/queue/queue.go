package queue

import (
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/util/workqueue"

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

// MayTake is what the ledger asks before it holds a block of the pool for a holder: see
// ledger.Ask. The holder's place is zero for a newcomer, which is behind all that wait.
func (q *Queue) MayTake(pool ipam.Pool, holder ipam.Holder, place Waiter) func(ledger.Room, netip.Prefix) (bool, netip.Prefix) {
	return func(room ledger.Room, block netip.Prefix) (bool, netip.Prefix) {
		return q.lines.MayTake(pool, room, holder, place, block)
	}
}
