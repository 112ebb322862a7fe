package catalogue

import (
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// ready are those of the pools that can hand out blocks, and why none can.
func (c *Catalogue) ready(pools []ipam.Pool) ([]ipam.Pool, error) {
	var ready []ipam.Pool
	var why error
	for _, pool := range pools {
		if err := c.PoolReady(pool); err != nil {
			why = err
			continue
		}
		ready = append(ready, pool)
	}
	return ready, why
}

// PoolReady says why a pool cannot hand out blocks, as a *ipam.MissingError.
func (c *Catalogue) PoolReady(pool ipam.Pool) error {
	switch {
	case pool.Terminating:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is being deleted: use another pool", pool.Key)
	case pool.Paused:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is paused by an annotation: have it removed, or use another pool", pool.Key)
	case !pool.CIDR.IsValid():
		return missing(v1alpha1.ReasonPoolNotReady, "%s has no CIDR yet: wait until it has, or use another pool", pool.Key)
	}
	if why := c.clusterPauses(pool); why != "" {
		return missing(v1alpha1.ReasonPoolNotReady, "%s: %s", pool.Key, why)
	}
	state := c.PoolState(pool)
	switch {
	case state.Rival != nil:
		return missing(v1alpha1.ReasonPoolNotReady, "the CIDR of %s conflicts with another allocation: have one of the two released, or use another pool", pool.Key)
	case state.Record.State == ipam.StateReleasing || state.Record.Terminating:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is being released: use another pool", pool.Key)
	case !state.Open:
		return missing(v1alpha1.ReasonPoolNotReady, "the CIDR of %s is not recorded yet: wait until it is, or use another pool", pool.Key)
	}
	return nil
}

// PoolState is where a pool's own record stands.
func (c *Catalogue) PoolState(pool ipam.Pool) ledger.PoolState {
	return c.ledger.State(pool, c.RecordOfPool(pool.Key))
}

// RecordOfPool is the name of a pool's own record.
func (c *Catalogue) RecordOfPool(pool ipam.PoolKey) ipam.Name {
	return adapt.RecordOfPool(c.namespace, pool)
}

// PassedOver is a pool from which a request is not served, and why.
type PassedOver struct {
	Pool   ipam.PoolKey
	Reason error
}

// PassedOver are the pools that the request could name, but for those from which it is
// served. It resolves the request again, for a log.
func (c *Catalogue) PassedOver(req ipam.Request, served []ipam.Pool) []PassedOver {
	named, err := c.named(req)
	if err != nil || named.missing != nil {
		return nil
	}
	var passed []PassedOver
	for _, pool := range named.pools {
		if slices.ContainsFunc(served, func(p ipam.Pool) bool { return p.Key == pool.Key }) {
			continue
		}
		why := c.PoolReady(pool)
		if why == nil {
			why = missing(v1alpha1.ReasonCannotFit, "%s never has such a block: its CIDR, bounds, ranges or reserved addresses exclude it", pool.Key)
		}
		passed = append(passed, PassedOver{pool.Key, why})
	}
	return passed
}
