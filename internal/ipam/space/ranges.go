package space

import (
	"cmp"
	"encoding/binary"
	"iter"
	"net/netip"
	"slices"
	"sort"
)

// Range holds a run of addresses of one family, both ends included.
type Range struct{ From, To netip.Addr }

// RangeOf returns the addresses of a block, which must be valid.
func RangeOf(block netip.Prefix) Range {
	p := prefixOf(block)
	is4 := block.Addr().Is4()
	return Range{p.addr.netip(is4), p.last().netip(is4)}
}

// Ranges holds a set of addresses of a pool, such as those that are never handed out. It is
// immutable, and safe for concurrent use. A nil *Ranges is the empty set.
//
// It keeps the addresses at which the set begins and ends, in turn: 15 or 16 bytes for each end
// of each run of addresses, however many prefixes the run needs.
type Ranges struct {
	pool prefix
	is4  bool
	// edges are the addresses at which the set begins, ends, begins again and so on. The edge
	// at which it ends is the first address that is not in the set; it is left out if the set
	// ends with the pool.
	edges addresses
	// free are the lengths of the maximal free blocks in all of the pool.
	free uint128
	// gaps sum up the gaps of 256 regions each.
	gaps []gapSums
}

// NewRanges returns the addresses of the pool cidr that lie in any of the ranges, or nil if
// there are none. The ranges may overlap, in any order. A range has no address if its end comes
// before its start, or if it is not of the pool's family.
func NewRanges(cidr netip.Prefix, ranges []Range) *Ranges {
	r := &Ranges{pool: prefixOf(cidr), is4: cidr.Addr().Is4()}
	edges := r.merge(r.clip(ranges))
	if len(edges) == 0 {
		return nil
	}
	r.edges = newAddresses(edges)
	r.sumGaps()
	if lo, hi := r.span(r.pool); lo < hi {
		r.free = r.gapsIn(r.pool, lo, hi).lengths
	}
	return r
}

// run holds a run of addresses, both ends included.
type run struct{ from, to uint128 }

// clip returns the parts of the ranges that lie in the pool, sorted by their start.
func (r *Ranges) clip(ranges []Range) []run {
	runs := make([]run, 0, len(ranges))
	for _, g := range ranges {
		if !g.From.IsValid() || !g.To.IsValid() || g.From.Is4() != r.is4 || g.To.Is4() != r.is4 {
			continue
		}
		s := run{addressOf(g.From), addressOf(g.To)}
		if s.from.less(r.pool.addr) {
			s.from = r.pool.addr
		}
		if r.pool.last().less(s.to) {
			s.to = r.pool.last()
		}
		if !s.to.less(s.from) {
			runs = append(runs, s)
		}
	}
	slices.SortFunc(runs, func(a, b run) int {
		return cmp.Or(cmp.Compare(a.from.hi, b.from.hi), cmp.Compare(a.from.lo, b.from.lo))
	})
	return runs
}

// merge returns the edges of the union of sorted runs.
func (r *Ranges) merge(runs []run) []uint128 {
	var edges []uint128
	for i := 0; i < len(runs); {
		from, to := runs[i].from, runs[i].to
		for i++; i < len(runs); i++ {
			if next := runs[i].from; to.less(next) && to.plus(uint128{0, 1}) != next {
				break
			}
			if to.less(runs[i].to) {
				to = runs[i].to
			}
		}
		edges = append(edges, from)
		if to == r.pool.last() {
			break
		}
		edges = append(edges, to.plus(uint128{0, 1}))
	}
	return edges
}

// All yields the ranges, sorted, as few as possible.
func (r *Ranges) All() iter.Seq[Range] {
	return func(yield func(Range) bool) {
		if r == nil {
			return
		}
		for i := 0; i < r.edges.n; i += 2 {
			to := r.pool.last()
			if i+1 < r.edges.n {
				to = r.edges.at(i + 1).minus(uint128{0, 1})
			}
			if !yield(Range{r.edges.at(i).netip(r.is4), to.netip(r.is4)}) {
				return
			}
		}
	}
}

// Equal reports whether both hold the same addresses of pools with the same end.
func (r *Ranges) Equal(other *Ranges) bool {
	if r == other || r == nil || other == nil {
		return r == other
	}
	if r.is4 != other.is4 || r.pool.last() != other.pool.last() || r.edges.n != other.edges.n {
		return false
	}
	for i := range r.edges.n {
		if r.edges.at(i) != other.edges.at(i) {
			return false
		}
	}
	return true
}

