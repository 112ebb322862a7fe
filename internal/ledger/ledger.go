// Package ledger keeps the view: what this process has seen of every
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
//     other record overlaps the block, it is theirs, otherwise they give way.
//
// Of two records that overlap, one was created first:
//
//	revision   11          12          13
//	           A 10.0.0.0/24           B 10.0.0.0/25
//	           │                       │
//	A's maker: └ nothing overlaps: keep│
//	B's maker:                         └ A overlaps: give way
//
// After a list (Replace) the order of what it contains is unknown: there, an
// unconfirmed record that overlaps any other gives way.
//
// # Invariants
//
// Every record of the view is in use in its pool's space, until the watch
// shows that it is deleted; a deletionTimestamp frees nothing. Records are told
// apart by UID, so a late event of an old record touches no new one. Nothing is
// held before the first list is complete.
//
// # Concurrency and cost
//
// All methods may be called from any goroutine. There is one lock, never held
// while anything is waited for. Hold, an event and a confirmation cost O(address
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

// Ledger is the view of what is held. The zero value is not usable.
type Ledger struct {
	options Options

	mu     sync.Mutex
	synced bool
	books  map[ipam.PoolKey]*book
	// pruned is the highest count of frees of a book that was dropped: a book that is
	// made again goes on from there, so that its counts only rise.
	pruned int
	// The records: of a UID and of a name there is one.
	byUID    index[string]
	byName   index[ipam.Name]
	byHolder index[ipam.Holder]
	bySticky index[ipam.Name]
	// unreadable are the IPAllocations that are no records.
	unreadable unreadable
	// holds are this process's own blocks that are not confirmed, by the name
	// of the record.
	holds map[ipam.Name]*Hold
	// abandoned are names of records whose creation failed ambiguously, with the
	// time when that was.
	abandoned map[ipam.Name]time.Time
	// claimsKnown is whether Claimed was called for every claim that there is.
	claimsKnown bool
	// named are what live claims name and has no record yet, or none any more.
	named map[ipam.Name]bool
	// unclaimed counts records and holds that no live claim or local pool names, by
	// the namespace and the project of their holders, in each pool and over all pools.
	unclaimed map[share]ipam.Usage
	// recorded and held count what projects have: by records, and by holds that have
	// no record in the view yet.
	recorded, held map[account]ipam.Usage
	// relist ends the current watch, so that a new one begins with a list.
	relist func()
	began  time.Time
	// source is that of the records; nil before Run.
	source *kubeutil.VerifiedSource
	// revision is that of the last event or list in the view.
	revision string
	// outdated is whether the store has gone back since the last list.
	outdated  bool
	relists   int
	rollbacks int
	lists     int
	unread    int
	listeners []*listener
	onFree    []func(ipam.PoolKey, netip.Prefix)
}

// Options are what a Ledger is given at its making.
type Options struct {
	// Clock measures how long a record has not been seen.
	Clock clock.WithTicker
	// Random picks blocks of pools with strategy Random. Used under the lock.
	Random *rand.Rand
	// Silence is how long an acknowledged record may not be seen before the
	// watch is taken for dead and begun anew.
	Silence time.Duration
	// Log says that the watch is begun anew.
	Log logr.Logger
}

// now is the time; the zero time where there is no clock.
func (o Options) now() time.Time {
	if o.Clock == nil {
		return time.Time{}
	}
	return o.Clock.Now()
}

// New is a ledger that has seen nothing.
func New(options Options) *Ledger {
	return &Ledger{
		options:  options,
		books:    map[ipam.PoolKey]*book{},
		byUID:    newIndex(linkUID, func(e *entry) string { return e.uid }),
		byName:   newIndex(linkName, (*entry).key),
		byHolder: newIndex(linkHolder, (*entry).holder),
		bySticky: newIndex(linkSticky, (*entry).stickyKey),

		unreadable: newUnreadable(),

		holds:     map[ipam.Name]*Hold{},
		abandoned: map[ipam.Name]time.Time{},
		named:     map[ipam.Name]bool{},
		unclaimed: map[share]ipam.Usage{},
		recorded:  map[account]ipam.Usage{},
		held:      map[account]ipam.Usage{},
		relist:    func() {},
	}
}

// Synced reports whether the first list is complete.
func (l *Ledger) Synced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// Change is one step of the view.
type Change struct {
	// Record that was added, changed or removed. Zero where pool alone changed.
	Record ipam.Record
	Pool   ipam.PoolKey
	Kind   ChangeKind
	// Initial says that the record is of the first list: it was there before.
	Initial bool
}

// ChangeKind says what became of a record.
type ChangeKind int

// What became of a record.
const (
	Added ChangeKind = iota
	Changed
	Removed
	// Abandoned: a record turned up whose creation had seemed to fail. It is
	// nobody's, and to be deleted.
	Abandoned
)

