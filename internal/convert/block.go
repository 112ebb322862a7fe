package convert

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/internal/ipam"
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

// length reads an optional prefix length of a family, which may be unknown.
func length(path *field.Path, bits *int32, family ipam.Family) (int, *field.Error) {
	if bits == nil {
		return ipam.NoLength, nil
	}
	if limit := family.Bits(); *bits < 0 || int(*bits) > limit {
		return ipam.NoLength, field.Invalid(path, *bits, fmt.Sprintf("must be between 0 and %d", limit))
	}
	return int(*bits), nil
}
