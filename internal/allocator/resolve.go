package allocator

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Resolution is what a request comes to: terms, and the pools to try in order.
type Resolution struct {
	Terms ipam.Terms
	Pools []ipam.Pool
	// Class is nil where the request goes past classes.
	Class *ipam.Class
}

// Resolve finds what a request comes to, from what this process has seen. The
// error is a *ipam.MissingError or a *ipam.PolicyError; with the former, what
// could be told of the terms all the same is returned. It is ipam.ErrNotSynced
// until everything has been seen once.
func (a *Allocator) Resolve(req ipam.Request) (Resolution, error) {
	if err := a.Synced(); err != nil {
		return Resolution{}, err
	}
	req, err := a.onBehalf(req)
	if err != nil {
		return Resolution{}, err
	}
	class, err := a.classOf(req)
	if err != nil {
		return Resolution{}, err
	}
	named, missing := a.poolsOf(req, class)
	terms, err := ipam.Fold(req, class, named)
	if err != nil {
		return Resolution{}, err
	}
	res := Resolution{Terms: terms, Class: class}
	if missing != nil {
		return res, missing
	}
	fitting, err := terms.Fitting(named)
	if err != nil {
		return res, err
	}
	if fitting, err = possible(terms, fitting); err != nil {
		return res, err
	}
	ready, unready := a.ready(fitting)
	if len(ready) == 0 {
		return res, unready
	}
	res.Pools = ipam.Rank(a.candidates(ready), terms.Selection)
	return res, nil
}

// onBehalf says in a request on whose behalf it asks. A cluster-scoped pool asks
// on nobody's.
func (a *Allocator) onBehalf(req ipam.Request) (ipam.Request, error) {
	namespace := req.Namespace()
	if namespace == "" {
		return req, nil
	}
	tenant, ok := a.catalogue.Tenant(namespace)
	if !ok {
		return req, fmt.Errorf("the namespace %s has not been seen: %w", namespace, ipam.ErrNotSynced)
	}
	req.Tenant = tenant
	return req, nil
}

// classOf is the class that a request names, or the default one.
func (a *Allocator) classOf(req ipam.Request) (*ipam.Class, error) {
	if req.Pool != (ipam.PoolKey{}) || req.Selects != nil {
		return nil, nil
	}
	mayUse := func(c ClassEntry) bool { return req.Tenant.MayUse(c.Visibility, c.Project) }
	entry, ok := a.catalogue.Class(req.Class)
	if req.Class == "" {
		family := a.familyOf(req)
		if entry, ok = a.catalogue.DefaultClass(family, mayUse); !ok {
			return nil, missing(v1alpha1.ReasonNoDefaultClass, "the claim names no class and no pool, and there is no default class for %s: set spec.className, or annotate an %[1]s class with %s=true", family, v1alpha1.AnnotationDefaultClass)
		}
	}
	switch {
	case !ok || !mayUse(entry):
		return nil, missing(v1alpha1.ReasonClassNotFound, "there is no IPClass %q that this namespace may use: create it, or name another one", req.Class)
	case !entry.Native:
		return nil, missing(v1alpha1.ReasonForeignProvisioner, "the IPClass %q is served by another provisioner", req.Class)
	}
	return &entry.Class, nil
}

// familyOf is the address family of a request that names neither class nor pool:
// that of the block or the family that it asks for, else the operator's default. It
// does not depend on which default classes exist.
func (a *Allocator) familyOf(req ipam.Request) ipam.Family {
	if req.Block.IsValid() {
		return ipam.FamilyOf(req.Block)
	}
	return cmp.Or(req.Family, a.defaultFamily)
}

// poolsOf are the pools that a request may be served from as far as names go,
// and why there are none.
func (a *Allocator) poolsOf(req ipam.Request, class *ipam.Class) ([]ipam.Pool, error) {
	switch {
	case req.Pool != (ipam.PoolKey{}):
		pool, ok := a.catalogue.Pool(req.Pool)
		if !ok || !req.MayName(pool) {
			return nil, noPool(req, v1alpha1.ReasonPoolNotFound, "one")
		}
		return []ipam.Pool{pool}, nil
	case req.Selects != nil:
		pools := slices.DeleteFunc(a.catalogue.PoolsWhere(req.Namespace(), req.Selects), func(p ipam.Pool) bool { return !req.MayName(p) })
		if len(pools) == 0 {
			return nil, missing(v1alpha1.ReasonPoolNotFound, "spec.poolSelector selects no pool that this namespace may use: label one, or change the selector")
		}
		return sortedByName(pools), nil
	default:
		pools := slices.DeleteFunc(usable(req, a.catalogue.PoolsOf(req.Namespace(), class.Name)), func(p ipam.Pool) bool {
			return p.Family != "" && p.Family != class.Family
		})
		if len(pools) == 0 {
			return nil, missing(v1alpha1.ReasonNoPoolForClass, "no %s pool that this namespace may use backs the IPClass %q: add the class to the classNames of one, or change the visibility of one that backs it", class.Family, class.Name)
		}
		return sortedByName(pools), nil
	}
}

