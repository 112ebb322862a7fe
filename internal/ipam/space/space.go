package space

import (
	"fmt"
	"net/netip"
)

// Space is the free space of one pool. It is not safe for concurrent use, not
// even by readers while one goroutine writes.
//
// Blocks are taken as sets of addresses: to use an address twice is to use it
// once. Host bits of a block are ignored, and so is what lies outside the pool. A
// block of the other address family than the pool's, or an invalid one, has no
// address in the pool: it is neither free nor in use, and using or releasing it
// does nothing.
//
// An IPv4-mapped IPv6 address (::ffff:10.0.0.1) is an IPv6 address here. Callers
// that mean the IPv4 address call Unmap where they parse it. Zones are ignored.
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

// New returns the space of a pool of which nothing is in use. Host bits of cidr
// are ignored. It panics when cidr is invalid: a pool without a CIDR has no space.
func New(cidr netip.Prefix) *Space { return NewWithout(cidr, nil) }

// NewWithout is New for a pool of which some addresses, which may be nil, count as
// used for ever: to release them does nothing. They are those of NewRanges for the
// same cidr.
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

// CIDR returns the pool, masked.
func (s *Space) CIDR() netip.Prefix { return s.cidr }

// Use marks what block and the pool have in common as in use.
func (s *Space) Use(block netip.Prefix) {
	if b, ok := s.clip(block); ok {
		s.root = s.add(s.root, b)
	}
}

// Release marks what block and the pool have in common as not in use, but for what
// is withheld. That may be a part of what was used at once, or more.
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

// Overlaps reports whether something of block is in use.
func (s *Space) Overlaps(block netip.Prefix) bool {
	return !s.UsedIn(block).IsZero()
}

// Total returns how many addresses the pool has.
func (s *Space) Total() Count { return sizeOf(s.pool.len) }

// Used returns how many addresses of the pool are in use.
func (s *Space) Used() Count { return s.usedIn(s.pool) }

// Free returns how many addresses of the pool are not in use.
func (s *Space) Free() Count { return s.Total().Sub(s.Used()) }

// UsedIn returns how many addresses of the pool that lie in block are in use.
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

// clip returns what block and the pool have in common.
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
