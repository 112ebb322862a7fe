package ledger

import (
	"hash/maphash"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unique"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// entry represents a record in the view, or a hold that has no record yet. There may be a hundred
// thousand: values that many of them share are kept once.
type entry struct {
	shared                                            unique.Handle[sharedFields]
	name, uid, version, holderName, holderUID, sticky string
	block                                             netip.Prefix
	releaseAfter                                      time.Time
	adopted, terminating, poolUnknown                 bool

	// isLeaving reports that the record is about to be released.
	isLeaving bool
	// claimed reports that a live claim names the record; wasClaimed that one has at some time.
	claimed, wasClaimed bool
	// watched reports that the record was made while the view and all claims were known.
	watched bool
	// confirmed reports that the record had no rival in the view at some moment while its pool was
	// open: a record that overlaps it gives way.
	confirmed bool
	// hold is nil for a record.
	hold *Hold
	// nextIn contains the next entry of each index, and of the same block in the same pool view.
	nextIn [links]*entry
	// parts is nil for a record of one block.
	parts *parts
}

// parts holds the entries of a record of several blocks. Each further block has an entry in the
// pool view, which has no other field than its block and these parts.
type parts struct {
	whole   *entry
	further []*entry
}

// whole returns the entry of the record that has the block of this one.
func (e *entry) whole() *entry {
	if e.parts == nil {
		return e
	}
	return e.parts.whole
}

// all returns the entries of all blocks of a record, that of the first block first.
func (e *entry) all() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if !yield(e) || e.parts == nil {
			return
		}
		for _, further := range e.parts.further {
			if !yield(further) {
				return
			}
		}
	}
}

// additionalBlocks returns all blocks of a record but the first.
func (e *entry) additionalBlocks() []netip.Prefix {
	if e.parts == nil {
		return nil
	}
	blocks := make([]netip.Prefix, len(e.parts.further))
	for i, further := range e.parts.further {
		blocks[i] = further.block
	}
	return blocks
}

// blocks returns all blocks of a record.
func (e *entry) blocks() []netip.Prefix {
	return append([]netip.Prefix{e.block}, e.additionalBlocks()...)
}

// hasBlocks reports whether these are the blocks of a record.
func (e *entry) hasBlocks(blocks []netip.Prefix) bool {
	return len(blocks) > 0 && e.block == blocks[0] && slices.Equal(e.additionalBlocks(), blocks[1:])
}

// partIn returns the block of a record that overlaps a block of another one.
func (e *entry) partIn(overlap netip.Prefix) netip.Prefix {
	for part := range e.all() {
		if part.block.Overlaps(overlap) {
			return part.block
		}
	}
	return e.block
}

// usage returns the usage by a record.
func (e *entry) usage() ipam.Usage {
	return ipam.UsageOf(e.block).Add(ipam.UsageOf(e.additionalBlocks()...))
}

// excludes reports whether two records that overlap cannot both stay. The own records of one pool can
// if both state its UID: an edit of the pool makes the one, and then releases the other.
func (e *entry) excludes(other *entry) bool {
	isEdit := e.purpose() == ipam.PurposePool && e.holderUID != "" && e.holderUID == other.holderUID && e.holder() == other.holder()
	return e != other && !isEdit
}

// sharedFields holds the values that many records share.
type sharedFields struct {
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
	e.setRecord(r)
	for _, block := range r.AdditionalBlocks {
		if e.parts == nil {
			e.parts = &parts{whole: e}
		}
		e.parts.further = append(e.parts.further, &entry{block: block, parts: e.parts})
	}
	return e
}

