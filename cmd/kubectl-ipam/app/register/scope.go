package register

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// Scope represents the choice of the records to read. It yields the selectors of records to read
// next, based on the objects read so far; nil selects all records in one step.
type Scope func(*Objects) iter.Seq[[]fields.Selector]

func (s Scope) selectorSteps(objects *Objects) iter.Seq[[]fields.Selector] {
	if s == nil {
		return once(fields.Everything())
	}
	return s(objects)
}

// once returns a single step.
func once(selectors ...fields.Selector) iter.Seq[[]fields.Selector] {
	return slices.Values([][]fields.Selector{selectors})
}

// OfPool returns the scope of the records of the pools that have the name, of any kind, and of the
// records that these pools have of the ranges that they occupy.
func OfPool(name string) Scope {
	return func(objects *Objects) iter.Seq[[]fields.Selector] {
		if slices.ContainsFunc(understood(objects), func(p *Pool) bool { return p.Occupied != nil && p.Key.Name == name }) {
			return once(ofPool(name), ofHolder(name))
		}
		return once(ofPool(name))
	}
}

// NoneOfKnown returns the scope of no records if the caller can read all pools and each counts
// the addresses in use in its status, and of all records otherwise.
func NoneOfKnown() Scope {
	return func(objects *Objects) iter.Seq[[]fields.Selector] {
		lacksStatus := func(p *Pool) bool { return !p.HasStatus() }
		if slices.ContainsFunc(objects.Unread, isOfPools) || slices.ContainsFunc(understood(objects), lacksStatus) {
			return once(fields.Everything())
		}
		return slices.Values[[][]fields.Selector](nil)
	}
}

// HasStatus reports whether the status of the pool counts the addresses in use, for the present
// spec. The status of a pool without a CIDR counts nothing, and is right.
func (p *Pool) HasStatus() bool {
	if !p.IsKnown() {
		return false
	}
	status := p.Object.PoolStatus()
	return !p.CIDR.IsValid() || status.Capacity != nil && status.ObservedGeneration == p.Object.GetGeneration()
}

// isOfPools reports whether cluster-scoped pools are unread.
func isOfPools(u Unread) bool { return isClusterScoped(u.Resource) }

// The API server goes through all records for each selector, which takes it about a 30th of
// the time in which it lists them.
const (
	// lengthsAtOnce is the number of lengths of blocks that are looked up in a step, the
	// longest first: most blocks that people ask for are single addresses.
	lengthsAtOnce = 4
	// mostLengths limits the lengths that are looked up in all; if there may be more, all of
	// the pool's records are read.
	mostLengths = 24
	// fewRecords is the largest number of records of a pool that are read at once, rather than
	// looked up.
	fewRecords = 500
)

// At returns the scope of the records that contain an address: for each pool that contains the
// address, the record of the child pool in which it lies, else the record of the block in which
// it lies. A pool that occupies ranges of a CIDR with the address may have it or not: At selects
// its records by their holder, and goes on.
//
// A block that overlaps another one of its pool, or is larger than its pool, may be missing:
// no such block is handed out. A block that was recorded since the operator wrote the status of
// its pool, which it does within a second, may be missing too.
func At(address netip.Addr) Scope {
	return func(objects *Objects) iter.Seq[[]fields.Selector] {
		if slices.ContainsFunc(objects.Unread, isOfPools) {
			return once(fields.Everything())
		}
		return func(yield func([]fields.Selector) bool) {
			first, pools := selectAt(understood(objects), address)
			if len(first) == 0 && len(pools) == 0 { // there may be a record of a pool that is gone
				yield([]fields.Selector{fields.Everything()})
				return
			}
			for bits := address.BitLen(); ; bits -= lengthsAtOnce {
				step := selectors{}
				for _, pool := range pools {
					step.addLengths(pool, address, bits)
				}
				maps.Copy(step, first)
				if len(step) == 0 || !yield(slices.Collect(maps.Values(step))) {
					return
				}
				first = nil
				pools = slices.DeleteFunc(pools, func(p *Pool) bool { return hasRecordAt(objects, p, address) })
			}
		}
	}
}

