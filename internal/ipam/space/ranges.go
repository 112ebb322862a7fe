package space

import "net/netip"

// PrefixesOf returns the fewest prefixes that together are the addresses from
// from up to and including to, in order. There are none when the two are not
// of one family, or to comes before from. Zones are ignored.
func PrefixesOf(from, to netip.Addr) []netip.Prefix {
	if !from.IsValid() || !to.IsValid() || from.Is4() != to.Is4() {
		return nil
	}
	var prefixes []netip.Prefix
	lo, hi := addressOf(from), addressOf(to)
	for !hi.less(lo) {
		p := largestAt(lo, hi)
		prefixes = append(prefixes, p.netip(from.Is4()))
		lo = lo.plus(one(p.len))
		if lo.isZero() { // wrapped round after the last address there is
			break
		}
	}
	return prefixes
}

// largestAt returns the largest prefix that starts at lo and ends by hi.
func largestAt(lo, hi uint128) prefix {
	n := 128 - lo.trailingZeros()
	// Compared by what follows the first address: one(n) less one, which unlike
	// one(n) fits 128 bits for ::/0 too.
	for hi.minus(lo).less(one(n).minus(uint128{0, 1})) {
		n++
	}
	return prefix{lo, n}
}
