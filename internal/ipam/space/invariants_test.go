package space

import (
	"fmt"
	"slices"
)

// broken returns the first fault in the trie of s, or "". It computes everything again from the
// leaves, one prefix length at a time.
func (s *Space) broken() string {
	if n := s.nodes[none]; n != (node{}) {
		return "the empty trie has something in it"
	}
	c := checker{space: s, seen: make([]int, len(s.nodes))}
	if s.root != none {
		if !s.pool.covers(s.nodes[s.root].prefix) {
			return "the root lies outside the pool"
		}
		c.check(s.root, 1)
	}
	for _, at := range s.dropped {
		c.mark(at)
	}
	if i := slices.IndexFunc(c.seen[1:], func(n int) bool { return n != 1 }); i >= 0 {
		c.fail(ref(i+1), "is referred to %d times", c.seen[i+1])
	}
	return c.wrong
}

type checker struct {
	space *Space
	seen  []int // the number of references to each node, dropped ones included
	wrong string
}

// sums holds the values that a node keeps of the nodes below it.
type sums struct {
	used Count
	free [129]bool // by length: a maximal free block exists
}

// fail keeps the first fault.
func (c *checker) fail(at ref, format string, args ...any) {
	if c.wrong == "" {
		where := c.space.nodes[at].prefix.netip(c.space.is4)
		c.wrong = fmt.Sprintf("node %d (%v) %s", at, where, fmt.Sprintf(format, args...))
	}
}

// mark follows a dropped trie, which keeps its shape until its places are reused.
func (c *checker) mark(at ref) {
	c.seen[at]++
	if n := &c.space.nodes[at]; !n.full() && !n.folded() && c.seen[at] == 1 {
		c.mark(n.child[0])
		c.mark(n.child[1])
	}
}

// check checks the trie at, the top of which is the depth-th node on the way down,
// and returns its true sums.
func (c *checker) check(at ref, depth uint8) sums {
	c.seen[at]++
	n := &c.space.nodes[at]
	if most := n.len - c.space.pool.len + 1; depth > most {
		c.fail(at, "is the %d-th on the way down; there can be %d", depth, most)
	}
	if n.addr != n.addr.and(ones(n.len)) {
		c.fail(at, "has host bits")
	}
	want := sums{used: sizeOf(n.len)}
	switch {
	case n.folded():
		want = c.checkFolded(at)
	case !n.full():
		want = c.checkChildren(at, depth)
	}
	got := sums{used: n.count()}
	for l := uint8(1); l <= 128; l++ {
		got.free[l] = !n.free.and(one(l)).isZero()
	}
	if got.used != want.used {
		c.fail(at, "counts %v in use, has %v", got.used, want.used)
	}
	if got.free != want.free {
		c.fail(at, "has the mask %v, has free below it %v", lengths(got), lengths(want))
	}
	return want
}

func (c *checker) checkChildren(at ref, depth uint8) (total sums) {
	n := &c.space.nodes[at]
	halves := 0
	for side, kid := range n.child {
		if kid == none {
			c.fail(at, "has one child only")
			return total
		}
		k := &c.space.nodes[kid]
		if k.len <= n.len || !n.covers(k.prefix) || k.addr.bit(n.len) != uint8(side) {
			c.fail(at, "has %v as child %d", k.prefix.netip(c.space.is4), side)
			return total
		}
		if k.full() && k.len == n.len+1 {
			halves++
		}
		below := c.check(kid, depth+1)
		total.used = total.used.Add(below.used)
		for l := range below.free {
			onEdge := l > int(n.len)+1 && l <= int(k.len)
			total.free[l] = total.free[l] || below.free[l] || onEdge
		}
	}
	if halves == 2 {
		c.fail(at, "has two full halves that are not merged")
	}
	if s := c.space; s.withheld != nil && s.isUnused(n.child[0]) && s.isUnused(n.child[1]) {
		c.fail(at, "is not folded, and nothing below it is in use")
	}
	return total
}

// checkFolded checks a folded node by a space in which the withheld ranges are used one
// prefix after the other.
func (c *checker) checkFolded(at ref) (total sums) {
	n := &c.space.nodes[at]
	s := New(n.prefix.netip(c.space.is4))
	for g := range c.space.withheld.All() {
		for a, last := addressOf(g.From), addressOf(g.To); ; {
			p := largestAt(a, last)
			s.Use(p.netip(c.space.is4))
			if a = a.plus(one(p.len)); a.isZero() || last.less(a) {
				break
			}
		}
	}
	if s.root == none || s.nodes[s.root].prefix != n.prefix || s.nodes[s.root].full() {
		c.fail(at, "is folded, without a withheld part in each half")
		return total
	}
	total.used = s.Used()
	for l := uint8(1); l <= 128; l++ {
		total.free[l] = !s.nodes[s.root].free.and(one(l)).isZero()
	}
	return total
}

// largestAt returns the largest prefix that starts at lo and ends by hi.
func largestAt(lo, hi uint128) prefix {
	n := 128 - lo.trailingZeros()
	for hi.minus(lo).less(one(n).minus(uint128{0, 1})) {
		n++
	}
	return prefix{lo, n}
}

func lengths(s sums) []int {
	var list []int
	for l, free := range s.free {
		if free {
			list = append(list, l)
		}
	}
	return list
}
