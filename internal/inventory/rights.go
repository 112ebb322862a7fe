package inventory

import (
	"errors"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// NeedsGrant reports whether to name the pool that the request names takes the right
// to use it.
func (c *Catalogue) NeedsGrant(req ipam.Request) bool {
	req, err := c.onBehalf(req)
	if err != nil {
		return false
	}
	pool, ok := c.Pool(req.Pool)
	return ok && req.NeedsGrant(pool)
}

// LacksRight reports whether a request names an IPPool that it may not use, or one
// that does not exist as far as this process has seen. Which of the two is not for
// the requester to learn.
func (c *Catalogue) LacksRight(req ipam.Request) bool {
	if req.Pool.Kind != ipam.PoolKindIPPool {
		return false
	}
	req, err := c.onBehalf(req)
	if err != nil {
		return true // the namespace is new
	}
	pool, ok := c.Pool(req.Pool)
	return !ok || !req.MayName(pool)
}

// MayBeGranted reports whether all that a request lacks to name its pool is the right
// to use it.
func (c *Catalogue) MayBeGranted(req ipam.Request) bool {
	req, err := c.onBehalf(req)
	if err != nil {
		return false
	}
	pool, ok := c.Pool(req.Pool)
	if !ok || req.MayName(pool) {
		return false
	}
	req.Granted = true
	return req.MayName(pool)
}

// Redacted removes the holder of a block from an error for a namespace, unless
// that is in the same project. Where the namespace is empty it is the platform
// that asks, which may know.
func (c *Catalogue) Redacted(namespace string, err error) error {
	var taken *ipam.TakenError
	if namespace == "" || !errors.As(err, &taken) {
		return err
	}
	asking, _ := c.Tenant(namespace)
	holding, known := c.Tenant(taken.Holder.Namespace)
	if known && asking.Project == holding.Project {
		return err
	}
	return ipam.WithPools(taken.Redacted(), ipam.PoolsOf(err))
}

// MayHold reports whether the pool is known. The error is a *ipam.MissingError where it
// is, and the namespace may not use it: what it says it holds there, it does not.
func (c *Catalogue) MayHold(req ipam.Request, key ipam.PoolKey) (known bool, err error) {
	req, err = c.onBehalf(req)
	if err != nil {
		return false, err
	}
	pool, known := c.Pool(key)
	if known && !req.MayName(pool) {
		return true, NoSuchPool(req, key)
	}
	return known, nil
}
