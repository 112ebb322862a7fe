// Package space keeps the free space of one pool.
//
// A [Space] knows which addresses of its pool are in use, and finds free blocks by several
// fits. It knows neither the user of an address nor its purpose.
//
// # How it works
//
// The addresses in use are kept as a path-compressed binary trie of the fewest prefixes that
// cover them. A leaf is a prefix that is wholly in use. An inner node is the longest prefix
// that covers its two children, and keeps two sums of the nodes below it: the number of
// addresses in use, and a mask with one bit per prefix length that means "a maximal free block
// of this length is below me". A maximal free block is one that is contained in no larger one.
//
// Every fit is then a choice among the bits of that mask, and a descent that
// follows the chosen bits. In 10.0.0.0/29, with .0, .1 and .6 in use:
//
//	 .0  .1  .2  .3  .4  .5  .6  .7
//	[##][##][  ][  ][  ][  ][##][  ]
//
//	            .0/29   2 lengths of free blocks: /31 and /32
//	           /     \
//	     .0/31         .6/32   both wholly in use
//
// The trie has two leaves, as .0 and .1 are the full halves of .0/31. Free space
// is never stored, it follows from the edges: the one to .0/31 passes by .2/31,
// the one to .6/32 passes by .4/31 and .7/32. A /32 is then found by
//
//	FirstFit  any of {/31, /32}: left has a /31           .2/32, cut from .2/31
//	BestFit   the longest, {/32}: left has none, right    .7/32
//	WorstFit  the shortest, {/31}: left has one           .2/32, cut from .2/31
//
// An IPv4 pool is kept as its IPv4-mapped IPv6 addresses, so that there is one code path, and
// all lengths inside this package count from the start of a 128-bit address.
//
// # Withheld ranges
//
// Addresses that are never handed out are kept as sorted ranges, which the trie does not
// repeat: see [Ranges]. If nothing else is in use, the trie ends in a folded node, and the sums
// of that node are calculated from the ranges below it. It is unfolded on the way to a block
// that is used there, and folded again when the last one is released.
//
// # Cost
//
// An operation goes down the trie once, with a look at the sibling of each node on its way.
// That is at most one node per bit of the address, and about log2(n) of them for n scattered
// blocks. FindFrom goes down a second time when its way has no free block, and FreeBlocks
// visits every node above a fitting block. To unfold a node, or to search a folded one, takes a
// look at up to 256 of the ranges in it, whatever their number, and at a sum of each 256 of the
// others. In the worst case, the first block of ::/0 with 2,048 withheld ranges, that is 0.1
// ms.
//
// A block in use costs at most two nodes of 64 bytes. If ranges are withheld around it, it
// costs two for each level at which it parts from one of them. Nodes live in one slice and are
// reused, so that operations allocate only when the trie is larger than it ever was; the memory
// is not given back.
package space

import (
	"fmt"
	"net/netip"
)

// Space holds the free space of one pool. It is not safe for concurrent use, not even by
// readers while one goroutine writes.
//
// Blocks are taken as sets of addresses: to use an address twice is to use it once. Host bits
// of a block are ignored, and so are its addresses outside the pool. A block of the other
// address family than the pool's, or an invalid one, has no address in the pool: it is neither
// free nor in use, and using or releasing it does nothing.
//
// An IPv4-mapped IPv6 address (::ffff:10.0.0.1) is an IPv6 address here. Callers that mean the
// IPv4 address call Unmap when they parse it. Zones are ignored.
type Space struct {
	cidr netip.Prefix
	pool prefix
	is4  bool
	// withheld is in use whatever is released.
	withheld *Ranges

	root    ref
	nodes   []node
	dropped []ref // tops of tries in nodes that nothing refers to
}

// New returns the space of a pool of which nothing is in use. Host bits of cidr are ignored. It
// panics when cidr is invalid: a pool without a CIDR has no space.
func New(cidr netip.Prefix) *Space { return NewWithout(cidr, nil) }

