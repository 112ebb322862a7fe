package space

import (
	"fmt"
	"net/netip"
	"testing"
)

func TestPrefixesOf(t *testing.T) {
	for _, c := range []struct{ name, from, to, want string }{
		{"one address is one prefix", "10.0.0.1", "10.0.0.1", "[10.0.0.1/32]"},
		{"a range that is a prefix is that prefix", "10.0.0.0", "10.0.0.255", "[10.0.0.0/24]"},
		{"a range off the edges takes small ones at both ends", "10.0.0.1", "10.0.0.6",
			"[10.0.0.1/32 10.0.0.2/31 10.0.0.4/31 10.0.0.6/32]"},
		{"all of IPv4 is 0.0.0.0/0", "0.0.0.0", "255.255.255.255", "[0.0.0.0/0]"},
		{"all of IPv6 is ::/0", "::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "[::/0]"},
		{"the last address of IPv6 ends the range", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe",
			"ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe/127]"},
		{"the last address of IPv4 ends the range", "255.255.255.255", "255.255.255.255", "[255.255.255.255/32]"},
		{"a range over the middle of an address is cut there", "2001:db8::ffff:ffff:ffff:ffff", "2001:db8:0:1::",
			"[2001:db8::ffff:ffff:ffff:ffff/128 2001:db8:0:1::/128]"},
		{"zones are ignored", "fe80::1%b", "fe80::1%a", "[fe80::1/128]"},
		{"an end before the start gives none", "10.0.0.2", "10.0.0.1", "[]"},
		{"two families give none", "10.0.0.1", "::ffff:10.0.0.2", "[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := PrefixesOf(netip.MustParseAddr(c.from), netip.MustParseAddr(c.to))
			if got := fmt.Sprint(got); got != c.want {
				t.Errorf("PrefixesOf(%s, %s): got %s, want %s", c.from, c.to, got, c.want)
			}
		})
	}
}

func TestPrefixesOfAnInvalidAddressAreNone(t *testing.T) {
	if got := PrefixesOf(netip.Addr{}, netip.Addr{}); got != nil {
		t.Errorf("got %v", got)
	}
}
