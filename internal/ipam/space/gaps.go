package space

import "iter"

// The edges of a set cut its pool into regions, which by turns lie outside the set and in it:
// region i ends before edge i, and is in the set if i is odd. A region outside of it is a gap.
// For edges at 2, 5 and 6, with the pool ending at 7:
//
//	 0   1   2   3   4   5   6   7
//	[  ][  ][##][##][##][  ][##][##]
//	  gap 0    region 1  gap 2 region 3
//
// The maximal free blocks of a gap follow from its ends. Let m be the address in it
// that has the most trailing zeros after the bits that all of its addresses have in
// common. The blocks before m grow towards it and those from m on shrink, and their
// sizes are the bits of the numbers of addresses on either side.

// regionsSummed is the number of regions that one gapSums covers.
const regionsSummed = 256

// gapSums holds the sums of gaps: the lengths of the maximal free blocks in them, and the
// number of their addresses.
type gapSums struct{ lengths, size uint128 }

func (s *gapSums) add(g gap) {
	s.lengths = s.lengths.or(g.lengths())
	s.size = s.size.plus(g.size())
}

// gap holds a run of addresses outside the set, both ends included. It is never all of the
// addresses that exist.
type gap struct{ from, to uint128 }

func (g gap) size() uint128 { return g.to.minus(g.from).plus(uint128{0, 1}) }

// sides returns the numbers of addresses before m and from m on, and m. Read as sets, the
// numbers are the lengths of the blocks on either side. The gap is not one block.
func (g gap) sides() (before, behind, m uint128) {
	m = g.to.and(ones(g.from.common(g.to) + 1))
	return m.minus(g.from), g.to.minus(m).plus(uint128{0, 1}), m
}

// isBlock reports whether the gap is one block, and its length.
func (g gap) isBlock() (length uint8, ok bool) {
	n := g.from.common(g.to)
	return n, g.from == g.from.and(ones(n)) && g.to == g.to.or(ones(128).andNot(ones(n)))
}

// lengths returns the lengths of the maximal free blocks.
func (g gap) lengths() uint128 {
	if n, ok := g.isBlock(); ok {
		return one(n)
	}
	before, behind, _ := g.sides()
	return before.or(behind)
}

// lowest returns the start of the lowest maximal free block whose length is one of among.
func (g gap) lowest(among uint128) (uint128, bool) {
	if n, ok := g.isBlock(); ok {
		return g.from, !among.and(one(n)).isZero()
	}
	before, behind, m := g.sides()
	if fits := before.and(among); !fits.isZero() { // the smallest lies lowest
		return g.from.plus(before.andNot(ones(fits.longest()))), true
	}
	if fits := behind.and(among); !fits.isZero() { // the largest does
		return m.plus(behind.and(ones(fits.shortest() - 1))), true
	}
	return uint128{}, false
}

// after returns the start of the lowest block that is as long as from, and is from or behind
// it.
func (g gap) after(from prefix) (uint128, bool) {
	size := one(from.len)
	start := from.addr
	if start.less(g.from) {
		start = g.from.plus(size.minus(uint128{0, 1})).and(ones(from.len))
		if start.less(g.from) { // wrapped round
			return uint128{}, false
		}
	}
	if g.to.less(start) || g.to.minus(start).less(size.minus(uint128{0, 1})) {
		return uint128{}, false
	}
	return start, true
}

// sizeOf returns the number of addresses in the maximal free blocks whose length is one of
// among.
func (g gap) sizeOf(among uint128) uint128 {
	if n, ok := g.isBlock(); ok {
		return one(n).and(among)
	}
	before, behind, _ := g.sides()
	return before.and(among).plus(behind.and(among))
}

// span returns the first and the last region that overlap p. The prefix p lies in the pool.
func (r *Ranges) span(p prefix) (lo, hi int) {
	return r.edges.upTo(p.addr), r.edges.upTo(p.last())
}

// covers reports whether all of p is in the set.
func (r *Ranges) covers(p prefix) bool {
	lo, hi := r.span(p)
	return lo == hi && lo%2 == 1
}

// hull returns the smallest prefix that has all addresses of the set in p, which has some.
func (r *Ranges) hull(p prefix, lo, hi int) prefix {
	first, last := p.addr, p.last()
	if lo%2 == 0 {
		first = r.edges.at(lo)
	}
	if hi%2 == 0 {
		last = r.edges.at(hi - 1).minus(uint128{0, 1})
	}
	n := first.common(last)
	return prefix{first.and(ones(n)), n}
}

