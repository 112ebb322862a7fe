package view

import (
	"maps"
	"net/netip"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/command"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/register"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// places collects the rows of all pools about the requested addresses, and limits their number.
type places struct {
	asked netip.Prefix
	left  int
	into  *WhoReport
}

// NewWhoReport finds every pool that contains the addresses or lies in them, with its blocks,
// withheld ranges and free addresses among them. It leaves out pools that have none of these.
func NewWhoReport(r *register.Register, asked netip.Prefix, most int) *WhoReport {
	report := &WhoReport{TypeMeta: command.ReportType("WhoReport"), Asked: Bare(asked), Places: []Place{}}
	p := &places{asked: asked, left: most, into: report}
	for _, domain := range r.Domains {
		p.addDomain(domain)
	}
	for _, pool := range r.Pools {
		p.addPool(pool)
	}
	report.SharedBy = sharedBy(r, asked)
	return report
}

// sharedBy returns the routing domains in which claims hold the same of the addresses.
func sharedBy(r *register.Register, asked netip.Prefix) []string {
	var held []register.Held
	for _, pool := range r.Pools {
		if pool.Domain == nil {
			continue
		}
		for _, record := range pool.Overlapping(asked) {
			if record.Purpose == ipam.PurposeClaim && record.State == ipam.StateBound {
				held = append(held, register.Held{Record: &record.Record, Domain: pool.Domain.Key})
			}
		}
	}
	names := map[string]bool{}
	for _, pair := range register.Shared(held) {
		names[pair.Inner.Domain.FullName()], names[pair.Outer.Domain.FullName()] = true, true
	}
	return slices.Sorted(maps.Keys(names))
}

// addDomain adds the records of root pools that are gone, or that the caller cannot read.
func (p *places) addDomain(domain *register.Domain) {
	place := Place{RoutingDomain: domain.Name()}
	for _, record := range domain.Overlapping(p.asked) {
		if record.Child == nil {
			p.addBlock(&place, nil, record)
		}
	}
	p.add(&place)
}

func (p *places) addPool(pool *register.Pool) {
	place := Place{RoutingDomain: pool.Domain.Name(), Pool: new(command.RefOfPool(pool.Key)), depth: pool.Depth()}
	if phase := phaseOf(pool); phase != v1alpha1.PoolReady && phase != v1alpha1.PoolExhausted {
		place.PoolPhase = string(phase)
	}
	for _, record := range pool.Overlapping(p.asked) {
		p.addBlock(&place, pool, record)
	}
	if pool.CIDR.IsValid() && pool.CIDR.Overlaps(p.asked) {
		place.PoolCIDR = pool.CIDR.String()
		p.addRest(&place, pool)
	}
	p.add(&place)
}

// addRest adds the withheld ranges and the free addresses.
func (p *places) addRest(place *Place, pool *register.Pool) {
	if pool.IsKnown() {
		for _, w := range pool.WithheldIn(p.asked) {
			p.addWithheld(place, w)
		}
	}
	within := p.asked
	if within.Bits() < pool.CIDR.Bits() {
		within = pool.CIDR
	}
	used := pool.Space()
	free := space.CountOf(within).Sub(used.UsedIn(within))
	place.Free = free.String()
	if free.IsZero() {
		return
	}
	place.freeText = command.AddressesOf(free)
	if p.asked.IsSingleIP() {
		place.freeText = p.asked.String()
	}
}

func (p *places) addWithheld(place *Place, w register.Withheld) {
	if !p.room() {
		return
	}
	place.Withheld = append(place.Withheld, WithheldRange{Range: rangeText(w.Range), Reason: w.Reason, first: w.From})
}

func (p *places) addBlock(place *Place, pool *register.Pool, record *register.Record) {
	if !p.room() {
		return
	}
	place.Blocks = append(place.Blocks, heldBlock(pool, record))
}

// room reports whether the report can list one more row, and counts the rows that it omits.
func (p *places) room() bool {
	if p.left == 0 {
		p.into.Omitted++
		return false
	}
	p.left--
	return true
}

func (p *places) add(place *Place) {
	if len(place.Blocks) > 0 || len(place.Withheld) > 0 || place.PoolCIDR != "" {
		p.into.Places = append(p.into.Places, *place)
	}
}

func heldBlock(pool *register.Pool, record *register.Record) HeldBlock {
	block := HeldBlock{
		CIDR: record.Block.String(), State: string(record.State), Holder: command.RefOfHolder(record.Holder),
		Terminating: record.Terminating, Since: metav1.NewTime(record.Since),
		RequestedBy: record.RequestedBy, Class: record.Class, Project: record.Project,
		Allocation: record.Name.String(), first: record.Block.Addr(),
	}
	if record.Purpose == ipam.PurposePool && record.State == ipam.StateBound {
		block.State = stateCarved
	}
	if !record.ReleaseAfter.IsZero() {
		block.ReleaseAfter = new(metav1.NewTime(record.ReleaseAfter))
	}
	if pool != nil {
		block.Drained = pool.Withheld.Overlaps(record.Block)
	}
	return block
}

// phaseOf returns the phase of a pool, and Ready if the caller cannot read the pool.
func phaseOf(pool *register.Pool) v1alpha1.PoolPhase {
	if !pool.IsKnown() {
		return v1alpha1.PoolReady
	}
	return pool.Object.PoolStatus().Phase
}

// Bare returns a block as people write it: a single address without its length.
func Bare(block netip.Prefix) string {
	if block.IsSingleIP() {
		return block.Addr().String()
	}
	return block.String()
}

// rangeText returns a range as people write it: as a single address or a CIDR if it is one.
func rangeText(r space.Range) string {
	if r.From == r.To {
		return r.From.String()
	}
	for bits := range r.From.BitLen() {
		if block := netip.PrefixFrom(r.From, bits); block == block.Masked() && space.RangeOf(block) == r {
			return block.String()
		}
	}
	return r.From.String() + "-" + r.To.String()
}
