package queue

import (
	"cmp"
	"math/bits"
	"net/netip"
	"slices"

	"github.com/gaissmai/bart"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Room represents the free space of one pool, at this moment.
type Room interface {
	// Has reports whether there is a free block of the length.
	Has(length int) bool
	// IsFree reports whether the whole block is free.
	IsFree(block netip.Prefix) bool
	// Allows reports whether the account can have one more block of the length from the pool.
	Allows(account ipam.Account, length int) bool
}

// poolQueue holds the waiters of one pool.
type poolQueue struct {
	// byBlock contains the waiters that ask for one block alone, by that block.
	byBlock bart.Table[[]*waiter]
	// candidates contains the waiters of byBlock whose block may be free, in order. The block of
	// every other one was in use when it was checked, and no part of it became free since.
	candidates []*waiter
	// unaware contains the waiters of byBlock that do not know yet that their block has another
	// holder.
	unaware map[*waiter]bool
	// byLength contains the other waiters by length, the shortest prefix, which is the largest block,
	// first.
	byLength []*lengthQueue
	// byLengthCount is the number of waiters in byLength.
	byLengthCount int
}

// lengthQueue holds waiters for blocks of one length, by the account for which the block would
// count: if that has as much as it can have, none of its waiters is served.
type lengthQueue struct {
	length        int
	accountGroups []*accountGroup
	byAccount     map[ipam.Account]*accountGroup
}

// accountGroup holds the waiters of a length queue for one account, in order.
type accountGroup struct {
	account ipam.Account
	waiters []*waiter
}

func compareAccountGroups(a, b *accountGroup) int { return compareWaiters(a.waiters[0], b.waiters[0]) }

// updateGroup changes or makes an account group, and keeps the groups in the order of their first
// waiters, without empty ones.
func (r *lengthQueue) updateGroup(account ipam.Account, update func([]*waiter) []*waiter) {
	g := r.byAccount[account]
	if g == nil {
		g = &accountGroup{account: account}
		r.byAccount[account] = g
	} else if at, found := slices.BinarySearchFunc(r.accountGroups, g, compareAccountGroups); found {
		r.accountGroups = slices.Delete(r.accountGroups, at, at+1)
	}
	if g.waiters = update(g.waiters); len(g.waiters) == 0 {
		delete(r.byAccount, account)
		return
	}
	at, _ := slices.BinarySearchFunc(r.accountGroups, g, compareAccountGroups)
	r.accountGroups = slices.Insert(r.accountGroups, at, g)
}

func (pq *poolQueue) isEmpty() bool { return pq.byBlock.Size() == 0 && pq.byLengthCount == 0 }

func (pq *poolQueue) addWaiter(p *waiter) {
	if block := p.Request.Block; block.IsValid() {
		pq.byBlock.Modify(block, func(waiters []*waiter, _ bool) ([]*waiter, bool) { return insert(waiters, p), false })
		pq.candidates = insert(pq.candidates, p)
		if !p.knowsConflict {
			pq.unaware[p] = true
		}
		return
	}
	at, found := pq.searchLength(p.wants.Length)
	if !found {
		pq.byLength = slices.Insert(pq.byLength, at, &lengthQueue{length: p.wants.Length, byAccount: map[ipam.Account]*accountGroup{}})
	}
	pq.byLength[at].updateGroup(p.wants.Account, func(waiters []*waiter) []*waiter { return insert(waiters, p) })
	pq.byLengthCount++
}

func (pq *poolQueue) removeWaiter(p *waiter) {
	if block := p.Request.Block; block.IsValid() {
		pq.byBlock.Modify(block, func(waiters []*waiter, _ bool) ([]*waiter, bool) {
			rest := remove(waiters, p)
			return rest, len(rest) == 0
		})
		pq.candidates = remove(pq.candidates, p)
		delete(pq.unaware, p)
		return
	}
	at, _ := pq.searchLength(p.wants.Length)
	pq.byLength[at].updateGroup(p.wants.Account, func(waiters []*waiter) []*waiter { return remove(waiters, p) })
	if len(pq.byLength[at].accountGroups) == 0 {
		pq.byLength = slices.Delete(pq.byLength, at, at+1)
	}
	pq.byLengthCount--
}

func (pq *poolQueue) searchLength(length int) (int, bool) {
	return slices.BinarySearchFunc(pq.byLength, length, func(r *lengthQueue, length int) int { return cmp.Compare(r.length, length) })
}

// noteFreed notes that a part of the block became free.
func (pq *poolQueue) noteFreed(block netip.Prefix) {
	var freed []*waiter
	for _, waiters := range ledger.Overlapping(&pq.byBlock, block) {
		freed = append(freed, waiters...)
	}
	switch len(freed) {
	case 0:
	case 1:
		pq.candidates = insert(remove(pq.candidates, freed[0]), freed[0])
	default:
		pq.candidates = append(pq.candidates, freed...)
		slices.SortFunc(pq.candidates, compareWaiters)
		pq.candidates = slices.Compact(pq.candidates)
	}
}

// firstFree returns the first waiter whose one block is free and that can have it, except the
// excluded holder. It looks only once at a waiter whose block is in use.
func (pq *poolQueue) firstFree(room Room, excludedHolder ipam.Holder) *waiter {
	inUse := 0
	for i, p := range pq.candidates {
		if !room.IsFree(p.Request.Block) {
			inUse++
			continue
		}
		if p.Holder == excludedHolder || !room.Allows(p.wants.Account, p.Request.Block.Bits()) {
			continue
		}
		if inUse > 0 {
			pq.candidates = append(filterFree(pq.candidates[:i:i], room), pq.candidates[i:]...)
		}
		return p
	}
	if inUse > 0 {
		pq.candidates = filterFree(pq.candidates, room)
	}
	return nil
}

// filterFree returns the waiters whose block is free.
func filterFree(waiters []*waiter, room Room) []*waiter {
	return slices.DeleteFunc(slices.Clone(waiters), func(p *waiter) bool { return !room.IsFree(p.Request.Block) })
}

// nextWaiter returns the first waiter that can have a block now, except the excluded holder.
func (pq *poolQueue) nextWaiter(pool ipam.Pool, room Room, excludedHolder ipam.Holder) *waiter {
	first := pq.firstFree(room, excludedHolder)
	if first != nil && first.isReturning(pool) {
		return first
	}
	for _, r := range pq.byLength {
		if !room.Has(r.length) {
			continue
		}
		oldest := r.oldest(room, excludedHolder)
		if oldest != nil && (first == nil || oldest.isBefore(first.Waiter)) {
			first = oldest
		}
	}
	return first
}

// oldest returns the first waiter that can have a block. It costs O(1), and as much again for each
// account before it that has as much as it can have.
func (r *lengthQueue) oldest(room Room, excludedHolder ipam.Holder) *waiter {
	var oldest *waiter
	for _, g := range r.accountGroups {
		if oldest != nil && oldest.isBefore(g.waiters[0].Waiter) {
			break
		}
		p := g.oldest(excludedHolder)
		if p != nil && room.Allows(g.account, r.length) && (oldest == nil || p.isBefore(oldest.Waiter)) {
			oldest = p
		}
	}
	return oldest
}

func (g *accountGroup) oldest(excludedHolder ipam.Holder) *waiter {
	for _, p := range g.waiters {
		if p.Holder != excludedHolder {
			return p
		}
	}
	return nil
}

// concurrentClaims is the number of claims that may ask one pool at a time, each seeing that there
// is plenty.
const concurrentClaims = 256

// hasPlenty reports whether the pool has room for one more block, all its waiters, and
// concurrentClaims others, even if all take as much as the largest: one free block that holds as
// many. It costs O(1).
func (pq *poolQueue) hasPlenty(room Room, length int) bool {
	if !hasRoomFor(room, concurrentClaims, length) {
		return false
	}
	if len(pq.byLength) > 0 {
		length = min(length, pq.byLength[0].length)
	}
	return hasRoomFor(room, concurrentClaims+pq.byLengthCount, length)
}

// wantedBlock returns a free block that overlaps the given one and that a waiter asks for and can
// have, except the excluded holder.
func (pq *poolQueue) wantedBlock(room Room, block netip.Prefix, excludedHolder ipam.Holder) netip.Prefix {
	for requestedBlock, waiters := range ledger.Overlapping(&pq.byBlock, block) {
		isWanted := room.IsFree(requestedBlock) && slices.ContainsFunc(waiters, func(p *waiter) bool {
			return p.Holder != excludedHolder && room.Allows(p.wants.Account, requestedBlock.Bits())
		})
		if isWanted {
			return requestedBlock
		}
	}
	return netip.Prefix{}
}

// hasRoomFor reports whether there is one free block that holds the number of blocks of the length.
func hasRoomFor(room Room, blocks, length int) bool {
	prefixLength := length - bits.Len(uint(blocks))
	return prefixLength >= 0 && room.Has(prefixLength)
}

// servableHolders returns the waiters for any block that can have one, oldest first of each length.
func (pq *poolQueue) servableHolders(room Room) []ipam.Holder {
	var all []ipam.Holder
	for _, r := range pq.byLength {
		if !room.Has(r.length) {
			continue
		}
		var waiters []*waiter
		for _, g := range r.accountGroups {
			if room.Allows(g.account, r.length) {
				waiters = append(waiters, g.waiters...)
			}
		}
		slices.SortFunc(waiters, compareWaiters)
		all = append(all, holders(waiters)...)
	}
	return all
}

// conflictedWaiters returns the waiters whose one block is in use, and that do not know that yet.
func (pq *poolQueue) conflictedWaiters(room Room) []*waiter {
	var waiters []*waiter
	for p := range pq.unaware {
		if !room.IsFree(p.Request.Block) {
			waiters = append(waiters, p)
		}
	}
	slices.SortFunc(waiters, compareWaiters)
	return waiters
}

func holders(waiters []*waiter) []ipam.Holder {
	all := make([]ipam.Holder, len(waiters))
	for i, p := range waiters {
		all[i] = p.Holder
	}
	return all
}

func (q *poolQueues) enqueue(p *waiter) {
	if !p.isQueued() {
		return
	}
	q.noteDemand(p)
	for _, key := range p.wants.Pools {
		if q.byPool[key] == nil {
			q.byPool[key] = &poolQueue{unaware: map[*waiter]bool{}}
		}
		q.byPool[key].addWaiter(p)
	}
}

func (q *poolQueues) dequeue(p *waiter) {
	if !p.isQueued() {
		return
	}
	q.noteDemand(p)
	for _, key := range p.wants.Pools {
		if q.byPool[key].removeWaiter(p); q.byPool[key].isEmpty() {
			delete(q.byPool, key)
		}
	}
}

func (p *waiter) isQueued() bool { return !p.parked && !p.isBeyondLimit }
