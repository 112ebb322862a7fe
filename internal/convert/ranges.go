package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// spans reads a list of ranges, CIDRs and single addresses, all inside cidr.
func spans(path *field.Path, texts []string, cidr netip.Prefix) ([]space.Range, field.ErrorList) {
	var errs field.ErrorList
	out := make([]space.Range, 0, len(texts))
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

func readSpan(path *field.Path, text string, cidr netip.Prefix) (space.Range, *field.Error) {
	s, err := Span(path, text)
	if err != nil {
		return space.Range{}, err
	}
	if s.To.Less(s.From) {
		return space.Range{}, field.Invalid(path, text, fmt.Sprintf("ends before it begins: did you mean %q?", s.To.String()+"-"+s.From.String()))
	}
	if cidr.IsValid() && (!cidr.Contains(s.From) || !cidr.Contains(s.To)) {
		return space.Range{}, field.Invalid(path, text, fmt.Sprintf("is not inside the pool's CIDR %s: remove it, or correct it", cidr))
	}
	return s, nil
}

// Span reads a range of two addresses (10.0.0.10-10.0.0.20), a CIDR or a single address. It
// may end before it begins.
func Span(path *field.Path, text string) (space.Range, *field.Error) {
	if from, to, ok := strings.Cut(text, "-"); ok {
		first, err := Addr(path, from)
		if err != nil {
			return space.Range{}, err
		}
		last, err := Addr(path, to)
		if err != nil {
			return space.Range{}, err
		}
		if first.Is4() != last.Is4() {
			return space.Range{}, field.Invalid(path, text, "mixes IPv4 and IPv6: both ends must be of the pool's family")
		}
		return space.Range{From: first, To: last}, nil
	}
	if strings.Contains(text, "/") {
		block, err := Block(path, text)
		if err != nil {
			return space.Range{}, err
		}
		return space.RangeOf(block), nil
	}
	addr, err := Addr(path, text)
	return space.Range{From: addr, To: addr}, err
}

// Outside is what of cidr lies in none of the ranges, which lie in cidr.
func Outside(cidr netip.Prefix, ranges []space.Range) []space.Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b space.Range) int { return a.From.Compare(b.From) })
	var out []space.Range
	next := cidr.Addr()
	for _, s := range sorted {
		if next.Less(s.From) {
			out = append(out, space.Range{From: next, To: s.From.Prev()})
		}
		if !s.To.Less(next) {
			next = s.To.Next()
		}
		if !next.IsValid() {
			return out // the last span ends with the family's last address
		}
	}
	if last := lastOf(cidr); !last.Less(next) {
		out = append(out, space.Range{From: next, To: last})
	}
	return out
}

// lastOf is the last address of a block.
func lastOf(block netip.Prefix) netip.Addr { return space.RangeOf(block).To }
