package adapt

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// span is a run of addresses, both ends included.
type span struct{ from, to netip.Addr }

// spans reads a list of ranges, CIDRs and single addresses, all inside cidr.
func spans(path *field.Path, texts []string, cidr netip.Prefix) ([]span, field.ErrorList) {
	var errs field.ErrorList
	var out []span
	for i, text := range texts {
		s, err := readSpan(path.Index(i), text, cidr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, s)
	}
	return out, errs
}

func readSpan(path *field.Path, text string, cidr netip.Prefix) (span, *field.Error) {
	s, err := parseSpan(path, text)
	if err != nil {
		return span{}, err
	}
	if s.to.Less(s.from) {
		return span{}, field.Invalid(path, text, fmt.Sprintf("ends before it begins: did you mean %q?", s.to.String()+"-"+s.from.String()))
	}
	if cidr.IsValid() && (!cidr.Contains(s.from) || !cidr.Contains(s.to)) {
		return span{}, field.Invalid(path, text, fmt.Sprintf("is not inside the pool's CIDR %s: remove it, or correct it", cidr))
	}
	return s, nil
}

func parseSpan(path *field.Path, text string) (span, *field.Error) {
	if from, to, ok := strings.Cut(text, "-"); ok {
		first, err := Addr(path, from)
		if err != nil {
			return span{}, err
		}
		last, err := Addr(path, to)
		if err != nil {
			return span{}, err
		}
		if first.Is4() != last.Is4() {
			return span{}, field.Invalid(path, text, "mixes IPv4 and IPv6: both ends must be of the pool's family")
		}
		return span{first, last}, nil
	}
	if strings.Contains(text, "/") {
		block, err := Block(path, text)
		if err != nil {
			return span{}, err
		}
		return span{block.Addr(), lastOf(block)}, nil
	}
	addr, err := Addr(path, text)
	return span{addr, addr}, err
}

// outside is what of cidr lies in none of the spans.
func outside(cidr netip.Prefix, spans []span) []netip.Prefix {
	sorted := slices.Clone(spans)
	slices.SortFunc(sorted, func(a, b span) int { return a.from.Compare(b.from) })
	var out []netip.Prefix
	next := cidr.Addr()
	for _, s := range sorted {
		if next.Less(s.from) {
			out = append(out, space.PrefixesOf(next, s.from.Prev())...)
		}
		if !s.to.Less(next) {
			next = s.to.Next()
		}
		if !next.IsValid() {
			return out // the last span ends with the family's last address
		}
	}
	if last := lastOf(cidr); !last.Less(next) {
		out = append(out, space.PrefixesOf(next, last)...)
	}
	return out
}

// lastOf is the last address of a block.
func lastOf(block netip.Prefix) netip.Addr {
	bytes := block.Addr().AsSlice()
	for bit := block.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(bytes) // as long as the address that it came from
	return last
}
