package space

// Withheld ranges cost no nodes: the trie ends in a folded node where nothing else is
// in use. It is unfolded, a level at a time, on the way to a block that is used there,
// and folded again when the last one below it is released.

// unused returns the trie of p with nothing in use but what is withheld.
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

// foldedIn is what is withheld of p, which is something and not all: regions lo to hi
// of the withheld ranges.
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

// fold makes an inner node a folded one where nothing in its children is in use but
// what is withheld. Its sums stay the same.
func (s *Space) fold(at ref) {
	n := &s.nodes[at]
	if !s.isUnused(n.child[0]) || !s.isUnused(n.child[1]) {
		return
	}
	s.drop(n.child[0])
	s.drop(n.child[1])
	n.child = [2]ref{fold, fold}
}

// isUnused reports whether nothing in the trie at is in use but what is withheld.
// Where that is so, it is a leaf or folded.
func (s *Space) isUnused(at ref) bool {
	n := &s.nodes[at]
	return n.folded() || n.full() && s.withheld.covers(n.prefix)
}
