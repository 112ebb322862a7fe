package app

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// length is a flag that says how large a block is: 24 or /24. It is nil where it is not set.
type length struct{ bits **int32 }

var _ pflag.Value = length{}

// String implements pflag.Value.
func (l length) String() string {
	if l.bits == nil || *l.bits == nil {
		return ""
	}
	return "/" + strconv.Itoa(int(**l.bits))
}

// Set implements pflag.Value.
func (l length) Set(text string) error {
	bits, err := strconv.ParseInt(strings.TrimPrefix(text, "/"), 10, 32)
	if err != nil || bits < 0 || bits > 128 {
		return fmt.Errorf("is not a prefix length: write one such as 24 or /24")
	}
	short := int32(bits)
	*l.bits = &short
	return nil
}

// Type implements pflag.Value.
func (length) Type() string { return "length" }

// asBlock reads a block as people write it: an address alone is a block of one.
func asBlock(text string) string {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()).String()
	}
	return text
}

// families are the values of a flag that names an address family.
func families() []string { return []string{string(v1alpha1.IPv4), string(v1alpha1.IPv6)} }
