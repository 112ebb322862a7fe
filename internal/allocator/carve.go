package allocator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// HolderOfPool is a pool as the holder of its own CIDR.
func HolderOfPool(pool ipam.PoolKey) ipam.Holder {
	return ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: string(pool.Kind), Namespace: pool.Namespace, Name: pool.Name}
}

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
		Record: a.recordOfPool(pool.Key), RequestedBy: requestedBy,
	}
	order.Terms = ipam.Terms{Family: pool.Family, Length: pool.Length, Block: pool.CIDR, Reclaim: ipam.Delete}
	if place, ok := a.queue.Place(order.Holder); ok {
		order.Waiting = place
	}
	if !pool.IsChild() {
		order.Pools = []ipam.Pool{{Key: pool.Home, CIDR: pool.Family.All(), Family: pool.Family}}
		return order, nil
	}
	req, err := a.onBehalf(askParent(pool))
	if err != nil {
		return Order{}, err
	}
	parent, ok := a.catalogue.Pool(pool.Home)
	if !ok || !req.MayName(parent) {
		return order, missing(v1alpha1.ReasonParentNotReady, "there is no %s %q: create it, or name another parent", pool.Home.Kind, pool.Home.Name)
	}
	if order.Terms.Family == "" {
		order.Terms.Family = parent.Family
	}
	if parent.CIDR.IsValid() && order.Terms.Length == parent.CIDR.Bits() {
		return order, &ipam.PolicyError{Field: "spec.prefixLength", Value: pool.Length, Remedy: "is all of the parent " + parent.CIDR.String() + ": ask for a smaller block"}
	}
	if err := a.PoolReady(parent); err != nil {
		return order, missing(v1alpha1.ReasonParentNotReady, "%s", err.Error())
	}
	pools, err := order.Terms.Fitting([]ipam.Pool{parent})
	order.Pools = pools
	return order, err
}

// askParent is what a child pool asks of its parent.
func askParent(pool ipam.Pool) ipam.Request {
	return ipam.Request{Child: pool.Key, Granted: pool.ParentGranted, Pool: pool.Home, Family: pool.Family, Length: pool.Length, Block: pool.CIDR}
}

// PoolWaiting is the place in the queue of a pool that was made then.
func PoolWaiting(pool ipam.Pool, since time.Time) Waiting {
	return Waiting{Since: since, Holder: HolderOfPool(pool.Key), Request: askParent(pool)}
}

// ParentNeedsGrant says whether to name its parent takes of a pool's maker the
// right to use that, as far as can be told from what this process has seen.
func (a *Allocator) ParentNeedsGrant(pool ipam.Pool) bool {
	if !pool.IsChild() {
		return false
	}
	parent, ok := a.catalogue.Pool(pool.Home)
	if !ok {
		parent.Key = pool.Home
	}
	return askParent(pool).NeedsGrant(parent)
}

// Carve records and confirms a pool's own CIDR. A record of the pool's name
// that is there already is taken over if it says the same, and otherwise given
// up: it is what a former pool left behind, or, where the pool exists, an attempt
// that was too late. Where the pool does not exist, a record without its UID may be
// that of another request, which may have been answered by now: that is
// ipam.ErrUnconfirmed, until the pool is there or the record collected.
func (a *Allocator) Carve(ctx context.Context, order Order) (ipam.Record, error) {
	if old, ok := a.ledger.Record(order.Record); ok {
		if order.matches(old) {
			adopted, err := a.Adopt(ctx, old)
			if _, ok := errors.AsType[*ipam.TakenError](err); ok {
				return ipam.Record{}, a.giveUp(ctx, old, err)
			}
			return adopted, err
		}
		if order.HolderUID == "" && old.HolderUID == "" {
			return ipam.Record{}, fmt.Errorf("another request for %s is under way: %w", order.Holder, ipam.ErrUnconfirmed)
		}
		if err := a.giveUp(ctx, old, nil); err != nil {
			return ipam.Record{}, err
		}
	}
	record, err := a.Grant(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}

// matches says whether a record is what the order would make.
func (o Order) matches(r ipam.Record) bool {
	if len(o.Pools) == 0 || r.Pool != o.Pools[0].Key || r.Terminating {
		return false
	}
	if r.HolderUID != "" && r.HolderUID != o.HolderUID {
		return false // of a pool that is gone
	}
	if o.Terms.Block.IsValid() {
		return r.Block == o.Terms.Block
	}
	return r.Block.Bits() == o.Terms.Length
}

// Descends says whether a pool is the ancestor itself or below it, as far as
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
