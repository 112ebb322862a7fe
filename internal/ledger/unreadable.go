package ledger

import "github.com/cadastre-dev/cadastre/internal/ipam"

// unreadable holds the IPAllocations that cannot be read and whose block can. The pool of such
// a block is not known, so it is in use in the space of every pool and routing domain, until
// the object can be read or is gone. It is no record: it counts for nobody, and no record
// gives way to it, as nothing shows that they are of the same pool.
type unreadable struct {
	// book has their blocks, and no space.
	book  *book
	byUID map[string]*entry
}

func newUnreadable() unreadable {
	return unreadable{book: newBook(ipam.PoolKey{}, nil), byUID: map[string]*entry{}}
}

// withhold keeps the block of an IPAllocation that cannot be read from being handed out. What
// was read of an earlier version of the object stays. It costs O(pools).
func (l *Ledger) withhold(r ipam.Record) {
	if e := l.unreadable.byUID[r.UID]; e != nil && e.block == r.Block {
		return
	}
	l.restore(r.UID)
	if !r.Block.IsValid() {
		return
	}
	r.Holder = ipam.Holder{Kind: "IPAllocation", Namespace: r.Name.Namespace, Name: r.Name.Name}
	e := newEntry(r)
	l.unreadable.byUID[r.UID] = e
	l.unreadable.book.take(e)
	for _, b := range l.books {
		if b.space != nil {
			b.space.Use(e.block)
		}
	}
}

// restore ends that the block of an object is withheld. It costs O(pools) if it was, else
// nothing.
func (l *Ledger) restore(uid string) {
	e := l.unreadable.byUID[uid]
	if e == nil {
		return
	}
	delete(l.unreadable.byUID, uid)
	l.unreadable.book.drop(e)
	for _, b := range l.books {
		if b.space != nil && b.pool.CIDR.Overlaps(e.block) {
			b.free(e.block)
		}
	}
}

// replaceUnreadable withholds the blocks of those that were listed, and of no others. It
// returns the records that are still there of earlier versions of them.
func (l *Ledger) replaceUnreadable(listed []ipam.Record) []*entry {
	there := map[string]bool{}
	for _, r := range listed {
		there[r.UID] = true
	}
	for uid := range l.unreadable.byUID {
		if !there[uid] {
			l.restore(uid)
		}
	}
	var earlier []*entry
	for _, r := range listed {
		l.withhold(r)
		if e := l.byUID.one(r.UID); e != nil {
			earlier = append(earlier, e)
		}
	}
	return earlier
}
