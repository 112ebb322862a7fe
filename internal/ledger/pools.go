package ledger

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
