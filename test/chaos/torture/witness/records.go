package witness

import (
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// takeRecord takes in a change of an IPAllocation.
func (w *Witness) takeRecord(e Event) {
	w.indexRecord(e)
	switch {
	case e.Before == nil:
		w.records[e.After.key()] = e.After
		uid := e.After.Metadata.UID
		for _, block := range e.After.blocks() {
			spaceOf(w.recorded, placeOf(e.After)).add(block, uid)
		}
		w.lives.records[uid], w.lives.madeAt[uid] = e.After, e.Seen
		w.figures.Records++
		if w.attempts.rehearsed[e.After.Metadata.Namespace+"/"+e.After.Spec.ClaimRef.Name] {
			w.violated(e, "a dry run was recorded", e.After)
		}
	case e.After == nil:
		delete(w.records, e.Before.key())
		for _, block := range e.Before.blocks() {
			spaceOf(w.recorded, placeOf(e.Before)).remove(block, e.Before.Metadata.UID)
		}
		w.lostRecord(e)
	default:
		w.records[e.After.key()] = e.After
		w.compareRecords(e)
	}
	w.indexOwn(e)
	w.reconsider(e)
}

// compareRecords looks for changes that a record must not make.
func (w *Witness) compareRecords(e Event) {
	before, after := e.Before, e.After
	was, is := before.Spec.ClaimRef, after.Spec.ClaimRef
	if before.Spec.StickyKey != "" && before.Spec.State == "Retained" && after.Spec.State == "Bound" {
		was.Name = is.Name // another claim of the same key takes it over
	}
	if before.Metadata.UID != after.Metadata.UID || !slices.Equal(before.blocks(), after.blocks()) || placeOf(before) != placeOf(after) ||
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
		if holder.occupiesRanges() {
			return hasRanges(record, holder)
		}
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
		if r := w.lives.records[uid]; r != nil && r.Spec.ClaimRef.Name == h.Metadata.Name {
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
	place, pool := "", ""
	for _, o := range []*Object{e.Before, e.After} {
		if o != nil {
			place, pool = placeOf(o), "pool "+o.Spec.ClaimRef.Name
		}
	}
	for h := range w.dispossessed {
		if h.place == place || h.place == pool {
			w.repossess(e, h)
		}
	}
}

func (w *Witness) repossess(e Event, h *holding) {
	record := w.recordOf(h)
	sole := record != nil && len(spaceOf(w.recorded, h.place).overlapping(h.Block, record.Metadata.UID)) == 0 && !w.liesOutside(h, true)
	switch {
	case sole && !h.holds:
		w.figures.Restored++
		w.hold(e, h)
	case !sole && h.holds && record == nil:
		w.letGo(h, e.Seen)
	}
}

// Life holds the time during which a holder had a block, as the witness saw it.
type Life struct {
	UID, Attempt string
	// Place is the pool or routing domain. Domain is the routing domain of a claim's
	// pool, empty for a pool's own CIDR.
	Place, Domain string
	Block         netip.Prefix
	// Allocated is when the witness was notified that it is held: it was stored before that.
	// Released likewise, zero if it is still held.
	Allocated, Released time.Time
	// Recorded is when the witness was notified of the record, and Changed when of the holder's
	// last change before its end: they were stored before the allocation and the release.
	Recorded, Changed time.Time
}

// lives holds the history of records and holders.
type lives struct {
	taken   map[string]time.Time // when a record was first named by a holder, by UID
	records map[string]*Object
	madeAt  map[string]time.Time
	all     []*Life
}

func (l *lives) allocated(h *holding, record *Object, at time.Time) {
	var recorded time.Time
	if record != nil {
		recorded = l.madeAt[record.Metadata.UID]
	}
	h.life = &Life{
		Recorded: recorded, Changed: at,
		UID: h.Metadata.UID, Attempt: h.Attempt(),
		Place: h.place, Block: h.Block, Allocated: at,
	}
	if h.kind != Pools {
		h.life.Domain = h.domain
	}
	l.all = append(l.all, h.life)
}

// Lives returns all holdings so far, in the order in which they began.
func (w *Witness) Lives() []Life {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make([]Life, len(w.lives.all))
	for i, l := range w.lives.all {
		all[i] = *l
	}
	return all
}

// countOrphan counts a record that is gone and never had a holder.
func (w *Witness) countOrphan(e Event) {
	uid := e.Before.Metadata.UID
	if _, taken := w.lives.taken[uid]; !taken {
		w.figures.Orphans++
		if e.Seen.Sub(w.lives.madeAt[uid]) < time.Second {
			w.figures.GivenUp++
		} else {
			w.figures.Collected++
		}
	}
	delete(w.lives.taken, uid)
	delete(w.lives.records, uid)
	delete(w.lives.madeAt, uid)
}

// Answer holds the answer to a client about an object that it asked for, or asked to be deleted.
type Answer struct {
	Attempt  string
	UID      string
	Block    netip.Prefix // zero if none was named
	Revision int64        // at which it is stored, by the answer
}

// attempts holds the answers to clients, by attempt.
type attempts struct {
	answered map[string]Answer // not judged yet
	stored   map[string]stored
	never    map[string]string // why it must not be stored
	// rehearsed has the namespaces and names of claims that were dry runs.
	rehearsed map[string]bool
}

type stored struct {
	uid   string
	block netip.Prefix
}

// Answered records that an attempt was answered with an object: it must be stored with the block in the
// answer.
func (w *Witness) Answered(a Answer) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts.answered[a.Attempt] = a
	w.judgeAnswers(Event{Revision: w.revision})
}

// Never records that an attempt was refused, or was only a rehearsal: it must not be stored.
func (w *Witness) Never(attempt, why string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts.never[attempt] = why
	if s, ok := w.attempts.stored[attempt]; ok {
		w.violated(Event{Revision: w.revision}, fmt.Sprintf("attempt %s is stored as %s, and was %s", attempt, s.uid, why))
	}
}

// Rehearsed records that a claim of that name is but a dry run: nothing must be recorded for it.
func (w *Witness) Rehearsed(namespace, name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.attempts.rehearsed[namespace+"/"+name] = true
}

// judgeAnswers compares the answers with the stored objects, as far as these are known.
func (w *Witness) judgeAnswers(e Event) {
	if e.After != nil && e.Before == nil && e.Kind != Records && e.After.Attempt() != "" {
		attempt := e.After.Attempt()
		w.attempts.stored[attempt] = stored{e.After.Metadata.UID, e.After.Block}
		if why, ok := w.attempts.never[attempt]; ok {
			w.violated(e, fmt.Sprintf("attempt %s is stored, and was %s", attempt, why), e.After)
		}
	}
	for attempt, a := range w.attempts.answered {
		s, ok := w.attempts.stored[attempt]
		switch {
		case ok:
			if s.uid != a.UID || s.block != a.Block {
				w.violated(e, fmt.Sprintf("attempt %s was answered %s with %s, and is stored as %s with %s", attempt, a.UID, a.Block, s.uid, s.block))
			}
			delete(w.attempts.answered, attempt)
		case w.revision >= a.Revision:
			w.violated(e, fmt.Sprintf("attempt %s was answered %s with %s at revision %d, and was never stored", attempt, a.UID, a.Block, a.Revision))
			delete(w.attempts.answered, attempt)
		}
	}
}
