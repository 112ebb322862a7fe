package space

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
)

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
