package convert

import (
	"fmt"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// poolNetwork reads the subnet of a pool of host addresses, and returns what of the
// pool it withholds: its gateway and edges.
func poolNetwork(path *field.Path, spec *v1alpha1.PoolNetwork, pool *ipam.Pool) ([]space.Range, field.ErrorList) {
	if spec == nil {
		return nil, nil
	}
	bits, err := length(path.Child("prefixLength"), &spec.PrefixLength, familyOr6(pool.Family))
	if err != nil {
		return nil, field.ErrorList{err}
	}
	isAlone := bits == familyOr6(pool.Family).Bits() // each address is a subnet by itself
	if pool.CIDR.IsValid() && bits > pool.CIDR.Bits() && !isAlone {
		return nil, field.ErrorList{field.Invalid(path.Child("prefixLength"), bits,
			fmt.Sprintf("the pool is a /%d, and lies within one subnet: write %d or less", pool.CIDR.Bits(), pool.CIDR.Bits()))}
	}
	pool.Network = &ipam.Network{Length: bits}
	if errs := hostSettings(path, &spec.HostSettings, pool); len(errs) > 0 || !pool.CIDR.IsValid() {
		return nil, errs
	}
	subnet := netip.PrefixFrom(pool.CIDR.Addr(), bits).Masked()
	var withheld []space.Range
	if spec.Gateway != "" {
		gateway, err := gatewayOf(path.Child("gateway"), spec.Gateway, subnet)
		if err != nil {
			return nil, field.ErrorList{err}
		}
		pool.Network.Gateway = gateway
		withheld = append(withheld, space.Range{From: gateway, To: gateway})
	}
	if !spec.AllocateEdgeAddresses {
		for _, edge := range Edges(subnet) {
			withheld = append(withheld, space.Range{From: edge, To: edge})
		}
	}
	return withheld, nil
}

// leastMTU6 is the smallest MTU of a link that carries IPv6 (RFC 8200 section 5).
const leastMTU6 = 1280

// hostSettings reads what a holder of an address of the pool needs beside it.
func hostSettings(path *field.Path, spec *v1alpha1.HostSettings, pool *ipam.Pool) field.ErrorList {
	var errs field.ErrorList
	network := pool.Network
	for i, text := range spec.DNSServers {
		server, err := Addr(path.Child("dnsServers").Index(i), text)
		network.DNSServers = append(network.DNSServers, server)
		errs = appendError(errs, err)
	}
	network.SearchDomains, network.MTU, network.VLAN = spec.SearchDomains, int(spec.MTU), int(spec.VLAN)
	if spec.MTU != 0 && spec.MTU < leastMTU6 && pool.Family == ipam.IPv6 {
		errs = append(errs, field.Invalid(path.Child("mtu"), spec.MTU, fmt.Sprintf("must be %d or more for IPv6 (RFC 8200)", leastMTU6)))
	}
	return errs
}

// gatewayOf reads the gateway of a subnet: an address of it, or in IPv6 a link-local
// one, as routers announce themselves by (RFC 4861 section 4.2). The gateway of a subnet that
// is a single address is on the link and elsewhere: any address of the family.
func gatewayOf(path *field.Path, text string, subnet netip.Prefix) (netip.Addr, *field.Error) {
	gateway, err := Addr(path, text)
	switch {
	case err != nil:
		return netip.Addr{}, err
	case subnet.Contains(gateway), subnet.Addr().Is6() && gateway.Is6() && gateway.IsLinkLocalUnicast():
		return gateway, nil
	case subnet.IsSingleIP() && gateway.Is4() == subnet.Addr().Is4():
		return gateway, nil
	case subnet.IsSingleIP():
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is not of the family of the subnet %s: correct it", subnet))
	case subnet.Addr().Is4():
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is not an address of the subnet %s: correct it, or correct prefixLength", subnet))
	default:
		return netip.Addr{}, field.Invalid(path, text, fmt.Sprintf("is neither an address of the subnet %s nor link-local (fe80::/10): correct it, or correct prefixLength", subnet))
	}
}

// EdgeGateway returns an error if the gateway of a pool with the CIDR is the network or
// broadcast address of its IPv4 subnet. Such a pool can be read all the same, as there are
// some from before this was refused.
func EdgeGateway(spec *v1alpha1.PoolNetwork, cidr netip.Prefix) *field.Error {
	if spec == nil || !cidr.IsValid() || !cidr.Addr().Is4() {
		return nil
	}
	subnet := netip.PrefixFrom(cidr.Addr(), int(spec.PrefixLength)).Masked()
	if gateway, err := netip.ParseAddr(spec.Gateway); err == nil && slices.Contains(Edges(subnet), gateway) {
		return field.Invalid(field.NewPath("spec", "network", "gateway"), spec.Gateway,
			fmt.Sprintf("is the network or broadcast address of the subnet %s: choose another address of it", subnet))
	}
	return nil
}

// Edges are the addresses of a subnet that are not for hosts: network and
// broadcast address in IPv4, the subnet-router anycast address in IPv6 (RFC
// 4291 section 2.6.1). Point-to-point subnets have none (RFC 3021, RFC 6164).
func Edges(subnet netip.Prefix) []netip.Addr {
	switch size := subnet.Addr().BitLen() - subnet.Bits(); {
	case size <= 1:
		return nil
	case subnet.Addr().Is4():
		return []netip.Addr{subnet.Addr(), lastOf(subnet)}
	default:
		return []netip.Addr{subnet.Addr()}
	}
}
