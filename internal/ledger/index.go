package ledger

import (
	"hash/maphash"
	"iter"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// index finds entries by what they say of themselves. A map would keep each key a
// second time; this keeps its hash, and chains entries of the same hash.
type index[K comparable] struct {
	seed maphash.Seed
	// link is which of an entry's nextIn is the index's.
	link  int
	keyOf func(*entry) K
	first map[uint64]*entry
}

// The links of an entry, one for each index.
const (
	linkUID = iota
	linkName
	linkHolder
	linkSticky
	indexes
)

func newIndex[K comparable](link int, keyOf func(*entry) K) index[K] {
	return index[K]{seed: maphash.MakeSeed(), link: link, keyOf: keyOf, first: map[uint64]*entry{}}
}

func (x *index[K]) hash(key K) uint64 { return maphash.Comparable(x.seed, key) }

// add enters an entry, which must not be in the index.
func (x *index[K]) add(e *entry) {
	hash := x.hash(x.keyOf(e))
	e.nextIn[x.link] = x.first[hash]
	x.first[hash] = e
}

// drop strikes an entry; one that is not there is no error.
func (x *index[K]) drop(e *entry) {
	hash := x.hash(x.keyOf(e))
	if x.first[hash] == e {
		if x.first[hash] = e.nextIn[x.link]; x.first[hash] == nil {
			delete(x.first, hash)
		}
	}
	for before := x.first[hash]; before != nil; before = before.nextIn[x.link] {
		if before.nextIn[x.link] == e {
			before.nextIn[x.link] = e.nextIn[x.link]
		}
	}
	e.nextIn[x.link] = nil
}

// one is an entry of the key, nil where there is none.
func (x *index[K]) one(key K) *entry {
	for e := range x.of(key) {
		return e
	}
	return nil
}

// of is all entries of the key, the last that was added first.
func (x *index[K]) of(key K) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := x.first[x.hash(key)]; e != nil; e = e.nextIn[x.link] {
			if x.keyOf(e) == key && !yield(e) {
				return
			}
		}
	}
}

// all is every entry. The one that is yielded may be dropped.
func (x *index[K]) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range x.first {
			for e != nil {
				next := e.nextIn[x.link]
				if !yield(e) {
					return
				}
				e = next
			}
		}
	}
}

// index enters a record under its holder and its sticky key.
func (l *Ledger) index(e *entry) {
	l.byHolder.add(e)
	if e.sticky != "" {
		l.bySticky.add(e)
	}
}

func (l *Ledger) unindex(e *entry) {
	l.byHolder.drop(e)
	if e.sticky != "" {
		l.bySticky.drop(e)
	}
}

// HeldBy is every record of a holder, in the order in which they came or changed.
func (l *Ledger) HeldBy(holder ipam.Holder) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.byHolder.of(holder))
}

// Sticky is every record of a namespace's sticky key, in that order.
func (l *Ledger) Sticky(key ipam.Name) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.bySticky.of(key))
}

// OfKind is every record of holders of a kind. It costs O(records).
func (l *Ledger) OfKind(kind string) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(func(yield func(*entry) bool) {
		for e := range l.byUID.all() {
			if e.holder().Kind == kind && !yield(e) {
				return
			}
		}
	})
}

// records is what entries state, the last one first.
func records(entries iter.Seq[*entry]) []ipam.Record {
	var all []ipam.Record
	for e := range entries {
		all = append(all, e.record())
	}
	slices.Reverse(all)
	return all
}
