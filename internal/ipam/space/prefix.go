package space

import "net/netip"

// prefix is a masked prefix of 128-bit addresses. IPv4 lengths are 96 more here
// than in a netip.Prefix.
type prefix struct {
	addr uint128
	len  uint8
}

// mapped4 is how much longer a prefix of IPv4-mapped addresses is.
const mapped4 = 96

func prefixOf(p netip.Prefix) prefix {
	n := uint8(p.Bits())
	if p.Addr().Is4() {
		n += mapped4
	}
	return prefix{addressOf(p.Addr()).and(ones(n)), n}
}

func (p prefix) netip(is4 bool) netip.Prefix {
	n := int(p.len)
	if is4 {
		n -= mapped4
	}
	return netip.PrefixFrom(p.addr.netip(is4), n)
}

func (p prefix) covers(q prefix) bool {
	return p.len <= q.len && p.addr.common(q.addr) >= p.len
}

// last is the last address of p.
func (p prefix) last() uint128 { return p.addr.or(ones(128).andNot(ones(p.len))) }

// beside is the block of length n that an edge to p passes by: the sibling of
// the prefix of that length that covers p.
func (p prefix) beside(n uint8) prefix {
	return prefix{p.addr.xor(one(n)).and(ones(n)), n}
}
