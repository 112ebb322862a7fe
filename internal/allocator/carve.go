package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// HolderOfPool is a pool as the holder of its own CIDR.
func HolderOfPool(pool ipam.PoolKey) ipam.Holder { return adapt.HolderOfPool(pool) }

// HolderOfClaim is an IPClaim as a holder.
func HolderOfClaim(claim ipam.Name) ipam.Holder {
	return ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: claim.Namespace, Name: claim.Name}
}

// PoolOrder is the order for a pool's own CIDR, in its parent or its routing
// domain. The error is a *ipam.MissingError or a *ipam.PolicyError about the
// parent.
func (a *Allocator) PoolOrder(pool ipam.Pool, uid, requestedBy string) (Order, error) {
	if err := a.Synced(); err != nil {
		return Order{}, err
	}
	order := Order{
		Holder: HolderOfPool(pool.Key), HolderUID: uid,
		Record: a.RecordOfPool(pool.Key), RequestedBy: requestedBy,
	}
	order.Terms = ipam.Terms{Family: pool.Family, Length: pool.Length, Block: pool.CIDR, Reclaim: ipam.ReclaimDelete}
	if place, ok := a.queue.Place(order.Holder); ok {
		order.Waiting = place
	}
	if !pool.IsChild() {
		order.Pools = []ipam.Pool{{Key: pool.Home, CIDR: pool.Family.All(), Family: pool.Family}}
		return order, nil
	}
	req, err := a.onBehalf(AskParent(pool))
	if err != nil {
		return Order{}, err
	}
	parent, ok := a.catalogue.Pool(pool.Home)
	if !ok || !req.MayName(parent) {
		return order, noPool(req, v1alpha1.ReasonParentNotReady, "parent")
	}
	if order.Terms.Family == "" {
		order.Terms.Family = parent.Family
	}
	if err := allOfParent(order.Terms, parent); err != nil {
		return order, err
	}
	if err := a.PoolReady(parent); err != nil {
		return order, missing(v1alpha1.ReasonParentNotReady, "%s", err.Error())
	}
	pools, err := order.Terms.Fitting([]ipam.Pool{parent})
	if err == nil {
		pools, err = possible(order.Terms, pools)
	}
	order.Pools = pools
	return order, err
}

// allOfParent is a *ipam.PolicyError for a child pool that is as large as its parent.
func allOfParent(terms ipam.Terms, parent ipam.Pool) error {
	if !parent.CIDR.IsValid() || terms.Length != parent.CIDR.Bits() {
		return nil
	}
	return &ipam.PolicyError{Field: "spec.prefixLength", Value: terms.Length, Remedy: "is all of the parent " + parent.CIDR.String() + ": ask for a smaller block"}
}

// AskParent is what a child pool asks of its parent.
func AskParent(pool ipam.Pool) ipam.Request {
	return ipam.Request{Child: pool.Key, Granted: pool.ParentGranted, Pool: pool.Home, Family: pool.Family, Length: pool.Length, Block: pool.CIDR}
}

// PoolWaiting is the place in the queue of a pool that was made then.
func PoolWaiting(pool ipam.Pool, since time.Time) Waiting {
	return Waiting{Since: since, Holder: HolderOfPool(pool.Key), Request: AskParent(pool)}
}

// ParentNeedsGrant reports whether to name its parent takes of a pool's maker the
// right to use that, as far as can be told from what this process has seen.
func (a *Allocator) ParentNeedsGrant(pool ipam.Pool) bool {
	if !pool.IsChild() {
		return false
	}
	parent, ok := a.catalogue.Pool(pool.Home)
	if !ok {
		parent.Key = pool.Home
	}
	return AskParent(pool).NeedsGrant(parent)
}

// Carve records and confirms a pool's own CIDR. A record of the pool's name that is
// there already is taken over if it says the same. Otherwise it is given up: it is what
// a former pool left behind, or, where the pool exists, an attempt that was too late.
// Where blocks of a former pool are recorded, its record stays, and is taken over by a
// pool of the same CIDR. Where the pool does not exist, a record without its UID may be
// that of another request, which may have been answered by now: that is
// ipam.ErrUnconfirmed, until the pool is there or the record collected.
func (a *Allocator) Carve(ctx context.Context, order Order) (ipam.Record, error) {
	if old, ok := a.ledger.Record(order.Record); ok {
		switch {
		case order.matches(old) && order.isSameHolder(old):
			return a.takeOver(ctx, old, order.HolderUID)
		case order.HolderUID == "" && old.HolderUID == "":
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
	record, err := a.Grant(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, order.keys())
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}

// matches reports whether a record is what the order would make.
func (o Order) matches(r ipam.Record) bool {
	if len(o.Pools) == 0 || r.Pool != o.Pools[0].Key || r.Terminating {
		return false
	}
	if o.Terms.Block.IsValid() {
		return r.Block == o.Terms.Block
	}
	return r.Block.Bits() == o.Terms.Length
}

// isSameHolder reports whether a record is not that of a former pool of the name.
func (o Order) isSameHolder(r ipam.Record) bool {
	return r.HolderUID == "" || r.HolderUID == o.HolderUID
}

// Descends reports whether a pool is the ancestor itself or below it, as far as
// this process has seen.
func (a *Allocator) Descends(pool, ancestor ipam.PoolKey) bool {
	for seen := map[ipam.PoolKey]bool{}; !seen[pool]; {
		if pool == ancestor {
			return true
		}
		seen[pool] = true
		parent, ok := a.catalogue.Pool(pool)
		if !ok {
			return false
		}
		pool = parent.Home
	}
	return false
}
