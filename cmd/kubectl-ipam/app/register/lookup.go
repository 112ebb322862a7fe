package register

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Records returns all records, of pools and of routing domains, each once with all of its blocks.
func (r *Register) Records() []*Record {
	var all []*Record
	add := func(records []*Record) {
		for _, record := range records {
			if record.IsFirst() {
				all = append(all, record.Whole())
			}
		}
	}
	for _, pool := range r.Pools {
		add(pool.Records)
	}
	for _, domain := range r.Domains {
		add(domain.Records)
	}
	return all
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
// each with the smallest such block that contains it. It sorts the blocks.
func Shared(blocks []Held) []Pair {
	slices.SortFunc(blocks, func(a, b Held) int {
		if order := a.Block.Compare(b.Block); order != 0 {
			return order
		}
		return compareKeys(a.Domain, b.Domain)
	})
	var pairs []Pair
	for held, around := range Nested(blocks, func(h Held) netip.Prefix { return h.Block }) {
		for _, outer := range slices.Backward(around) {
			if outer.Domain != held.Domain {
				pairs = append(pairs, Pair{Inner: held, Outer: outer})
				break
			}
		}
	}
	return pairs
}

// Nested goes through things with blocks, in address order and the larger ones first if they begin
// at the same address. It yields each with those before it whose blocks contain its block, the
// smallest last. Blocks contain each other or are apart, so these form a stack.
func Nested[T any](sorted []T, block func(T) netip.Prefix) iter.Seq2[T, []T] {
	return func(yield func(T, []T) bool) {
		var around []T
		for _, inner := range sorted {
			for len(around) > 0 && !block(around[len(around)-1]).Contains(block(inner).Addr()) {
				around = around[:len(around)-1]
			}
			if !yield(inner, around) {
				return
			}
			around = append(around, inner)
		}
	}
}

// assignWaiting adds to each pool the claims that wait for it, oldest first: the claims that name
// it, and the claims that could be served from it by their class or their selector. It does not
// add a claim without a pool name to a pool that only some projects can use, because projects are
// not read.
func (r *Register) assignWaiting(objects *Objects) {
	slices.SortStableFunc(r.Waiting, func(a, b v1alpha1.IPClaim) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	for i := range objects.Classes {
		if class, ok := inventory.ReadClass(&objects.Classes[i]); ok {
			r.classes = append(r.classes, class)
		}
	}
	for i := range r.Waiting {
		claim := &r.Waiting[i]
		request, errs := convert.Claim(claim)
		if len(errs) > 0 {
			continue
		}
		for _, pool := range r.MayServe(request) {
			pool.Waiting = append(pool.Waiting, claim)
		}
	}
}

// MayServe returns the pools from which a request can be served, as far as is known: see
// Pool.Waiting.
func (r *Register) MayServe(request ipam.Request) []*Pool {
	if request.Pool != (ipam.PoolKey{}) {
		if r.pools[request.Pool] == nil {
			return nil
		}
		return []*Pool{r.pools[request.Pool]}
	}
	var requestClass *ipam.Class
	if request.Selects == nil {
		if requestClass = r.classOf(request); requestClass == nil {
			return nil
		}
	}
	var pools []ipam.Pool
	for _, pool := range r.Pools {
		if pool.IsKnown() && isMeant(pool, request, requestClass) {
			pools = append(pools, pool.Pool)
		}
	}
	terms, err := ipam.Fold(request, requestClass, pools)
	if err != nil {
		return nil
	}
	fitting, _, _ := terms.Fitting(pools) // none: no pool hands out the requested block
	serving := make([]*Pool, len(fitting))
	for i, pool := range fitting {
		serving[i] = r.pools[pool.Key]
	}
	return serving
}

// isMeant reports whether a request that does not name a pool leads to this one: by its class,
// or if that is nil, by its selector.
func isMeant(pool *Pool, request ipam.Request, requestClass *ipam.Class) bool {
	switch {
	case pool.Visibility != ipam.VisibilityShared, pool.Key.Kind.IsInCluster(), pool.Key.Namespace != "" && pool.Key.Namespace != request.Claim.Namespace:
		return false
	case requestClass != nil:
		return pool.Names(requestClass.Name) && requestClass.Excludes(pool.Pool) == nil
	default:
		return request.Selects(pool.Labels)
	}
}

// classOf returns the class that a request names, or the default one of its family, which is
// IPv4 if the request names none.
func (r *Register) classOf(request ipam.Request) *ipam.Class {
	var defaults []inventory.ClassEntry
	for _, class := range r.classes {
		switch {
		case class.Name == request.Class:
			return &class.Class
		case request.Class == "" && class.Default && class.Family == cmp.Or(request.Family, ipam.IPv4):
			defaults = append(defaults, class)
		}
	}
	if class, ok := inventory.DefaultOf(defaults); ok {
		return &class.Class
	}
	return nil
}
