// Package ledger keeps the view: all that this process has seen of every
// IPAllocation, as the space of every pool.
//
// The view is fed by one watch over all namespaces, one event at a time, in
// the order of the API server's revisions. That order is the lock that keeps
// two holders off one block. A replica that wants a block
//
//  1. finds one that is free in the view, and holds it there (Hold);
//  2. creates a record of it;
//  3. waits until the view shows that record (Confirm). The view is then
//     exactly the state at the revision at which the record was created: if no
//     other record overlaps the block, the replica keeps it; otherwise it gives way.
//
// Of two records that overlap, one was created first:
//
//	revision   11          12          13
//	           A 10.0.0.0/24           B 10.0.0.0/25
//	           │                       │
//	A's maker: └ nothing overlaps: keep│
//	B's maker:                         └ A overlaps: give way
//
// After a list (Replace) the order of the listed records is unknown: an
// unconfirmed record that overlaps any other then gives way.
//
// # Invariants
//
// Every record of the view is in use in its pool's space, until the watch
// shows that it is deleted; a deletionTimestamp frees nothing. The UID identifies
// a record, so a late event of an old record touches no new one. Nothing is
// held before the first list is complete.
//
// # Concurrency and cost
//
// All methods can be called from any goroutine. There is one lock, which is never
// held during a wait. Hold, an event and a confirmation cost O(address
// bits) and do not depend on the number of records.
package ledger

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Ledger holds the view of the blocks that are in use. The zero value is not usable.
type Ledger struct {
	options Options

	mu        sync.Mutex
	synced    bool
	poolViews map[ipam.PoolKey]*poolView
	// pruned is the highest count of frees of a pool view that was dropped: a pool view that is
	// made again continues from there, so that its counts only rise.
	pruned int
	// The indexes of the records. There is one record for each UID and for each name.
	byUID    index[string]
	byName   index[ipam.Name]
	byHolder index[ipam.Holder]
	bySticky index[ipam.Name]
	// unreadable holds the IPAllocations that are no records.
	unreadable unreadable
	// holds contains this process's own blocks that are not confirmed, by the name of the record.
	holds map[ipam.Name]*Hold
	// abandoned contains the names of records whose creation failed ambiguously, with the time of
	// the failure.
	abandoned map[ipam.Name]time.Time
	// claimsKnown reports whether Claimed was called for every existing claim.
	claimsKnown bool
	// claimedNames contains the names that live claims state and that have no record yet, or no record any
	// more.
	claimedNames map[ipam.Name]bool
	// unclaimed counts records and holds that no live claim or local pool names, by
	// the namespace and the project of their holders, in each pool and over all pools.
	unclaimed map[share]ipam.Usage
	// recorded and held count the usage of projects: by records, and by holds that have no record
	// in the view yet.
	recorded, held map[account]ipam.Usage
	// relist ends the current watch, so that a new one begins with a list.
	relist     func()
	watchStart time.Time
	// source is the source of the records; nil before Run.
	source *kubeutil.VerifiedSource
	// revision is the revision of the last event or list in the view.
	revision string
	// outdated reports whether the store has gone back since the last list.
	outdated        bool
	relists         int
	rollbacks       int
	lists           int
	unreadableCount int
	listeners       []*listener
	onFree          []func(ipam.PoolKey, netip.Prefix)
}

// Options holds the parameters of a new Ledger.
type Options struct {
	// Clock measures how long a record has not been seen.
	Clock clock.WithTicker
	// Random picks blocks of pools with strategy Random. Used under the lock.
	Random *rand.Rand
	// Silence is the time for which an acknowledged record can stay unseen. After that the watch
	// counts as dead and is restarted.
	Silence time.Duration
	// Log reports that the watch is restarted.
	Log logr.Logger
}

// now returns the time, or the zero time if there is no clock.
func (o Options) now() time.Time {
	if o.Clock == nil {
		return time.Time{}
	}
	return o.Clock.Now()
}

// New returns a ledger that has seen nothing.
func New(options Options) *Ledger {
	return &Ledger{
		options:   options,
		poolViews: map[ipam.PoolKey]*poolView{},
		byUID:     newIndex(linkUID, func(e *entry) string { return e.uid }),
		byName:    newIndex(linkName, (*entry).key),
		byHolder:  newIndex(linkHolder, (*entry).holder),
		bySticky:  newIndex(linkSticky, (*entry).stickyKey),

		unreadable: newUnreadable(),

		holds:        map[ipam.Name]*Hold{},
		abandoned:    map[ipam.Name]time.Time{},
		claimedNames: map[ipam.Name]bool{},
		unclaimed:    map[share]ipam.Usage{},
		recorded:     map[account]ipam.Usage{},
		held:         map[account]ipam.Usage{},
		relist:       func() {},
	}
}

// Synced reports whether the first list is complete.
func (l *Ledger) Synced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// Change represents one step of the view.
type Change struct {
	// Record is the record that was added, changed or removed. It is zero if the pool alone
	// changed.
	Record ipam.Record
	Pool   ipam.PoolKey
	Kind   ChangeKind
	// Initial reports that the record is of the first list: it existed before.
	Initial bool
}

// ChangeKind represents the kind of a change.
type ChangeKind int

