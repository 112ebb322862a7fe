package register

import (
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Withheld represents a run of addresses that a pool never hands out, and the reason.
type Withheld struct {
	space.Range
	Reason string
}

// WithheldIn returns the runs of addresses that the pool never hands out and that have an
// address in the block, in address order. They may overlap: an address can be withheld for
// several reasons. The pool's object is known, and it has a CIDR.
func (p *Pool) WithheldIn(block netip.Prefix) []Withheld {
	var all []Withheld
	add := func(reason string, ranges ...space.Range) {
		for _, r := range ranges {
			if overlaps(r, block) {
				all = append(all, Withheld{r, reason})
			}
		}
	}
	spec := p.Object.PoolSpec()
	if n := p.Network; n != nil {
		if n.Gateway.IsValid() && p.CIDR.Contains(n.Gateway) {
			add("gateway", space.Range{From: n.Gateway, To: n.Gateway})
		}
		if !spec.Network.AllocateEdgeAddresses {
			p.edges(add)
		}
	}
	add("former gateway", formerGateways(p.Object.PoolStatus().FormerGateways)...)
	for _, text := range spec.Reserved {
		if r, err := convert.Span(nil, text); err == nil {
			add("reserved", r)
		}
	}
	if len(spec.Ranges) > 0 {
		var ranges []space.Range
		for _, text := range spec.Ranges {
			if r, err := convert.Span(nil, text); err == nil {
				ranges = append(ranges, r)
			}
		}
		add("outside of ranges", convert.Outside(p.CIDR, ranges)...)
	}
	slices.SortStableFunc(all, func(a, b Withheld) int { return a.From.Compare(b.From) })
	return all
}

// formerGateways returns the former gateways that a status names.
func formerGateways(texts []string) []space.Range {
	var former []space.Range
	for _, text := range texts {
		if gateway := convert.GatewayGiven(text); gateway.IsValid() {
			former = append(former, space.Range{From: gateway, To: gateway})
		}
	}
	return former
}

// withFormerGateways returns the ranges that a pool withholds by its spec and by its status.
func withFormerGateways(pool ipam.Pool, texts []string) *space.Ranges {
	former := formerGateways(texts)
	if len(former) == 0 || !pool.CIDR.IsValid() {
		return pool.Withheld
	}
	return space.NewRanges(pool.CIDR, slices.AppendSeq(former, pool.Withheld.All()))
}

// edges adds the first and the last address of the subnet, by their names.
func (p *Pool) edges(add func(reason string, ranges ...space.Range)) {
	names := []string{"network address", "broadcast address"}
	if p.Family == ipam.IPv6 {
		names = []string{"subnet-router anycast address"}
	}
	subnet := netip.PrefixFrom(p.CIDR.Addr(), p.Network.Length).Masked()
	for i, edge := range convert.Edges(subnet) {
		if p.CIDR.Contains(edge) {
			add(names[i], space.Range{From: edge, To: edge})
		}
	}
}

func overlaps(r space.Range, block netip.Prefix) bool {
	other := space.RangeOf(block)
	return !other.To.Less(r.From) && !r.To.Less(other.From)
}
