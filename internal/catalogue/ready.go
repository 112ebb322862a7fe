package catalogue

import (
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
		return missing(v1alpha1.ReasonPoolNotReady, "%s is being deleted", pool.Key)
	case pool.Paused:
		return missing(v1alpha1.ReasonPoolNotReady, "%s is paused", pool.Key)
	case !pool.CIDR.IsValid():
		return missing(v1alpha1.ReasonPoolNotReady, "%s has no CIDR yet", pool.Key)
	}
	if why := c.clusterPauses(pool); why != "" {
		return missing(v1alpha1.ReasonPoolNotReady, "%s: %s", pool.Key, why)
	}
	state := c.PoolState(pool)
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
func (c *Catalogue) PoolState(pool ipam.Pool) ledger.PoolState {
	return c.ledger.State(pool, c.RecordOfPool(pool.Key))
}

// RecordOfPool is the name of a pool's own record.
func (c *Catalogue) RecordOfPool(pool ipam.PoolKey) ipam.Name {
	return adapt.RecordOfPool(c.namespace, pool)
}
