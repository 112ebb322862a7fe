// Package convert is the border between the API's strings and the values with which all other
// packages work: each of its functions reads one object, once, and returns a value that can be
// trusted or a field.ErrorList that names field, value and remedy.
//
// The functions are pure and may be called concurrently.
package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Block reads a CIDR in the one form that is accepted: canonical text, no host
// bits, no IPv4-mapped IPv6, no zone (RFC 4632, RFC 5952).
func Block(path *field.Path, text string) (netip.Prefix, *field.Error) {
	block, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		return netip.Prefix{}, field.Invalid(path, text, "is not a CIDR: write an address and a prefix length, such as 10.0.0.0/24 or 2001:db8::/64")
	case block.Addr().Is4In6():
		return netip.Prefix{}, field.Invalid(path, text, "is an IPv4-mapped IPv6 block: write it as IPv4")
	case block != block.Masked():
		return netip.Prefix{}, field.Invalid(path, text, fmt.Sprintf("has host bits set: did you mean %q?", block.Masked()))
	case block.String() != text:
		return netip.Prefix{}, field.Invalid(path, text, fmt.Sprintf("is not in canonical form: write %q", block))
	}
	return block, nil
}

// Addr reads an address in canonical form, without zone.
func Addr(path *field.Path, text string) (netip.Addr, *field.Error) {
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil || addr.Zone() != "":
		return netip.Addr{}, field.Invalid(path, text, "is not an IP address: write one such as 10.0.0.1 or 2001:db8::1")
	case addr.Is4In6():
		return netip.Addr{}, field.Invalid(path, text, "is an IPv4-mapped IPv6 address: write it as IPv4")
	case addr.String() != text:
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is not in canonical form: write %q", addr))
	}
	return addr, nil
}

// familyOf checks a stated family against a block, either of which may be absent.
func familyOf(path *field.Path, stated ipam.Family, block netip.Prefix) (ipam.Family, *field.Error) {
	if !block.IsValid() {
		return stated, nil
	}
	actual := ipam.FamilyOf(block)
	if stated != "" && stated != actual {
		return actual, field.Invalid(path, stated, fmt.Sprintf("the CIDR is %s: remove ipFamily, it is derived", actual))
	}
	return actual, nil
}

// length reads an optional prefix length of a family. Of an unknown family it is one of IPv6, whose
// lengths are the longest: callers pass family.
func length(path *field.Path, bits *int32, family ipam.Family) (int, *field.Error) {
	if bits == nil {
		return ipam.NoLength, nil
	}
	if limit := family.Bits(); *bits < 0 || int(*bits) > limit {
		return ipam.NoLength, field.Invalid(path, *bits, fmt.Sprintf("must be between 0 and %d", limit))
	}
	return int(*bits), nil
}

// spans reads a list of ranges, CIDRs and single addresses, all inside cidr.
func spans(path *field.Path, texts []string, cidr netip.Prefix) ([]space.Range, field.ErrorList) {
	var errs field.ErrorList
	ranges := make([]space.Range, 0, len(texts))
	for i, text := range texts {
		s, err := readSpan(path.Index(i), text, cidr)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		ranges = append(ranges, s)
	}
	return ranges, errs
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

// Outside returns the part of cidr that lies in none of the ranges, which lie in cidr.
func Outside(cidr netip.Prefix, ranges []space.Range) []space.Range {
	sorted := slices.Clone(ranges)
	slices.SortFunc(sorted, func(a, b space.Range) int { return a.From.Compare(b.From) })
	var merged []space.Range
	next := cidr.Addr()
	for _, s := range sorted {
		if next.Less(s.From) {
			merged = append(merged, space.Range{From: next, To: s.From.Prev()})
		}
		if !s.To.Less(next) {
			next = s.To.Next()
		}
		if !next.IsValid() {
			return merged // the last span ends with the family's last address
		}
	}
	if last := lastOf(cidr); !last.Less(next) {
		merged = append(merged, space.Range{From: next, To: last})
	}
	return merged
}

// lastOf returns the last address of a block.
func lastOf(block netip.Prefix) netip.Addr { return space.RangeOf(block).To }

func appendError(errs field.ErrorList, err *field.Error) field.ErrorList {
	if err == nil {
		return errs
	}
	return append(errs, err)
}

// notNegative returns an error for a negative time to wait.
func notNegative(path *field.Path, d *metav1.Duration) field.ErrorList {
	if d == nil || d.Duration >= 0 {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must not be negative: leave it out for none")}
}

func duration(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// consumer returns an error if a pool or a class with the visibility Consumer names no project.
func consumer(visibility v1alpha1.Visibility, project string) field.ErrorList {
	if visibility != v1alpha1.VisibilityConsumer || project != "" {
		return nil
	}
	return field.ErrorList{field.Required(field.NewPath("spec", "project"), "visibility Consumer needs a project: set the one whose claims may use it")}
}
