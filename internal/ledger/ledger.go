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
	// unreadable has the blocks of IPAllocations that cannot be read, and no space; unreadableByUID
	// contains its entries. See withhold.
	unreadable      *poolView
	unreadableByUID map[string]*entry
	strays          strays
	// holds contains this process's own blocks that are not confirmed, by the name of the record.
	holds map[ipam.Name]*Hold
	// abandoned contains the names of records whose creation failed ambiguously, since when.
	abandoned map[ipam.Name]time.Time
	// claimsKnown reports whether Claimed was called for every existing claim.
	claimsKnown bool
	// claimedNames contains the names that live claims state and that have no record.
	claimedNames map[ipam.Name]bool
	// unclaimed counts the records and holds that no live claim or local pool names.
	unclaimed map[share]ipam.Usage
	// recorded and held count the usage of projects: by records, and by holds without a record.
	recorded, held map[account]ipam.Usage
	// relist ends the current watch, so that a new one begins with a list.
	relist     func()
	watchStart time.Time
	// source is the source of the records; nil before Run.
	source *kubeutil.VerifiedSource
	// revision is the revision of the last event or list in the view.
	revision string
	// outdated reports whether the store has gone back since the last list.
	outdated  bool
	stats     Stats
	listeners kubeutil.Listeners[Change]
	onFree    []func(ipam.PoolKey, netip.Prefix)
}

// Stats counts what has happened to the watch.
type Stats struct {
	// Relists counts restarts of a silent watch, Lists complete lists, and Rollbacks the times that
	// the store has gone back. Unreadable counts objects that could not be read.
	Relists, Lists, Rollbacks, Unreadable int
}

// Options holds the parameters of a new Ledger.
type Options struct {
	// Clock measures how long a record has not been seen. Nil: the real one.
	Clock clock.WithTicker
	// Random picks blocks of pools with strategy Random. Used under the lock.
	Random *rand.Rand
	// Silence is the time after which a watch that does not show an acknowledged record is restarted.
	Silence time.Duration
	// WentBack is called when the view has found that the store has gone back, with the revision that shows it.
	// Nil means that nothing is called.
	WentBack func(foundRevision string)
	// Log reports that the watch is restarted.
	Log logr.Logger
}

// New returns a ledger that has seen nothing.
func New(options Options) *Ledger {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	return &Ledger{
		options:   options,
		poolViews: map[ipam.PoolKey]*poolView{},
		byUID:     newIndex(linkUID, func(e *entry) string { return e.uid }),
		byName:    newIndex(linkName, (*entry).key),
		byHolder:  newIndex(linkHolder, (*entry).holder),
		bySticky:  newIndex(linkSticky, (*entry).stickyKey),

		unreadable:      newPoolView(ipam.PoolKey{}, nil),
		unreadableByUID: map[string]*entry{},
		strays:          strays{},

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
	// Record was added, changed or removed; zero if the pool alone changed.
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
	// Abandoned means that a record turned up whose creation had seemed to fail: it is to be deleted.
	Abandoned
)

// Listen calls f for each existing record, as Added, and then for every change, in order, until
// stop is called. f must return at once and must not call the Ledger.
func (l *Ledger) Listen(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.byUID.entries() {
		f(Change{Record: e.record(), Pool: e.pool(), Kind: Added})
	}
	return l.listeners.Add(&l.mu, f)
}

// Follow calls f for every change, as Listen does, but not for the existing records.
func (l *Ledger) Follow(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.listeners.Add(&l.mu, f)
}

// notify notifies the listeners of the present state of a record. Under the lock.
func (l *Ledger) notify(e *entry, kind ChangeKind) {
	l.listeners.Notify(Change{Record: e.record(), Pool: e.pool(), Kind: kind})
}

// SetClaimed notes that a live claim names the record, or that none does any more: the record is
// about to be released then.
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

// MarkClaimsKnown notes that SetClaimed has been called for every existing claim: a later record
// that no claim names was made for a claim that was never stored.
func (l *Ledger) MarkClaimsKnown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimsKnown = true
}

// WasNeverClaimed reports whether no claim has named the record since it was made. It returns false
// if this process has not watched all the time.
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

// relistSince ends the current watch if it began before the given time: a younger one has been
// restarted already.
func (l *Ledger) relistSince(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.watchStart.After(t) {
		return
	}
	l.options.Log.Info("The watch of IPAllocations does not show an acknowledged record; listing all of them again", "watchingSince", l.watchStart)
	l.stats.Relists++
	l.relist()
}

// abandonedTTL is the time that a record can take to turn up after its creation failed ambiguously.
// An API server gives up a request after one minute.
const abandonedTTL = 10 * time.Minute

// Describe takes over a pool's spec. A child pool without a CIDR does not exist yet.
func (l *Ledger) Describe(pool ipam.Pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !pool.CIDR.IsValid() {
		return
	}
	b := l.poolViewFor(pool.Key)
	b.stated = pool.Withheld
	b.describe(l.withUncovered(pool, b.stated))
	l.confirmBlocks(b)
}

// Forget drops a pool's spec. Its records stay for a pool of the same name.
func (l *Ledger) Forget(key ipam.PoolKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.poolViews[key]; b != nil {
		b.space, b.pool = nil, ipam.Pool{Key: key}
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
	b := newPoolView(key, l.unreadable)
	b.frees, b.onFree = l.pruned, l.notifyFree
	return b
}

func (l *Ledger) prune(b *poolView) {
	if b.isEmpty() {
		delete(l.poolViews, b.pool.Key)
		l.pruned = max(l.pruned, b.frees)
	}
}

// Inspect calls f with the free space of a pool with a CIDR, under the ledger's lock: f must not
// call the Ledger.
func (l *Ledger) Inspect(pool ipam.PoolKey, f func(Room)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.poolViews[pool]; b != nil && b.space != nil {
		f(Room{l, b})
	}
}

// OnFree calls f for every block that becomes free, in whole or in part, or for all of a pool whose
// spec changed. f is called under the ledger's lock, must return at once, and must not call the
// Ledger. OnFree must be called before the ledger is used.
func (l *Ledger) OnFree(f func(pool ipam.PoolKey, block netip.Prefix)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onFree = append(l.onFree, f)
}
