package witness

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

// occupiesRanges reports whether a pool holds only its ranges, by one own record or, while they are edited, several.
func (o *Object) occupiesRanges() bool { return o.Spec.Occupies == "Ranges" }

// blocks returns the blocks of a record.
func (o *Object) blocks() []netip.Prefix {
	all := []netip.Prefix{o.Block}
	for _, cidr := range o.Spec.AdditionalCIDRs {
		all = append(all, netip.MustParsePrefix(cidr))
	}
	return all
}

// addressSet holds addresses one by one.
type addressSet map[netip.Addr]bool

func (s addressSet) addBlocks(blocks ...netip.Prefix) {
	for _, block := range blocks {
		for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
			s[addr] = true
		}
	}
}

// addRanges adds ranges as a pool states them: from-to, or a block.
func (s addressSet) addRanges(ranges ...string) {
	for _, r := range ranges {
		first, last, ok := strings.Cut(r, "-")
		if !ok {
			s.addBlocks(netip.MustParsePrefix(r))
			continue
		}
		for addr := netip.MustParseAddr(first); addr.Compare(netip.MustParseAddr(last)) <= 0; addr = addr.Next() {
			s[addr] = true
		}
	}
}

// hasAll reports whether no address of a block is missing.
func (s addressSet) hasAll(block netip.Prefix) bool {
	for addr := block.Addr(); block.Contains(addr); addr = addr.Next() {
		if !s[addr] {
			return false
		}
	}
	return true
}

// hasAny reports whether any of the blocks has an address of the set.
func (s addressSet) hasAny(blocks ...netip.Prefix) bool {
	for addr := range s {
		if slices.ContainsFunc(blocks, func(b netip.Prefix) bool { return b.Contains(addr) }) {
			return true
		}
	}
	return false
}

// takeRanges takes in a change of a pool of ranges. What the pool reports as recorded belongs to it until
// that record is gone: no other holder may have a part of it.
func (w *Witness) takeRanges(e Event, pool *holding) {
	w.ranged[pool.Metadata.Name] = true
	switch {
	case e.Before == nil:
		w.figures.RangedPools++
	case !slices.Equal(e.Before.Spec.Ranges, e.After.Spec.Ranges):
		w.figures.Edits++
	case !conflicts(&holding{Object: e.Before}) && conflicts(pool):
		w.figures.RangeConflicts++
	}
	own := w.ownRecordOf(pool)
	if own == nil || !isReported(pool.Object) || w.byUID[own.Metadata.UID] != nil {
		return
	}
	at := spaceOf(w.held, placeOf(own))
	for _, block := range own.blocks() {
		for _, uid := range at.overlapping(block, "") {
			rival := w.byUID[uid]
			if isSame := rival.kind == Pools && rival.Metadata.Name == pool.Metadata.Name; !isSame && !rival.liesIn(pool) {
				w.violated(e, fmt.Sprintf("TWO HOLDERS in %s: %s, which has recorded %s, and %s in %s", placeOf(own), describe(pool), block, describe(rival), rival.place),
					pool.Object, own, rival.Object, w.recordOf(rival))
			}
		}
		at.add(block, own.Metadata.UID)
	}
	w.byUID[own.Metadata.UID] = pool
	w.lives.taken[own.Metadata.UID] = e.Seen
}

// isReported reports whether a pool states that its present ranges are recorded.
func isReported(pool *Object) bool {
	return slices.ContainsFunc(pool.Status.Conditions, func(c Condition) bool {
		return c.Type == "Allocated" && c.Status == "True" && c.ObservedGeneration == pool.Metadata.Generation
	})
}

// ownRecordOf returns the own record of a pool's present ranges; nil if there is none.
func (w *Witness) ownRecordOf(pool *holding) *Object {
	for _, own := range w.owns[pool.Metadata.Name] {
		if w.holderOf(own) == pool {
			return own
		}
	}
	return nil
}

// hasRanges reports whether a record has exactly the ranges of a pool.
func hasRanges(record, pool *Object) bool {
	recorded, stated := addressSet{}, addressSet{}
	recorded.addBlocks(record.blocks()...)
	stated.addRanges(pool.Spec.Ranges...)
	return maps.Equal(recorded, stated)
}