// NewWithout returns the space of a pool as New does, but the withheld addresses count as used
// for ever: to release them does nothing. NewRanges returns them for the same cidr; nil: none.
func NewWithout(cidr netip.Prefix, withheld *Ranges) *Space {
	if !cidr.IsValid() {
		panic(fmt.Sprintf("space: invalid CIDR %v", cidr))
	}
	s := &Space{
		cidr:     cidr.Masked(),
		pool:     prefixOf(cidr),
		is4:      cidr.Addr().Is4(),
		withheld: withheld,
		nodes:    make([]node, 1),
	}
	s.root = s.unused(s.pool)
	return s
}

// Use marks the addresses that block and the pool have in common as in use.
func (s *Space) Use(block netip.Prefix) {
	if b, ok := s.clip(block); ok {
		s.root = s.add(s.root, b)
	}
}

// Release marks the addresses that block and the pool have in common as not in use, except for
// the withheld ones. They may be a part of a used block, or several used blocks.
func (s *Space) Release(block netip.Prefix) {
	if b, ok := s.clip(block); ok {
		s.root = s.remove(s.root, b)
	}
}

// IsFree reports whether all of block lies in the pool and none of it is in use.
func (s *Space) IsFree(block netip.Prefix) bool {
	b, ok := s.clip(block)
	return ok && block.Bits() >= s.cidr.Bits() && s.usedIn(b).IsZero()
}

// Overlaps reports whether any address of block is in use.
func (s *Space) Overlaps(block netip.Prefix) bool {
	return !s.UsedIn(block).IsZero()
}

// Total returns the number of addresses of the pool.
func (s *Space) Total() Count { return sizeOf(s.pool.len) }

// Used returns the number of addresses of the pool that are in use.
func (s *Space) Used() Count { return s.usedIn(s.pool) }

// Free returns the number of addresses of the pool that are not in use.
func (s *Space) Free() Count { return s.Total().Sub(s.Used()) }

// UsedIn returns the number of addresses in use that lie both in the pool and in block.
func (s *Space) UsedIn(block netip.Prefix) Count {
	b, ok := s.clip(block)
	if !ok {
		return Count{}
	}
	return s.usedIn(b)
}

func (s *Space) usedIn(b prefix) Count {
	for at := s.root; at != none; {
		n := &s.nodes[at]
		switch {
		case b.covers(n.prefix):
			return n.count()
		case !n.covers(b):
			return Count{}
		case n.full():
			return sizeOf(b.len)
		case n.folded():
			return s.withheld.sizeIn(b)
		}
		at = n.child[b.addr.bit(n.len)]
	}
	return Count{}
}

// clip returns the part that block and the pool have in common.
func (s *Space) clip(block netip.Prefix) (common prefix, ok bool) {
	if !block.IsValid() || block.Addr().Is4() != s.is4 {
		return prefix{}, false
	}
	b := prefixOf(block)
	if b.covers(s.pool) {
		return s.pool, true
	}
	return b, s.pool.covers(b)
}

// prefix holds a masked prefix of 128-bit addresses. IPv4 lengths are 96 more here than in a
// netip.Prefix.
type prefix struct {
	addr uint128
	len  uint8
}

// mapped4 is the number of bits by which a prefix of IPv4-mapped addresses is longer.
const mapped4 = 96

func prefixOf(p netip.Prefix) prefix {
	n := uint8(p.Bits())
	if p.Addr().Is4() {
		n += mapped4
	}
	return prefix{addressOf(p.Addr()).and(ones(n)), n}
}

func (p prefix) netip(is4 bool) netip.Prefix {
	n := int(p.len)
	if is4 {
		n -= mapped4
	}
	return netip.PrefixFrom(p.addr.netip(is4), n)
}

func (p prefix) covers(q prefix) bool {
	return p.len <= q.len && p.addr.common(q.addr) >= p.len
}

