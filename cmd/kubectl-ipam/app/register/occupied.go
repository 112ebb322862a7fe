package register

import (
	"net/netip"
	"slices"

	"go4.org/netipx"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Overlaps reports whether the pool holds an address of the block.
func (p *Pool) Overlaps(block netip.Prefix) bool {
	if p.Occupied != nil {
		return p.Occupied.Overlaps(block)
	}
	return p.CIDR.IsValid() && p.CIDR.Overlaps(block)
}

// holdsAny reports whether the pool holds an address of the range.
func (p *Pool) holdsAny(r space.Range) bool {
	return p.Occupied == nil || slices.ContainsFunc(netipx.IPRangeFrom(r.From, r.To).Prefixes(), p.Overlaps)
}

// Span returns the first and the last address that the pool holds. It has a CIDR.
func (p *Pool) Span() space.Range {
	span := space.RangeOf(p.CIDR)
	for i, r := range slices.Collect(p.Occupied.All()) {
		if i == 0 {
			span.From = r.From
		}
		span.To = r.To
	}
	return span
}

// Outside returns the addresses of the pool's CIDR that the pool does not hold.
func (p *Pool) Outside() []space.Range {
	if p.Occupied == nil {
		return nil
	}
	return convert.Outside(p.CIDR, slices.Collect(p.Occupied.All()))
}

// RecordedSpace returns a space of the CIDR with all recorded blocks in use, and the addresses that the pool does
// not hold.
func (p *Pool) RecordedSpace() *space.Space {
	s := space.NewWithout(p.CIDR, space.NewRanges(p.CIDR, p.Outside()))
	for _, record := range p.Records {
		s.Use(record.Block)
	}
	return s
}

// carvedBlocks returns the blocks of child pools. While the ranges of a pool are edited, two of its
// records can hold the same addresses: the result has these once.
func (p *Pool) carvedBlocks() []netip.Prefix {
	var own []*Record
	for _, record := range p.Records {
		if record.Purpose == ipam.PurposePool {
			own = append(own, record)
		}
	}
	slices.SortFunc(own, ByBlock)
	last := map[ipam.Holder]netip.Prefix{}
	var blocks []netip.Prefix
	for _, record := range own {
		if outer, ok := last[record.Holder]; ok && ipam.Covers(outer, record.Block) {
			continue
		}
		last[record.Holder] = record.Block
		blocks = append(blocks, record.Block)
	}
	return blocks
}

// withholdUncovered withholds the addresses of pools that occupy their ranges, as far as none of
// their own records has them: the operator does not hand them out before they are recorded. Pools whose own
// records were not read are left unchanged.
func (r *Register) withholdUncovered(domains map[ipam.PoolKey]*Domain) {
	covered := map[*Pool][]space.Range{}
	cover := func(records []*Record) {
		for _, record := range records {
			child := record.Child
			isOpen := record.State == ipam.StateBound && !record.Terminating
			if child != nil && child.IsKnown() && child.Occupied != nil && isOpen && record.MayBeOf(string(child.Object.GetUID())) {
				covered[child] = append(covered[child], space.RangeOf(record.Block))
			}
		}
	}
	for _, domain := range domains {
		cover(domain.Records)
	}
	for _, pool := range r.pools {
		cover(pool.Records)
	}
	for pool, ranges := range covered {
		pool.withholdOutside(ranges)
	}
}

func (p *Pool) withholdOutside(covered []space.Range) {
	outside := convert.Outside(p.CIDR, covered)
	p.Withheld = space.NewRanges(p.CIDR, slices.AppendSeq(outside, p.Withheld.All()))
	known := slices.AppendSeq(p.Outside(), slices.Values(covered))
	p.uncovered = convert.Outside(p.CIDR, known)
}
