package space

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
)

// held is the number of blocks in use in every benchmark.
const held = 100_000

// family represents a pool to measure in, and the lengths of scattered blocks in it.
type family struct {
	name  string
	cidr  netip.Prefix
	mixed []int
}

var families = []family{
	{"ipv4", netip.MustParsePrefix("10.0.0.0/8"), []int{32, 32, 32, 31, 30, 28}},
	{"ipv6", netip.MustParsePrefix("2001:db8::/32"), []int{128, 128, 64, 64, 60, 56}},
}

// density represents a way to lay out blocks: it returns 100,000 that do not overlap, in order.
type density struct {
	name   string
	blocks func(family) []netip.Prefix
}

var densities = []density{
	{"dense", func(f family) []netip.Prefix { return f.addresses(1) }},
	{"striped", func(f family) []netip.Prefix { return f.addresses(2) }},
	{"sparse", family.scattered},
}

// addresses returns single addresses, each so many behind the one before.
func (f family) addresses(stride uint64) []netip.Prefix {
	addr := prefixOf(f.cidr).addr
	var blocks []netip.Prefix
	for range held {
		blocks = append(blocks, prefix{addr, 128}.netip(f.cidr.Addr().Is4()))
		addr = addr.plus(uint128{0, stride})
	}
	return blocks
}

// scattered returns blocks of mixed lengths at random places.
func (f family) scattered() []netip.Prefix {
	r := rand.New(rand.NewPCG(1, 2))
	s := New(f.cidr)
	var blocks []netip.Prefix
	for len(blocks) < held {
		b := netip.PrefixFrom(f.random(r), f.mixed[r.IntN(len(f.mixed))]).Masked()
		if !s.Overlaps(b) {
			s.Use(b)
			blocks = append(blocks, b)
		}
	}
	slices.SortFunc(blocks, netip.Prefix.Compare)
	return blocks
}

// random returns a random address of the pool.
func (f family) random(r *rand.Rand) netip.Addr {
	p := prefixOf(f.cidr)
	host := uint128{r.Uint64(), r.Uint64()}.andNot(ones(p.len))
	return p.addr.or(host).netip(f.cidr.Addr().Is4())
}

func newFilledSpace(f family, blocks []netip.Prefix) *Space {
	s := New(f.cidr)
	for _, b := range blocks {
		s.Use(b)
	}
	return s
}

// layouts runs a benchmark for each family and density.
func layouts(b *testing.B, run func(*testing.B, family, []netip.Prefix)) {
	for _, f := range families {
		for _, d := range densities {
			b.Run(fmt.Sprintf("%s/%s", f.name, d.name), func(b *testing.B) {
				run(b, f, d.blocks(f))
			})
		}
	}
}

// BenchmarkCycle finds one address, uses it and releases it.
func BenchmarkCycle(b *testing.B) {
	layouts(b, func(b *testing.B, f family, blocks []netip.Prefix) {
		s := newFilledSpace(f, blocks)
		bits := f.cidr.Addr().BitLen()
		for _, fit := range []Fit{FirstFit, BestFit, WorstFit} {
			b.Run(fit.String(), func(b *testing.B) {
				cycle(b, s, func() (netip.Prefix, bool) { return s.Find(fit, bits) })
			})
		}
		// Random fit at its hardest: no address that the benchmark looks for is free.
		shuffle(blocks)
		b.Run("From", func(b *testing.B) {
			i := 0
			cycle(b, s, func() (netip.Prefix, bool) {
				i++
				return s.FindFrom(blocks[i%len(blocks)].Addr(), bits)
			})
		})
	})
}

func cycle(b *testing.B, s *Space, find func() (netip.Prefix, bool)) {
	b.ReportAllocs()
	for b.Loop() {
		block, ok := find()
		if !ok {
			b.Fatal("nothing found")
		}
		s.Use(block)
		s.Release(block)
	}
}

func shuffle(blocks []netip.Prefix) {
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(blocks), func(i, j int) {
		blocks[i], blocks[j] = blocks[j], blocks[i]
	})
}

// BenchmarkChurn releases a random one of the blocks and uses it again: unlike
// first fit, it hits another part of the trie each time.
func BenchmarkChurn(b *testing.B) {
	layouts(b, func(b *testing.B, f family, blocks []netip.Prefix) {
		s := newFilledSpace(f, blocks)
		shuffle(blocks)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			block := blocks[i%len(blocks)]
			s.Release(block)
			s.Use(block)
		}
	})
}

// BenchmarkFill uses all the blocks, from an empty pool on, and reports the memory that the space
// then needs for each.
func BenchmarkFill(b *testing.B) {
	layouts(b, func(b *testing.B, f family, blocks []netip.Prefix) {
		var s *Space
		before := heap()
		for b.Loop() {
			s = newFilledSpace(f, blocks)
		}
		b.ReportMetric(float64(heap()-before)/held, "heap-B/block")
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/held, "ns/block")
		runtime.KeepAlive(s)
		runtime.KeepAlive(blocks) // or their end would count as memory won
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// BenchmarkGapScan does the cycle of first fit the usual way, for comparison: the
// blocks in a sorted slice, which is searched from its start for a gap.
func BenchmarkGapScan(b *testing.B) {
	layouts(b, func(b *testing.B, f family, blocks []netip.Prefix) {
		b.ReportAllocs()
		for b.Loop() {
			at, block := firstGap(f.cidr.Addr(), blocks)
			blocks = slices.Insert(blocks, at, block)
			blocks = slices.Delete(blocks, at, at+1)
		}
	})
}

// firstGap returns the first address that no block has, and the index where it
// belongs. The blocks are sorted and disjoint.
func firstGap(first netip.Addr, blocks []netip.Prefix) (int, netip.Prefix) {
	next := first
	for i, b := range blocks {
		if next.Less(b.Addr()) {
			return i, netip.PrefixFrom(next, next.BitLen())
		}
		p := prefixOf(b)
		next = p.addr.plus(one(p.len)).netip(next.Is4())
	}
	return len(blocks), netip.PrefixFrom(next, next.BitLen())
}

// BenchmarkWithheld runs the cycle in ::/0 with 2,048 withheld ranges at random places: with
// nothing else in use, so that the way down is unfolded each time, and with 1,000 random addresses
// in use.
func BenchmarkWithheld(b *testing.B) {
	cidr := netip.MustParsePrefix("::/0")
	r := rand.New(rand.NewPCG(7, 8))
	ranges := NewRanges(cidr, scatteredRanges(r, 2048))
	for _, used := range []int{0, 1000} {
		s := NewWithout(cidr, ranges)
		for range used {
			if block, ok := s.FindFrom((uint128{r.Uint64(), r.Uint64()}).netip(false), 128); ok {
				s.Use(block)
			}
		}
		for _, fit := range []Fit{FirstFit, BestFit, WorstFit} {
			b.Run(fmt.Sprintf("%d/%v", used, fit), func(b *testing.B) {
				cycle(b, s, func() (netip.Prefix, bool) { return s.Find(fit, 128) })
			})
		}
		b.Run(fmt.Sprintf("%d/From", used), func(b *testing.B) {
			cycle(b, s, func() (netip.Prefix, bool) {
				return s.FindFrom((uint128{r.Uint64(), r.Uint64()}).netip(false), 128)
			})
		})
	}
}
