package space

import (
	"encoding/binary"
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

// uint128 holds an address, a number of addresses, or a set of prefix lengths.
//
// As a set, the bit of length l is the l-th from the left, at which an address keeps the bit
// that distinguishes a prefix of length l from its sibling. Lengths and addresses can thus be
// combined bit by bit. Length 0 has no bit and needs none: a free block of length 0 is an empty
// pool, which has no trie.
type uint128 struct{ hi, lo uint64 }

// addressOf reads an address of either family, IPv4 as IPv4-mapped.
func addressOf(a netip.Addr) uint128 {
	b := a.As16()
	return uint128{binary.BigEndian.Uint64(b[:8]), binary.BigEndian.Uint64(b[8:])}
}

func (u uint128) netip(is4 bool) netip.Addr {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], u.hi)
	binary.BigEndian.PutUint64(b[8:], u.lo)
	if is4 {
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.AddrFrom16(b)
}

// ones returns a number with the n leftmost bits set: a netmask, or the lengths 1 to n.
func ones(n uint8) uint128 {
	return uint128{^(^uint64(0) >> n), ^uint64(0) << (128 - n)}
}

// between returns the set of the lengths above top and up to n.
func between(top, n uint8) uint128 { return ones(n).andNot(ones(top)) }

// one returns a number with only the n-th bit from the left set, for n from 1 to 128. It is the
// set of the length n, and the number of addresses of a prefix of that length. For n = 0 it is
// 0, which is 2^128 with the carry lost.
func one(n uint8) uint128 {
	// A shift by 64 or more gives 0, and so does one that wraps below 0.
	return uint128{1 << (64 - n), 1 << (128 - n)}
}

func (u uint128) and(v uint128) uint128    { return uint128{u.hi & v.hi, u.lo & v.lo} }
func (u uint128) or(v uint128) uint128     { return uint128{u.hi | v.hi, u.lo | v.lo} }
func (u uint128) xor(v uint128) uint128    { return uint128{u.hi ^ v.hi, u.lo ^ v.lo} }
func (u uint128) andNot(v uint128) uint128 { return uint128{u.hi &^ v.hi, u.lo &^ v.lo} }
func (u uint128) isZero() bool             { return u.hi|u.lo == 0 }

// plus and minus return the sum and the difference, and wrap round at 2^128.
func (u uint128) plus(v uint128) uint128 {
	lo, carry := bits.Add64(u.lo, v.lo, 0)
	hi, _ := bits.Add64(u.hi, v.hi, carry)
	return uint128{hi, lo}
}

func (u uint128) minus(v uint128) uint128 {
	lo, borrow := bits.Sub64(u.lo, v.lo, 0)
	hi, _ := bits.Sub64(u.hi, v.hi, borrow)
	return uint128{hi, lo}
}

func (u uint128) less(v uint128) bool {
	return u.hi < v.hi || u.hi == v.hi && u.lo < v.lo
}

// shiftRight drops the n rightmost bits.
func (u uint128) shiftRight(n uint8) uint128 {
	if n >= 64 {
		return uint128{0, u.hi >> (n - 64)}
	}
	return uint128{u.hi >> n, u.hi<<(64-n) | u.lo>>n}
}

// bit returns the bit that follows the n leftmost ones: the half of a prefix of length n in
// which the address u lies.
func (u uint128) bit(n uint8) uint8 {
	if n < 64 {
		return uint8(u.hi >> (63 - n) & 1)
	}
	return uint8(u.lo >> (127 - n) & 1)
}

// common returns the number of leftmost bits in which u and v agree.
func (u uint128) common(v uint128) uint8 { return u.xor(v).leadingZeros() }

// shortest and longest return the ends of a set of lengths that is not empty.
func (u uint128) shortest() uint8 { return u.leadingZeros() + 1 }
func (u uint128) longest() uint8  { return 128 - u.trailingZeros() }

func (u uint128) leadingZeros() uint8 {
	if u.hi == 0 {
		return uint8(64 + bits.LeadingZeros64(u.lo))
	}
	return uint8(bits.LeadingZeros64(u.hi))
}

func (u uint128) trailingZeros() uint8 {
	if u.lo == 0 {
		return uint8(64 + bits.TrailingZeros64(u.hi))
	}
	return uint8(bits.TrailingZeros64(u.lo))
}