// selectors holds selectors by their text.
type selectors map[string]fields.Selector

func (s selectors) add(selector fields.Selector) { s[selector.String()] = selector }

// addLengths adds the blocks of a pool that have the length bits or are up to lengthsAtOnce
// larger, and contain an address.
func (s selectors) addLengths(pool *Pool, address netip.Addr, bits int) {
	shortest := pool.shortestHeld()
	for range lengthsAtOnce {
		if bits < shortest {
			return
		}
		s.add(ofBlock(netip.PrefixFrom(address, bits).Masked()))
		bits--
	}
}

// selectAt returns the selectors of the records that are known to be of interest, and the pools
// in which every length must be looked up.
func selectAt(all []*Pool, address netip.Addr) (selectors, []*Pool) {
	result := selectors{}
	var pools []*Pool
	for _, pool := range all {
		if !pool.CIDR.IsValid() || !pool.CIDR.Contains(address) {
			continue
		}
		if pool.Occupied != nil {
			result.add(ofHolder(pool.Key.Name))
		}
		isSmall := pool.HasStatus() && pool.Object.PoolStatus().Allocations <= fewRecords
		switch child := childAt(pool, all, address); {
		case child != nil:
			result.add(ofBlock(child.CIDR))
		case isSmall, address.BitLen()-pool.shortestHeld() > mostLengths:
			result.add(ofPool(pool.Key.Name))
		default:
			pools = append(pools, pool)
		}
	}
	return result, pools
}

// shortestHeld returns the shortest length that a block of the pool can have. Each of its blocks
// has at least one address: so the largest block has no more addresses than are allocated in all,
// less one for each other block. In a pool of single addresses it is the length of one address.
func (p *Pool) shortestHeld() int {
	bits := p.CIDR.Bits()
	if !p.HasStatus() || p.Object.PoolStatus().Allocations < 1 {
		return bits
	}
	allocated, otherBlocks := parse(p.Object.PoolStatus().Capacity.Allocated), space.CountOf64(uint64(p.Object.PoolStatus().Allocations-1)) //nolint:gosec // not negative
	if allocated.Cmp(otherBlocks) <= 0 {
		return bits // blocks overlap
	}
	largest := allocated.Sub(otherBlocks)
	for space.CountOf(netip.PrefixFrom(p.CIDR.Addr(), bits)).Cmp(largest) > 0 {
		bits++
	}
	return bits
}

// childAt returns the child of a pool in whose CIDR an address lies, and that holds all of it; nil if
// there is none.
func childAt(pool *Pool, all []*Pool, address netip.Addr) *Pool {
	for _, child := range all {
		if child.IsChild() && child.Home == pool.Key && child.Occupied == nil && isRecorded(child) && child.CIDR.Contains(address) {
			return child
		}
	}
	return nil
}

// isRecorded reports whether the pool's own CIDR is recorded, by its status.
func isRecorded(pool *Pool) bool {
	return pool.CIDR.IsValid() && pool.Object.PoolStatus().AllocatedCIDR == pool.CIDR.String()
}

func hasRecordAt(objects *Objects, pool *Pool, address netip.Addr) bool {
	return slices.ContainsFunc(objects.Allocations, func(a *v1alpha1.IPAllocation) bool {
		record, err := convert.Record(a)
		hasAddress := func(block netip.Prefix) bool { return block.Contains(address) }
		return err == nil && record.Pool == pool.Key && slices.ContainsFunc(record.Blocks(), hasAddress)
	})
}

func ofBlock(block netip.Prefix) fields.Selector {
	return fields.OneTermEqualSelector("spec.cidr", block.String())
}

func ofHolder(name string) fields.Selector {
	return fields.OneTermEqualSelector("spec.claimRef.name", name)
}

func ofPool(name string) fields.Selector {
	return fields.OneTermEqualSelector("spec.poolRef.name", name)
}

// understood returns the listed pools that can be understood.
func understood(objects *Objects) []*Pool {
	r := &Register{pools: map[ipam.PoolKey]*Pool{}}
	r.addPools(objects)
	return slices.Collect(maps.Values(r.pools))
}