// The kinds of changes to a record.
const (
	Added ChangeKind = iota
	Changed
	Removed
	// Abandoned means that a record turned up whose creation had seemed to fail. It belongs to no
	// holder, and is to be deleted.
	Abandoned
)

// listener represents a function that is notified of changes.
type listener struct{ notify func(Change) }

// Listen calls f for each existing record, as Added, and then for every change, one at a time and
// in order, until stop is called. f must return at once and must not call the Ledger.
func (l *Ledger) Listen(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.byUID.entries() {
		f(Change{Record: e.record(), Pool: e.pool(), Kind: Added})
	}
	return l.addListener(f)
}

// Follow calls f for every change, as Listen does, but not for the existing records.
func (l *Ledger) Follow(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.addListener(f)
}

func (l *Ledger) addListener(f func(Change)) (stop func()) {
	newListener := &listener{f}
	l.listeners = append(l.listeners, newListener)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.listeners = slices.DeleteFunc(l.listeners, func(other *listener) bool { return other == newListener })
	}
}

func (l *Ledger) notify(c Change) {
	for _, listener := range l.listeners {
		listener.notify(c)
	}
}

// SetClaimed notes that a live claim names the record, or that no live claim does any more. In the
// second case the record is about to be released.
func (l *Ledger) SetClaimed(record ipam.Name, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byName.find(record)
	switch {
	case e != nil:
		l.count(e, ipam.Usage.Sub)
		e.claimed = live
		e.wasClaimed = e.wasClaimed || live
		l.count(e, ipam.Usage.Add)
		b := l.poolViews[e.pool()]
		b.setLeaving(e, !live)
		b.wakeWaiters()
		l.confirmEntry(e)
	case live:
		l.claimedNames[record] = true
	default:
		delete(l.claimedNames, record)
	}
}

// MarkClaimsKnown notes that Claimed has been called for every existing claim: from now on a record
// that no claim has named was made for a claim that was never stored.
func (l *Ledger) MarkClaimsKnown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimsKnown = true
}

// WasNeverClaimed reports whether no claim has named the record since it was made. It returns false if
// this process did not watch all the time, and does not know.
func (l *Ledger) WasNeverClaimed(record ipam.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.find(record.UID)
	return e != nil && e.watched && !e.wasClaimed
}

// MarkLeaving notes that the record is about to be released.
func (l *Ledger) MarkLeaving(record ipam.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byName.find(record); e != nil {
		l.poolViews[e.pool()].setLeaving(e, true)
	}
}

// Relist ends the current watch. Run then begins a new one with a list.
func (l *Ledger) Relist() { l.relistSince(l.options.Clock.Now()) }

// relistSince ends the current watch if it began before the given time. A younger watch has been
// restarted already, by another request that misses a record.
func (l *Ledger) relistSince(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchStart.After(t) {
		return
	}
	l.options.Log.Info("The watch of IPAllocations does not show an acknowledged record; listing all of them again", "watchingSince", l.watchStart)
	l.relists++
	l.relist()
}

// abandonedTTL is the time that a record can take to turn up after its creation failed ambiguously.
// An API server gives up a request after one minute.
const abandonedTTL = 10 * time.Minute

// Describe takes over a pool's spec. It ignores a child pool without a CIDR, which does not exist
// yet.
func (l *Ledger) Describe(pool ipam.Pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !pool.CIDR.IsValid() {
		return
	}
	b := l.poolViewFor(pool.Key)
	b.describe(pool)
	for e := range b.unconfirmedEntries {
		l.confirmEntry(e)
	}
}

// Forget drops a pool's spec. The records of the pool stay: a pool that is made again under the
// name finds them.
func (l *Ledger) Forget(key ipam.PoolKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.poolViews[key]; b != nil {
		b.space, b.pool = nil, ipam.Pool{}
		l.prune(b)
	}
}

func (l *Ledger) poolViewFor(key ipam.PoolKey) *poolView {
	b := l.poolViews[key]
	if b == nil {
		b = l.emptyPoolView(key)
		l.poolViews[key] = b
	}
	return b
}

// emptyPoolView returns a pool view that nothing has used yet.
func (l *Ledger) emptyPoolView(key ipam.PoolKey) *poolView {
	b := newPoolView(key, l.unreadable.view)
	b.frees, b.onFree = l.pruned, l.notifyFree
	return b
}

func (l *Ledger) prune(b *poolView) {
	if b.isEmpty() {
		delete(l.poolViews, b.key)
		l.pruned = max(l.pruned, b.frees)
	}
}

// Inspect calls f with the free space of a pool, under the ledger's lock: f must not call the
// Ledger. If the view has no such pool with a CIDR, Inspect does not call f.
func (l *Ledger) Inspect(pool ipam.PoolKey, f func(Room)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.poolViews[pool]; b != nil && b.space != nil {
		f(Room{l, b})
	}
}

// OnFree calls f for every block that becomes free, in whole or in part: a record was deleted, a
// hold ended without one, or, for all of a pool, its spec changed. f is called under the ledger's
// lock, must return at once, and must not call the Ledger. OnFree must be called before the ledger
// is used.
func (l *Ledger) OnFree(f func(pool ipam.PoolKey, block netip.Prefix)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onFree = append(l.onFree, f)
}
