package inventory

import (
	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// ready are those of the pools that can hand out blocks, and why the others cannot.
func (c *Catalogue) ready(pools []ipam.Pool) (ready []ipam.Pool, unready []ipam.PoolResult) {
	for _, pool := range pools {
		if err := c.PoolReady(pool); err != nil {
			unready = append(unready, ipam.PoolResult{Pool: pool.Key, Err: err})
			continue
		}
		ready = append(ready, pool)
	}
	return ready, unready
}

// PoolReady says why a pool cannot hand out blocks, as a *ipam.MissingError.
func (c *Catalogue) PoolReady(pool ipam.Pool) error {
	switch {
	case pool.Terminating:
		return notReady(ipam.Terminating, "%s is being deleted: use another pool", pool.Key)
	case pool.Paused:
		return notReady(ipam.Paused, "%s is paused by an annotation: have it removed, or use another pool", pool.Key)
	case !pool.CIDR.IsValid():
		return notReady(ipam.NotReady, "%s has no CIDR yet: wait until it has, or use another pool", pool.Key)
	}
	if why := c.clusterPauses(pool); why != "" {
		return notReady(ipam.Paused, "%s: %s", pool.Key, why)
	}
	state := c.PoolState(pool)
	switch {
	case state.Rival != nil:
		return notReady(ipam.NotReady, "the CIDR of %s conflicts with another allocation: have one of the two released, or use another pool", pool.Key)
	case state.Record.State == ipam.StateReleasing || state.Record.Terminating:
		return notReady(ipam.Terminating, "%s is being released: use another pool", pool.Key)
	case !state.Open:
		return notReady(ipam.NotReady, "the CIDR of %s is not recorded yet: wait until it is, or use another pool", pool.Key)
	}
	return nil
}

func notReady(verdict ipam.Verdict, format string, args ...any) *ipam.MissingError {
	err := missing(v1alpha1.ReasonPoolNotReady, format, args...)
	err.Verdict = verdict
	return err
}

// PoolState is where a pool's own record stands.
func (c *Catalogue) PoolState(pool ipam.Pool) ledger.PoolState {
	return c.ledger.State(pool, c.RecordOfPool(pool.Key))
}

// RecordOfPool is the name of a pool's own record.
func (c *Catalogue) RecordOfPool(pool ipam.PoolKey) ipam.Name {
	return convert.RecordOfPool(c.namespace, pool)
}
