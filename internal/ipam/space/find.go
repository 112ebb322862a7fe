package space

import (
	"fmt"
	"net/netip"
)

// Fit represents the choice of the maximal free block from which a block is taken. Each fit
// takes the lowest block that qualifies, and cuts from its low end.
type Fit int

const (
	// FirstFit takes from any block that is large enough: the lowest one.
	FirstFit Fit = iota
	// BestFit takes from the smallest block that is large enough, and so keeps the large ones
	// whole.
	BestFit
	// WorstFit takes from the largest block, and so leaves room beside each block.
	WorstFit
)

// String returns the name of the constant.
func (f Fit) String() string {
	switch f {
	case FirstFit:
		return "FirstFit"
	case BestFit:
		return "BestFit"
	case WorstFit:
		return "WorstFit"
	}
	return fmt.Sprintf("Fit(%d)", int(f))
}

// among returns the lengths of free blocks from which f takes.
func (f Fit) among(free uint128) uint128 {
	switch f {
	case BestFit:
		return one(free.longest())
	case WorstFit:
		return one(free.shortest())
	default:
		return free
	}
}

// Find returns a free block of the length bits, 0 to 32 in an IPv4 pool and 0 to 128 in an IPv6
// pool. It does not mark the block as in use. It returns none when no free block of that length
// is left, or when the pool is smaller than that.
func (s *Space) Find(fit Fit, bits int) (netip.Prefix, bool) {
	want, ok := s.length(bits)
	if !ok {
		return netip.Prefix{}, false
	}
	if s.root == none {
		return prefix{s.pool.addr, want}.netip(s.is4), true
	}
	free := s.nodes[s.root].below(s.pool.len).and(ones(want))
	if free.isZero() {
		return netip.Prefix{}, false
	}
	found := s.lowest(s.root, s.pool.len, fit.among(free))
	return prefix{found, want}.netip(s.is4), true
}

// FindFrom returns the lowest free block of the length bits that starts at from or after it, or
// if there is none, the lowest free block. It is next fit when from is the end of the last
// found block, and random fit when from is a random address of the pool. Any address of the
// pool's family will do for from; there is no block for one of the other family.
func (s *Space) FindFrom(from netip.Addr, bits int) (netip.Prefix, bool) {
	want, ok := s.length(bits)
	if !ok || !from.IsValid() || from.Is4() != s.is4 {
		return netip.Prefix{}, false
	}
	// Rounded up to a block's start. Past the last address it wraps to the first.
	start := addressOf(from).plus(one(want).minus(uint128{0, 1})).and(ones(want))
	first := prefix{start, want}
	if s.pool.covers(first) {
		if found, ok := s.after(s.root, s.pool.len, first); ok {
			return prefix{found, want}.netip(s.is4), true
		}
	}
	return s.Find(FirstFit, bits)
}

// LargestFree returns the length of the largest free block. There is none when the whole pool
// is in use.
func (s *Space) LargestFree() (bits int, ok bool) {
	if s.root == none {
		return s.cidr.Bits(), true
	}
	free := s.nodes[s.root].below(s.pool.len)
	if free.isZero() {
		return 0, false
	}
	// Here a length is longer than in the pool's family by as much as the length of the pool.
	return int(free.shortest()-s.pool.len) + s.cidr.Bits(), true
}

// FreeBlocks returns the number of blocks of the length bits that could still be handed out, if
// no others were. Its cost grows with the number of blocks in use.
func (s *Space) FreeBlocks(bits int) Count {
	want, ok := s.length(bits)
	if !ok {
		return Count{}
	}
	if s.root == none {
		// 2^n blocks for n bits more, as a prefix n bits short of an address has 2^n addresses.
		return sizeOf(128 - (want - s.pool.len))
	}
	n := s.freeIn(s.root, s.pool.len, ones(want)).shiftRight(128 - want)
	return Count{hi: n.hi, lo: n.lo}
}

// length converts a length of the pool's family, and reports whether a pool of
// this size can have blocks of that length.
func (s *Space) length(bits int) (uint8, bool) {
	if bits < s.cidr.Bits() || bits > s.cidr.Addr().BitLen() {
		return 0, false
	}
	return uint8(bits-s.cidr.Bits()) + s.pool.len, true
}

// lowest returns the start of the lowest maximal free block whose length is one of among, in
// the prefix of length top that covers the node at. There is one.
//
// An edge passes by free blocks on both sides. The blocks before the node have the lengths at
// which its address has a 1, and the shortest of these lengths comes first. The blocks behind
// it have the lengths at which it has a 0, and the longest of these comes first:
//
//	node 10110… below a prefix of length 0:
//	before it  /1 00000, /3 10000, /4 10100
//	behind it  /5 10111, /2 11000
func (s *Space) lowest(at ref, top uint8, among uint128) uint128 {
	for {
		n := &s.nodes[at]
		beside := among.and(between(top, n.len))
		if before := beside.and(n.addr); !before.isZero() {
			return n.beside(before.shortest()).addr
		}
		if n.free.and(among).isZero() {
			return n.beside(beside.longest()).addr
		}
		if n.folded() {
			return s.withheld.lowest(n.prefix, among)
		}
		top = n.len + 1
		at = n.child[0]
		if s.nodes[at].below(top).and(among).isZero() {
			at = n.child[1]
		}
	}
}

// after returns the start of the lowest free block that is as long as from and is from or
// behind it. Both from and the node at lie in one prefix of length top.
func (s *Space) after(at ref, top uint8, from prefix) (uint128, bool) {
	if at == none {
		return from.addr, true
	}
	n := &s.nodes[at]
	if n.addr.common(from.addr) < min(n.len, from.len) {
		return from.addr, true // the edge to n passes by it
	}
	fits := ones(from.len)
	switch {
	case n.free.and(fits).isZero():
	case n.folded(): // n is the shorter, and covers from
		if found, ok := s.withheld.after(n.prefix, from); ok {
			return found, true
		}
	default: // so it is here
		side := from.addr.bit(n.len)
		if found, ok := s.after(n.child[side], n.len+1, from); ok {
			return found, true
		}
		if side == 0 && !s.nodes[n.child[1]].below(n.len+1).and(fits).isZero() {
			return s.lowest(n.child[1], n.len+1, fits), true
		}
	}
	behind := between(top, n.len).and(fits).andNot(n.addr)
	if behind.isZero() {
		return uint128{}, false
	}
	return n.beside(behind.longest()).addr, true
}

// freeIn returns the number of addresses in the maximal free blocks whose lengths are among
// these, in the prefix of length top that covers the node at.
func (s *Space) freeIn(at ref, top uint8, among uint128) uint128 {
	n := &s.nodes[at]
	// The bit of a length has the value of the number of its addresses, so the set
	// of the blocks that the edge passes by, read as a number, is their size.
	free := between(top, n.len).and(among)
	if n.free.and(among).isZero() {
		return free
	}
	if n.folded() {
		return free.plus(s.withheld.freeIn(n.prefix, among))
	}
	for _, kid := range n.child {
		free = free.plus(s.freeIn(kid, n.len+1, among))
	}
	return free
}
