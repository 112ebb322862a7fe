package ledger

import (
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/failpoint"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Ledger is the picture of what is held. The zero value is not usable.
type Ledger struct {
	options Options

	mu     sync.Mutex
	synced bool
	// unlisted is synced without a list, which only a failpoint makes it.
	unlisted bool
	books    map[ipam.PoolKey]*book
	// The records: of a UID and of a name there is one.
	byUID    index[string]
	byName   index[ipam.Name]
	byHolder index[ipam.Holder]
	bySticky index[ipam.Name]
	// holds are this process's own blocks that are not confirmed, by the name
	// of the record.
	holds map[ipam.Name]*Hold
	// disowned are names of records whose creation failed ambiguously, with the
	// time when that was.
	disowned map[ipam.Name]time.Time
	// named are what live claims name and has no record yet, or none any more.
	named map[ipam.Name]bool
	// unbound counts, by namespace of their holders, records and holds that no
	// claim or local pool has taken.
	unbound map[string]int
	// relist ends the current watch, so that a new one begins with a list.
	relist    func()
	began     time.Time
	relists   int
	unread    int
	listeners []func(Change)
}

// Options are what a Ledger is given at its making.
type Options struct {
	// Clock tells how long a record has not been seen.
	Clock clock.WithTicker
	// Random picks blocks of pools with strategy Random. Used under the lock.
	Random *rand.Rand
	// Silence is how long an acknowledged record may not be seen before the
	// watch is taken for dead and begun anew.
	Silence time.Duration
}

// Change is one step of the picture.
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
	// Disowned: a record turned up whose creation had seemed to fail. It is
	// nobody's, and to be deleted.
	Disowned
)

// New is a ledger that has seen nothing.
func New(options Options) *Ledger {
	return &Ledger{
		options:  options,
		books:    map[ipam.PoolKey]*book{},
		byUID:    newIndex(linkUID, func(e *entry) string { return e.uid }),
		byName:   newIndex(linkName, (*entry).key),
		byHolder: newIndex(linkHolder, (*entry).holder),
		bySticky: newIndex(linkSticky, (*entry).stickyKey),
		holds:    map[ipam.Name]*Hold{},
		disowned: map[ipam.Name]time.Time{},
		named:    map[ipam.Name]bool{},
		unbound:  map[string]int{},
		relist:   func() {},
		synced:   failpoint.AnswerUnsynced(),
		unlisted: failpoint.AnswerUnsynced(),
	}
}

// Synced says whether the first list is complete.
func (l *Ledger) Synced() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.synced
}

// isUnlisted says whether a failpoint has answers given before the first list.
func (l *Ledger) isUnlisted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.unlisted
}

// Listen calls f for each record that is there, as Added, and then for every
// change, one at a time and in order. f must return at once and must not call
// the Ledger.
func (l *Ledger) Listen(f func(Change)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for e := range l.byUID.all() {
		f(Change{Record: e.record(), Pool: e.pool(), Kind: Added})
	}
	l.listeners = append(l.listeners, f)
}

// Follow is Listen without what is there already.
func (l *Ledger) Follow(f func(Change)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners = append(l.listeners, f)
}

// Describe takes over what a pool's spec says. A child pool without a CIDR is
// not there yet.
func (l *Ledger) Describe(pool ipam.Pool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if pool.CIDR.IsValid() {
		l.book(pool.Key).describe(pool)
	}
}

// Forget drops what a pool's spec said. Its records stay: a pool that is made
// again under the name finds them.
func (l *Ledger) Forget(key ipam.PoolKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.books[key]; b != nil {
		b.space, b.withheld, b.pool = nil, nil, ipam.Pool{}
		l.prune(b)
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
		l.countUnbound(e, -1)
		e.claimed = live
		l.countUnbound(e, +1)
		l.books[e.pool()].setLeaving(e, !live)
	case live:
		l.named[record] = true
	default:
		delete(l.named, record)
	}
}

// Leaving notes that the record is about to be released.
func (l *Ledger) Leaving(record ipam.Name) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byName.one(record); e != nil {
		l.books[e.pool()].setLeaving(e, true)
	}
}

func (l *Ledger) book(key ipam.PoolKey) *book {
	b := l.books[key]
	if b == nil {
		b = newBook(key)
		l.books[key] = b
	}
	return b
}

func (l *Ledger) prune(b *book) {
	if b.empty() {
		delete(l.books, b.key)
	}
}

// countUnbound adds to the count of the holder's namespace where nobody has taken
// the entry. Cluster-scoped pools are nobody's in particular, and not bounded.
func (l *Ledger) countUnbound(e *entry, by int) {
	namespace := e.holder().Namespace
	if e.hold == nil && (namespace == "" || e.state() != ipam.Bound || e.holderUID != "" || e.claimed) {
		return
	}
	if l.unbound[namespace] += by; l.unbound[namespace] == 0 {
		delete(l.unbound, namespace)
	}
}

func (l *Ledger) tell(c Change) {
	for _, f := range l.listeners {
		f(c)
	}
}
