package witness

import "fmt"

// takeRecord takes in a change of an IPAllocation.
func (w *Witness) takeRecord(e Event) {
	w.indexRecord(e)
	switch {
	case e.Before == nil:
		w.records[e.After.key()] = e.After
		spaceOf(w.recorded, placeOf(e.After)).add(e.After.Block, e.After.Metadata.UID)
		w.lives.made(e.After, e.Seen)
		w.figures.Records++
		if w.attempts.rehearsed[e.After.Metadata.Namespace+"/"+e.After.Spec.ClaimRef.Name] {
			w.violated(e, "a dry run was recorded", e.After)
		}
	case e.After == nil:
		delete(w.records, e.Before.key())
		spaceOf(w.recorded, placeOf(e.Before)).remove(e.Before.Block, e.Before.Metadata.UID)
		w.lostRecord(e)
	default:
		w.records[e.After.key()] = e.After
		w.compareRecords(e)
	}
	w.reconsider(e)
}

// compareRecords looks for changes that a record must not make.
func (w *Witness) compareRecords(e Event) {
	before, after := e.Before, e.After
	was, is := before.Spec.ClaimRef, after.Spec.ClaimRef
	if before.Spec.StickyKey != "" && before.Spec.State == "Retained" && after.Spec.State == "Bound" {
		was.Name = is.Name // another claim of the same key takes it over
	}
	if before.Metadata.UID != after.Metadata.UID || before.Block != after.Block || placeOf(before) != placeOf(after) ||
		was.Kind != is.Kind || was.Name != is.Name {
		w.violated(e, "a record changed its block, pool or holder", before, after)
	}
}

// lostRecord judges whether the record that is gone may be.
func (w *Witness) lostRecord(e Event) {
	record := e.Before
	w.countOrphan(e)
	h := w.holderOf(record)
	if h == nil || h.place == "" {
		return
	}
	if w.forced[record.Metadata.UID] {
		h.dispossessed, w.dispossessed[h] = true, true
		w.figures.Forced++
		return // reconsider does the rest
	}
	// Two leaders may record the block of one IPAddress: the record that came later goes.
	if h.holds && !h.dispossessed && w.recordOf(h) == nil {
		w.violated(e, fmt.Sprintf("the record of %s was released while it holds the block", describe(h)), record, h.Object)
	}
}

// holderOf returns the claim or pool whose block the record records.
func (w *Witness) holderOf(record *Object) *holding {
	ref := record.Spec.ClaimRef
	var h *holding
	switch ref.Kind {
	case "IPClaim":
		h = w.claims[record.Metadata.Namespace+"/"+ref.Name]
	case holderAddress:
		h = w.addressClaims[record.Metadata.Namespace+"/"+ref.Name]
	case "IPPool":
		h = w.pools["/"+ref.Name]
	}
	if h == nil || !names(h.Object, record) || ref.UID != "" && ref.UID != h.Metadata.UID {
		return nil
	}
	return h
}

// names reports whether a claim or pool names this very record as its own.
func names(holder, record *Object) bool {
	switch record.Spec.ClaimRef.Kind {
	case "IPPool":
		return record.Block == holder.Block
	case holderAddress:
		return holder.Block.IsValid() && record.Block.Addr() == holder.Block.Addr() && record.Block.Bits() <= holder.Block.Bits()
	}
	return holder.Spec.AllocationName == record.Metadata.Name
}

// recordOf returns the record of a claim or pool; nil if there is none.
func (w *Witness) recordOf(h *holding) *Object {
	if h.kind == AddressClaims {
		return w.recordOfAddress(h)
	}
	if h.kind == Claims {
		if r := w.records[h.Metadata.Namespace+"/"+h.Spec.AllocationName]; r != nil && w.holderOf(r) == h && r.Block == h.Block {
			return r
		}
		return nil
	}
	for uid := range spaceOf(w.recorded, w.homeOf(h)).at[h.Block] {
		if r := w.lives.record(uid); r != nil && r.Spec.ClaimRef.Name == h.Metadata.Name {
			if current := w.records[r.key()]; current != nil && current.Metadata.UID == uid && w.holderOf(current) == h {
				return current
			}
		}
	}
	return nil
}

// homeOf returns the place in which a pool's own CIDR lies.
func (w *Witness) homeOf(h *holding) string {
	if h.Spec.ParentRef.Name != "" {
		return "pool " + h.Spec.ParentRef.Name
	}
	return "domain " + h.Spec.RoutingDomain
}

// reconsider looks at the holders whose blocks were released by hand, of which some may hold them
// again, or no longer.
func (w *Witness) reconsider(e Event) {
	place := ""
	for _, o := range []*Object{e.Before, e.After} {
		if o != nil {
			place = placeOf(o)
		}
	}
	for h := range w.dispossessed {
		if h.place == place {
			w.repossess(e, h)
		}
	}
}

func (w *Witness) repossess(e Event, h *holding) {
	record := w.recordOf(h)
	sole := record != nil && len(spaceOf(w.recorded, h.place).overlapping(h.Block, record.Metadata.UID)) == 0
	switch {
	case sole && !h.holds:
		w.figures.Restored++
		w.hold(e, h)
	case !sole && h.holds && record == nil:
		w.letGo(h, e.Seen)
	}
}
