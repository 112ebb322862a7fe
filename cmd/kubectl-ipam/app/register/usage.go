package register

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Usage holds the counts of a pool's addresses by their use. Held and Carved count the addresses
// of blocks, and Withheld counts the other addresses that are never handed out. Together with the
// free addresses they are the total, unless a claim holds an address outside the ranges that its pool
// occupies. A pool's status counts differently: its withheld are
// Withheld and Drained, its outOfRange is Drained, and its allocated are Held and Carved.
type Usage struct {
	Total, Free, Withheld space.Count
	// Held counts the blocks of claims, and Carved the blocks of child pools.
	Held, Carved space.Count
	// Drained counts the addresses of both that would not be handed out any more.
	Drained space.Count
	// Retained and Cooling count the addresses of Held that no claim has any more. They are known
	// only if the records are known.
	Retained, Cooling space.Count
	// Used counts the held addresses of the pool and of all pools below it.
	Used space.Count
	// Blocks is the number of records of the pool: a record of several blocks counts once, as in the
	// pool's status.
	Blocks int
	// LargestFree is the length of the largest free block; ipam.NoLength if nothing is free.
	LargestFree int
}

// Space returns the pool's space, with the withheld addresses and every recorded block in use.
// The pool has a CIDR.
func (p *Pool) Space() *space.Space {
	s := space.NewWithout(p.CIDR, p.Withheld)
	for _, record := range p.Records {
		s.Use(record.Block)
	}
	return s
}

// Usage counts the pool's records, which have been read, and reports whether the pool has a CIDR.
// Without a CIDR there is no usage.
func (p *Pool) Usage() (Usage, bool) {
	u := Usage{LargestFree: ipam.NoLength, Used: p.used((*Pool).held)}
	for _, record := range p.Records {
		if record.IsFirst() {
			u.Blocks++
		}
		if record.Purpose != ipam.PurposePool {
			u.addHeld(record, p.Withheld)
		}
	}
	for _, block := range p.carvedBlocks() {
		u.Carved, u.Drained = u.Carved.Add(space.CountOf(block)), u.Drained.Add(p.Withheld.SizeIn(block))
	}
	if !p.CIDR.IsValid() {
		return u, false
	}
	used := p.Space()
	u.Total, u.Free = p.Size(), used.Free()
	if bits, ok := used.LargestFree(); ok {
		u.LargestFree = bits
	}
	u.Withheld = used.Used().Sub(p.RecordedSpace().Used())
	return u, true
}

// addHeld counts the block of a claim.
func (u *Usage) addHeld(record *Record, withheld *space.Ranges) {
	size := space.CountOf(record.Block)
	u.Held, u.Drained = u.Held.Add(size), u.Drained.Add(withheld.SizeIn(record.Block))
	switch record.State {
	case ipam.StateRetained:
		u.Retained = u.Retained.Add(size)
	case ipam.StateCooling:
		u.Cooling = u.Cooling.Add(size)
	}
}

// UsageOfStatus returns the usage by the pool's status, and whether the status has it: see
// HasStatus. Held includes the retained and cooling addresses.
func (p *Pool) UsageOfStatus() (Usage, bool) {
	if !p.HasStatus() || !p.CIDR.IsValid() {
		return Usage{LargestFree: ipam.NoLength}, false
	}
	status := p.Object.PoolStatus()
	u := Usage{
		Total: parse(status.Capacity.Total), Free: parse(status.Capacity.Available),
		Drained: parse(status.Capacity.OutOfRange),
		Carved:  p.carved(), Held: p.heldByStatus(), Used: p.used((*Pool).heldByStatus),
		Blocks: int(status.Allocations), LargestFree: ipam.NoLength,
	}
	u.Withheld = parse(status.Capacity.Withheld).Sub(u.Drained)
	if bits, err := strconv.Atoi(strings.TrimPrefix(status.LargestFreePrefix, "/")); err == nil {
		u.LargestFree = bits
	}
	return u, true
}

// parse returns a count of a status, and 0 if the text is not a count.
func parse(text string) space.Count {
	n, _ := space.ParseCount(text)
	return n
}

// carved returns the number of addresses of the child pools whose CIDRs are recorded.
func (p *Pool) carved() space.Count {
	var sum space.Count
	for _, child := range p.Children {
		if isRecorded(child) {
			sum = sum.Add(child.Size())
		}
	}
	return sum
}

func (p *Pool) heldByStatus() space.Count {
	if !p.IsKnown() || p.Object.PoolStatus().Capacity == nil {
		return space.Count{}
	}
	return parse(p.Object.PoolStatus().Capacity.Allocated).Sub(p.carved())
}

// held returns the number of addresses that claims hold by the records, or held until their
// blocks were retained or began to cool down.
func (p *Pool) held() space.Count {
	var sum space.Count
	for _, record := range p.Records {
		if record.Purpose == ipam.PurposeClaim {
			sum = sum.Add(space.CountOf(record.Block))
		}
	}
	return sum
}

// used returns the number of held addresses of the pool and of all pools below it.
func (p *Pool) used(held func(*Pool) space.Count) space.Count {
	sum := held(p)
	for _, child := range p.Children {
		sum = sum.Add(child.used(held))
	}
	return sum
}

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
			if overlaps(r, block) && p.holdsAny(r) {
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
	statesRanges := !p.Key.Kind.IsInCluster() // such a pool does not hold what it excludes
	if statesRanges {
		add("reserved", spans(spec.Reserved)...)
	}
	add("not recorded for the pool yet", p.uncovered...)
	if statesRanges && len(spec.Ranges) > 0 {
		add("outside of ranges", convert.Outside(p.CIDR, spans(spec.Ranges))...)
	}
	slices.SortStableFunc(all, func(a, b Withheld) int { return a.From.Compare(b.From) })
	return all
}

// spans returns the ranges that the fields of a spec name.
func spans(texts []string) []space.Range {
	var ranges []space.Range
	for _, text := range texts {
		if r, err := convert.Span(nil, text); err == nil {
			ranges = append(ranges, r)
		}
	}
	return ranges
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