// Size returns the number of addresses.
func (r *Ranges) Size() Count {
	if r == nil {
		return Count{}
	}
	return r.sizeIn(r.pool)
}

// SizeIn returns the number of the addresses that lie in block.
func (r *Ranges) SizeIn(block netip.Prefix) Count {
	if r == nil || !block.IsValid() || block.Addr().Is4() != r.is4 {
		return Count{}
	}
	switch b := prefixOf(block); {
	case b.covers(r.pool):
		return r.sizeIn(r.pool)
	case r.pool.covers(b):
		return r.sizeIn(b)
	default:
		return Count{}
	}
}

// Overlaps reports whether any of the addresses lies in block.
func (r *Ranges) Overlaps(block netip.Prefix) bool { return !r.SizeIn(block).IsZero() }

// LargestGap returns the length of the largest block of the pool without any of the addresses:
// the most that an empty pool could hand out. There is none when all of the pool is in the set.
// It must not be called on the empty set.
func (r *Ranges) LargestGap() (bits int, ok bool) {
	if r.free.isZero() {
		return 0, false
	}
	if r.is4 {
		return int(r.free.shortest()) - mapped4, true
	}
	return int(r.free.shortest()), true
}

// addresses holds an immutable, sorted list of addresses without duplicates.
//
// A long list leaves out the first byte of each address, and instead keeps the positions at
// which the addresses with each first byte begin: 4,096 addresses then take 60 KiB and 1/2 KiB,
// and 64 KiB otherwise. The list is kept in pages, because the allocator rounds up sizes above
// 32 KiB.
type addresses struct {
	n int
	// width is the number of bytes that are kept of each address: 16, or 15.
	width int
	pages [][]byte
	// starts are the positions at which the addresses with each first byte begin, and the end;
	// nil if width is 16.
	starts []uint16
}

const (
	// longList is the smallest length of a list that leaves out first bytes.
	longList = 1024
	// pageSize is a size class of the allocator.
	pageSize = 4096
)

func newAddresses(sorted []uint128) addresses {
	s := addresses{n: len(sorted), width: 16}
	if s.n >= longList && s.n < 1<<16 {
		s.width, s.starts = 15, make([]uint16, 257)
		for _, a := range sorted {
			s.starts[a.firstByte()+1]++
		}
		for i := range 256 {
			s.starts[i+1] += s.starts[i]
		}
	}
	for len(sorted) > 0 {
		chunk := sorted[:min(len(sorted), s.perPage())]
		page := make([]byte, 0, len(chunk)*s.width)
		for _, a := range chunk {
			var b [16]byte
			binary.BigEndian.PutUint64(b[:8], a.hi)
			binary.BigEndian.PutUint64(b[8:], a.lo)
			page = append(page, b[16-s.width:]...)
		}
		s.pages, sorted = append(s.pages, page), sorted[len(chunk):]
	}
	return s
}

func (s *addresses) perPage() int { return pageSize / s.width }

// at returns the i-th address.
func (s *addresses) at(i int) uint128 {
	if s.starts == nil {
		return s.read(i, 0)
	}
	first := sort.Search(255, func(b int) bool { return int(s.starts[b+1]) > i })
	return s.read(i, uint64(first))
}

// read returns the i-th address. Its first byte is first if the list leaves that out.
func (s *addresses) read(i int, first uint64) uint128 {
	at := i % s.perPage() * s.width
	b := s.pages[i/s.perPage()][at : at+s.width]
	if s.width == 16 {
		return uint128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
	}
	return uint128{first<<56 | binary.BigEndian.Uint64(b[:8])>>8, binary.BigEndian.Uint64(b[7:])}
}

// upTo returns the number of addresses that are not above a.
func (s *addresses) upTo(a uint128) int {
	from, to, first := 0, s.n, a.firstByte()
	if s.starts != nil {
		from, to = int(s.starts[first]), int(s.starts[first+1])
	}
	return from + sort.Search(to-from, func(i int) bool { return a.less(s.read(from+i, first)) })
}

func (u uint128) firstByte() uint64 { return u.hi >> 56 }

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
