package register

import (
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Usage is what a pool's addresses are used for. Held by claims, carved, retained and
// cooling are of blocks; withheld is what of the rest is never handed out. Together with
// what is free they are the total.
type Usage struct {
	Total, Free, Withheld space.Count
	// Claims hold blocks of the pool itself, and Carved are its child pools.
	Claims, Carved, Retained, Cooling space.Count
	// Used is what claims hold of the pool and of all pools below it.
	Used space.Count
	// Blocks is how many blocks of the pool are recorded.
	Blocks int
	// LargestFree is the length of the largest free block; ipam.NoLength where nothing
	// is free.
	LargestFree int
}

// Space is the pool's space, with what is withheld and every recorded block in use. The
// pool has a CIDR.
func (p *Pool) Space() *space.Space {
	s := space.NewWithout(p.CIDR, p.Withheld)
	for _, record := range p.Records {
		s.Use(record.Block)
	}
	return s
}

// Usage of the pool, and whether it has a CIDR, without which there is none.
func (p *Pool) Usage() (Usage, bool) {
	if !p.CIDR.IsValid() {
		return Usage{LargestFree: ipam.NoLength}, false
	}
	used, recorded := p.Space(), space.New(p.CIDR)
	u := Usage{Total: used.Total(), Free: used.Free(), Blocks: len(p.Records), Used: p.used(), LargestFree: ipam.NoLength}
	if bits, ok := used.LargestFree(); ok {
		u.LargestFree = bits
	}
	for _, record := range p.Records {
		recorded.Use(record.Block)
		size := space.CountOf(record.Block)
		switch {
		case record.Purpose == ipam.PurposePool:
			u.Carved = u.Carved.Add(size)
		case record.State == ipam.StateRetained:
			u.Retained = u.Retained.Add(size)
		case record.State == ipam.StateCooling:
			u.Cooling = u.Cooling.Add(size)
		default:
			u.Claims = u.Claims.Add(size)
		}
	}
	u.Withheld = used.Used().Sub(recorded.Used())
	return u, true
}

// used is what claims hold of the pool and of all pools below it.
func (p *Pool) used() space.Count {
	var sum space.Count
	for _, record := range p.Records {
		if record.Purpose == ipam.PurposeClaim && record.State == ipam.StateBound {
			sum = sum.Add(space.CountOf(record.Block))
		}
	}
	for _, child := range p.Children {
		sum = sum.Add(child.used())
	}
	return sum
}