// last returns the last address of p.
func (p prefix) last() uint128 { return p.addr.or(ones(128).andNot(ones(p.len))) }

// beside returns the block of length n that an edge to p passes by: the sibling of the prefix
// of that length that covers p.
func (p prefix) beside(n uint8) prefix {
	return prefix{p.addr.xor(one(n)).and(ones(n)), n}
}

// Withheld ranges cost no nodes: the trie ends in a folded node if nothing else is in use. The
// node is unfolded, a level at a time, on the way to a block that is used there, and folded
// again when the last one below it is released.

// unused returns the trie of p with nothing in use except the withheld addresses.
func (s *Space) unused(p prefix) ref {
	if s.withheld == nil {
		return none
	}
	lo, hi := s.withheld.span(p)
	switch {
	case lo < hi:
		return s.foldedIn(p, lo, hi)
	case lo%2 == 1:
		return s.leaf(p)
	default:
		return none
	}
}

// foldedIn returns the trie of the withheld addresses in p, which are some and not all of its
// addresses: regions lo to hi of the withheld ranges.
func (s *Space) foldedIn(p prefix, lo, hi int) ref {
	p = s.withheld.hull(p, lo, hi)
	if lo, hi = s.withheld.span(p); lo == hi {
		return s.leaf(p)
	}
	gaps := s.withheld.gapsIn(p, lo, hi)
	return s.place(node{prefix: p, free: gaps.lengths, used: one(p.len).minus(gaps.size), child: [2]ref{fold, fold}})
}

// unfold gives a folded node its children. In another node it does nothing.
func (s *Space) unfold(at ref) {
	n := s.nodes[at]
	if !n.folded() {
		return
	}
	low := prefix{n.addr, n.len + 1}
	for side, half := range [2]prefix{low, {n.beside(low.len).addr, low.len}} {
		n.child[side] = s.unused(half)
	}
	s.nodes[at].child = n.child
}

// fold makes an inner node a folded one if nothing in its children is in use except withheld
// addresses. Its sums stay the same.
func (s *Space) fold(at ref) {
	n := &s.nodes[at]
	if !s.isUnused(n.child[0]) || !s.isUnused(n.child[1]) {
		return
	}
	s.drop(n.child[0])
	s.drop(n.child[1])
	n.child = [2]ref{fold, fold}
}

// isUnused reports whether nothing in the trie at is in use except withheld addresses. Such a
// trie is a leaf or folded.
func (s *Space) isUnused(at ref) bool {
	n := &s.nodes[at]
	return n.folded() || n.full() && s.withheld.covers(n.prefix)
}

// ref holds the index of a node in Space.nodes. Indexes have advantages over pointers: half the
// size, nothing for the garbage collector to follow, and no allocation when a node is reused.
type ref int32

// none is the empty trie. Index 0 of Space.nodes is kept empty for it.
const none ref = 0

// fold stands in for the children of a node that is folded.
const fold ref = -1

// node holds a prefix of which something is in use. It is either wholly in use, and has no
// children; or it has two, one in each of its halves; or it is folded: it has something
// withheld in each half, nothing else of it is in use, and its children follow from the
// withheld ranges.
//
// It is 64 bytes, a cache line.
type node struct {
	prefix
	free  uint128 // the lengths of the maximal free blocks inside the prefix
	used  uint128 // the number of its addresses in use; 2^128 wraps to 0
	child [2]ref
}

func (n *node) full() bool   { return n.child[0] == none }
func (n *node) folded() bool { return n.child[0] == fold }

// below returns the set of lengths of the maximal free blocks in the prefix of length top that
// covers n, if nothing else of that prefix is in use. The edge from there down to n passes by
// one free block of each length on its way.
func (n *node) below(top uint8) uint128 {
	return n.free.or(between(top, n.len))
}

func (n *node) count() Count {
	if n.full() {
		return sizeOf(n.len)
	}
	return Count{hi: n.used.hi, lo: n.used.lo}
}

