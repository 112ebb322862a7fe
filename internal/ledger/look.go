package ledger

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Capacity counts the addresses of a pool, and the records in it.
// Total = Allocated + Available + Withheld - OutOfRange.
type Capacity struct {
	Total, Allocated, Available, Withheld, OutOfRange space.Count
	Records                                           int
	// LargestFree is the length of the largest free block, or ipam.NoLength.
	LargestFree int
}

// Capacity returns the capacity of a pool with a CIDR. A block that is only held counts as available: it may be free
// again a moment later.
func (l *Ledger) Capacity(pool ipam.PoolKey) (Capacity, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil || b.space == nil {
		return Capacity{}, false
	}
	var c Capacity
	l.withoutHolds(func() {
		c = b.capacity()
		c.LargestFree = b.largestFree()
	})
	return c, true
}

// withoutHolds calls f while the blocks that are only held are free. It costs O(holds).
func (l *Ledger) withoutHolds(f func()) {
	for _, h := range l.holds {
		if b := l.poolViews[h.ask.Pool]; b != nil && b.space != nil {
			for part := range h.entry.all() {
				b.releaseBlock(part.block, false)
				defer b.space.Use(part.block)
			}
		}
	}
	f()
}

// capacity leaves out the largest free block.
func (b *poolView) capacity() Capacity {
	outside := b.outside()
	c := Capacity{
		Total: b.space.Total().Sub(outside), Available: b.space.Free(),
		Withheld: b.pool.Withheld.Size().Sub(outside), OutOfRange: b.outOfRange,
		Records: b.records,
	}
	for gateway := range b.formerGateways() {
		c.Withheld = c.Withheld.Add(space.CountOf64(1))
		if b.isRecorded(blockOf(gateway)) {
			c.OutOfRange = c.OutOfRange.Add(space.CountOf64(1))
		}
	}
	c.Allocated = c.Total.Sub(c.Available).Sub(c.Withheld).Add(c.OutOfRange)
	return c
}

// Records returns the number of blocks that are recorded in a pool.
func (l *Ledger) Records(pool ipam.PoolKey) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if b := l.poolViews[pool]; b != nil {
		return b.records
	}
	return 0
}

// Record returns the record of a name, if the view has one.
func (l *Ledger) Record(name ipam.Name) (ipam.Record, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := l.byName.find(name); e != nil {
		return e.record(), true
	}
	return ipam.Record{}, false
}

// Stats returns the counts since the start of the process.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stats
}

// PoolState represents a pool's ability to hand out blocks.
type PoolState struct {
	// Record is the own record of what the pool holds by its spec, zero if there is none.
	Record ipam.Record
	// Former are its other own records, which were made before its ranges or its routing domain were edited.
	Former []ipam.Record
	// Rival overlaps the pool's own record, which is not confirmed: the pool is in conflict.
	Rival *ipam.Record
	// Recorded reports whether Record is confirmed and not being released; Open whether any own record
	// is, so that the pool can hand out blocks of it.
	Recorded, Open bool
}

// State returns the state of a pool.
func (l *Ledger) State(pool ipam.Pool) PoolState {
	l.mu.Lock()
	defer l.mu.Unlock()
	var state PoolState
	var current *entry
	blocks := pool.Blocks()
	for e := range l.byHolder.findAll(convert.HolderOfPool(pool.Key)) {
		if e.purpose() != ipam.PurposePool {
			continue
		}
		if e.pool() == pool.Home && e.hasBlocks(blocks) && (current == nil || e.name < current.name) { // every replica keeps the same one
			current, e = e, current
		}
		if e != nil && e.holderUID != "" && e.holderUID == pool.Spec.UID {
			state.Former = append(state.Former, e.record())
		}
	}
	if current != nil {
		state.Record = current.record()
		if rival, _ := l.poolViews[pool.Home].rival(current); rival != nil && !current.confirmed {
			state.Rival = new(rival.record())
		}
	}
	for own := range l.openRecords(pool.Key, &pool) {
		state.Open = true
		state.Recorded = state.Recorded || own.uid == state.Record.UID
	}
	return state
}

// RecordsIn returns the records of a pool or routing domain that have a part of some blocks, up to a number.
func (l *Ledger) RecordsIn(pool ipam.PoolKey, blocks []netip.Prefix, limit int) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil {
		return nil
	}
	var records []ipam.Record
	seen := map[*entry]bool{}
	for _, block := range blocks {
		for _, e := range b.overlapping(block) {
			if e.hold != nil || seen[e] {
				continue
			}
			if len(records) == limit {
				return records
			}
			seen[e] = true
			records = append(records, e.record())
		}
	}
	return records
}

// HasRoom reports whether a pool has a free block of the length or, if a block is given, whether that
// block is free.
func (l *Ledger) HasRoom(pool ipam.PoolKey, length int, block netip.Prefix) (hasRoom bool) {
	l.Inspect(pool, func(r Room) {
		if hasRoom = r.Has(length); block.IsValid() {
			hasRoom = r.IsFree(block)
		}
	})
	return hasRoom
}

// FewRecords returns the records of a pool if there are no more than most, and none otherwise.
func (l *Ledger) FewRecords(pool ipam.PoolKey, limit int) []ipam.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil || b.records > limit {
		return nil
	}
	var records []ipam.Record
	for block, e := range chained(b.blocks.All()) {
		if e.hold == nil && block == e.block {
			records = append(records, e.record())
		}
	}
	return records
}

// Occupant represents a record that keeps a pool in use.
type Occupant struct {
	Record ipam.Record
	// Claimed reports whether a live object is known to have the record. Otherwise it is an attempt,
	// an orphan, or older than its pool.
	Claimed bool
}

// Occupants returns the first records of a pool that are not about to be released, by address, and
// the number of all.
func (l *Ledger) Occupants(pool ipam.PoolKey, limit int) (occupants []Occupant, total int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.poolViews[pool]
	if b == nil {
		return nil, 0
	}
	for block, e := range chained(b.blocks.AllSorted()) {
		if len(occupants) == limit {
			break
		}
		if e.hold == nil && !e.isReleased() && block == e.block {
			isClaimed := e.claimed || e.holderUID != "" || e.purpose() == ipam.PurposePool
			occupants = append(occupants, Occupant{Record: e.record(), Claimed: isClaimed})
		}
	}
	return occupants, max(b.records-b.leavingCount, len(occupants))
}

// isReleased reports whether the record is about to be released, and not kept for another claim.
func (e *entry) isReleased() bool {
	return e.isLeaving && e.shared.Value().reclaim != ipam.ReclaimRetain && e.sticky == ""
}
