package space

import (
	"fmt"
	"math/big"
	"net/netip"
	"slices"
)

// twin implements the operations of a Space in the most obvious way: one bool per unit of its pool.
// A unit is a prefix of the length unit; with units larger than an address, a twin of a thousand of
// them can stand for ::/0.
type twin struct {
	cidr netip.Prefix
	unit int
	used []bool
	// withheld units stay used after any release.
	withheld []bool
}

func newTwin(cidr netip.Prefix, unit int) *twin {
	units := 1 << (unit - cidr.Bits())
	return &twin{cidr, unit, make([]bool, units), make([]bool, units)}
}

// withhold withholds the units from lo to hi, both included, and returns them as a range.
func (w *twin) withhold(lo, hi int) Range {
	for i := lo; i <= hi; i++ {
		w.used[i], w.withheld[i] = true, true
	}
	return Range{RangeOf(w.block(lo, w.unit)).From, RangeOf(w.block(hi, w.unit)).To}
}

// index returns the unit in which a lies, counted from the start of the pool. It is negative, or
// too large, outside the pool.
func (w *twin) index(a netip.Addr) int {
	n := new(big.Int).SetBytes(a.AsSlice())
	n.Sub(n, new(big.Int).SetBytes(w.cidr.Addr().AsSlice()))
	n.Rsh(n, uint(a.BitLen()-w.unit)) // rounds down below 0 too
	if !n.IsInt64() {
		panic("too far outside the pool for an index of the twin")
	}
	return int(n.Int64())
}

// block returns the prefix of the length bits that starts at the unit i.
func (w *twin) block(i, bits int) netip.Prefix {
	n := big.NewInt(int64(i))
	n.Lsh(n, uint(w.cidr.Addr().BitLen()-w.unit))
	n.Add(n, new(big.Int).SetBytes(w.cidr.Addr().AsSlice()))
	raw := n.FillBytes(make([]byte, w.cidr.Addr().BitLen()/8))
	a, _ := netip.AddrFromSlice(raw)
	return netip.PrefixFrom(a, bits)
}

// units returns the number of units in a prefix of the length bits.
func (w *twin) units(bits int) int { return 1 << (w.unit - bits) }

// part returns the units that block and the pool have in common, from lo up to but not including
// hi.
func (w *twin) part(block netip.Prefix) (lo, hi int) {
	lo = w.index(block.Masked().Addr())
	hi = lo + w.units(block.Bits())
	return min(max(lo, 0), len(w.used)), min(max(hi, 0), len(w.used))
}

func (w *twin) set(block netip.Prefix, used bool) {
	lo, hi := w.part(block)
	for i := lo; i < hi; i++ {
		w.used[i] = used || w.withheld[i]
	}
}

func (w *twin) usedUnits(lo, hi int) int {
	n := 0
	for _, used := range w.used[lo:hi] {
		if used {
			n++
		}
	}
	return n
}

// addresses returns the number of addresses in n units, in decimal.
func (w *twin) addresses(n int) string {
	c := big.NewInt(int64(n))
	return c.Lsh(c, uint(w.cidr.Addr().BitLen()-w.unit)).String()
}

func (w *twin) usedIn(block netip.Prefix) string {
	return w.addresses(w.usedUnits(w.part(block)))
}

func (w *twin) overlaps(block netip.Prefix) bool {
	return w.usedUnits(w.part(block)) > 0
}

func (w *twin) isFree(block netip.Prefix) bool {
	lo, hi := w.part(block)
	return hi-lo == w.units(block.Bits()) && w.usedUnits(lo, hi) == 0
}

// free reports whether the block of the length bits that starts at the unit i is
// free.
func (w *twin) free(i, bits int) bool {
	return !slices.Contains(w.used[i:i+w.units(bits)], true)
}

// maximal reports whether that block is free, and contained in no larger free block.
func (w *twin) maximal(i, bits int) bool {
	if !w.free(i, bits) {
		return false
	}
	parent := i / w.units(bits-1) * w.units(bits-1)
	return bits == w.cidr.Bits() || !w.free(parent, bits-1)
}

// starts returns the units at which the blocks of the length bits start.
func (w *twin) starts(bits int) []int {
	var starts []int
	for i := 0; i < len(w.used); i += w.units(bits) {
		starts = append(starts, i)
	}
	return starts
}

// find tries every block of every length that could qualify, in the order in which the fit prefers
// them.
func (w *twin) find(fit Fit, bits int) string {
	var lengths []int
	for l := w.cidr.Bits(); l <= bits; l++ {
		lengths = append(lengths, l)
	}
	switch fit {
	case FirstFit:
		for _, i := range w.starts(bits) {
			if w.free(i, bits) {
				return w.block(i, bits).String()
			}
		}
		return "none"
	case BestFit:
		slices.Reverse(lengths)
	}
	for _, l := range lengths {
		for _, i := range w.starts(l) {
			if w.maximal(i, l) {
				return w.block(i, bits).String()
			}
		}
	}
	return "none"
}

func (w *twin) findFrom(from netip.Addr, bits int) string {
	for _, i := range w.starts(bits) {
		if b := w.block(i, bits); w.free(i, bits) && !b.Addr().Less(from) {
			return b.String()
		}
	}
	return w.find(FirstFit, bits)
}

func (w *twin) largestFree() string {
	for l := w.cidr.Bits(); l <= w.unit; l++ {
		for _, i := range w.starts(l) {
			if w.free(i, l) {
				return fmt.Sprint(l)
			}
		}
	}
	return "none"
}

func (w *twin) freeBlocks(bits int) string {
	n := 0
	for _, i := range w.starts(bits) {
		if w.free(i, bits) {
			n++
		}
	}
	return fmt.Sprint(n)
}
