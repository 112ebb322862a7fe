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

// book holds a pool view: one space in which blocks exclude each other, with all that is held in
// it. The Ledger's lock guards it.
type book struct {
	key ipam.PoolKey
	// pool is the pool as its spec states it; it is known only if space is set.
	pool ipam.Pool
	// space is the part of the pool that can be handed out: all but the withheld, recorded and held
	// blocks. It is nil while only records of the pool have been seen, not the pool.
	space *space.Space

	blocks  bart.Table[*entry]
	records int
	// unreadable has the blocks that are in use in every pool view.
	unreadable *book
	// held is the usage by the records, by their standing.
	held    [standings]ipam.Usage
	leaving int
	// unconfirmed is the set of records that are not confirmed.
	unconfirmed map[*entry]bool
	// contested contains the records whose block overlapped another recorded block when the view
	// first showed them, with the time of that.
	contested map[*entry]time.Time
	// outOfRange counts addresses that are recorded and withheld.
	outOfRange space.Count
	// spreading is the time until which first fits begin at cursor, because replicas have run into
	// each other. A cursor that is not valid is drawn again; draws counts the draws.
	spreading time.Time
	cursor    netip.Addr
	draws     int
	gateways
	// frees counts freed blocks. A goroutine that awaits one is woken, without blocking, for a
	// freed block and for releases that are on their way.
	frees   int
	onFree  func(ipam.PoolKey, netip.Prefix) // nil until the pool view is in its ledger
	awaited map[chan<- struct{}]struct{}
}

func newBook(key ipam.PoolKey, unreadable *book) *book {
	b := &book{key: key, unreadable: unreadable, awaited: map[chan<- struct{}]struct{}{}, unconfirmed: map[*entry]bool{}, contested: map[*entry]time.Time{}, gateways: gateways{counts: map[netip.Addr]int{}}}
	if key.Kind == ipam.PoolKindRoutingDomain {
		b.describe(ipam.Pool{Key: key, CIDR: key.Family.All(), Family: key.Family})
	}
	return b
}

// describe takes over a pool's spec. It costs O(records) if the CIDR or the withheld space changed,
// else nothing. After such a change any block may have become free.
func (b *book) describe(pool ipam.Pool) {
	same := b.space != nil && b.pool.CIDR == pool.CIDR && b.pool.Withheld.Equal(pool.Withheld)
	b.assumeGateway(pool)
	b.pool = pool
	if same {
		return
	}
	b.space, b.outOfRange = space.NewWithout(pool.CIDR, pool.Withheld), space.Count{}
	for _, first := range b.blocks.All() {
		for e := range first.chain() {
			b.space.Use(e.block)
			b.countOutOfRange(e, space.Count.Add)
		}
	}
	for block := range b.unreadable.blocks.All() {
		b.space.Use(block)
	}
	b.useGateways(pool.CIDR)
	if b.onFree != nil {
		b.onFree(b.key, pool.CIDR)
	}
}

// take adds a record or a hold.
func (b *book) take(e *entry) {
	b.blocks.Modify(e.block, func(first *entry, _ bool) (*entry, bool) {
		e.next = first
		return e, false
	})
	b.countGateway(e, 1)
	if e.hold == nil {
		b.records++
	}
	if b.space != nil {
		b.space.Use(e.block)
		b.countOutOfRange(e, space.Count.Add)
	}
}

// drop removes a record or a hold, and frees the space that nothing else keeps in use.
func (b *book) drop(e *entry) {
	last := false
	b.blocks.Modify(e.block, func(first *entry, _ bool) (*entry, bool) {
		rest := first.without(e)
		last = rest == nil
		return rest, last
	})
	b.setLeaving(e, false)
	if e.hold == nil {
		b.records--
	}
	if b.space != nil {
		b.countOutOfRange(e, space.Count.Sub)
	}
	b.countGateway(e, -1)
	if b.space != nil && last {
		b.free(e.block)
	}
}

func (b *book) free(block netip.Prefix) {
	b.space.Release(block)
	for _, held := range []*book{b, b.unreadable} {
		for e := range held.overlapping(block) {
			b.space.Use(e.block)
		}
	}
	b.useGateways(block)
	b.frees++
	b.tellAwaiting()
	b.onFree(b.key, block)
}

func (b *book) tellAwaiting() {
	for wake := range b.awaited {
		select {
		case wake <- struct{}{}:
		default: // it has been woken already
		}
	}
}

func (b *book) countOutOfRange(e *entry, op func(space.Count, space.Count) space.Count) {
	if e.hold == nil {
		b.outOfRange = op(b.outOfRange, b.pool.Withheld.SizeIn(e.block))
	}
}