// NeedsGrant reports whether to name the pool that the request names takes the right
// to use it.
func (a *Allocator) NeedsGrant(req ipam.Request) bool {
	req, err := a.onBehalf(req)
	if err != nil {
		return false
	}
	pool, ok := a.catalogue.Pool(req.Pool)
	return ok && req.NeedsGrant(pool)
}

// LacksRight reports whether a request names an IPPool that it may not use, or one
// that does not exist as far as this process has seen. Which of the two is not for
// the requester to learn.
func (a *Allocator) LacksRight(req ipam.Request) bool {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return false
	}
	req, err := a.onBehalf(req)
	if err != nil {
		return true // the namespace is new
	}
	pool, ok := a.catalogue.Pool(req.Pool)
	return !ok || !req.MayName(pool)
}

// MayBeGranted reports whether all that a request lacks to name its pool is the right
// to use it.
func (a *Allocator) MayBeGranted(req ipam.Request) bool {
	req, err := a.onBehalf(req)
	if err != nil {
		return false
	}
	pool, ok := a.catalogue.Pool(req.Pool)
	if !ok || req.MayName(pool) {
		return false
	}
	req.Granted = true
	return req.MayName(pool)
}

// noPool is what a request is told of a pool that does not exist, and of one that it
// may not use: the same. Another is what it could name instead.
func noPool(req ipam.Request, reason, another string) *ipam.MissingError {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return missing(reason, "there is no %s %q: create it, or name another %s", req.Pool.Kind, req.Pool.Name, another)
	}
	asking := "namespace"
	if req.Namespace() == "" {
		asking = "pool"
	}
	return missing(reason, "there is no %s %q that this %s may use: create it, name another %s, or ask for the right to use it",
		req.Pool.Kind, req.Pool.Name, asking, another)
}

// usable are the pools that a request may use without naming them.
func usable(req ipam.Request, pools []ipam.Pool) []ipam.Pool {
	return slices.DeleteFunc(pools, func(p ipam.Pool) bool { return !req.MayUse(p) })
}

// ready are those of the pools that can hand out blocks, and why none can.
func (a *Allocator) ready(pools []ipam.Pool) ([]ipam.Pool, error) {
	var ready []ipam.Pool
	var why error
	for _, pool := range pools {
		if err := a.PoolReady(pool); err != nil {
			why = err
			continue
		}
		ready = append(ready, pool)
	}
	return ready, why
}

// PoolReady says why a pool cannot hand out blocks, as a *ipam.MissingError.
func (a *Allocator) PoolReady(pool ipam.Pool) error {
	switch {
	case pool.Terminating:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is being deleted", pool.Key)
	case pool.Paused:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is paused", pool.Key)
	case !pool.CIDR.IsValid():
		return missing(v1alpha1.ReasonPoolNotReady, "%s has no CIDR yet", pool.Key)
	}
	if why := a.catalogue.clusterPauses(pool); why != "" {
		return missing(v1alpha1.ReasonPoolNotReady, "%s: %s", pool.Key, why)
	}
	state := a.PoolState(pool)
	switch {
	case state.Rival != nil:
		return missing(v1alpha1.ReasonPoolNotReady, "the CIDR of %s is in conflict", pool.Key)
	case state.Record.State == ipam.StateReleasing || state.Record.Terminating:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is being released", pool.Key)
	case !state.Open:
		return missing(v1alpha1.ReasonPoolNotReady, "the CIDR of %s is not recorded yet", pool.Key)
	}
	return nil
}

// PoolState is where a pool's own record stands.
func (a *Allocator) PoolState(pool ipam.Pool) ledger.PoolState {
	return a.ledger.State(pool, a.RecordOfPool(pool.Key))
}

func (a *Allocator) candidates(pools []ipam.Pool) []ipam.Candidate {
	candidates := make([]ipam.Candidate, len(pools))
	for i, pool := range pools {
		candidates[i] = ipam.Candidate{Pool: pool, Utilized: a.ledger.Utilized(pool.Key)}
	}
	return candidates
}

func sortedByName(pools []ipam.Pool) []ipam.Pool {
	slices.SortFunc(pools, ipam.ByName)
	return pools
}

func missing(reason, format string, args ...any) *ipam.MissingError {
	return &ipam.MissingError{Reason: reason, Message: fmt.Sprintf(format, args...)}
}