// add returns the trie at with b in use.
func (s *Space) add(at ref, b prefix) ref {
	if at == none {
		return s.leaf(b)
	}
	n := s.nodes[at].prefix
	switch {
	case !n.covers(b) && !b.covers(n):
		return s.join(at, s.leaf(b))
	case b.len <= n.len:
		s.drop(at)
		return s.leaf(b)
	case s.nodes[at].full():
		return at
	}
	s.unfold(at)
	side := b.addr.bit(n.len)
	// In two statements, because add may move s.nodes.
	kid := s.add(s.nodes[at].child[side], b)
	s.nodes[at].child[side] = kid
	s.sum(at)
	return at
}

// remove returns the trie at with nothing of b in use except withheld addresses.
func (s *Space) remove(at ref, b prefix) ref {
	if at == none {
		return none
	}
	n := s.nodes[at].prefix
	switch {
	case b.covers(n):
		s.drop(at)
		return s.unused(n)
	case !n.covers(b), s.nodes[at].folded():
		return at
	case s.nodes[at].full():
		s.drop(at)
		return s.allBut(n, b)
	}
	side := b.addr.bit(n.len)
	kid := s.remove(s.nodes[at].child[side], b)
	if kid == none {
		other := s.nodes[at].child[1-side]
		s.nodes[at].child = [2]ref{} // lest other be dropped too
		s.drop(at)
		return other
	}
	s.nodes[at].child[side] = kid
	s.sum(at)
	return at
}

// allBut returns the trie of n, which is wholly in use, once b, a smaller part of it, is not.
func (s *Space) allBut(n, b prefix) ref {
	rest := s.unused(b)
	for l := b.len; l > n.len; l-- {
		beside := s.leaf(b.beside(l))
		if rest != none {
			beside = s.join(rest, beside)
		}
		rest = beside
	}
	return rest
}

// leaf makes a node that is wholly in use.
func (s *Space) leaf(p prefix) ref {
	return s.place(node{prefix: p, used: one(p.len)})
}

// join makes the node above a and b, neither of which covers the other.
func (s *Space) join(a, b ref) ref {
	addr := s.nodes[a].addr
	n := addr.common(s.nodes[b].addr)
	top := node{prefix: prefix{addr.and(ones(n)), n}, child: [2]ref{a, b}}
	if addr.bit(n) == 1 {
		top.child = [2]ref{b, a}
	}
	at := s.place(top)
	s.sum(at)
	return at
}

// sum updates an inner node from its children, makes it a leaf when both of its halves are
// full, and folds it when nothing in them is in use except withheld addresses.
func (s *Space) sum(at ref) {
	n := &s.nodes[at]
	a, b := &s.nodes[n.child[0]], &s.nodes[n.child[1]]
	n.free = a.below(n.len + 1).or(b.below(n.len + 1))
	n.used = a.used.plus(b.used)
	// Holds for length 0 too: both sides are 2^128 wrapped to 0, and no other sum
	// of two halves in use is 0.
	if n.used == one(n.len) {
		s.drop(n.child[0])
		s.drop(n.child[1])
		n.child = [2]ref{}
	} else if s.withheld != nil {
		s.fold(at)
	}
}

// place stores n, in the slot of a dropped node if there is one.
func (s *Space) place(n node) ref {
	last := len(s.dropped) - 1
	if last < 0 {
		s.nodes = append(s.nodes, n)
		return ref(len(s.nodes) - 1)
	}
	at := s.dropped[last]
	s.dropped = s.dropped[:last]
	if old := &s.nodes[at]; !old.full() && !old.folded() {
		s.dropped = append(s.dropped, old.child[0], old.child[1])
	}
	s.nodes[at] = n
	return at
}

// drop gives up the trie at. Only its top is noted: place takes the rest apart,
// a node at a time, so that dropping a large trie costs no more than a small one.
func (s *Space) drop(at ref) {
	s.dropped = append(s.dropped, at)
}
