package inventory

import (
	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// ResolvePool finds from where a pool's own CIDR comes: its parent, or its routing
// domain. The error is a *ipam.MissingError or a *ipam.PolicyError about the parent;
// with it, what is known of the terms all the same is returned.
func (c *Catalogue) ResolvePool(pool ipam.Pool) (Resolution, error) {
	res := Resolution{Terms: ipam.Terms{Family: pool.Family, Length: pool.Length, Block: pool.CIDR, Reclaim: ipam.ReclaimDelete}}
	if !pool.IsChild() {
		res.Pools = []ipam.Pool{{Key: pool.Home, CIDR: pool.Family.All(), Family: pool.Family}}
		return res, nil
	}
	req, err := c.onBehalf(pool.ParentRequest())
	if err != nil {
		return Resolution{}, err
	}
	parent, ok := c.Pool(pool.Home)
	if !ok || !req.MayName(parent) {
		return res, noPool(req, v1alpha1.ReasonParentNotReady, "parent")
	}
	if res.Terms.Family == "" {
		res.Terms.Family = parent.Family
	}
	if err := allOfParent(res.Terms, parent); err != nil {
		return res, err
	}
	if err := c.PoolReady(parent); err != nil {
		return res, missing(v1alpha1.ReasonParentNotReady, "%s", err.Error())
	}
	pools, _, err := res.Terms.Fitting([]ipam.Pool{parent})
	if err == nil {
		pools, _, err = possible(res.Terms, pools)
	}
	res.Pools = pools
	return res, err
}

// allOfParent is a *ipam.PolicyError for a child pool that is as large as its parent.
func allOfParent(terms ipam.Terms, parent ipam.Pool) error {
	if !parent.CIDR.IsValid() || terms.Length != parent.CIDR.Bits() {
		return nil
	}
	return &ipam.PolicyError{Field: "spec.prefixLength", Value: terms.Length, Remedy: "is all of the parent " + parent.CIDR.String() + ": ask for a smaller block"}
}

// ParentNeedsGrant reports whether to name its parent takes of a pool's creator the
// right to use that, as far as follows from what this process has seen.
func (c *Catalogue) ParentNeedsGrant(pool ipam.Pool) bool {
	if !pool.IsChild() {
		return false
	}
	parent, ok := c.Pool(pool.Home)
	if !ok {
		parent.Key = pool.Home
	}
	return pool.ParentRequest().NeedsGrant(parent)
}

// Descends reports whether a pool is the ancestor itself or below it, as far as
// this process has seen.
func (c *Catalogue) Descends(pool, ancestor ipam.PoolKey) bool {
	for seen := map[ipam.PoolKey]bool{}; !seen[pool]; {
		if pool == ancestor {
			return true
		}
		seen[pool] = true
		parent, ok := c.Pool(pool)
		if !ok {
			return false
		}
		pool = parent.Home
	}
	return false
}
