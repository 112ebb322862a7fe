package inventory

import (
	"cmp"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Resolution is what a request comes to: terms, and the pools to try in order.
type Resolution struct {
	Terms ipam.Terms
	Pools []ipam.Pool
	// Class is nil where the request goes past classes.
	Class *ipam.Class
	// PassedOver are other pools that the request may use, by name, and why it is not
	// served from them. They are set where there is an error, too.
	PassedOver []ipam.PoolResult
}

// Resolve finds what a request comes to, from what this process has seen. The
// error is a *ipam.MissingError or a *ipam.PolicyError, and says why it is not served from
// each pool that it may use (ipam.PoolsOf); with the former, what is known of the terms all
// the same is returned. It is ipam.ErrNotSynced where the claim's namespace has not been
// seen.
func (c *Catalogue) Resolve(req ipam.Request) (Resolution, error) {
	named, err := c.named(req)
	if err != nil {
		return Resolution{}, err
	}
	terms, err := ipam.Fold(named.request, named.class, named.pools)
	if err != nil {
		return Resolution{}, err
	}
	res := Resolution{Terms: terms, Class: named.class, PassedOver: named.excluded}
	if err = named.missing; err == nil {
		err = c.choose(&res, named.pools)
	}
	ipam.SortByPool(res.PassedOver)
	return res, ipam.WithPools(err, res.PassedOver)
}

// choose chooses those of the pools that can serve the terms, and notes why the others
// cannot.
func (c *Catalogue) choose(res *Resolution, pools []ipam.Pool) error {
	fitting, unfit, err := res.Terms.Fitting(pools)
	res.PassedOver = append(res.PassedOver, unfit...)
	if err != nil {
		return err
	}
	fitting, tooSmall, err := possible(res.Terms, fitting)
	res.PassedOver = append(res.PassedOver, tooSmall...)
	if err != nil {
		return err
	}
	ready, unready := c.ready(fitting)
	res.PassedOver = append(res.PassedOver, unready...)
	if len(ready) == 0 && len(unready) > 0 {
		return unready[len(unready)-1].Err
	}
	res.Pools = ipam.Rank(c.candidates(ready), res.Terms.Selection)
	return nil
}

// named is a request with its tenant, its class, and the pools that it may be served from
// as far as names go; missing is why there are none.
type named struct {
	request ipam.Request
	class   *ipam.Class
	pools   []ipam.Pool
	missing error
	// excluded are pools that name the class, and do not back it.
	excluded []ipam.PoolResult
}

// named finds what a request names.
func (c *Catalogue) named(req ipam.Request) (named, error) {
	req, err := c.onBehalf(req)
	if err != nil {
		return named{}, err
	}
	class, err := c.classOf(req)
	if err != nil {
		return named{}, err
	}
	found := named{request: req, class: class}
	found.pools, found.missing = c.poolsOf(&found)
	return found, nil
}

// classOf is the class that a request names, or the default one.
func (c *Catalogue) classOf(req ipam.Request) (*ipam.Class, error) {
	if req.Pool != (ipam.PoolKey{}) || req.Selects != nil {
		return nil, nil
	}
	mayUse := func(c ClassEntry) bool { return req.Tenant.MayUse(c.Visibility, c.Project) }
	entry, ok := c.Class(req.Class)
	if req.Class == "" {
		family := c.familyOf(req)
		if entry, ok = c.DefaultClass(family, mayUse); !ok {
			return nil, missing(v1alpha1.ReasonNoDefaultClass, "the claim names no class and no pool, and there is no default class for %s: set spec.className, or annotate an %[1]s class with %s=true", family, v1alpha1.AnnotationDefaultClass)
		}
	}
	switch {
	case !ok || !mayUse(entry):
		return nil, missing(v1alpha1.ReasonClassNotFound, "there is no IPClass %q that this namespace may use: create it, or name another one", req.Class)
	case !entry.Native:
		return nil, missing(v1alpha1.ReasonForeignProvisioner, "the IPClass %q is served by another provisioner: wait until that has served the claim, or name another class", req.Class)
	}
	return &entry.Class, nil
}

// familyOf is the address family of a request that names neither class nor pool:
// that of the block or the family that it asks for, else the operator's default. It
// does not depend on which default classes exist.
func (c *Catalogue) familyOf(req ipam.Request) ipam.Family {
	if req.Block.IsValid() {
		return ipam.FamilyOf(req.Block)
	}
	return cmp.Or(req.Family, c.defaultFamily)
}

// poolsOf are the pools that a request may be served from as far as names go,
// and why there are none. Those that the class excludes are noted.
func (c *Catalogue) poolsOf(found *named) ([]ipam.Pool, error) {
	req, class := found.request, found.class
	switch {
	case req.Pool != (ipam.PoolKey{}):
		pool, ok := c.Pool(req.Pool)
		if !ok || !req.MayName(pool) {
			return nil, noPool(req, v1alpha1.ReasonPoolNotFound, "one")
		}
		return []ipam.Pool{pool}, nil
	case req.Selects != nil:
		pools := slices.DeleteFunc(c.PoolsWhere(req.Namespace(), req.Selects), func(p ipam.Pool) bool { return !req.MayName(p) })
		if len(pools) == 0 {
			return nil, missing(v1alpha1.ReasonPoolNotFound, "spec.poolSelector selects no pool that this namespace may use: label one, or change the selector")
		}
		return sortedByName(pools), nil
	default:
		backing, excluded := c.PoolsOf(req.Namespace(), *class)
		for _, pool := range usable(req, excluded) {
			found.excluded = append(found.excluded, ipam.PoolResult{Pool: pool.Key, Err: class.Excludes(pool)})
		}
		pools := usable(req, backing)
		if len(pools) == 0 {
			return nil, missing(v1alpha1.ReasonNoPoolForClass, "no %s pool that this namespace may use backs the IPClass %q: add the class to the classNames of one, or change the visibility of one that backs it", class.Family, class.Name)
		}
		return sortedByName(pools), nil
	}
}

// usable are the pools that a request may use without naming them.
func usable(req ipam.Request, pools []ipam.Pool) []ipam.Pool {
	return slices.DeleteFunc(pools, func(p ipam.Pool) bool { return !req.MayUse(p) })
}

func (c *Catalogue) candidates(pools []ipam.Pool) []ipam.Candidate {
	candidates := make([]ipam.Candidate, len(pools))
	for i, pool := range pools {
		candidates[i] = ipam.Candidate{Pool: pool, Utilized: c.ledger.Utilized(pool.Key)}
	}
	return candidates
}

func sortedByName(pools []ipam.Pool) []ipam.Pool {
	slices.SortFunc(pools, ipam.ByName)
	return pools
}
