package register

import (
	"cmp"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// assignWaiting adds to each pool the claims that wait for it, oldest first: the claims that name
// it, and the claims that could be served from it by their class or their selector. It does not
// add a claim without a pool name to a pool that only some projects can use, because projects are
// not read.
func (r *Register) assignWaiting(objects *Objects) {
	slices.SortStableFunc(r.Waiting, func(a, b v1alpha1.IPClaim) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	r.classes = readClasses(objects.Classes)
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
		if requestClass = classOf(request, r.classes); requestClass == nil {
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
	case pool.Visibility != ipam.VisibilityShared, pool.Key.Namespace != "" && pool.Key.Namespace != request.Claim.Namespace:
		return false
	case requestClass != nil:
		return pool.Names(requestClass.Name) && requestClass.Excludes(pool.Pool) == nil
	default:
		return request.Selects(pool.Labels)
	}
}

// class represents a class, and whether it is the default one.
type class struct {
	ipam.Class
	isDefault bool
}

// readClasses returns the classes that can be understood, the older ones first.
func readClasses(objects []v1alpha1.IPClass) []class {
	slices.SortStableFunc(objects, func(a, b v1alpha1.IPClass) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	var classes []class
	for i := range objects {
		if read, errs := convert.Class(&objects[i]); len(errs) == 0 {
			classes = append(classes, class{Class: read, isDefault: objects[i].Annotations[v1alpha1.AnnotationDefaultClass] == "true"})
		}
	}
	return classes
}

// classOf returns the class that a request names, or the default one of its family, which is
// IPv4 if the request names none.
func classOf(request ipam.Request, classes []class) *ipam.Class {
	family := cmp.Or(request.Family, ipam.IPv4)
	for i := range classes {
		c := &classes[i]
		if c.Name == request.Class || request.Class == "" && c.isDefault && c.Family == family {
			return &c.Class
		}
	}
	return nil
}
