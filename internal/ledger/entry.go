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

// entry represents a record as the view keeps it, or a hold of this process that has no record yet.
// There may be a hundred thousand entries: the values that many of them share are kept once.
type entry struct {
	alike                                             unique.Handle[alike]
	name, uid, version, holderName, holderUID, sticky string
	block                                             netip.Prefix
	releaseAfter                                      time.Time
	adopted, terminating, poolUnknown                 bool

	// leaving reports that the record is about to be released.
	leaving bool
	// claimed reports that a live claim names the record; wasClaimed that one names it or has named
	// it.
	claimed, wasClaimed bool
	// watched reports that the record was made while the view and all claims were known.
	watched bool
	// confirmed reports that the record had no rival in the view at some moment, while its pool was
	// open: of two records that overlap the other one gives way.
	confirmed bool
	// hold is nil for a record.
	hold *Hold
	// next is the next entry of the same block in the same pool view.
	next *entry
	// nextIn contains the next entry of each index.
	nextIn [indexes]*entry
}

// alike holds the values that many records share.
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

// set copies the record into the entry.
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

// record returns the record that the entry states.
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

// key returns the name of the record.
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

// stickyKey returns the namespace's key by which the block is given again.
func (e *entry) stickyKey() ipam.Name {
	return ipam.Name{Namespace: e.alike.Value().namespace, Name: e.sticky}
}

// chain returns e and all entries that follow it in their pool view.
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

// index finds entries by a key that they state. A map would keep each key a second time; index
// keeps the hash of the key, and chains entries of the same hash.
type index[K comparable] struct {
	seed maphash.Seed
	// link is the element of an entry's nextIn that belongs to the index.
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

// add adds an entry, which must not be in the index.
func (x *index[K]) add(e *entry) {
	hash := x.hash(x.keyOf(e))
	e.nextIn[x.link] = x.first[hash]
	x.first[hash] = e
}

// drop removes an entry. It accepts an entry that is not in the index.
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

// one returns an entry of the key, or nil if there is none.
func (x *index[K]) one(key K) *entry {
	for e := range x.of(key) {
		return e
	}
	return nil
}

// of returns all entries of the key, the last that was added first.
func (x *index[K]) of(key K) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := x.first[x.hash(key)]; e != nil; e = e.nextIn[x.link] {
			if x.keyOf(e) == key && !yield(e) {
				return
			}
		}
	}
}

// all returns every entry. The entry that is yielded can be dropped.
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

// index adds a record to the indexes by holder and by sticky key.
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

// HeldBy returns every record of a holder, in the order in which the records came or changed.
func (l *Ledger) HeldBy(holder ipam.Holder) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.byHolder.of(holder))
}

// Sticky returns every record of a namespace's sticky key, in the order of HeldBy.
func (l *Ledger) Sticky(key ipam.Name) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.bySticky.of(key))
}

// OfKind returns every record of holders of a kind. It costs O(records).
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

// records returns the records that the entries state, the last one first.
func records(entries iter.Seq[*entry]) []ipam.Record {
	var all []ipam.Record
	for e := range entries {
		all = append(all, e.record())
	}
	slices.Reverse(all)
	return all
}

// conflictAfter is the time for which two records can overlap before that counts as a conflict:
// longer than it takes to give up a record that has lost.
const conflictAfter = 10 * time.Second

// contestedSince returns the time since which a record that the watch shows now is contested. For a
// record of the first list that time is unknown: the record counts as in conflict at once.
func (l *Ledger) contestedSince() time.Time {
	if !l.synced {
		return time.Time{}
	}
	return l.options.now()
}

// Conflict returns an error that names the record in conflict with this one, or nil if there is
// none. Two records are in conflict if they overlap in the same pool or routing domain, and have
// for longer than a lost race lasts. Both records get the error, the one that was recorded first as
// well.
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

// contest notes that another record overlapped this one when the view first showed it, whether or
// not this record was confirmed: if a live claim names it, it is confirmed nevertheless.
func (l *Ledger) contest(b *book, e *entry) {
	if _, noted := b.contested[e]; !noted {
		b.contested[e] = l.contestedSince()
	}
}

// endContests removes the contests that are over now that a record is gone.
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

// conflict returns an entry that is in conflict with this one, or nil.
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

// Conflicts returns the UIDs of all records that are in conflict with another one.
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

// NotifyConflicts notifies the listeners of each record that gets into conflict, or is no longer in
// conflict, until the context ends.
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

// notifyConflicts notifies the listeners of the changes since before, and returns the present
// conflicts.
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
