package witness

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// takeHolder takes in a change of a claim or a pool.
func (w *Witness) takeHolder(e Event, all map[string]*holding) {
	if e.After == nil {
		w.lostHolder(e, all)
		return
	}
	h := all[e.After.key()]
	if e.Before == nil {
		h = &holding{kind: e.Kind}
		all[e.After.key()] = h
		w.byUID[e.After.Metadata.UID] = h
	} else if before := e.Before; before.Block.IsValid() && before.Block != e.After.Block || before.Metadata.UID != e.After.Metadata.UID {
		w.violated(e, "a holder changed its block", before, e.After)
	}
	h.Object = e.After
	if h.kind == Pools {
		w.homes[h.Metadata.Name] = w.homeOf(h)
		if h.occupiesRanges() {
			w.takeRanges(e, h)
		}
	}
	if h.life != nil {
		h.life.Changed = e.Seen
	}
	w.noteWaiting(e, h)
	if h.place == "" && isHeld(h) {
		w.settle(e, h)
	}
}

// isHeld reports whether a claim or pool, as it is stored, holds its block.
func isHeld(h *holding) bool {
	switch h.kind {
	case Claims:
		return h.Block.IsValid() && h.Spec.AllocationName != ""
	case AddressClaims:
		return h.Block.IsValid() && h.Status.AddressRef.Name != ""
	}
	if h.occupiesRanges() {
		return false // see takeRanges
	}
	if h.Spec.ParentRef.Name != "" && h.Metadata.Annotations[AskedAnnotation] == "" {
		return h.Block.IsValid()
	}
	return h.Block.IsValid() && h.Is("Ready")
}

// settle begins a holding.
func (w *Witness) settle(e Event, h *holding) {
	record := w.recordOf(h)
	switch {
	case h.kind == Pools:
		h.place = w.homeOf(h)
	case h.Spec.PoolRef.Name != "" && h.Spec.PoolRef.Kind != "IPClass":
		h.place = "pool " + h.Spec.PoolRef.Name
	case record == nil:
		h.place = "nowhere"
	default:
		h.place = placeOf(record)
	}
	if record == nil || placeOf(record) != h.place {
		w.violated(e, fmt.Sprintf("%s has no record of its block", describe(h)), h.Object, record, w.records[h.Metadata.Namespace+"/"+h.Spec.AllocationName])
	}
	if w.liesOutside(h, false) {
		w.violated(e, fmt.Sprintf("%s lies outside of what %s holds", describe(h), h.place), h.Object, record)
	}
	if record != nil {
		w.judgeTurn(e, h, w.lives.madeAt[record.Metadata.UID])
	}
	switch h.kind {
	case Claims:
		w.figures.ClaimGrants++
	case AddressClaims:
		w.figures.AddressGrants++
	default:
		w.figures.PoolAllocations++
	}
	w.figures.Allocations++
	w.leaveLine(h)
	w.hold(e, h)
}

// hold counts the block as the holder's, which no other holder may have at that time.
func (w *Witness) hold(e Event, h *holding) {
	h.pools, h.domain = w.lineage(h.place)
	at := spaceOf(w.held, h.domain)
	for _, uid := range at.overlapping(h.Block, h.Metadata.UID) {
		rival := w.byUID[uid]
		if h.liesIn(rival) || rival.liesIn(h) {
			continue
		}
		w.violated(e, fmt.Sprintf("TWO HOLDERS in %s: %s in %s and %s in %s", h.domain, describe(h), h.place, describe(rival), rival.place),
			h.Object, rival.Object, w.recordOf(h), w.recordOf(rival))
	}
	h.holds = true
	at.add(h.Block, h.Metadata.UID)
	record := w.recordOf(h)
	if record != nil {
		w.lives.taken[record.Metadata.UID] = e.Seen
	}
	w.lives.allocated(h, record, e.Seen)
}

// lineage returns the routing domain of a place, and the pools in which it lies, by name. A pool
// that is gone, or was forced away, counts as in the place where it was seen last: its blocks may
// be held still. For one that was never seen it returns the place itself.
func (w *Witness) lineage(place string) (pools []string, domain string) {
	for {
		name, isPool := strings.CutPrefix(place, "pool ")
		if !isPool || slices.Contains(pools, name) {
			return pools, place
		}
		pools = append(pools, name)
		home, seen := w.homes[name]
		if !seen {
			return pools, place
		}
		place = home
	}
}

