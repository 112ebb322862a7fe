package convert

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/util/validation/field"
	provider "sigs.k8s.io/cluster-api-ipam-provider-in-cluster/api/v1alpha2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// maxInClusterBlocks bounds the blocks of a pool of the in-cluster provider's kinds: it has an own
// record for each 64 of them.
const maxInClusterBlocks = 16 * v1alpha1.MaxRecordBlocks

// inClusterSpec reads the spec of a pool of the in-cluster provider's kinds as that provider does
// (its v1.0.3: internal/poolutil/pool.go, internal/webhooks/inclusterippool.go): all addresses lie in
// one subnet, that of the lowest one. Its home depends on the pool's name, and is left out.
func inClusterSpec(spec *provider.InClusterIPPoolSpec) (ipam.Pool, field.ErrorList) {
	path := field.NewPath("spec")
	addresses, errs := addressRanges(path.Child("addresses"), spec.Addresses)
	excluded, more := addressRanges(path.Child("excludedAddresses"), spec.ExcludedAddresses)
	if errs = append(errs, more...); len(errs) > 0 {
		return ipam.Pool{}, errs
	}
	if len(addresses) == 0 {
		return ipam.Pool{}, field.ErrorList{field.Required(path.Child("addresses"), "set at least one address, range or CIDR, such as 10.0.0.10-10.0.0.50")}
	}
	lowest := slices.MinFunc(addresses, func(a, b space.Range) int { return a.From.Compare(b.From) }).From
	pool := ipam.Pool{Family: ipam.FamilyOf(netip.PrefixFrom(lowest, 0)), Strategy: ipam.StrategyFirstFit, OnExhaustion: ipam.OnExhaustionWait}
	bits, err := length(path.Child("prefix"), new(int32(spec.Prefix)), pool.Family) //nolint:gosec // the schema bounds it by 128
	if err != nil {
		return pool, field.ErrorList{err}
	}
	pool.CIDR, pool.Length = netip.PrefixFrom(lowest, bits).Masked(), bits
	pool.Lengths, pool.Network = ipam.Lengths{Min: bits, Max: pool.Family.Bits()}, &ipam.Network{Length: bits}
	errs = append(inSubnet(path, spec, addresses, excluded, pool.CIDR), inClusterGateway(path.Child("gateway"), spec.Gateway, &pool)...)
	if len(errs) > 0 {
		return pool, errs
	}
	if pool.Occupied = Without(pool.CIDR, addresses, excluded); pool.Occupied == nil {
		return pool, field.ErrorList{field.Invalid(path.Child("excludedAddresses"), len(spec.ExcludedAddresses), "excludes all addresses: leave some of them in")}
	}
	if blocks := len(pool.Blocks()); blocks > maxInClusterBlocks {
		return pool, field.ErrorList{field.Invalid(path.Child("addresses"), len(spec.Addresses), fmt.Sprintf(
			"the entries without excludedAddresses make %d CIDR blocks, and a pool can have %d: use larger CIDRs, or make several pools", blocks, maxInClusterBlocks))}
	}
	pool.Withheld = space.NewRanges(pool.CIDR, append(Outside(pool.CIDR, slices.Collect(pool.Occupied.All())), reservedOf(pool, spec.AllocateReservedIPAddresses)...))
	return pool, nil
}

// Without returns the addresses of a subnet that are in some ranges and not in others; nil if there are none.
func Without(subnet netip.Prefix, ranges, excluded []space.Range) *space.Ranges {
	return space.NewRanges(subnet, Outside(subnet, append(Outside(subnet, ranges), excluded...)))
}

// addressRanges reads addresses, ranges and CIDRs. Of a CIDR, host bits are ignored.
func addressRanges(path *field.Path, texts []string) ([]space.Range, field.ErrorList) {
	var errs field.ErrorList
	ranges := make([]space.Range, 0, len(texts))
	for i, text := range texts {
		r, ok := addressRange(text)
		if !ok {
			errs = append(errs, field.Invalid(path.Index(i), text, "is not an address, range or CIDR: write one such as 10.0.0.10, 10.0.0.10-10.0.0.50 or 10.0.0.0/25"))
			continue
		}
		ranges = append(ranges, r)
	}
	return ranges, errs
}

func addressRange(text string) (space.Range, bool) {
	var r netipx.IPRange
	switch {
	case strings.Contains(text, "-"):
		r, _ = netipx.ParseIPRange(text)
	case strings.Contains(text, "/"):
		prefix, _ := netip.ParsePrefix(text)
		r = netipx.RangeOfPrefix(prefix)
	default:
		addr, _ := netip.ParseAddr(text)
		r = netipx.IPRangeFrom(addr, addr)
	}
	return space.Range{From: r.From(), To: r.To()}, r.IsValid() && !r.From().Is4In6() && !strings.Contains(text, "%")
}

// inSubnet returns the errors of addresses outside the subnet, and of excluded addresses of the other family.
func inSubnet(path *field.Path, spec *provider.InClusterIPPoolSpec, addresses, excluded []space.Range, subnet netip.Prefix) (errs field.ErrorList) {
	for i, r := range addresses {
		if !subnet.Contains(r.From) || !subnet.Contains(r.To) {
			errs = append(errs, field.Invalid(path.Child("addresses").Index(i), spec.Addresses[i],
				fmt.Sprintf("lies outside %s, the subnet of the lowest address: remove it, or correct prefix", subnet)))
		}
	}
	for i, r := range excluded {
		if r.From.Is4() != subnet.Addr().Is4() {
			errs = append(errs, field.Invalid(path.Child("excludedAddresses").Index(i), spec.ExcludedAddresses[i],
				fmt.Sprintf("is not of the family of the addresses, %s: remove it", ipam.FamilyOf(subnet))))
		}
	}
	return errs
}

// inClusterGateway reads a gateway of the addresses' family; it can lie outside the subnet.
func inClusterGateway(path *field.Path, text string, pool *ipam.Pool) field.ErrorList {
	if text == "" {
		return nil
	}
	gateway, err := netip.ParseAddr(text)
	switch {
	case err != nil || gateway.Zone() != "" || gateway.Is4In6():
		return field.ErrorList{field.Invalid(path, text, "is not an IP address: write one such as 10.0.0.1 or 2001:db8::1")}
	case gateway.Is4() != (pool.Family == ipam.IPv4):
		return field.ErrorList{field.Invalid(path, text, fmt.Sprintf("is not of the family of the addresses, %s: correct it", pool.Family))}
	}
	pool.Network.Gateway = gateway
	return nil
}

// reservedOf returns the addresses that a pool never hands out: its gateway and, unless it allocates
// them, the first address of its subnet and, in IPv4, the last one. That holds for subnets of every
// length, unlike in an IPPool.
func reservedOf(pool ipam.Pool, allocatesReserved bool) []space.Range {
	var reserved []space.Range
	if gateway := pool.Network.Gateway; gateway.IsValid() {
		reserved = append(reserved, space.Range{From: gateway, To: gateway})
	}
	if allocatesReserved {
		return reserved
	}
	first := pool.CIDR.Addr()
	reserved = append(reserved, space.Range{From: first, To: first})
	if last := lastOf(pool.CIDR); pool.Family == ipam.IPv4 {
		reserved = append(reserved, space.Range{From: last, To: last})
	}
	return reserved
}
