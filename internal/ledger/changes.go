package ledger

import (
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
