package register

import (
	"iter"
	"net/netip"
	"slices"
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
