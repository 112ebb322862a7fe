package allocator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
