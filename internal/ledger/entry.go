package ledger

import (
	"context"
	"hash/maphash"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// entry is a record as the view keeps it, or a hold of this process's own that
// has no record yet. There may be a hundred thousand: what many of them say alike is
// kept once.
type entry struct {
	alike                                             unique.Handle[alike]
	name, uid, version, holderName, holderUID, sticky string
	block                                             netip.Prefix
	releaseAfter                                      time.Time
	adopted, terminating, poolUnknown                 bool

	// leaving records are about to be released.
	leaving bool
	// claimed records are named by a live claim; wasClaimed ones are or were.
	claimed, wasClaimed bool
	// watched records were made while the view and all claims were known.
	watched bool
	// confirmed records had no rival in the view at some moment, while their pool was
	// open: of two records that overlap the other one gives way.
	confirmed bool
	// hold is nil for a record.
	hold *Hold
	// next has the very same block in the same book.
	next *entry
	// nextIn are the next entries of the indexes.
	nextIn [indexes]*entry
}

// alike is what many records say alike.
type alike struct {
	namespace               string
	pool                    ipam.PoolKey
	class                   string
	holderGroup, holderKind string
	holderNamespace         string
	purpose                 ipam.Purpose
	reclaim                 ipam.Reclaim
	state                   ipam.State
	project, requestedBy    string
	gateway                 netip.Addr
}

func newEntry(r ipam.Record) *entry {
	e := &entry{}
	e.set(r)
	return e
}

// set has the entry state the record.
func (e *entry) set(r ipam.Record) {
	e.alike = unique.Make(alike{
		namespace: r.Name.Namespace, pool: r.Pool, class: r.Class,
		holderGroup: r.Holder.Group, holderKind: r.Holder.Kind, holderNamespace: r.Holder.Namespace,
		purpose: r.Purpose, reclaim: r.Reclaim, state: r.State,
		project: r.Project, requestedBy: r.RequestedBy, gateway: r.Gateway,
	})
	e.name, e.uid, e.version = r.Name.Name, r.UID, r.Version
	e.holderName, e.holderUID, e.sticky = r.Holder.Name, r.HolderUID, r.Sticky
	if strings.HasPrefix(e.name, e.holderName) { // as the names that the operator gives
		e.holderName = e.name[:len(e.holderName)]
	}
	e.block, e.releaseAfter = r.Block, r.ReleaseAfter
	e.adopted, e.terminating, e.poolUnknown = r.Adopted, r.Terminating, r.PoolUnknown
}

// record is what the entry states.
func (e *entry) record() ipam.Record {
	a := e.alike.Value()
	return ipam.Record{
		Name: e.key(), UID: e.uid, Version: e.version,
		Block: e.block, Pool: a.pool, Class: a.class,
		Holder: e.holder(), HolderUID: e.holderUID,
		Purpose: a.purpose, Reclaim: a.reclaim, State: a.state, ReleaseAfter: e.releaseAfter,
		Project: a.project, RequestedBy: a.requestedBy, Gateway: a.gateway, Sticky: e.sticky, Adopted: e.adopted, Terminating: e.terminating, PoolUnknown: e.poolUnknown,
	}
}

// key is the record's name.
func (e *entry) key() ipam.Name {
	return ipam.Name{Namespace: e.alike.Value().namespace, Name: e.name}
}

func (e *entry) pool() ipam.PoolKey { return e.alike.Value().pool }

func (e *entry) state() ipam.State { return e.alike.Value().state }

func (e *entry) holder() ipam.Holder {
	a := e.alike.Value()
	return ipam.Holder{Group: a.holderGroup, Kind: a.holderKind, Namespace: a.holderNamespace, Name: e.holderName}
}

func (e *entry) purpose() ipam.Purpose { return e.alike.Value().purpose }

// stickyKey is the namespace's key by which the block is given again.
func (e *entry) stickyKey() ipam.Name {
	return ipam.Name{Namespace: e.alike.Value().namespace, Name: e.sticky}
}

// chain is e and all that follow it in their book.
func (e *entry) chain() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for ; e != nil; e = e.next {
			if !yield(e) {
				return
			}
		}
	}
}

