package convert

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

func TestSubnetEdges(t *testing.T) {
	for name, tc := range map[string]struct {
		subnet string
		want   []string
	}{
		"a /24 has a network and a broadcast address": {"10.0.0.0/24", []string{"10.0.0.0", "10.0.0.255"}},
		"a /30 has them too":                          {"10.0.0.4/30", []string{"10.0.0.4", "10.0.0.7"}},
		"a /31 has none (RFC 3021)":                   {"10.0.0.0/31", nil},
		"a /32 has none":                              {"10.0.0.0/32", nil},
		"all of IPv4 ends with the limited broadcast": {"0.0.0.0/0", []string{"0.0.0.0", "255.255.255.255"}},
		"a /64 has a subnet-router anycast address":   {"2001:db8::/64", []string{"2001:db8::"}},
		"a /126 has it too":                           {"2001:db8::4/126", []string{"2001:db8::4"}},
		"a /127 has none (RFC 6164)":                  {"2001:db8::/127", nil},
		"a /128 has none":                             {"2001:db8::/128", nil},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, edge := range Edges(netip.MustParsePrefix(tc.subnet)) {
				got = append(got, edge.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Edges(%s) (-want +got):\n%s", tc.subnet, diff)
			}
		})
	}
}

func TestPoolNetwork(t *testing.T) {
	var rows []messages.Row
	for name, tc := range map[string]struct {
		cidr     string
		spec     *v1alpha1.PoolNetwork
		network  *ipam.Network
		withheld []string
		refused  []string
	}{
		"no network withholds nothing": {cidr: "10.0.0.0/24"},
		"a network withholds its edges": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24},
			network: &ipam.Network{Length: 24}, withheld: []string{"10.0.0.0-10.0.0.0", "10.0.0.255-10.0.0.255"}},
		"a network withholds its gateway": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.0.1"},
			network:  &ipam.Network{Length: 24, Gateway: netip.MustParseAddr("10.0.0.1")},
			withheld: []string{"10.0.0.0-10.0.0.1", "10.0.0.255-10.0.0.255"}},
		"edges may be handed out, the gateway never": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.0.1", AllocateEdgeAddresses: true},
			network: &ipam.Network{Length: 24, Gateway: netip.MustParseAddr("10.0.0.1")}, withheld: []string{"10.0.0.1-10.0.0.1"}},
		"a pool in the middle of its subnet has neither edge nor gateway": {cidr: "10.0.0.64/26", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.0.1"},
			network: &ipam.Network{Length: 24, Gateway: netip.MustParseAddr("10.0.0.1")}},
		"a pool at the end of its subnet has one edge": {cidr: "10.0.0.192/26", spec: &v1alpha1.PoolNetwork{PrefixLength: 24},
			network: &ipam.Network{Length: 24}, withheld: []string{"10.0.0.255-10.0.0.255"}},
		"a pool that is not carved yet has a length": {spec: &v1alpha1.PoolNetwork{PrefixLength: 64, Gateway: "2001:db8::1"},
			network: &ipam.Network{Length: 64}},
		"IPv6 withholds the subnet-router anycast address": {cidr: "2001:db8::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 64, Gateway: "2001:db8::1"},
			network:  &ipam.Network{Length: 64, Gateway: netip.MustParseAddr("2001:db8::1")},
			withheld: []string{"2001:db8::-2001:db8::1"}},
		"a link-local gateway is not an address of the pool": {cidr: "2001:db8::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 64, Gateway: "fe80::1"},
			network:  &ipam.Network{Length: 64, Gateway: netip.MustParseAddr("fe80::1")},
			withheld: []string{"2001:db8::-2001:db8::"}},
		"a link-local gateway is withheld in a pool that has it": {cidr: "fe80::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 64, Gateway: "fe80::1"},
			network:  &ipam.Network{Length: 64, Gateway: netip.MustParseAddr("fe80::1")},
			withheld: []string{"fe80::-fe80::1"}},

		"an address that is a subnet by itself has its gateway elsewhere": {cidr: "203.0.113.7/32", spec: &v1alpha1.PoolNetwork{PrefixLength: 32, Gateway: "172.31.1.1"},
			network: &ipam.Network{Length: 32, Gateway: netip.MustParseAddr("172.31.1.1")}},
		"so have many such addresses": {cidr: "203.0.113.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 32, Gateway: "172.31.1.1"},
			network: &ipam.Network{Length: 32, Gateway: netip.MustParseAddr("172.31.1.1")}},
		"and those of IPv6": {cidr: "2001:db8::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 128, Gateway: "2001:db9::1"},
			network: &ipam.Network{Length: 128, Gateway: netip.MustParseAddr("2001:db9::1")}},
		"a gateway among such addresses is withheld": {cidr: "203.0.113.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 32, Gateway: "203.0.113.1"},
			network: &ipam.Network{Length: 32, Gateway: netip.MustParseAddr("203.0.113.1")}, withheld: []string{"203.0.113.1-203.0.113.1"}},
		"a gateway of the other family is refused for such addresses": {cidr: "203.0.113.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 32, Gateway: "fe80::1"},
			refused: []string{`spec.network.gateway: Invalid value: "fe80::1": is not of the family of the subnet 203.0.113.0/32: correct it`}},

		"settings for hosts": {cidr: "2001:db8::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 64, AllocateEdgeAddresses: true, HostSettings: v1alpha1.HostSettings{
			DNSServers: []string{"2001:db8::53", "10.0.0.53"}, SearchDomains: []string{"example.com"}, MTU: 1280, VLAN: 42,
		}}, network: &ipam.Network{
			Length: 64, DNSServers: []netip.Addr{netip.MustParseAddr("2001:db8::53"), netip.MustParseAddr("10.0.0.53")},
			SearchDomains: []string{"example.com"}, MTU: 1280, VLAN: 42,
		}},
		"a small MTU, in IPv4": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, AllocateEdgeAddresses: true, HostSettings: v1alpha1.HostSettings{MTU: 1279}},
			network: &ipam.Network{Length: 24, MTU: 1279}},
		"a small MTU is refused in IPv6": {cidr: "2001:db8::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 64, AllocateEdgeAddresses: true, HostSettings: v1alpha1.HostSettings{MTU: 1279}},
			refused: []string{"spec.network.mtu: Invalid value: 1279: must be 1280 or more for IPv6 (RFC 8200)"}},
		"a name server that is none is refused": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, AllocateEdgeAddresses: true, HostSettings: v1alpha1.HostSettings{DNSServers: []string{"10.0.0.53", "dns"}}},
			refused: []string{`spec.network.dnsServers[1]: Invalid value: "dns": is not an IP address: write one such as 10.0.0.1 or 2001:db8::1`}},
		"a link-local gateway of IPv6 is refused in IPv4": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "fe80::1"},
			refused: []string{`spec.network.gateway: Invalid value: "fe80::1": is not an address of the subnet 10.0.0.0/24: correct it, or correct prefixLength`}},
		"a subnet smaller than the pool is refused": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 25},
			refused: []string{"spec.network.prefixLength: Invalid value: 25: the pool is a /24, and lies within one subnet: write 24 or less"}},
		"a length of 33 is refused in IPv4": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 33},
			refused: []string{"spec.network.prefixLength: Invalid value: 33: must be between 0 and 32"}},
		"a negative length is refused": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: -1},
			refused: []string{"spec.network.prefixLength: Invalid value: -1: must be between 0 and 32"}},
		"a gateway outside of the subnet is refused": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "10.0.1.1"},
			refused: []string{`spec.network.gateway: Invalid value: "10.0.1.1": is not an address of the subnet 10.0.0.0/24: correct it, or correct prefixLength`}},
		"a gateway of the other family is refused": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "2001:db8::1"},
			refused: []string{`spec.network.gateway: Invalid value: "2001:db8::1": is not an address of the subnet 10.0.0.0/24: correct it, or correct prefixLength`}},
		"a link-local gateway is refused in IPv4": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "169.254.0.1"},
			refused: []string{`spec.network.gateway: Invalid value: "169.254.0.1": is not an address of the subnet 10.0.0.0/24: correct it, or correct prefixLength`}},
		"an IPv6 gateway of neither kind is refused": {cidr: "2001:db8::/64", spec: &v1alpha1.PoolNetwork{PrefixLength: 64, Gateway: "2001:db9::1"},
			refused: []string{`spec.network.gateway: Invalid value: "2001:db9::1": is neither an address of the subnet 2001:db8::/64 nor link-local (fe80::/10): correct it, or correct prefixLength`}},
		"a gateway that is no address is refused": {cidr: "10.0.0.0/24", spec: &v1alpha1.PoolNetwork{PrefixLength: 24, Gateway: "router"},
			refused: []string{`spec.network.gateway: Invalid value: "router": is not an IP address: write one such as 10.0.0.1 or 2001:db8::1`}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := ipam.Pool{}
			if tc.cidr != "" {
				pool.CIDR = netip.MustParsePrefix(tc.cidr)
				pool.Family = ipam.FamilyOf(pool.CIDR)
			}
			ranges, errs := poolNetwork(field.NewPath("spec", "network"), tc.spec, &pool)
			rows = append(rows, rowsOf("IPPool", errs...)...)
			if diff := cmp.Diff(tc.refused, messagesOf(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if len(errs) > 0 {
				return // the pool is not used
			}
			if diff := cmp.Diff(tc.network, pool.Network, comparing); diff != "" {
				t.Errorf("network (-want +got):\n%s", diff)
			}
			var withheld []string
			if tc.cidr != "" {
				withheld = formatRanges(space.NewRanges(pool.CIDR, ranges))
			}
			if diff := cmp.Diff(tc.withheld, withheld); diff != "" {
				t.Errorf("withheld (-want +got):\n%s", diff)
			}
		})
	}
	messages.Golden(t, rows)
}

// formatRanges prints ranges as from-to.
func formatRanges(ranges *space.Ranges) (texts []string) {
	for r := range ranges.All() {
		texts = append(texts, r.From.String()+"-"+r.To.String())
	}
	return texts
}