// scan holds the state of a pass over the gaps in a prefix, in order.
type scan struct {
	r *Ranges
	p prefix
	// i is the next gap's region; lo and hi are the first and the last region in p.
	i, lo, hi int
}

// scan begins with the gap of the first region at or behind number i.
func (r *Ranges) scan(p prefix, i, lo, hi int) scan {
	return scan{r: r, p: p, i: i + i%2, lo: lo, hi: hi}
}

// next returns the next gap. There is one if i is not behind hi.
func (s *scan) next() gap {
	g := gap{s.p.addr, s.p.last()}
	if s.i > s.lo {
		g.from = s.r.edges.at(s.i - 1)
	}
	if s.i < s.hi {
		g.to = s.r.edges.at(s.i).minus(uint128{0, 1})
	}
	s.i += 2
	return g
}

// gapsAmong yields the gaps in p, in order, from the one that has the address or comes next. It
// skips some gaps that have no maximal free block of any of the lengths. An edge of the set
// lies in p.
func (r *Ranges) gapsAmong(p prefix, from, lengths uint128) iter.Seq[gap] {
	lo, hi := r.span(p)
	return func(yield func(gap) bool) {
		for s := r.scan(p, max(lo, r.edges.upTo(from)), lo, hi); s.i <= hi; {
			if sums, ok := r.summed(s.i, lo, hi); ok && sums.lengths.and(lengths).isZero() {
				s.i += regionsSummed
				continue
			}
			if !yield(s.next()) {
				return
			}
		}
	}
}

// gapsIn sums up the gaps in p, whose regions are lo to hi.
func (r *Ranges) gapsIn(p prefix, lo, hi int) gapSums {
	var all gapSums
	for s := r.scan(p, lo, lo, hi); s.i <= hi; {
		if sums, ok := r.summed(s.i, lo, hi); ok {
			all.lengths, all.size = all.lengths.or(sums.lengths), all.size.plus(sums.size)
			s.i += regionsSummed
			continue
		}
		all.add(s.next())
	}
	return all
}

// summed returns the sums of the gaps from region i on, if they are kept and all of the gaps
// lie between lo and hi.
func (r *Ranges) summed(i, lo, hi int) (gapSums, bool) {
	if i%regionsSummed != 0 || i == lo || i+regionsSummed > hi {
		return gapSums{}, false
	}
	return r.gaps[i/regionsSummed], true
}

func (r *Ranges) sumGaps() {
	last := r.edges.n // the number of the last region
	r.gaps = make([]gapSums, last/regionsSummed)
	for s := r.scan(r.pool, 1, 0, last); s.i < len(r.gaps)*regionsSummed; { // the first region is never summed
		sums := &r.gaps[s.i/regionsSummed]
		sums.add(s.next())
	}
}

// sizeIn returns the number of addresses of the set that lie in p. The prefix p lies in the
// pool.
func (r *Ranges) sizeIn(p prefix) Count {
	switch lo, hi := r.span(p); {
	case lo < hi:
		free := r.gapsIn(p, lo, hi).size
		return sizeOf(p.len).Sub(Count{hi: free.hi, lo: free.lo})
	case lo%2 == 1:
		return sizeOf(p.len)
	default:
		return Count{}
	}
}

// lowest returns the start of the lowest maximal free block in p whose length is one of among.
// There is one.
func (r *Ranges) lowest(p prefix, among uint128) uint128 {
	for g := range r.gapsAmong(p, p.addr, among) {
		if found, ok := g.lowest(among); ok {
			return found
		}
	}
	panic("space: the sums of the withheld ranges are wrong")
}

// after returns the start of the lowest free block in p that is as long as from, and is from or
// behind it.
func (r *Ranges) after(p, from prefix) (uint128, bool) {
	for g := range r.gapsAmong(p, from.addr, ones(from.len)) {
		if found, ok := g.after(from); ok {
			return found, true
		}
	}
	return uint128{}, false
}

// freeIn returns the number of addresses in the maximal free blocks in p whose lengths are
// among these.
func (r *Ranges) freeIn(p prefix, among uint128) uint128 {
	var free uint128
	for g := range r.gapsAmong(p, p.addr, among) {
		free = free.plus(g.sizeOf(among))
	}
	return free
}
