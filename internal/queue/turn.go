package queue

import (
	"net/netip"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// MayTake reports whether a holder may take the free block from the pool: no waiter for
// which there is room comes before it, or there is plenty for all. Where there is plenty,
// but a waiter asks for a block that overlaps this one, it returns that waiter's block: the
// holder may take another. The holder's place is zero for a newcomer, which is behind all
// that wait.
//
// It costs O(lengths that are waited for), and where there is plenty as much again for each
// waiter that asks for a block which overlaps this one.
func (q *lines) MayTake(pool ipam.Pool, room Room, holder ipam.Holder, place Waiter, block netip.Prefix) (may bool, wanted netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byPool[pool.Key]
	if line == nil {
		return true, netip.Prefix{}
	}
	if p := q.places[holder]; p != nil && p.beyond {
		place = Waiter{}
	}
	first := line.first(pool, room, holder)
	if first == nil || !place.IsZero() && !first.ahead(place, pool) {
		return true, netip.Prefix{}
	}
	if !line.hasPlenty(room, block.Bits()) {
		return false, netip.Prefix{}
	}
	wanted = line.wanted(room, block, holder)
	return !wanted.IsValid(), wanted
}

// Due are those whose turn it is in a pool: the first for which there is room, or,
// where there is plenty, all for which there is.
func (q *lines) Due(pool ipam.Pool, room Room) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byPool[pool.Key]
	if line == nil {
		return nil
	}
	first := line.first(pool, room, ipam.Holder{})
	switch {
	case first == nil:
		return nil
	case line.firstFree(room, ipam.Holder{}) == nil && line.hasPlenty(room, first.wants.Length):
		return line.fitting(room)
	}
	return []ipam.Holder{first.Holder}
}

// Conflicted are those that wait for one block of the pool, and no other, and do not know
// yet that another holder has it. Each is reported once, and again when it asks for
// another block.
func (q *lines) Conflicted(pool ipam.PoolKey, room Room) []ipam.Holder {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byPool[pool]
	if line == nil || len(line.unaware) == 0 {
		return nil
	}
	conflicted := line.conflicted(room)
	for _, p := range conflicted {
		p.knowsConflict = true
		for _, key := range p.wants.Pools {
			delete(q.byPool[key].unaware, p)
		}
	}
	return holders(conflicted)
}

// Freed notes that something of a block of the pool became free. It costs O(address
// bits), and as much as there are waiters that ask for a block which overlaps it.
func (q *lines) Freed(pool ipam.PoolKey, block netip.Prefix) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if line := q.byPool[pool]; line != nil {
		line.freed(block)
	}
}
