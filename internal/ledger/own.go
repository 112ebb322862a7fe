package ledger

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// openRecords returns the own records of a pool in which blocks of the pool can be confirmed: those
// that are confirmed and not being released. If the pool is known, they have the blocks that it states, or
// were made for an earlier state of it.
func (l *Ledger) openRecords(key ipam.PoolKey, pool *ipam.Pool) iter.Seq[*entry] {
	isOwn := func(own *entry) bool {
		isEarlier := pool != nil && own.holderUID != "" && own.holderUID == pool.Spec.UID
		return pool == nil || own.pool() == pool.Home && (isEarlier || own.hasBlocks(pool.Blocks()))
	}
	return func(yield func(*entry) bool) {
		for own := range l.byHolder.findAll(convert.HolderOfPool(key)) {
			isBound := own.state() == ipam.StateBound && !own.terminating
			if own.purpose() == ipam.PurposePool && own.confirmed && isBound && isOwn(own) && !yield(own) {
				return
			}
		}
	}
}

// IsOpen reports whether a pool can hand out blocks.
func (l *Ledger) IsOpen(pool ipam.Pool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range l.openRecords(pool.Key, &pool) {
		return true
	}
	return false
}

// known returns the pool as its spec states it, or nil if that is not known.
func (l *Ledger) known(key ipam.PoolKey) *ipam.Pool {
	if b := l.poolViews[key]; b != nil && b.space != nil {
		return &b.pool
	}
	return nil
}

// isCovered reports whether each block of a record lies in its pool's open records. A routing domain
// has all addresses.
func (l *Ledger) isCovered(e *entry) bool {
	if !e.pool().Kind.IsPool() {
		return true
	}
	openRecords := l.openRecords(e.pool(), l.known(e.pool()))
	for part := range e.all() {
		if !coversBlock(openRecords, part.block) {
			return false
		}
	}
	return true
}

func coversBlock(openRecords iter.Seq[*entry], block netip.Prefix) bool {
	var inside []space.Range
	for own := range openRecords {
		for part := range own.all() {
			switch {
			case ipam.Covers(part.block, block):
				return true
			case ipam.Covers(block, part.block):
				inside = append(inside, space.RangeOf(part.block))
			}
		}
	}
	return space.NewRanges(block, inside).Size() == space.CountOf(block)
}

// isNeeded reports whether an own record cannot be released: records of the pool lie in it, and in no
// other open one. If there is no other, that is any record of the pool. The own record of a pool that
// stays also needs another open one of the same UID to be in its place, or the pool would hold nothing.
func (l *Ledger) isNeeded(own *entry, pool ipam.PoolKey, poolStays bool) bool {
	others := slices.DeleteFunc(slices.Collect(l.openRecords(pool, l.known(pool))), func(e *entry) bool { return e == own })
	isReplaced := slices.ContainsFunc(others, func(e *entry) bool { return e.holderUID == own.holderUID })
	others = slices.DeleteFunc(others, func(e *entry) bool { return e.pool() != own.pool() }) // another home has other space
	b := l.poolViews[pool]
	switch {
	case poolStays && !isReplaced:
		return true
	case b == nil || b.records == 0:
		return false
	case len(others) == 0:
		return true
	}
	covered := rangesOf(slices.Values(others))
	for part := range own.all() {
		outside := convert.Outside(part.block, slices.Collect(space.NewRanges(part.block, covered).All()))
		for _, block := range ipam.BlocksOf(space.NewRanges(part.block, outside)) {
			if b.recordOn(block) != nil {
				return true
			}
		}
	}
	return false
}

// rangesOf returns what some records hold.
func rangesOf(entries iter.Seq[*entry]) []space.Range {
	var ranges []space.Range
	for e := range entries {
		for part := range e.all() {
			ranges = append(ranges, space.RangeOf(part.block))
		}
	}
	return ranges
}

// updatePoolOf hands out the space of the pool whose own record has changed, as far as it is covered,
// confirms the records there, and wakes those that wait for the pool.
func (l *Ledger) updatePoolOf(poolEntry *entry) {
	if poolEntry.purpose() != ipam.PurposePool {
		return
	}
	b := l.poolViews[convert.PoolOf(poolEntry.holder())]
	if b == nil {
		return
	}
	if b.pool.Occupied != nil {
		b.describe(l.withUncovered(b.pool, b.stated))
	}
	l.confirmBlocks(b)
	b.wakeWaiters()
}

// withUncovered returns a pool that occupies its ranges with all addresses withheld that none of its
// own records covers: an edit has added them, and another holder may have them.
func (l *Ledger) withUncovered(pool ipam.Pool, stated *space.Ranges) ipam.Pool {
	if pool.Occupied == nil {
		return pool
	}
	covered := rangesOf(l.openRecords(pool.Key, &pool))
	pool.Withheld = space.NewRanges(pool.CIDR, slices.AppendSeq(convert.Outside(pool.CIDR, covered), stated.All()))
	return pool
}
