package space

import (
	"math/big"
	"math/bits"
	"net/netip"
)

// Count holds an exact number of addresses, from 0 to 2^192-1. That is enough to add up 2^64
// pools of the size of ::/0, which alone has one address more than 128 bits can count. The zero
// value is 0. Counts can be compared with ==.
type Count struct{ top, hi, lo uint64 }

// CountOf returns how many addresses p has: 0 when p is invalid.
func CountOf(p netip.Prefix) Count {
	if !p.IsValid() {
		return Count{}
	}
	return sizeOf(prefixOf(p).len)
}

// CountOf64 returns n.
func CountOf64(n uint64) Count { return Count{lo: n} }

// ParseCount reads a decimal number, and reports whether it fits into a Count.
func ParseCount(text string) (Count, bool) {
	n, ok := new(big.Int).SetString(text, 10)
	if !ok || n.Sign() < 0 || n.BitLen() > 192 {
		return Count{}, false
	}
	word := func(i int) uint64 { return new(big.Int).Rsh(n, uint(64*i)).Uint64() }
	return Count{top: word(2), hi: word(1), lo: word(0)}, true
}

// sizeOf returns how many 128-bit addresses a prefix of length n has.
func sizeOf(n uint8) Count {
	if n == 0 {
		return Count{top: 1}
	}
	u := one(n)
	return Count{hi: u.hi, lo: u.lo}
}

// Add returns c + d.
func (c Count) Add(d Count) Count {
	lo, carry := bits.Add64(c.lo, d.lo, 0)
	hi, carry := bits.Add64(c.hi, d.hi, carry)
	top, _ := bits.Add64(c.top, d.top, carry)
	return Count{top, hi, lo}
}

// Sub returns c - d, and 0 when d is more than c: there are no fewer addresses than none.
func (c Count) Sub(d Count) Count {
	lo, borrow := bits.Sub64(c.lo, d.lo, 0)
	hi, borrow := bits.Sub64(c.hi, d.hi, borrow)
	top, borrow := bits.Sub64(c.top, d.top, borrow)
	if borrow != 0 {
		return Count{}
	}
	return Count{top, hi, lo}
}

// Cmp returns -1 when c is less than d, 0 when they are equal, and 1 when c is
// more.
func (c Count) Cmp(d Count) int {
	switch {
	case c == d:
		return 0
	case c.Sub(d).IsZero():
		return -1
	default:
		return 1
	}
}

// Equal reports whether c is d, for go-cmp and others that cannot use ==.
func (c Count) Equal(d Count) bool { return c == d }

// IsZero reports whether c is 0.
func (c Count) IsZero() bool { return c == Count{} }

// String returns c in decimal.
func (c Count) String() string {
	n := new(big.Int)
	for _, word := range [3]uint64{c.top, c.hi, c.lo} {
		n.Lsh(n, 64).Or(n, new(big.Int).SetUint64(word))
	}
	return n.String()
}

// Float64 returns c as a floating point number, rounded.
func (c Count) Float64() float64 {
	const word = 1 << 64
	return (float64(c.top)*word+float64(c.hi))*word + float64(c.lo)
}

// Percent returns the part of a whole that c is, from 0 to 100, rounded down, but never rounded
// to the ends: 0 means none at all, even of an empty whole, and 100 means all of it (or more,
// which counts as all).
func (c Count) Percent(total Count) int {
	switch {
	case c.IsZero():
		return 0
	case c.Cmp(total) >= 0:
		return 100
	}
	percent := 0
	for rest := c.times100(); rest.Cmp(total) >= 0; rest = rest.Sub(total) {
		percent++
	}
	return max(percent, 1)
}

// times100 returns c times 100, exact for any sum of up to 2^57 pools.
func (c Count) times100() Count {
	overflow, lo := bits.Mul64(c.lo, 100)
	top, hi := bits.Mul64(c.hi, 100)
	hi, carry := bits.Add64(hi, overflow, 0)
	return Count{c.top*100 + top + carry, hi, lo}
}
