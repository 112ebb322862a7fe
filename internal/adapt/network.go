package adapt

import (
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// poolNetwork reads the subnet of a pool of host addresses, and withholds its
// gateway and edges.
func poolNetwork(path *field.Path, spec *v1alpha1.PoolNetwork, pool *ipam.Pool) field.ErrorList {
	if spec == nil {
		return nil
	}
	bits, err := length(path.Child("prefixLength"), &spec.PrefixLength, familyOr6(pool.Family))
	if err != nil {
		return field.ErrorList{err}
	}
	if pool.CIDR.IsValid() && bits > pool.CIDR.Bits() {
		return field.ErrorList{field.Invalid(path.Child("prefixLength"), bits,
			fmt.Sprintf("the pool is a /%d, and lies within one subnet: write %d or less", pool.CIDR.Bits(), pool.CIDR.Bits()))}
	}
	pool.Network = &ipam.Network{Length: bits}
	if !pool.CIDR.IsValid() {
		return nil
	}
	subnet := netip.PrefixFrom(pool.CIDR.Addr(), bits).Masked()
	if spec.Gateway != "" {
		gateway, err := Addr(path.Child("gateway"), spec.Gateway)
		if err != nil {
			return field.ErrorList{err}
		}
		if !subnet.Contains(gateway) {
			return field.ErrorList{field.Invalid(path.Child("gateway"), spec.Gateway,
				fmt.Sprintf("is not an address of the subnet %s: correct it, or correct prefixLength", subnet))}
		}
		pool.Network.Gateway = gateway
		pool.Withheld = withhold(pool.Withheld, gateway, pool.CIDR)
	}
	if !spec.AllocateEdgeAddresses {
		for _, edge := range edges(subnet) {
			pool.Withheld = withhold(pool.Withheld, edge, pool.CIDR)
		}
	}
	return nil
}

// edges are the addresses of a subnet that are not for hosts: network and
// broadcast address in IPv4, the subnet-router anycast address in IPv6 (RFC
// 4291 section 2.6.1). Point-to-point subnets have none (RFC 3021, RFC 6164).
func edges(subnet netip.Prefix) []netip.Addr {
	switch size := subnet.Addr().BitLen() - subnet.Bits(); {
	case size <= 1:
		return nil
	case subnet.Addr().Is4():
		return []netip.Addr{subnet.Addr(), lastOf(subnet)}
	default:
		return []netip.Addr{subnet.Addr()}
	}
}

func withhold(withheld []netip.Prefix, addr netip.Addr, cidr netip.Prefix) []netip.Prefix {
	if !cidr.Contains(addr) {
		return withheld
	}
	return append(withheld, netip.PrefixFrom(addr, addr.BitLen()))
}

func prefixesOf(s span) []netip.Prefix { return space.PrefixesOf(s.from, s.to) }
