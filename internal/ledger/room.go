package ledger

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Room is what is free in one pool. It is valid only during the call that it is an
// argument of, which runs under the ledger's lock.
type Room struct {
	ledger *Ledger
	book   *book
}

// Has reports whether there is a free block of the length. It costs O(1).
func (r Room) Has(length int) bool {
	largest := r.book.largestFree()
	return largest != ipam.NoLength && largest <= length
}

// IsFree reports whether the whole block lies within the pool and is free. It costs
// O(address bits).
func (r Room) IsFree(block netip.Prefix) bool { return r.book.space.IsFree(block) }

// Allows reports whether an account may have one more block of the length from the pool,
// by the limits of the pool and of the class.
func (r Room) Allows(of ipam.Account, length int) bool {
	if of.Project == "" || !r.book.pool.Limit.IsSet() && !of.ClassLimit.IsSet() {
		return true
	}
	return r.ledger.checkLimits(Ask{Bits: length, Project: of.Project, Class: of.Class, ClassLimit: of.ClassLimit}, r.book) == nil
}

// freed notifies of a block that became free. Under the lock.
func (l *Ledger) freed(pool ipam.PoolKey, block netip.Prefix) {
	for _, f := range l.onFree {
		f(pool, block)
	}
}