func (e *entry) without(gone *entry) *entry {
	if e == nil {
		return nil
	}
	if e == gone {
		return e.next
	}
	e.next = e.next.without(gone)
	return e
}

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

// conflictAfter is how long two records may overlap before that counts as a conflict:
// longer than it takes to give up a record that has lost.
const conflictAfter = 10 * time.Second

// contestedSince is since when a record is contested that the watch shows now. Of one
// that the first list has, nobody knows: it counts as a conflict at once.
func (l *Ledger) contestedSince() time.Time {
	if !l.synced {
		return time.Time{}
	}
	return l.options.now()
}

// Conflict is the record that is in conflict with this one, nil where none is: they
// overlap in the same pool or routing domain, and have for longer than a lost race
// lasts. Both records have it, the one that was recorded first as well.
func (l *Ledger) Conflict(record ipam.Record) *ipam.TakenError {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.byUID.one(record.UID)
	if e == nil {
		return nil
	}
	other := l.books[e.pool()].conflict(e, l.options.now())
	if other == nil {
		return nil
	}
	return &ipam.TakenError{Block: e.block, Pool: e.pool(), Holder: other.holder(), Overlap: other.block}
}

// contest notes that something else was recorded on the block of a record when the view
// first showed it, whether or not the record came to be confirmed: a live claim that names
// it has it confirmed all the same.
func (l *Ledger) contest(b *book, e *entry) {
	if _, noted := b.contested[e]; !noted {
		b.contested[e] = l.contestedSince()
	}
}

// endContests forgets those contests that are over now that a record is gone.
func (b *book) endContests(gone *entry) {
	if len(b.contested) == 0 {
		return
	}
	for e := range b.overlapping(gone.block) {
		if _, noted := b.contested[e]; noted && b.rival(e.block, e.key()) == nil {
			delete(b.contested, e)
		}
	}
}

// conflict is an entry that is in conflict with this one.
func (b *book) conflict(e *entry, now time.Time) *entry {
	if len(b.contested) == 0 {
		return nil
	}
	lasts := func(e *entry) bool {
		since, ok := b.contested[e]
		return ok && now.Sub(since) >= conflictAfter
	}
	itself := lasts(e)
	for other := range b.overlapping(e.block) {
		if other != e && other.hold == nil && (itself || lasts(other)) {
			return other
		}
	}
	return nil
}

// Conflicts are the UIDs of all records that are in conflict with another one.
func (l *Ledger) Conflicts() map[string]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	found := map[string]bool{}
	for _, b := range l.books {
		for e := range b.contested {
			if other := b.conflict(e, l.options.now()); other != nil {
				found[e.uid], found[other.uid] = true, true
			}
		}
	}
	return found
}

// NotifyConflicts notifies listeners of each record that comes to be in conflict, or is
// in conflict no more, until the context ends.
func (l *Ledger) NotifyConflicts(ctx context.Context) {
	ticker := l.options.Clock.NewTicker(conflictAfter)
	defer ticker.Stop()
	var before map[string]bool
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			before = l.notifyConflicts(before)
		}
	}
}

// notifyConflicts notifies of what has changed since before, and returns what is.
func (l *Ledger) notifyConflicts(before map[string]bool) map[string]bool {
	now := l.Conflicts()
	l.mu.Lock()
	defer l.mu.Unlock()
	notify := func(uids, others map[string]bool) {
		for uid := range uids {
			if e := l.byUID.one(uid); e != nil && !others[uid] {
				l.notify(Change{Record: e.record(), Pool: e.pool(), Kind: Changed})
			}
		}
	}
	notify(now, before)
	notify(before, now)
	return now
}
