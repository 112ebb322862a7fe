package register

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Records returns all records, of pools and of routing domains.
func (r *Register) Records() iter.Seq[*Record] {
	return func(yield func(*Record) bool) {
		for _, pool := range r.Pools {
			for _, record := range pool.Records {
				if !yield(record) {
					return
				}
			}
		}
		for _, domain := range r.Domains {
			for _, record := range domain.Records {
				if !yield(record) {
					return
				}
			}
		}
	}
}

// Overlapping returns the records of the pool that have an address in the block, in address
// order.
func (p *Pool) Overlapping(block netip.Prefix) []*Record { return overlapping(p.Records, block) }

// Overlapping returns the records of root pools that have an address in the block, in address
// order.
func (d *Domain) Overlapping(block netip.Prefix) []*Record { return overlapping(d.Records, block) }

func overlapping(records []*Record, block netip.Prefix) []*Record {
	var found []*Record
	for _, record := range records {
		if record.Block.Overlaps(block) {
			found = append(found, record)
		}
	}
	return found
}

// Depth returns the number of pools above the pool.
func (p *Pool) Depth() int {
	depth := 0
	for ; p.Parent != nil; p = p.Parent {
		depth++
	}
	return depth
}

// Lacks reports whether the caller cannot list all objects of a resource, such as ippools.
func (r *Register) Lacks(resource string) bool {
	return slices.ContainsFunc(r.Unread, func(u Unread) bool { return u.Resource == resource })
}

// Held represents a block that a claim holds, and the routing domain of its pool.
type Held struct {
	*ipam.Record
	Domain ipam.PoolKey
}

// Pair holds two blocks of different routing domains that overlap; Inner lies in Outer.
type Pair struct{ Inner, Outer Held }

// Shared returns the blocks that overlap a block of another routing domain, which is allowed:
// each with the smallest such block that contains it. It sorts the blocks. Blocks contain each
// other or are apart, so the blocks that contain the present one form a stack.
func Shared(blocks []Held) []Pair {
	slices.SortFunc(blocks, func(a, b Held) int {
		if order := a.Block.Compare(b.Block); order != 0 {
			return order
		}
		return compareKeys(a.Domain, b.Domain)
	})
	var pairs []Pair
	var around []Held
	for _, held := range blocks {
		for len(around) > 0 && !around[len(around)-1].Block.Contains(held.Block.Addr()) {
			around = around[:len(around)-1]
		}
		for _, outer := range slices.Backward(around) {
			if outer.Domain != held.Domain {
				pairs = append(pairs, Pair{Inner: held, Outer: outer})
				break
			}
		}
		around = append(around, held)
	}
	return pairs
}
