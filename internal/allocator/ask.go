package allocator

import (
	"slices"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Preview is the block that Allocate would give now. Nothing is recorded.
func (a *Allocator) Preview(order Order) (ipam.Record, error) {
	order = a.named(order)
	if record, ok := a.retained(order); ok {
		record.Gateway = order.gatewayFor(record)
		return record, nil
	}
	exhausted := order.exhausted()
	for _, pool := range order.Pools {
		block, err := a.ledger.Peek(a.ask(order, pool))
		if err == nil {
			return order.recordOf(pool, block), nil
		}
		if !exhausted.take(pool, err) {
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
}

// Consider says of each pool that an order may use whether it has a block for it now, and
// why not: first of those that Allocate would try, by name, and then of the others. Only of
// the first few it asks the ledger. Nothing is recorded.
func (a *Allocator) Consider(order Order, few int) []ipam.PoolResult {
	order = a.named(order)
	exhausted := order.exhausted()
	pools := slices.SortedFunc(slices.Values(order.Pools), ipam.ByName)
	results := make([]ipam.PoolResult, len(pools), len(pools)+len(order.PassedOver))
	for i, pool := range pools {
		if results[i].Pool = pool.Key; i < few {
			_, err := a.ledger.Peek(a.ask(order, pool))
			results[i].Err = exhausted.ofPool(pool, err)
		}
	}
	return append(results, order.PassedOver...)
}

// ask is what is asked of the ledger: a block, unless that would overtake a claim that
// waits for one.
func (a *Allocator) ask(order Order, pool ipam.Pool) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool.Key, Bits: order.Terms.Length, Block: order.Terms.Block,
		Strategy: pool.Strategy, Record: order.Record, Holder: order.Holder,
		MayTake: a.queue.MayTake(pool, order.Holder, order.Waiting),
	}
	a.account(&ask, order)
	if order.Terms.Strategy != "" {
		ask.Strategy = order.Terms.Strategy
	}
	return ask
}

// account sets for which project and class the block counts, and what bounds that.
func (a *Allocator) account(ask *ledger.Ask, order Order) {
	if order.isUnclaimed() {
		ask.UnclaimedLimit = a.unclaimedLimit()
	}
	ask.Project = a.projectOf(order.Holder)
	ask.Class = order.Terms.Class
	class, _ := a.catalogue.Class(ask.Class)
	ask.ClassLimit = class.Limit
}

// unclaimedLimit is how many records of a namespace may be unclaimed; 0, which is any
// number, while it is not known which of them are.
func (a *Allocator) unclaimedLimit() int {
	if !a.claims.known() {
		return 0
	}
	return a.limit
}

// projectOf is the project of a holder; empty for a cluster-scoped pool.
func (a *Allocator) projectOf(holder ipam.Holder) string {
	tenant, _ := a.catalogue.Tenant(holder.Namespace)
	return tenant.Project
}