// indexOwn keeps the own records of pools by the names of those. What a pool held by one that is gone
// must be covered by the others, as far as its blocks lie in it.
func (w *Witness) indexOwn(e Event) {
	record := e.After
	if record == nil {
		record = e.Before
	}
	name, uid := record.Spec.ClaimRef.Name, record.Metadata.UID
	if record.Spec.ClaimRef.Kind != "IPPool" {
		return
	}
	if e.After != nil {
		if w.owns[name] == nil {
			w.owns[name] = map[string]*Object{}
		}
		w.owns[name][uid] = record
		return
	}
	delete(w.owns[name], uid)
	delete(w.byUID, uid)
	for _, block := range record.blocks() {
		spaceOf(w.held, placeOf(record)).remove(block, uid)
	}
	for _, holders := range []map[string]*holding{w.claims, w.addressClaims} {
		for _, h := range holders {
			if h.holds && h.place == "pool "+name && w.liesOutside(h, false) {
				w.violated(e, fmt.Sprintf("an own record of %s was released while %s lies in it", h.place, describe(h)), record, h.Object, w.recordOf(h))
			}
		}
	}
}

// liesOutside reports whether the block of a holder in a pool of ranges is not covered by the pool's own
// records: all, or those that are open, in which a block can be confirmed.
func (w *Witness) liesOutside(h *holding, openOnly bool) bool {
	name, _ := strings.CutPrefix(h.place, "pool ")
	if !w.ranged[name] {
		return false
	}
	covered := addressSet{}
	for _, own := range w.owns[name] {
		if !w.isExcluded(own) && (!openOnly || own.Spec.State == "Bound" && !own.Terminating()) {
			covered.addBlocks(own.blocks()...)
		}
	}
	return !covered.hasAll(h.Block)
}

// isExcluded reports whether an older record of another holder overlaps an own record.
func (w *Witness) isExcluded(own *Object) bool {
	at := spaceOf(w.recorded, placeOf(own))
	for _, block := range own.blocks() {
		for _, uid := range at.overlapping(block, own.Metadata.UID) {
			other := w.lives.records[uid]
			if other.Spec.ClaimRef.Name != own.Spec.ClaimRef.Name && w.lives.madeAt[uid].Before(w.lives.madeAt[own.Metadata.UID]) {
				return true
			}
		}
	}
	return false
}

// withholdOutside marks the addresses that a pool of ranges does not hand out: those outside of its ranges, and
// those that no own record of it covers.
func (w *Witness) withholdOutside(pool *holding, c *count) {
	inside, covered := addressSet{}, addressSet{}
	inside.addRanges(pool.Spec.Ranges...)
	for _, own := range w.owns[pool.Metadata.Name] {
		covered.addBlocks(own.blocks()...)
	}
	all := addressSet{}
	all.addBlocks(pool.Block)
	c.outside = addressSet{}
	for addr := range all {
		if !inside[addr] {
			c.outside[addr] = true
		}
		if !inside[addr] || !covered[addr] {
			c.mark(c.withheld, netip.PrefixFrom(addr, 32))
		}
	}
}

// unsettledRanges returns the unsettled part of a pool, if it occupies its ranges: they are recorded, or
// others have a part of them, which the pool reports.
func (w *Witness) unsettledRanges(pool *holding) string {
	own := w.ownRecordOf(pool)
	switch {
	case !pool.occupiesRanges(), own != nil && isReported(pool.Object):
		return ""
	case own != nil:
		return "does not report that its ranges are recorded"
	}
	stated := addressSet{}
	stated.addRanges(pool.Spec.Ranges...)
	for name, owns := range w.owns {
		for _, own := range owns {
			switch {
			case name == pool.Metadata.Name || !stated.hasAny(own.blocks()...):
			case !conflicts(pool):
				return "does not report that another pool has a part of its ranges"
			default:
				return ""
			}
		}
	}
	return "has not recorded its ranges, which are free"
}

// unsettledFormer returns the unsettled part of an own record of a pool of ranges that has other blocks than
// these: the ranges are not recorded, or blocks of the pool need the record.
func (w *Witness) unsettledFormer(own *Object, pool *holding) string {
	covered, present := addressSet{}, w.ownRecordOf(pool)
	if present == nil || present == own {
		return ""
	}
	for _, other := range w.owns[pool.Metadata.Name] {
		if other != own {
			covered.addBlocks(other.blocks()...)
		}
	}
	for block := range spaceOf(w.recorded, "pool "+pool.Metadata.Name).at {
		if !covered.hasAll(block) {
			return ""
		}
	}
	return "is of former ranges, and no block needs it"
}
