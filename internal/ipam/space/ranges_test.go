package space

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// rangesOf reads ranges as from-to, or single addresses.
func rangesOf(texts ...string) []Range {
	var ranges []Range
	for _, text := range texts {
		from, to, ok := strings.Cut(text, "-")
		if !ok {
			to = from
		}
		ranges = append(ranges, Range{netip.MustParseAddr(from), netip.MustParseAddr(to)})
	}
	return ranges
}

func (r Range) String() string { return fmt.Sprintf("%v-%v", r.From, r.To) }

func TestNewRanges(t *testing.T) {
	for name, c := range map[string]struct {
		cidr   string
		ranges []string
		want   string
		size   string
		gap    int // length of the largest gap, -1 for none
	}{
		"are sorted, and merged where they overlap or touch": {
			"10.0.0.0/24", []string{"10.0.0.9", "10.0.0.4-10.0.0.8", "10.0.0.1-10.0.0.2", "10.0.0.2-10.0.0.3", "10.0.0.6"}, "[10.0.0.1-10.0.0.9]", "9", 25,
		},
		"are clipped to the pool":                              {"10.0.0.0/24", []string{"9.0.0.0-10.0.0.3", "10.0.0.254-11.0.0.0"}, "[10.0.0.0-10.0.0.3 10.0.0.254-10.0.0.255]", "6", 26},
		"can be all of the pool":                               {"10.0.0.0/24", []string{"10.0.0.0-10.0.0.127", "10.0.0.128-10.0.0.255"}, "[10.0.0.0-10.0.0.255]", "256", -1},
		"can be all addresses":                                 {"::/0", []string{"::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"}, "[::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]", "340282366920938463463374607431768211456", -1},
		"can be the ends of everything":                        {"::/0", []string{"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "::"}, "[::-:: ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]", "2", 2},
		"that are not of the family or run backwards are none": {"10.0.0.0/24", []string{"::1", "10.0.0.9-10.0.0.1", "::ffff:10.0.0.1", "10.0.0.9-ffff::", "::1-10.0.0.9"}, "[]", "0", 24},
		"that begin together at the first address of all":      {"::/120", []string{"::-::9", "::-::3"}, "[::-::9]", "10", 121},
		"beside the pool are none":                             {"10.0.0.0/24", []string{"10.0.1.0-10.0.1.255"}, "[]", "0", 24},
		"leave the last free address as the largest gap":       {"10.0.0.0/30", []string{"10.0.0.0-10.0.0.2"}, "[10.0.0.0-10.0.0.2]", "3", 32},
	} {
		t.Run(name, func(t *testing.T) {
			cidr := netip.MustParsePrefix(c.cidr)
			r := NewRanges(cidr, rangesOf(c.ranges...))
			if got := fmt.Sprint(slices.AppendSeq([]Range{}, r.All())); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			if got := r.Size().String(); got != c.size || r.SizeIn(cidr).String() != c.size {
				t.Errorf("size: got %s, and %s in the pool; want %s", got, r.SizeIn(cidr), c.size)
			}
			gap := cidr.Bits()
			if r != nil {
				bits, ok := r.LargestGap()
				if gap = bits; !ok {
					gap = -1
				}
			}
			if gap != c.gap {
				t.Errorf("largest gap: got %d, want %d", gap, c.gap)
			}
		})
	}
}

func TestRangesWithSameAddressesAreEqual(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	whole := NewRanges(cidr, rangesOf("10.0.0.1-10.0.0.9"))
	for name, c := range map[string]struct {
		other *Ranges
		want  bool
	}{
		"itself":                    {whole, true},
		"made of parts":             {NewRanges(cidr, rangesOf("10.0.0.5-10.0.0.9", "10.0.0.1-10.0.0.4")), true},
		"one address more":          {NewRanges(cidr, rangesOf("10.0.0.1-10.0.0.10")), false},
		"one range more":            {NewRanges(cidr, rangesOf("10.0.0.1-10.0.0.9", "10.0.0.11")), false},
		"none":                      {nil, false},
		"of the other family":       {NewRanges(netip.MustParsePrefix("::/0"), rangesOf("::ffff:10.0.0.1-::ffff:10.0.0.9")), false},
		"to the end of another end": {NewRanges(netip.MustParsePrefix("10.0.0.0/28"), rangesOf("10.0.0.1-10.0.0.255")), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := whole.Equal(c.other); got != c.want {
				t.Errorf("got %t, want %t", got, c.want)
			}
			if c.other != nil && c.other.Equal(whole) != c.want {
				t.Errorf("the other way round: got %t, want %t", !c.want, c.want)
			}
		})
	}
	if (*Ranges)(nil).Equal(whole) || !(*Ranges)(nil).Equal(nil) {
		t.Error("the empty set equals the empty set alone")
	}
}

func TestRangesWithoutEndAreIgnored(t *testing.T) {
	first, last := netip.MustParseAddr("::"), netip.MustParseAddr("ffff::")
	if r := NewRanges(netip.MustParsePrefix("::/0"), []Range{{From: first}, {To: last}, {}}); r != nil {
		t.Errorf("got %v", slices.Collect(r.All()))
	}
}

func TestRangesToEndsOfTwoPoolsDiffer(t *testing.T) {
	ranges := rangesOf("10.0.0.1-10.0.0.255")
	large, small := NewRanges(netip.MustParsePrefix("10.0.0.0/24"), ranges), NewRanges(netip.MustParsePrefix("10.0.0.0/28"), ranges)
	if large.Equal(small) || small.Equal(large) {
		t.Error("they are the same")
	}
}

func TestSizeInBlock(t *testing.T) {
	r := NewRanges(netip.MustParsePrefix("10.0.0.0/24"), rangesOf("10.0.0.1-10.0.0.9", "10.0.0.255"))
	for block, want := range map[string]string{
		"10.0.0.0/24": "10", "10.0.0.0/8": "10", "10.0.0.8/29": "2", "10.0.0.16/28": "0", "10.0.1.0/24": "0", "::/0": "0",
	} {
		p := netip.MustParsePrefix(block)
		if got := r.SizeIn(p).String(); got != want || r.Overlaps(p) != (want != "0") {
			t.Errorf("SizeIn(%s) = %s, Overlaps = %t; want %s", block, got, r.Overlaps(p), want)
		}
	}
	if !r.SizeIn(netip.Prefix{}).IsZero() {
		t.Error("there are some in a block that is not valid")
	}
}

// TestSearchFindsAddressesInListsOfAnyLength covers long lists of addresses, which are kept in another form
// than short ones.
func TestSearchFindsAddressesInListsOfAnyLength(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{0, 1, 255, 256, 257, longList - 1, longList, 5000, 1 << 16} {
		list := make([]uint128, n)
		for i := range list {
			list[i] = uint128{r.Uint64() >> (r.UintN(4) * 8), r.Uint64()}
		}
		slices.SortFunc(list, func(a, b uint128) int {
			if a.less(b) {
				return -1
			}
			return 1
		})
		s := newAddresses(list)
		for i, a := range list {
			if got := s.at(i); got != a {
				t.Fatalf("%d of %d: got %x, want %x", i, n, got, a)
			}
			if got := s.upTo(a); got != i+1 {
				t.Fatalf("up to %d of %d: got %d", i, n, got)
			}
			if got := s.upTo(a.minus(uint128{0, 1})); got != i && a != (uint128{}) {
				t.Fatalf("before %d of %d: got %d", i, n, got)
			}
		}
	}
}

// TestGapSumsMatchGaps expects sums of 256 regions to count as those regions do one by
// one, for any place between them at which a prefix begins and ends.
func TestGapSumsMatchGaps(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	cidr := netip.MustParsePrefix("::/112")
	var ranges []Range
	for a := uint64(0); a < 1<<16; a += 8 + r.Uint64N(24) {
		ranges = append(ranges, Range{uint128{0, a}.netip(false), uint128{0, a + r.Uint64N(5)}.netip(false)})
	}
	s := NewRanges(cidr, ranges)
	for n := uint8(112); n < 124; n++ {
		for start := uint64(0); start < 1<<16; start += 1 << (128 - n) {
			p := prefix{uint128{0, start}, n}
			lo, hi := s.span(p)
			if lo == hi {
				continue
			}
			var want gapSums
			for all := s.scan(p, lo, lo, hi); all.i <= hi; {
				want.add(all.next())
			}
			if got := s.gapsIn(p, lo, hi); got != want {
				t.Fatalf("%v: got %v, want %v", p.netip(false), got, want)
			}
		}
	}
}

// TestSizeInPrefixBeginningInsideGap covers the kept sums, which count whole gaps; the first gap
// of a prefix can be cut off.
func TestSizeInPrefixBeginningInsideGap(t *testing.T) {
	var ranges []Range
	for a := uint64(4); a < 1<<12; a += 8 {
		ranges = append(ranges, Range{uint128{0, a}.netip(false), uint128{0, a}.netip(false)})
	}
	r, p := NewRanges(netip.MustParsePrefix("::/112"), ranges), netip.MustParsePrefix("::400/118")
	if lo, hi := r.span(prefixOf(p)); lo%regionsSummed != 0 || lo+regionsSummed > hi {
		t.Fatalf("its regions are %d to %d", lo, hi)
	}
	if got := r.SizeIn(p).String(); got != "128" {
		t.Errorf("got %s addresses, want 128", got)
	}
}

// TestFindSkipsManySmallGaps covers gaps that are too small, many of which are passed
// over at a time.
func TestFindSkipsManySmallGaps(t *testing.T) {
	var ranges []Range
	for a := uint64(1); a < 4*regionsSummed; a += 2 {
		ranges = append(ranges, Range{uint128{0, a}.netip(false), uint128{0, a}.netip(false)})
	}
	withheld := NewRanges(netip.MustParsePrefix("::/112"), ranges)
	if got, ok := withheld.after(withheld.pool, prefix{uint128{0, 1}, 120}); !ok || got != (uint128{0, 0x400}) {
		t.Errorf("behind ::1: got %v, %t", got, ok)
	}
	s := NewWithout(netip.MustParsePrefix("::/112"), withheld)
	for fit, want := range map[Fit]string{FirstFit: "::400/120", BestFit: "::400/120", WorstFit: "::8000/120"} {
		if got, ok := s.Find(fit, 120); !ok || got.String() != want {
			t.Errorf("%v: got %v, want %s", fit, got, want)
		}
	}
	if got, ok := s.FindFrom(netip.MustParseAddr("::1"), 120); !ok || got.String() != "::400/120" {
		t.Errorf("from ::1: got %v, want ::400/120", got)
	}
}

func TestNoBlockFollowsLastBlock(t *testing.T) {
	all := ones(128)
	last := gap{all.minus(uint128{0, 200}), all}
	if start, ok := last.after(prefix{uint128{}, 120}); ok {
		t.Errorf("it starts at %v", start.netip(false))
	}
}

// TestReleaseFoldsWithheldArea covers an area that was unfolded for a block: it is folded
// again when the block is released.
func TestReleaseFoldsWithheldArea(t *testing.T) {
	cidr := netip.MustParsePrefix("10.0.0.0/24")
	s := NewWithout(cidr, NewRanges(cidr, rangesOf("10.0.0.0", "10.0.0.255")))
	block := netip.MustParsePrefix("10.0.0.16/28")
	if !s.nodes[s.root].folded() {
		t.Fatal("the pool is not folded")
	}
	s.Use(block)
	if s.nodes[s.root].folded() {
		t.Fatal("the pool is folded with a block in use")
	}
	s.Release(block)
	if !s.nodes[s.root].folded() {
		t.Error("the pool is not folded again")
	}
}

// scatteredRanges returns ranges of ::/0 at random places that neither overlap nor touch.
func scatteredRanges(r *rand.Rand, count int) []Range {
	ends := make([]netip.Addr, 2*count)
	for i := range ends {
		ends[i] = uint128{r.Uint64(), r.Uint64()}.netip(false)
	}
	slices.SortFunc(ends, netip.Addr.Compare)
	ranges := make([]Range, count)
	for i := range ranges {
		ranges[i] = Range{ends[2*i], ends[2*i+1]}
	}
	return ranges
}

// TestRangesAreSmall uses as many ranges as a pool can state: 1,024 to hand out, and as many
// reserved ones inside of these, which makes 2,049 withheld runs.
func TestRangesAreSmall(t *testing.T) {
	const pools, most = 200, 62 << 10
	cidr := netip.MustParsePrefix("::/0")
	r := rand.New(rand.NewPCG(9, 9))
	kept := make([]*Space, pools)
	before := heap()
	for i := range kept {
		kept[i] = NewWithout(cidr, NewRanges(cidr, scatteredRanges(r, 2049)))
	}
	each := (heap() - before) / pools
	runtime.KeepAlive(kept)
	t.Logf("a pool with 2,049 withheld ranges takes %d bytes", each)
	if each > most {
		t.Errorf("a pool takes %d bytes, want %d at most", each, most)
	}
}