// listener is notified of changes.
type listener struct{ notify func(Change) }

// Listen calls f for each record that is there, as Added, and then for every
// change, one at a time and in order, until stop is called. f must return at once and
// must not call the Ledger.
func (l *Ledger) Listen(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.byUID.all() {
		f(Change{Record: e.record(), Pool: e.pool(), Kind: Added})
	}
	return l.follow(f)
}

// Follow is Listen without what is there already.
func (l *Ledger) Follow(f func(Change)) (stop func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.follow(f)
}

func (l *Ledger) follow(f func(Change)) (stop func()) {
	added := &listener{f}
	l.listeners = append(l.listeners, added)
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.listeners = slices.DeleteFunc(l.listeners, func(other *listener) bool { return other == added })
	}
}

func (l *Ledger) notify(c Change) {
	for _, listener := range l.listeners {
		listener.notify(c)
	}
}

// Claimed notes that a live claim names the record, or that none does any more,
// in which case the record is about to be released.
func (l *Ledger) Claimed(record ipam.Name, live bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byName.one(record)
	switch {
	case e != nil:
		l.count(e, ipam.Usage.Sub)
		e.claimed = live
		e.wasClaimed = e.wasClaimed || live
		l.count(e, ipam.Usage.Add)
		b := l.books[e.pool()]
		b.setLeaving(e, !live)
		b.tellAwaiting()
		l.confirm(e)
	case live:
		l.named[record] = true
	default:
		delete(l.named, record)
	}
}

// ClaimsKnown notes that Claimed has been called for every claim that there is: from now
// on a record that no claim has named was made for a claim that was never stored.
func (l *Ledger) ClaimsKnown() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claimsKnown = true
}

// NeverClaimed reports whether no claim has named the record since it was made. It is
// false where this process did not watch all the time, and does not know.
func (l *Ledger) NeverClaimed(record ipam.Record) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.one(record.UID)
	return e != nil && e.watched && !e.wasClaimed
}

// Leaving notes that the record is about to be released.
func (l *Ledger) Leaving(record ipam.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byName.one(record); e != nil {
		l.books[e.pool()].setLeaving(e, true)
	}
}

// Relist ends the current watch, which Run follows by a new list.
func (l *Ledger) Relist() { l.relistSince(l.options.Clock.Now()) }

// relistSince ends the current watch if it began before the given time. One that
// is younger has been begun anew by somebody else who misses a record.
func (l *Ledger) relistSince(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.began.After(t) {
		return
	}
	l.options.Log.Info("The watch of IPAllocations does not show an acknowledged record; listing all of them again", "watchingSince", l.began)
	l.relists++
	l.relist()
}

// abandonedFor is how long a record may take to turn up whose creation failed
// ambiguously. An API server gives up a request after one minute.
const abandonedFor = 10 * time.Minute

// Describe takes over what a pool's spec says. A child pool without a CIDR is
// not there yet.
func (l *Ledger) Describe(pool ipam.Pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !pool.CIDR.IsValid() {
		return
	}
	b := l.book(pool.Key)
	b.describe(pool)
	for e := range b.unconfirmed {
		l.confirm(e)
	}
}

// Forget drops what a pool's spec said. Its records stay: a pool that is made
// again under the name finds them.
func (l *Ledger) Forget(key ipam.PoolKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.books[key]; b != nil {
		b.space, b.pool = nil, ipam.Pool{}
		l.prune(b)
	}
}

func (l *Ledger) book(key ipam.PoolKey) *book {
	b := l.books[key]
	if b == nil {
		b = l.unused(key)
		l.books[key] = b
	}
	return b
}

// unused is a book that nobody has used yet.
func (l *Ledger) unused(key ipam.PoolKey) *book {
	b := newBook(key, l.unreadable.book)
	b.frees, b.onFree = l.pruned, l.freed
	return b
}

func (l *Ledger) prune(b *book) {
	if b.empty() {
		delete(l.books, b.key)
		l.pruned = max(l.pruned, b.frees)
	}
}

// Inspect calls f with what is free in a pool, under the ledger's lock: f must not call
// the Ledger. Where the view has no such pool with a CIDR, f is not called.
func (l *Ledger) Inspect(pool ipam.PoolKey, f func(Room)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.books[pool]; b != nil && b.space != nil {
		f(Room{l, b})
	}
}

// OnFree calls f for every block that becomes free, in whole or in part: a record was
// deleted, a hold ended without one, or, for all of a pool, its spec changed. f is called under the ledger's lock, must return
// at once, and must not call the Ledger. To be called before the ledger is used.
func (l *Ledger) OnFree(f func(pool ipam.PoolKey, block netip.Prefix)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.onFree = append(l.onFree, f)
}
