package space

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
