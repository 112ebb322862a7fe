package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Origin is from where an order comes.
type Origin int

const (
	// OriginAdmission is a create request: its object is not stored, has no UID yet, and
	// may never be stored. Each attempt makes a record of its own, which is unclaimed
	// until the object is there.
	OriginAdmission Origin = iota
	// OriginController is a holder that exists. The name of its record follows from the
	// holder, so that the next attempt finds it.
	OriginController
	// OriginAddress is an IPAddress that exists, but whose claim does not as far as is
	// known: the name of its record follows from the claim's name.
	OriginAddress
)

// Order is a resolved request with all that its record will say.
type Order struct {
	inventory.Resolution
	Origin Origin
	Holder ipam.Holder
	// HolderUID is the holder's with OriginController, otherwise empty.
	HolderUID string
	// Record is the name of the record to make, where the holder names it already.
	// Zero: it follows from holder and origin.
	Record ipam.Name
	// RequestedBy is the user who created the holder.
	RequestedBy string
	// PoolUnknown reports whether it is still to be judged if the holder may use the pool.
	PoolUnknown bool
	// Sticky is the key by which a later claim gets the block again.
	Sticky string
	// Gateway is what the holder of a block that it has already was given with it.
	Gateway netip.Addr
	// Waiting is the holder's place in the queue; nobody before it is
	// overtaken. Zero: it has only come, and is behind all.
	Waiting queue.Waiter

	// existing holders have the block already: its record stays, although it cannot be
	// confirmed while its pool is missing.
	existing bool
}

// named returns the order with the name of the record that it makes first.
func (a *Allocator) named(o Order) Order {
	switch {
	case o.Record != (ipam.Name{}):
	case o.Holder.IsPool():
		o.Record = a.catalogue.RecordOfPool(convert.PoolOf(o.Holder))
	case o.Origin == OriginAdmission:
		o.Record = newAttempt(o.Holder)
	default:
		o.Record = convert.RecordOfHolder(o.Holder, o.HolderUID)
	}
	return o
}

// newAttempt is a name for the record of one attempt. Its suffix has 8 characters of the
// alphabet that Kubernetes uses for generated names: of 27, so one in 280 billion is the
// same as another.
func newAttempt(holder ipam.Holder) ipam.Name {
	return convert.RecordOfAttempt(holder, utilrand.String(8))
}

// renamed is a name for the record of the next attempt: where it is not the holder's, a
// name is used once, so that a late deletion of this attempt's record can never meet
// another.
func (o Order) renamed() ipam.Name {
	if o.nameIsFixed() {
		return o.Record // its deletion carries the UID
	}
	return newAttempt(o.Holder)
}

// nameIsFixed reports whether the record's name is that of the holder's next attempt too.
func (o Order) nameIsFixed() bool { return o.Origin != OriginAdmission || o.Holder.IsPool() }

// isUnclaimed reports whether the record will name a holder that is not known to
// exist. What is recorded for cluster-scoped pools is up to the users who may make them.
func (o Order) isUnclaimed() bool { return o.Origin != OriginController && o.Holder.Namespace != "" }

func (o Order) recordOf(pool ipam.Pool, block netip.Prefix) ipam.Record {
	return ipam.Record{
		Name: o.Record, Block: block, Pool: pool.Key, Class: o.Terms.Class,
		Holder: o.Holder, HolderUID: o.HolderUID, Purpose: o.purpose(),
		Reclaim: o.Terms.Reclaim, State: ipam.StateBound, RequestedBy: o.RequestedBy, Sticky: o.Sticky, PoolUnknown: o.PoolUnknown,
	}
}

func (o Order) purpose() ipam.Purpose {
	if o.Holder.IsPool() {
		return ipam.PurposePool
	}
	return ipam.PurposeClaim
}

func (o Order) keys() []ipam.PoolKey {
	keys := make([]ipam.PoolKey, len(o.Pools))
	for i, pool := range o.Pools {
		keys[i] = pool.Key
	}
	return keys
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

// granted is why a block is the holder's once it is confirmed.
func (o Order) granted() history.Reason {
	if o.existing {
		return history.Existing
	}
	return history.Allocated
}

// blockField is where the holder says which block it has.
func (o Order) blockField() string {
	if o.Holder.Kind == convert.AddressClaimKind {
		return "spec.address"
	}
	return "spec.cidr"
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

// update writes what differs between two states of a record, on condition that it is
// still the one, in the version, that was seen.
func (a *Allocator) update(ctx context.Context, before, after ipam.Record) (ipam.Record, error) {
	return a.patch(ctx, before, after, convert.Allocation(after))
}

// updateAdopted is update for a record that is taken over. It is written in any case, so
// that its maker cannot delete it any more: deletions carry the version that they
// judged.
func (a *Allocator) updateAdopted(ctx context.Context, before, after ipam.Record) (ipam.Record, error) {
	obj := convert.Allocation(after)
	obj.Annotations[v1alpha1.AnnotationAdopted] = utilrand.String(8)
	return a.patch(ctx, before, after, obj)
}

func (a *Allocator) patch(ctx context.Context, before, after ipam.Record, obj *v1alpha1.IPAllocation) (ipam.Record, error) {
	from := convert.Allocation(before)
	from.UID, from.ResourceVersion = "", "" // so that the patch names both
	sent := a.ledger.Revision()
	err := a.client.Patch(ctx, obj, client.MergeFrom(from))
	if err == nil && obj.ResourceVersion != before.Version {
		err = a.ledger.Acknowledge(obj.ResourceVersion, sent)
	}
	if err != nil {
		return ipam.Record{}, fmt.Errorf("changing IPAllocation %s: %w", before.Name, err)
	}
	after.Version = obj.ResourceVersion
	return after, nil
}
