package ledger

import "github.com/cadastre-dev/cadastre/internal/ipam"

// Occupant is a record that keeps a pool in use.
type Occupant struct {
	Record ipam.Record
	// Claimed reports whether a live object is known to have it. Where that is not so,
	// it is an attempt under way or an orphan, or it was made before its pool.
	Claimed bool
}

// Occupants returns the first records of a pool, in order of address, and how many
// there are in all. Those that are about to be released are left out.
func (l *Ledger) Occupants(pool ipam.PoolKey, most int) (first []Occupant, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.books[pool]
	if b == nil {
		return nil, 0
	}
	for _, head := range b.blocks.AllSorted() {
		for e := range head.chain() {
			if e.hold == nil && !e.isReleased() && len(first) < most {
				first = append(first, Occupant{Record: e.record(), Claimed: e.claimed || e.holderUID != "" || e.alike.Value().purpose == ipam.PurposePool})
			}
		}
		if len(first) == most {
			break
		}
	}
	return first, max(b.records-b.leaving, len(first))
}

// isReleased reports whether the record is about to be released and not kept for
// another claim.
func (e *entry) isReleased() bool {
	return e.leaving && e.alike.Value().reclaim != ipam.ReclaimRetain && e.sticky == ""
}
