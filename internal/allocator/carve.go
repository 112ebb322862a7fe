package allocator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// PoolOrder is the order for a pool's own CIDR, in its parent or its routing
// domain. Origin and holder's UID are for the caller to set. The error is a
// *ipam.MissingError or a *ipam.PolicyError about the parent.
func (a *Allocator) PoolOrder(pool ipam.Pool) (Order, error) {
	if err := a.synced(); err != nil {
		return Order{}, err
	}
	order := Order{Holder: adapt.HolderOfPool(pool.Key)}
	if place, ok := a.queue.Place(order.Holder); ok {
		order.Waiting = place
	}
	var err error
	order.Resolution, err = a.catalogue.ResolvePool(pool)
	return order, err
}

// carve records and confirms a pool's own CIDR. A record of the pool's name that is
// there already is taken over if it says the same. Otherwise it is given up: it is what
// a former pool left behind, or, where the pool exists, an attempt that was too late.
// Where blocks of a former pool are recorded, its record stays, and is taken over by a
// pool of the same CIDR. Where the pool does not exist, a record without its UID may be
// that of another request, which may have been answered by now: that is
// ipam.ErrUnconfirmed, until the pool is there or the record collected.
func (a *Allocator) carve(ctx context.Context, order Order) (ipam.Record, error) {
	if old, ok := a.ledger.Record(order.Record); ok {
		switch {
		case order.matches(old) && old.MayBeOf(order.HolderUID):
			return a.takeOver(ctx, old, order.HolderUID)
		case order.Origin == OriginAdmission && !old.IsStamped():
			return ipam.Record{}, fmt.Errorf("another request for %s is under way: %w", order.Holder, ipam.ErrUnconfirmed)
		}
		err := a.giveUp(ctx, old, nil)
		if errors.Is(err, ipam.ErrPoolInUse) && order.matches(old) {
			return a.takeOver(ctx, old, order.HolderUID)
		}
		if err != nil {
			return ipam.Record{}, err
		}
	}
	record, err := a.allocate(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, order.keys())
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}
