package command

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Length represents a flag for the size of a block: 24 or /24. It is nil if it is not set.
type Length struct{ Bits **int32 }

var _ pflag.Value = Length{}

// String implements pflag.Value.
func (l Length) String() string {
	if l.Bits == nil || *l.Bits == nil {
		return ""
	}
	return "/" + strconv.Itoa(int(**l.Bits))
}

// Set implements pflag.Value.
func (l Length) Set(text string) error {
	bits, err := strconv.ParseInt(strings.TrimPrefix(text, "/"), 10, 32)
	if err != nil || bits < 0 || bits > 128 {
		return fmt.Errorf("is not a prefix length: write one such as 24 or /24")
	}
	short := int32(bits)
	*l.Bits = &short
	return nil
}

// Type implements pflag.Value.
func (Length) Type() string { return "length" }

// AsBlock reads a block as people write it: an address alone is a block of one.
func AsBlock(text string) string {
	if address, err := netip.ParseAddr(text); err == nil && address.Zone() == "" {
		return netip.PrefixFrom(address, address.BitLen()).String()
	}
	return text
}

// Families returns the values of a flag that names an address family.
func Families() []string { return []string{string(v1alpha1.IPv4), string(v1alpha1.IPv6)} }