// setRecord copies the record into the entry.
func (e *entry) setRecord(r ipam.Record) {
	e.shared = unique.Make(sharedFields{
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
	a := e.shared.Value()
	return ipam.Record{
		Name: e.key(), UID: e.uid, Version: e.version,
		Block: e.block, AdditionalBlocks: e.additionalBlocks(), Pool: a.pool, Class: a.class,
		Holder: e.holder(), HolderUID: e.holderUID,
		Purpose: a.purpose, Reclaim: a.reclaim, State: a.state, ReleaseAfter: e.releaseAfter,
		Project: a.project, RequestedBy: a.requestedBy, Gateway: a.gateway, Sticky: e.sticky, Adopted: e.adopted, Terminating: e.terminating, PoolUnknown: e.poolUnknown,
	}
}

// key returns the name of the record.
func (e *entry) key() ipam.Name {
	return ipam.Name{Namespace: e.shared.Value().namespace, Name: e.name}
}

func (e *entry) pool() ipam.PoolKey { return e.shared.Value().pool }

func (e *entry) state() ipam.State { return e.shared.Value().state }

func (e *entry) holder() ipam.Holder {
	a := e.shared.Value()
	return ipam.Holder{Group: a.holderGroup, Kind: a.holderKind, Namespace: a.holderNamespace, Name: e.holderName}
}

func (e *entry) purpose() ipam.Purpose { return e.shared.Value().purpose }

// stickyKey returns the namespace's key by which the block is given again.
func (e *entry) stickyKey() ipam.Name {
	return ipam.Name{Namespace: e.shared.Value().namespace, Name: e.sticky}
}

// unlink returns the chain that begins with e without an entry.
func (e *entry) unlink(link int, removedEntry *entry) *entry {
	if e == removedEntry {
		return e.nextIn[link]
	}
	for previous := e; previous != nil; previous = previous.nextIn[link] {
		if previous.nextIn[link] == removedEntry {
			previous.nextIn[link] = removedEntry.nextIn[link]
		}
	}
	return e
}

// index finds entries by a key. A map would keep each key a second time; index keeps its hash, and
// chains entries.
type index[K comparable] struct {
	seed maphash.Seed
	// link is the element of an entry's nextIn that belongs to the index.
	link  int
	keyOf func(*entry) K
	heads map[uint64]*entry
}

// The links of an entry.
const (
	linkUID = iota
	linkName
	linkHolder
	linkSticky
	linkBlock
	links
)

func newIndex[K comparable](link int, keyOf func(*entry) K) index[K] {
	return index[K]{seed: maphash.MakeSeed(), link: link, keyOf: keyOf, heads: map[uint64]*entry{}}
}

func (x *index[K]) hash(key K) uint64 { return maphash.Comparable(x.seed, key) }

// add adds an entry, which must not be in the index.
func (x *index[K]) add(e *entry) {
	hash := x.hash(x.keyOf(e))
	e.nextIn[x.link] = x.heads[hash]
	x.heads[hash] = e
}

// remove removes an entry. It accepts an entry that is not in the index.
func (x *index[K]) remove(e *entry) {
	hash := x.hash(x.keyOf(e))
	if first := x.heads[hash]; first != nil {
		x.heads[hash] = first.unlink(x.link, e)
	}
	if x.heads[hash] == nil {
		delete(x.heads, hash)
	}
	e.nextIn[x.link] = nil
}

// find returns an entry of the key, or nil if there is none.
func (x *index[K]) find(key K) *entry {
	for e := range x.findAll(key) {
		return e
	}
	return nil
}

// findAll returns all entries of the key, the last that was added first.
func (x *index[K]) findAll(key K) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for e := x.heads[x.hash(key)]; e != nil; e = e.nextIn[x.link] {
			if x.keyOf(e) == key && !yield(e) {
				return
			}
		}
	}
}

// entries returns every entry. The entry that is yielded can be dropped.
func (x *index[K]) entries() iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		for _, e := range x.heads {
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
	l.byHolder.remove(e)
	if e.sticky != "" {
		l.bySticky.remove(e)
	}
}

// HeldBy returns every record of a holder, in the order in which the records came or changed.
func (l *Ledger) HeldBy(holder ipam.Holder) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.byHolder.findAll(holder))
}

// StickyRecords returns every record of a namespace's sticky key, in the order of HeldBy.
func (l *Ledger) StickyRecords(key ipam.Name) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(l.bySticky.findAll(key))
}

// RecordsOfKind returns every record of holders of a kind. It costs O(records).
func (l *Ledger) RecordsOfKind(kind string) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return records(func(yield func(*entry) bool) {
		for e := range l.byUID.entries() {
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