// liesIn reports whether the block of h is a part of a pool, or of a pool in it.
func (h *holding) liesIn(pool *holding) bool {
	return pool.kind == Pools && slices.Contains(h.pools, pool.Metadata.Name)
}

func (w *Witness) letGo(h *holding, seen time.Time) {
	if !h.holds {
		return
	}
	h.holds = false
	spaceOf(w.held, h.domain).remove(h.Block, h.Metadata.UID)
	h.life.Released = seen
}

func (w *Witness) lostHolder(e Event, all map[string]*holding) {
	h := all[e.Before.key()]
	delete(all, e.Before.key())
	delete(w.byUID, e.Before.Metadata.UID)
	delete(w.dispossessed, h)
	w.leaveLine(h)
	if h.place != "" {
		w.figures.Releases++
		w.letGo(h, e.Seen)
	}
}

// noteWaiting records a claim that has no block yet and names its pool: only those are compared,
// because they can be served from one place alone.
func (w *Witness) noteWaiting(e Event, h *holding) {
	pool := h.Spec.PoolRef.Name
	waits := h.kind == Claims && pool != "" && h.Spec.CIDR == "" || h.kind == AddressClaims && waitsInLine(h)
	if !waits || h.Terminating() {
		w.leaveLine(h)
		return
	}
	if w.waiting[pool] == nil {
		w.waiting[pool] = map[string]*holding{}
	}
	w.waiting[pool][h.Metadata.UID] = h
	if h.reportedAt.IsZero() && (h.Status.Phase == "Exhausted" || h.says("PoolExhausted")) {
		h.reportedAt = e.Seen
	}
}

func (w *Witness) leaveLine(h *holding) {
	delete(w.waiting[h.Spec.PoolRef.Name], h.Metadata.UID)
}

// settledIn is for how long a claim must be reported as waiting before it counts that it is
// overtaken: so long the news may take to reach every replica.
const settledIn = time.Second

// judgeTurn looks for a claim that has waited longer than the one that is served, in the same pool,
// for a block that is no larger.
func (w *Witness) judgeTurn(e Event, served *holding, recorded time.Time) {
	if served.kind == Pools || served.Spec.PoolRef.Name == "" || served.Spec.PoolRef.Kind == "IPClass" || w.isAdopted(served) {
		return
	}
	if !served.reportedAt.IsZero() {
		w.figures.Served++
	}
	for _, first := range w.waiting[served.Spec.PoolRef.Name] {
		if first.reportedAt.IsZero() || first.reportedAt.Add(settledIn).After(recorded) || first.Spec.PrefixLength < served.Block.Bits() ||
			!olderThan(first.Object, served.Object) || w.isBeingServed(first) || w.hasPlenty(served.Spec.PoolRef.Name, first.Spec.PrefixLength) {
			continue
		}
		if w.excused(first.reportedAt) {
			w.figures.Overtaken++
			continue
		}
		w.violated(e, fmt.Sprintf("%s overtook %s, which was reported as waiting at %s", describe(served), describe(first), first.reportedAt.Format(time.TimeOnly)),
			served.Object, first.Object)
	}
}

// plenty is the number of blocks of the waiting claim's length that lie in one free block, as a
// power of two, if there is room for every claim: no claim waits for others.
const plenty = 8

// hasPlenty reports whether a pool has that much room for blocks of a length.
func (w *Witness) hasPlenty(name string, length int) bool {
	pool := w.pools["/"+name]
	return pool != nil && length-plenty >= pool.Block.Bits() && spaceOf(w.recorded, "pool "+name).hasFree(pool.Block, length-plenty)
}

// olderThan reports whether a waits before b: by the second of their creation, then by name.
func olderThan(a, b *Object) bool {
	if at, bt := a.Metadata.CreationTimestamp, b.Metadata.CreationTimestamp; !at.Equal(bt) {
		return at.Before(bt)
	}
	return a.key() < b.key()
}
