package allocator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kube"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// Preview is the block that Allocate would give now. Nothing is recorded.
func (a *Allocator) Preview(order Order) (ipam.Record, error) {
	order = a.named(order)
	if record, ok := a.retained(order); ok {
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

// Allocate gives a holder a block, recorded and confirmed. A holder that exists, or
// that is a pool, gets the one that is recorded for it already, where there is one. When
// there is none, but a release is on its way, it waits for that first, unless the holder
// is in the queue, and has its turn then. A newcomer whom only a holder that comes before
// it keeps from a block waits a moment too, until that holder has one.
//
// Errors: *ipam.ExhaustedError, *ipam.TakenError, *ipam.LimitError,
// *ipam.MissingError where the pool is being released, ipam.ErrNotSynced,
// ipam.ErrUnconfirmed, ipam.ErrCrowded, ipam.ErrTooManyUnclaimed, or the API's own.
// After any error nothing is held, or it will be collected.
func (a *Allocator) Allocate(ctx context.Context, order Order) (ipam.Record, error) {
	order = a.named(order)
	switch {
	case order.Holder.IsPool():
		return a.carve(ctx, order)
	case order.Origin == OriginController:
		return a.bind(ctx, order)
	}
	return a.allocate(ctx, order)
}

// bind allocates for a claim that exists: it gets the block that is already recorded for
// it, where there is one.
func (a *Allocator) bind(ctx context.Context, order Order) (ipam.Record, error) {
	for _, record := range a.ledger.HeldBy(order.Holder) {
		if record.HolderUID == order.HolderUID && record.State == ipam.StateBound && !record.Terminating {
			return a.takeOver(ctx, record, order.HolderUID)
		}
	}
	record, err := a.allocate(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, order.keys())
		return ipam.Record{}, fmt.Errorf("another process is binding %s: %w", order.Holder, ipam.ErrUnconfirmed)
	}
	return record, err
}

// allocate takes over a retained block, or finds another, waiting for a short time where
// there may be room soon.
func (a *Allocator) allocate(ctx context.Context, order Order) (ipam.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	if record, ok := a.retake(ctx, order); ok {
		return record, nil
	}
	frees := a.ledger.Frees(order.keys())
	record, err := a.find(ctx, order)
	if !ipam.IsNoRoom(err) || a.queue.Has(order.Holder) || !a.awaitRoom(ctx, order, frees, err) {
		return record, err
	}
	order.Record = order.renamed()
	return a.find(ctx, order)
}

// find tries the pools in order until a block is confirmed.
func (a *Allocator) find(ctx context.Context, order Order) (ipam.Record, error) {
	exhausted := order.exhausted()
	for i := 0; i < len(order.Pools); {
		pool := order.Pools[i]
		record, err := a.try(ctx, order, a.ask(order, pool))
		switch {
		case err == nil:
			return record, nil
		case errors.Is(err, ledger.ErrLost):
			order.Record = order.renamed() // and the next block of the same pool
		case exhausted.take(pool, err):
			i++
		default:
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
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

// account says in a request whom the block counts for, and what bounds that.
func (a *Allocator) account(ask *ledger.Ask, order Order) {
	if order.isUnclaimed() {
		ask.UnclaimedLimit = a.unclaimedLimit()
	}
	ask.Project = a.projectOf(order.Holder)
	ask.Class = order.Terms.Class
	class, _ := a.catalogue.Class(ask.Class)
	ask.ClassLimit = class.Limit
}

// projectOf is the project of a holder; empty for a cluster-scoped pool.
func (a *Allocator) projectOf(holder ipam.Holder) string {
	tenant, _ := a.catalogue.Tenant(holder.Namespace)
	return tenant.Project
}

// try finds a block in one pool, records and confirms it. Controllers have a bound
// of their own, and no API server that waits for their answer.
func (a *Allocator) try(ctx context.Context, order Order, ask ledger.Ask) (ipam.Record, error) {
	hold, err := a.hold(ctx, ask)
	if err != nil {
		return ipam.Record{}, err
	}
	if order.Origin != OriginController {
		if err := a.begin(ctx); err != nil {
			hold.Drop()
			return ipam.Record{}, err
		}
		defer a.attempts.Release(1)
	}
	return a.confirm(ctx, hold, order)
}

// hold finds a block and holds it. Where the namespace has its share of unclaimed
// records, it waits for a moment: those of creates under way are claimed within
// milliseconds.
func (a *Allocator) hold(ctx context.Context, ask ledger.Ask) (hold *ledger.Hold, err error) {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	a.ledger.Await(ctx, []ipam.PoolKey{ask.Pool}, func() bool {
		hold, err = a.ledger.Hold(ask)
		return !errors.Is(err, ipam.ErrTooManyUnclaimed)
	})
	return hold, err
}

// begin waits until there are few enough attempts under way, oldest first. Who
// waits for too long has cost the API server nothing.
func (a *Allocator) begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, beginWithin)
	defer cancel()
	if a.attempts.Acquire(ctx, 1) != nil {
		return ipam.ErrCrowded
	}
	return nil
}

// confirm records a block that is held, and waits until it is known whose it is.
//
// A record that may have been created although the call failed is abandoned, where
// its name is this attempt's alone. Where it is the holder's, the record that turns
// up may be that of another attempt, which has been answered by then: it is left
// for the holder's next attempt, which confirms it as if it had just been made, or
// else to the collection of orphans.
func (a *Allocator) confirm(ctx context.Context, hold *ledger.Hold, order Order) (ipam.Record, error) {
	record := order.recordOf(hold.Pool, hold.Block)
	record.Project = hold.Project() // for which it was judged
	obj := adapt.Allocation(record)
	if err := a.client.Create(ctx, obj); err != nil {
		if kube.IsRefused(err) || order.nameIsFixed() {
			hold.Drop()
		} else {
			hold.Abandon()
		}
		return ipam.Record{}, unavailable(ctx, fmt.Errorf("recording %s: %w", record.Block, err))
	}
	record.UID, record.Version = string(obj.UID), obj.ResourceVersion
	err := hold.Confirm(ctx, record.UID)
	switch {
	case err == nil:
		return record, nil
	case order.existing && errors.Is(err, ledger.ErrPoolClosed):
		return record, poolClosed(order.Holder, record.Pool)
	}
	return ipam.Record{}, a.abandon(ctx, order, record, err)
}

// abandon gives up a record that could not be confirmed, and returns what that means.
// A record whose name is fixed, and of which nobody knows yet whose the block is, stays:
// it may be seen yet, and is then judged as if it had just been made.
func (a *Allocator) abandon(ctx context.Context, order Order, record ipam.Record, cause error) error {
	_, overLimit := errors.AsType[*ipam.LimitError](cause)
	closed := errors.Is(cause, ledger.ErrPoolClosed)
	switch {
	case order.nameIsFixed() && errors.Is(cause, ipam.ErrUnconfirmed):
	case !order.nameIsFixed():
		a.discard(record)
	default: // the name is needed again
		cause = errors.Join(cause, a.Release(ctx, record))
	}
	switch {
	case closed:
		return poolClosed(order.Holder, record.Pool)
	case overLimit: // what exceeded it may be about to give way too: the next try finds out
		return errors.Join(ledger.ErrLost, cause)
	}
	return cause
}

// poolClosed says that nothing is handed out from a pool.
func poolClosed(holder ipam.Holder, pool ipam.PoolKey) error {
	reason := v1alpha1.ReasonPoolNotReady
	if holder.IsPool() {
		reason = v1alpha1.ReasonParentNotReady
	}
	return &ipam.MissingError{Reason: reason, Message: pool.String() + " is being released, or its CIDR is not recorded"}
}

// unavailable is what a failed attempt means for whoever asked.
func unavailable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ipam.ErrUnconfirmed, err)
	}
	return err
}