func (b *book) setLeaving(e *entry, leaving bool) {
	switch {
	case leaving && !e.leaving:
		b.leaving++
		b.tellAwaiting()
	case !leaving && e.leaving:
		b.leaving--
	}
	e.leaving = leaving
}

// stateChanged notes that a record may have another state: a record that is retained or cools down
// is not about to be released.
func (b *book) stateChanged(e *entry) {
	if e.state() != ipam.StateBound {
		b.setLeaving(e, false)
	}
	b.tellAwaiting()
}

// overlapping returns every record and hold of which a part lies in block.
func (b *book) overlapping(block netip.Prefix) iter.Seq[*entry] {
	return func(yield func(*entry) bool) {
		if !b.blocks.OverlapsPrefix(block) {
			return
		}
		for _, first := range b.blocks.Supernets(block) { // block itself included
			for e := range first.chain() {
				if !yield(e) {
					return
				}
			}
		}
		for p, first := range b.blocks.Subnets(block) {
			if p == block {
				continue
			}
			for e := range first.chain() {
				if !yield(e) {
					return
				}
			}
		}
	}
}

// rival returns a record that overlaps block and is not the record of that name, or nil. Holds do
// not count: they belong to no holder yet.
func (b *book) rival(block netip.Prefix, name ipam.Name) *entry {
	for e := range b.overlapping(block) {
		if e.hold == nil && e.key() != name {
			return e
		}
	}
	return nil
}

// find returns a free block. The block is not in use yet.
func (b *book) find(bits int, strategy ipam.Strategy, random *rand.Rand, now time.Time) (netip.Prefix, bool) {
	switch strategy {
	case ipam.StrategyBestFit:
		return b.space.Find(space.BestFit, bits)
	case ipam.StrategyWorstFit:
		return b.space.Find(space.WorstFit, bits)
	case ipam.StrategyRandom:
		return b.space.FindFrom(randomAddr(b.pool.CIDR, random), bits)
	}
	first, ok := b.space.Find(space.FirstFit, bits)
	if !ok || now.After(b.spreading) {
		b.draws = 0
		return first, ok
	}
	return b.findApart(first, random)
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

// findApart returns the first free block at or after the cursor that has the length of first.
func (b *book) findApart(first netip.Prefix, random *rand.Rand) (netip.Prefix, bool) {
	if !b.cursor.IsValid() {
		over := min(spreadBits+b.draws, first.Bits()-b.pool.CIDR.Bits(), 62)
		b.cursor = ahead(first, random.Uint64N(1<<over))
		b.draws++
	}
	block, ok := b.space.FindFrom(b.cursor, first.Bits())
	if ok {
		b.cursor = ahead(block, 1)
	}
	return block, ok
}

// lost notes that another replica was faster.
func (b *book) lost(now time.Time) {
	b.spreading, b.cursor = now.Add(spreadFor), netip.Addr{}
}

// crowded notes contention: another replica has recorded a block.
func (b *book) crowded(now time.Time) {
	if now.Before(b.spreading) {
		b.spreading = now.Add(spreadFor)
	}
}

// ahead returns the address n blocks after a block. The address may lie outside the pool; a search
// wraps round from there.
func ahead(block netip.Prefix, n uint64) netip.Addr {
	bytes := block.Addr().AsSlice()
	offset := new(big.Int).Lsh(new(big.Int).SetUint64(n), uint(len(bytes)*8-block.Bits()))
	sum := offset.Add(offset, new(big.Int).SetBytes(bytes))
	if sum.BitLen() > len(bytes)*8 {
		return block.Addr()
	}
	addr, _ := netip.AddrFromSlice(sum.FillBytes(bytes)) // as long as the address that it came from
	return addr
}

func (b *book) largestFree() int {
	if bits, ok := b.space.LargestFree(); ok {
		return bits
	}
	return ipam.NoLength
}

// empty reports whether nothing is lost with the pool view: no pool describes it, nothing is held
// in it, and no goroutine awaits anything there. A routing domain is described by its name alone.
func (b *book) empty() bool {
	described := b.space != nil && b.key.Kind != ipam.PoolKindRoutingDomain
	return !described && b.blocks.Size() == 0 && len(b.awaited) == 0
}

// randomAddr returns a random address of a block.
func randomAddr(block netip.Prefix, random *rand.Rand) netip.Addr {
	bytes := block.Addr().AsSlice()
	for bit := block.Bits(); bit < len(bytes)*8; bit++ {
		if random.Uint32()&1 == 1 {
			bytes[bit/8] |= 0x80 >> (bit % 8)
		}
	}
	addr, _ := netip.AddrFromSlice(bytes) // as long as the address that it came from
	return addr
}
