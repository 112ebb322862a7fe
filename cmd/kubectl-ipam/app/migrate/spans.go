package migrate

import (
	"fmt"
	"net/netip"
	"strings"

	"go4.org/netipx"
)

// parseSpan reads a single address, a CIDR, or a range of two addresses, as the in-cluster
// provider does: host bits of a CIDR do not count.
func parseSpan(text string) (netipx.IPRange, error) {
	text = strings.TrimSpace(text)
	switch {
	case strings.Contains(text, "-"):
		span, err := netipx.ParseIPRange(strings.ReplaceAll(text, " ", ""))
		if err != nil {
			return span, fmt.Errorf("%q is not a range of two addresses: write one such as 10.0.0.10-10.0.0.20", text)
		}
		return span, nil
	case strings.Contains(text, "/"):
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			return netipx.IPRange{}, fmt.Errorf("%q is not a CIDR: write one such as 10.0.0.0/24", text)
		}
		return netipx.RangeOfPrefix(prefix), nil
	}
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netipx.IPRange{}, fmt.Errorf("%q is not an IP address: write one such as 10.0.0.1", text)
	}
	return netipx.IPRangeFrom(addr.Unmap(), addr.Unmap()), nil
}

// setOf returns the set of the addresses that the texts name.
func setOf(texts []string) (*netipx.IPSet, error) {
	var all netipx.IPSetBuilder
	for _, text := range texts {
		span, err := parseSpan(text)
		if err != nil {
			return nil, err
		}
		all.AddRange(span)
	}
	return all.IPSet()
}

// union, minus and common combine sets of addresses. Sets that are built of valid ranges have
// no errors.
func union(sets ...*netipx.IPSet) *netipx.IPSet {
	var all netipx.IPSetBuilder
	for _, set := range sets {
		all.AddSet(set)
	}
	return built(&all)
}

func minus(a, b *netipx.IPSet) *netipx.IPSet {
	var all netipx.IPSetBuilder
	all.AddSet(a)
	all.RemoveSet(b)
	return built(&all)
}

func common(a, b *netipx.IPSet) *netipx.IPSet {
	var all netipx.IPSetBuilder
	all.AddSet(a)
	all.Intersect(b)
	return built(&all)
}

func setOfPrefix(prefix netip.Prefix) *netipx.IPSet {
	var all netipx.IPSetBuilder
	all.AddPrefix(prefix)
	return built(&all)
}

func built(b *netipx.IPSetBuilder) *netipx.IPSet {
	set, err := b.IPSet()
	if err != nil {
		return &netipx.IPSet{} // only a builder with invalid input has errors
	}
	return set
}

func isEmpty(set *netipx.IPSet) bool { return set == nil || len(set.Ranges()) == 0 }

// bounds returns the first and the last address of a set that is not empty.
func bounds(set *netipx.IPSet) (first, last netip.Addr) {
	ranges := set.Ranges()
	return ranges[0].From(), ranges[len(ranges)-1].To()
}

// isMixed reports whether a set has addresses of both families.
func isMixed(set *netipx.IPSet) bool {
	first, last := bounds(set)
	return first.Is4() != last.Is4()
}

// cover returns the smallest block that has all addresses of a set of one family.
func cover(set *netipx.IPSet) netip.Prefix {
	first, last := bounds(set)
	for bits := first.BitLen(); ; bits-- {
		if block := netip.PrefixFrom(first, bits).Masked(); block.Contains(last) {
			return block
		}
	}
}

// textsOf writes a set out as a pool's ranges: single addresses, CIDRs, and ranges.
func textsOf(set *netipx.IPSet) []string {
	var texts []string
	for _, span := range set.Ranges() {
		prefix, isPrefix := span.Prefix()
		switch {
		case span.From() == span.To():
			texts = append(texts, span.From().String())
		case isPrefix:
			texts = append(texts, prefix.String())
		default:
			texts = append(texts, span.From().String()+"-"+span.To().String())
		}
	}
	return texts
}
