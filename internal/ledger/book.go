package ledger

import (
	"iter"
	"math/big"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/gaissmai/bart"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// poolView holds one space in which blocks exclude each other. The Ledger's lock guards it.
type poolView struct {
	// pool is the pool as its spec states it; only its key is known if space is not set.
	pool ipam.Pool
	// stated is what the spec withholds; pool withholds more if no own record covers it.
	stated *space.Ranges
	// space has the free blocks: all but the withheld, recorded and held ones. It is nil while only
	// records of the pool have been seen.
	space *space.Space

	blocks  bart.Table[*entry]
	records int
	// unreadable has the blocks that are in use in every pool view.
	unreadable *poolView
	// usageByStanding is the usage by the records, by their standing.
	usageByStanding [standings]ipam.Usage
	leavingCount    int
	// unconfirmedEntries is the set of records that are not confirmed.
	unconfirmedEntries map[*entry]bool
	// contestedEntries contains the records whose block overlapped another one when the view first
	// showed them, since when.
	contestedEntries map[*entry]time.Time
	// outOfRange counts addresses that are recorded and withheld.
	outOfRange space.Count
	// spreadUntil is the time until which first fits begin at cursor, because replicas have run into
	// each other. A cursor that is not valid is drawn again; draws counts the draws.
	spreadUntil time.Time
	cursor      netip.Addr
	draws       int
	gateways
	// frees counts freed blocks. waiters are woken, without blocking, for them, for coming releases,
	// and for the own records of the pool.
	frees   int
	onFree  func(ipam.PoolKey, netip.Prefix) // nil until the pool view is in its ledger
	waiters map[chan<- struct{}]struct{}
}

func newPoolView(key ipam.PoolKey, unreadable *poolView) *poolView {
	b := &poolView{
		pool: ipam.Pool{Key: key}, unreadable: unreadable, waiters: map[chan<- struct{}]struct{}{}, gateways: gateways{counts: map[netip.Addr]int{}},
		unconfirmedEntries: map[*entry]bool{}, contestedEntries: map[*entry]time.Time{},
	}
	if key.Kind == ipam.PoolKindRoutingDomain {
		b.describe(ipam.Pool{Key: key, CIDR: key.Family.All(), Family: key.Family})
	}
	return b
}

// describe takes over a pool's spec. It costs O(records) if the CIDR or the withheld space changed.
// Any block may be free then.
func (b *poolView) describe(pool ipam.Pool) {
	isUnchanged := b.space != nil && b.pool.CIDR == pool.CIDR && b.pool.Withheld.Equal(pool.Withheld)
	b.assumeGateway(pool)
	b.pool = pool
	if isUnchanged {
		return
	}
	b.space, b.outOfRange = space.NewWithout(pool.CIDR, pool.Withheld), space.Count{}
	for block, e := range chained(b.blocks.All()) {
		b.space.Use(block)
		b.countOutOfRange(block, e, space.Count.Add)
	}
	for block := range b.unreadable.blocks.All() {
		b.space.Use(block)
	}
	b.useGateways(pool.CIDR)
	if b.onFree != nil {
		b.onFree(b.pool.Key, pool.CIDR)
	}
}

// addEntry adds a record or a hold.
func (b *poolView) addEntry(e *entry) {
	for part := range e.all() {
		b.blocks.Modify(part.block, func(first *entry, _ bool) (*entry, bool) {
			part.nextIn[linkBlock] = first
			return part, false
		})
		if b.space != nil {
			b.space.Use(part.block)
			b.countOutOfRange(part.block, e, space.Count.Add)
		}
	}
	b.countGateway(e, 1)
	if e.hold == nil {
		b.records++
	}
}

// removeEntry removes a record or a hold, and frees the space that nothing else keeps in use.
func (b *poolView) removeEntry(e *entry) {
	b.setLeaving(e, false)
	if e.hold == nil {
		b.records--
	}
	b.countGateway(e, -1)
	for part := range e.all() {
		isLast := false
		b.blocks.Modify(part.block, func(first *entry, _ bool) (*entry, bool) {
			remaining := first.unlink(linkBlock, part)
			isLast = remaining == nil
			return remaining, isLast
		})
		if b.space != nil {
			b.countOutOfRange(part.block, e, space.Count.Sub)
		}
		if b.space != nil && isLast {
			b.freeBlock(part.block)
		}
	}
}

func (b *poolView) freeBlock(block netip.Prefix) {
	b.releaseBlock(block, true)
	b.frees++
	b.wakeWaiters()
	b.onFree(b.pool.Key, block)
}

// releaseBlock frees the space of a block that no record, no gateway and, if holds count, no hold keeps in use.
func (b *poolView) releaseBlock(block netip.Prefix, holdsCount bool) {
	b.space.Release(block)
	for _, view := range []*poolView{b, b.unreadable} {
		for overlap, e := range view.overlapping(block) {
			if holdsCount || e.hold == nil {
				b.space.Use(overlap)
			}
		}
	}
	b.useGateways(block)
}

func (b *poolView) wakeWaiters() {
	for wake := range b.waiters {
		select {
		case wake <- struct{}{}:
		default: // it has been woken already
		}
	}
}

func (b *poolView) countOutOfRange(block netip.Prefix, e *entry, op func(space.Count, space.Count) space.Count) {
	if e.hold == nil {
		b.outOfRange = op(b.outOfRange, b.pool.Withheld.SizeIn(block))
	}
}

func (b *poolView) setLeaving(e *entry, leaving bool) {
	switch {
	case leaving && !e.isLeaving:
		b.leavingCount++
		b.wakeWaiters()
	case !leaving && e.isLeaving:
		b.leavingCount--
	}
	e.isLeaving = leaving
}

// onStateChange notes that a record may be retained or cool down: then it is not about to be
// released.
func (b *poolView) onStateChange(e *entry) {
	if e.state() != ipam.StateBound {
		b.setLeaving(e, false)
	}
	b.wakeWaiters()
}

// Overlapping returns the blocks of a table that overlap a block, with their values.
func Overlapping[V any](table *bart.Table[V], block netip.Prefix) iter.Seq2[netip.Prefix, V] {
	return func(yield func(netip.Prefix, V) bool) {
		if !table.OverlapsPrefix(block) {
			return
		}
		for other, v := range table.Supernets(block) { // block itself included
			if !yield(other, v) {
				return
			}
		}
		for other, v := range table.Subnets(block) {
			if other != block && !yield(other, v) {
				return
			}
		}
	}
}

// chained returns each block, in their order, with the entry of each record and hold that has it.
func chained(firstEntries iter.Seq2[netip.Prefix, *entry]) iter.Seq2[netip.Prefix, *entry] {
	return func(yield func(netip.Prefix, *entry) bool) {
		for block, part := range firstEntries {
			for ; part != nil; part = part.nextIn[linkBlock] {
				if !yield(block, part.whole()) {
					return
				}
			}
		}
	}
}

// overlapping returns every record and hold of which a part lies in block, with its block there.
func (b *poolView) overlapping(block netip.Prefix) iter.Seq2[netip.Prefix, *entry] {
	return chained(Overlapping(&b.blocks, block))
}

// overlappingRecords returns every other record that has a part of a record's blocks, with its block
// there. Holds belong to no holder yet.
func (b *poolView) overlappingRecords(e *entry) iter.Seq2[netip.Prefix, *entry] {
	return func(yield func(netip.Prefix, *entry) bool) {
		for part := range e.all() {
			for overlap, other := range b.overlapping(part.block) {
				if other != e && other.hold == nil && !yield(overlap, other) {
					return
				}
			}
		}
	}
}

// rival returns a record that overlaps this one and excludes it, with its block there, or nil.
func (b *poolView) rival(e *entry) (other *entry, overlap netip.Prefix) {
	for overlap, other := range b.overlappingRecords(e) {
		if e.excludes(other) {
			return other, overlap
		}
	}
	return nil, netip.Prefix{}
}

func (b *poolView) hasRival(e *entry) bool {
	other, _ := b.rival(e)
	return other != nil
}

// recordOn returns a record that has a part of the block, or nil.
func (b *poolView) recordOn(block netip.Prefix) *entry {
	for _, e := range b.overlapping(block) {
		if e.hold == nil {
			return e
		}
	}
	return nil
}

// findFree returns a free block. The block is not in use yet.
func (b *poolView) findFree(bits int, strategy ipam.Strategy, random *rand.Rand, now time.Time) (netip.Prefix, bool) {
	switch strategy {
	case ipam.StrategyBestFit:
		return b.space.Find(space.BestFit, bits)
	case ipam.StrategyWorstFit:
		return b.space.Find(space.WorstFit, bits)
	case ipam.StrategyRandom:
		return b.space.FindFrom(randomAddrIn(b.pool.CIDR, random), bits)
	}
	first, ok := b.space.Find(space.FirstFit, bits)
	if !ok || now.After(b.spreadUntil) {
		b.draws = 0
		return first, ok
	}
	return b.findSpread(first, random)
}

// Two replicas that serve many requests at once would find the same first free block again and
// again, and each time one of them would have written in vain. A replica that has lost a race
// therefore jumps ahead by a random number of blocks and continues from there, block by block, for
// as long as others record in the same pool. Two replicas that are apart stay apart until one
// reaches the position of the other. It then jumps again, twice as far, as the nearby blocks fill
// up.
const (
	spreadFor  = time.Second
	spreadBits = 12 // 4,096 blocks
)

// findSpread returns the first free block at or after the cursor that has the length of first.
func (b *poolView) findSpread(first netip.Prefix, random *rand.Rand) (netip.Prefix, bool) {
	if !b.cursor.IsValid() {
		bits := min(spreadBits+b.draws, first.Bits()-b.pool.CIDR.Bits(), 62)
		b.cursor = offsetAddr(first, random.Uint64N(1<<bits))
		b.draws++
	}
	block, ok := b.space.FindFrom(b.cursor, first.Bits())
	if ok {
		b.cursor = offsetAddr(block, 1)
	}
	return block, ok
}

// startSpreading notes that another replica was faster.
func (b *poolView) startSpreading(now time.Time) {
	b.spreadUntil, b.cursor = now.Add(spreadFor), netip.Addr{}
}

// extendSpreading notes contention: another replica has recorded a block.
func (b *poolView) extendSpreading(now time.Time) {
	if now.Before(b.spreadUntil) {
		b.spreadUntil = now.Add(spreadFor)
	}
}

// offsetAddr returns the address n blocks after a block, perhaps outside the pool: a search wraps
// round.
func offsetAddr(block netip.Prefix, n uint64) netip.Addr {
	bytes := block.Addr().AsSlice()
	offset := new(big.Int).Lsh(new(big.Int).SetUint64(n), uint(len(bytes)*8-block.Bits()))
	sum := offset.Add(offset, new(big.Int).SetBytes(bytes))
	if sum.BitLen() > len(bytes)*8 {
		return block.Addr()
	}
	addr, _ := netip.AddrFromSlice(sum.FillBytes(bytes)) // as long as the address that it came from
	return addr
}

func (b *poolView) largestFree() int {
	if bits, ok := b.space.LargestFree(); ok {
		return bits
	}
	return ipam.NoLength
}

// isEmpty reports whether nothing is lost with the pool view. A routing domain is described by its
// name.
func (b *poolView) isEmpty() bool {
	isDescribed := b.space != nil && b.pool.Key.Kind != ipam.PoolKindRoutingDomain
	return !isDescribed && b.blocks.Size() == 0 && len(b.waiters) == 0
}

// randomAddrIn returns a random address of a block.
func randomAddrIn(block netip.Prefix, random *rand.Rand) netip.Addr {
	bytes := block.Addr().AsSlice()
	for bit := block.Bits(); bit < len(bytes)*8; bit++ {
		if random.Uint32()&1 == 1 {
			bytes[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	addr, _ := netip.AddrFromSlice(bytes) // as long as the address that it came from
	return addr
}
