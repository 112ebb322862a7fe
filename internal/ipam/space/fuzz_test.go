package space

import (
	"encoding/binary"
	"math/big"
	"net/netip"
	"testing"
)

// FuzzSpace reads the first byte as the pool and each four more as a call.
func FuzzSpace(f *testing.F) {
	f.Add([]byte{0, opUse, 9, 0, 1, opUse, 9, 0, 2, opRelease, 10, 0, 2})
	f.Add([]byte{1, opFindAndUse, 10, 0, 0, opFindAndUse, 10, 0, 1, opFindAndUse, 10, 0, 2})
	f.Add([]byte{2, opUse, 0, 0, 0, opRelease, 10, 2, 0, opFindFromAndUse, 10, 3, 255})
	f.Add([]byte{3, opUse, 255, 0, 0, opOverlaps, 255, 0, 0, opIsFree, 255, 0, 0})
	f.Add([]byte{4, opUse, 1, 0, 0, opUse, 1, 2, 0, opUsedIn, 0, 0, 0, opFreeBlocks, 3, 0, 0})
	f.Fuzz(func(t *testing.T, input []byte) {
		if len(input) == 0 {
			return
		}
		pool := pools[int(input[0])%len(pools)]
		p := newPair(pool.cidr, pool.unit)
		rest := input[1:]
		for ; len(rest) >= 4; rest = rest[4:] {
			p.drive(t, input, call{rest[0], rest[1], binary.BigEndian.Uint16(rest[2:])})
		}
	})
}

// FuzzPrefixesOf tries ranges of up to 2^16 addresses, few enough to look at each.
func FuzzPrefixesOf(f *testing.F) {
	f.Add([]byte{10, 0, 0, 1}, uint16(13))
	f.Add([]byte{0, 0, 0, 0}, uint16(65535))
	f.Add([]byte{255, 255, 255, 0}, uint16(255))
	f.Add(make([]byte, 16), uint16(1023))
	f.Add(netip.MustParseAddr("2001:db8::ffff:ffff:fff0").AsSlice(), uint16(100))
	f.Fuzz(func(t *testing.T, raw []byte, more uint16) {
		from, ok := netip.AddrFromSlice(raw)
		if !ok {
			return
		}
		to := plus(from, int64(more))
		if !to.IsValid() {
			return
		}
		got := PrefixesOf(from, to)
		checkCover(t, got, from, to)
		checkFewest(t, got)
	})
}

// plus is the address n behind a, invalid when there is none.
func plus(a netip.Addr, n int64) netip.Addr {
	sum := new(big.Int).SetBytes(a.AsSlice())
	if sum.Add(sum, big.NewInt(n)); sum.BitLen() > a.BitLen() {
		return netip.Addr{}
	}
	b, _ := netip.AddrFromSlice(sum.FillBytes(make([]byte, a.BitLen()/8)))
	return b
}

// checkCover walks the prefixes address by address: they must be masked, and give
// from to to in order, each once.
func checkCover(t *testing.T, got []netip.Prefix, from, to netip.Addr) {
	t.Helper()
	next := from
	for _, p := range got {
		if p != p.Masked() || p.Addr() != next {
			t.Fatalf("PrefixesOf(%v, %v) = %v: got %v, want a prefix that starts at %v", from, to, got, p, next)
		}
		for next.IsValid() && p.Contains(next) {
			if to.Less(next) {
				t.Fatalf("PrefixesOf(%v, %v) = %v: %v lies outside", from, to, got, next)
			}
			next = next.Next()
		}
	}
	if next != to.Next() {
		t.Fatalf("PrefixesOf(%v, %v) = %v: got up to %v, want up to %v", from, to, got, next, to.Next())
	}
}

// checkFewest fails when two prefixes side by side are the halves of one. Where
// none are, there is no smaller cover: the set of maximal prefixes is unique.
func checkFewest(t *testing.T, got []netip.Prefix) {
	t.Helper()
	for i := 1; i < len(got); i++ {
		a, b := got[i-1], got[i]
		if a.Bits() == b.Bits() && netip.PrefixFrom(a.Addr(), a.Bits()-1).Contains(b.Addr()) {
			t.Fatalf("%v and %v are two halves of one in %v", a, b, got)
		}
	}
}
