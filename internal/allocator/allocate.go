package allocator

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Allocate gives a holder a block, recorded and confirmed. A holder that exists, or
// that is a pool, gets the one that is recorded for it already, where there is one. When
// there is none, but a release is on its way, it waits for that first, unless the holder
// is in the queue, and has its turn then. A newcomer that only a holder before
// it keeps from a block waits a moment too, until that holder has one.
//
// Errors: *ipam.ExhaustedError, *ipam.TakenError, *ipam.LimitError,
// *ipam.MissingError where the pool is being released, ipam.ErrNotSynced,
// ipam.ErrUnconfirmed, ipam.ErrCrowded, ipam.ErrTooManyUnclaimed,
// ipam.ErrEarlierAttempt, or the API's own.
// After any error nothing is held, or it will be collected.
func (a *Allocator) Allocate(ctx context.Context, order Order) (record ipam.Record, err error) {
	ctx, allocation := a.begun(ctx, order)
	defer func() { allocation.ended(record, err) }()
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
