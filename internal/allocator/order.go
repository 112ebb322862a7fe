package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

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

// Origin represents the source of an order.
type Origin int

const (
	// OriginAdmission is a create request: its object may never be stored. Each attempt makes a
	// separate record, which is unclaimed until the object exists.
	OriginAdmission Origin = iota
	// OriginController is a holder that exists. Its next attempt finds the record by its name.
	OriginController
	// OriginAddress is an IPAddress whose claim is not known to exist: the record is named after that
	// claim.
	OriginAddress
)

// Order holds a resolved request and the content of its record.
type Order struct {
	inventory.Resolution
	Origin Origin
	Holder ipam.Holder
	// HolderUID and HolderVersion are the UID of the holder and the resourceVersion in which it was read,
	// with OriginController, otherwise empty.
	HolderUID, HolderVersion string
	// AdditionalBlocks are requested together with the block of the terms.
	AdditionalBlocks []netip.Prefix
	// Record is the name of the record to make. Zero: it follows from holder and origin.
	Record ipam.Name
	// Edit is the name of the record of a stored pool that has another one, from before its ranges
	// were edited; zero for a pool that occupies all of its CIDR.
	Edit ipam.Name
	// RequestedBy is the user that created the holder.
	RequestedBy string
	// PoolUnknown reports whether it is still to be judged if the holder can use the pool.
	PoolUnknown bool
	// Sticky is the key by which a later claim gets the block again.
	Sticky string
	// Gateway was handed out to the holder with a block that it has already.
	Gateway netip.Addr
	// Waiting is the holder's position in the queue. Zero: it is new, and behind all waiters.
	Waiting queue.Waiter

	// isExisting reports whether the holder has the block already: its record stays, even
	// unconfirmed.
	isExisting bool
}

// Resolve returns the result of Catalog.Resolve, or ipam.ErrNotSynced.
func (a *Allocator) Resolve(ctx context.Context, req ipam.Request) (inventory.Resolution, error) {
	if err := a.checkSynced(); err != nil {
		return inventory.Resolution{}, err
	}
	res, err := a.Catalog.Resolve(req)
	traceResolution(ctx, req, res, err)
	return res, err
}

// maxFormer bounds the own records that a pool has from before edits of its ranges, as blocks of them
// are in use: each is looked at when a block of the pool is confirmed.
const maxFormer = 8

// PoolOrder returns the order for a pool's own CIDR; the caller sets the origin and the holder's
// UID. The error is a *ipam.MissingError or *ipam.PolicyError about the parent.
func (a *Allocator) PoolOrder(pool ipam.Pool) (Order, error) {
	if err := a.checkSynced(); err != nil {
		return Order{}, err
	}
	order := Order{Holder: convert.HolderOfPool(pool.Key)}
	if waiter, ok := a.Queue.Waiter(order.Holder); ok {
		order.Waiting = waiter
	}
	if blocks := pool.Blocks(); len(blocks) > 0 {
		order.AdditionalBlocks = blocks[1:]
	}
	order.Edit = a.Catalog.RecordOfEdit(pool)
	var err error
	order.Resolution, err = a.Catalog.ResolvePool(pool)
	if err == nil && pool.Occupied != nil && !a.PoolRanges {
		err = &ipam.PolicyError{Field: "spec.occupies", Value: v1alpha1.OccupiesRanges, Remedy: "the feature gate PoolRanges is off: leave it out, or have --feature-gates=PoolRanges=true set on all replicas"}
	}
	return order, err
}

// CheckEdits returns a *ipam.PolicyError if a pool has too many own records from before edits of its
// ranges to be edited once more.
func (a *Allocator) CheckEdits(pool ipam.Pool) error {
	former := len(a.Catalog.PoolState(pool).Former)
	if former < maxFormer {
		return nil
	}
	return &ipam.PolicyError{Field: "spec.ranges", Value: former, Remedy: "the pool has as many IPAllocations from before earlier edits, of which blocks are in use: wait until these are released, or include them again"}
}

// withRecordName returns the order with the name of the record that it makes first.
func (a *Allocator) withRecordName(o Order) Order {
	switch {
	case o.Record != (ipam.Name{}):
	case o.Holder.IsPool():
		o.Record = a.Catalog.RecordOfPool(convert.PoolOf(o.Holder))
	case o.Origin == OriginAdmission:
		o.Record = newAttempt(o.Holder)
	default:
		o.Record = convert.RecordOfHolder(o.Holder, o.HolderUID)
	}
	return o
}

// newAttempt returns a name for the record of one attempt. Two suffixes of 8 characters of
// Kubernetes' alphabet of 27 are the same with a probability of one in 280 billion.
func newAttempt(holder ipam.Holder) ipam.Name {
	return convert.RecordOfAttempt(holder, utilrand.String(8))
}

// nextRecordName returns the name for the record of the next attempt. A name that is not the
// holder's is used only once, so that a late deletion can never delete another record.
func (o Order) nextRecordName() ipam.Name {
	if o.nameIsFixed() {
		return o.Record // its deletion carries the UID
	}
	return newAttempt(o.Holder)
}

// nameIsFixed reports whether the holder's next attempt uses the record's name too.
func (o Order) nameIsFixed() bool { return o.Origin != OriginAdmission || o.Holder.IsPool() }

// leavesRecord reports whether a record may be relied on although its creation seemed to fail: by the
// next attempt, which has the same name for it, or by a holder that has the block in any case, as an
// IPAddress that is stored.
func (o Order) leavesRecord() bool { return o.nameIsFixed() || o.isExisting }

// SetHolder makes the order that of a holder that exists.
func (o *Order) SetHolder(obj client.Object) {
	o.Origin, o.HolderUID, o.HolderVersion = OriginController, string(obj.GetUID()), obj.GetResourceVersion()
}

// isEdit reports whether the order is for a pool that has another own record, from before an edit.
func (o Order) isEdit() bool { return o.Record == o.Edit }

// isUnclaimed reports whether the record will name a holder that is not known to exist.
// Cluster-scoped pools are the responsibility of the users that can make them.
func (o Order) isUnclaimed() bool { return o.Origin != OriginController && o.Holder.Namespace != "" }

func (o Order) recordOf(pool ipam.Pool, block netip.Prefix) ipam.Record {
	return ipam.Record{
		Name: o.Record, Block: block, AdditionalBlocks: o.AdditionalBlocks, Pool: pool.Key, Class: o.Terms.Class,
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

// matchesRecord reports whether a record is the one that the order would make.
func (o Order) matchesRecord(r ipam.Record) bool {
	if len(o.Pools) == 0 || r.Pool != o.Pools[0].Key || r.Terminating {
		return false
	}
	if o.Terms.Block.IsValid() {
		return r.Block == o.Terms.Block && slices.Equal(r.AdditionalBlocks, o.AdditionalBlocks)
	}
	return r.Block.Bits() == o.Terms.Length
}

// grantReason returns the reason for which a block is the holder's once it is confirmed.
func (o Order) grantReason() history.Reason {
	if o.isExisting {
		return history.Existing
	}
	return history.Allocated
}

func (o Order) blockField() string {
	if o.Holder.Kind == convert.AddressClaimKind {
		return "spec.address"
	}
	return "spec.cidr"
}

// earlierRecord returns the own record of a pool that matches the order, or else the one of the order's
// name. If a pool that occupies its ranges has a record of others, the name is that of an edit, which
// is for a pool that exists; any such record is returned for one that does not.
func (a *Allocator) earlierRecord(order *Order) (ipam.Record, bool) {
	var former []ipam.Record
	for _, record := range a.Ledger.HeldBy(order.Holder) {
		if order.matchesRecord(record) {
			order.Record = record.Name
			return record, true
		}
		if order.Edit != (ipam.Name{}) {
			former = append(former, record)
		}
	}
	switch {
	case len(former) > 0 && order.Origin == OriginAdmission:
		return former[0], true
	case len(former) > 0:
		order.Record = order.Edit
	}
	return a.Ledger.Record(order.Record)
}

// carve records and confirms what a pool holds. It takes over an existing record of the pool's name
// that matches the order, and otherwise gives it up: it was left behind by a former pool, or by an
// attempt that was too late. The controller of a pool that occupies its ranges has taken over what a
// former one held, and releases it later. If blocks of a former pool are recorded, its record stays, and a pool
// of the same CIDR takes it over. If the pool does not exist, a record without UID may be that of
// another request, which may have been answered: the error is then ipam.ErrUnconfirmed, until the
// pool exists or the record is collected.
func (a *Allocator) carve(ctx context.Context, order Order) (ipam.Record, error) {
	if earlier, ok := a.earlierRecord(&order); ok {
		switch {
		case order.matchesRecord(earlier) && earlier.MayBeOf(order.HolderUID):
			return a.takeOver(ctx, earlier, order)
		case order.Origin == OriginAdmission && !earlier.IsStamped():
			return ipam.Record{}, fmt.Errorf("another request for %s is under way: %w", order.Holder, ipam.ErrUnconfirmed)
		case order.Origin == OriginAdmission && order.Edit != (ipam.Name{}) && !order.matchesRecord(earlier):
			return ipam.Record{}, &ipam.MissingError{Reason: v1alpha1.ReasonPoolNotReady, Message: "an earlier pool of this name holds other blocks: wait until this one has taken them over"}
		}
		err := a.giveUp(ctx, earlier, nil)
		if errors.Is(err, ipam.ErrPoolInUse) && order.matchesRecord(earlier) {
			return a.takeOver(ctx, earlier, order)
		}
		if err != nil {
			return ipam.Record{}, err
		}
	}
	record, err := a.retakeOrFind(ctx, order)
	return record, a.awaitExisting(ctx, order, order.keys(), err)
}

// awaitExisting returns the error of an attempt to create a record. If another process has made the
// record of that name, awaitExisting gives the watch time to show it, and returns ipam.ErrUnconfirmed.
func (a *Allocator) awaitExisting(ctx context.Context, order Order, pools []ipam.PoolKey, err error) error {
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	a.Ledger.AwaitStored(ctx, order.Record, pools)
	return errors.Join(ipam.ErrUnconfirmed, err)
}

// updateRecord writes the difference between two states of a record, if the stored one is still the
// version that was seen.
func (a *Allocator) updateRecord(ctx context.Context, before, after ipam.Record) (ipam.Record, error) {
	return a.patchRecord(ctx, before, after, convert.Allocation(after))
}

// updateAdopted updates a record that is taken over, in any case: see adopt.
func (a *Allocator) updateAdopted(ctx context.Context, before, after ipam.Record) (ipam.Record, error) {
	obj := convert.Allocation(after)
	obj.Annotations[v1alpha1.AnnotationAdopted] = utilrand.String(8)
	return a.patchRecord(ctx, before, after, obj)
}

func (a *Allocator) patchRecord(ctx context.Context, before, after ipam.Record, obj *v1alpha1.IPAllocation) (ipam.Record, error) {
	base := convert.Allocation(before)
	base.UID, base.ResourceVersion = "", "" // so that the patch names both
	sentRevision := a.Ledger.Revision()
	err := a.Client.Patch(ctx, obj, client.MergeFrom(base)) //nolint:forbidigo // the patch states the version
	if err == nil && obj.ResourceVersion != before.Version {
		err = a.Ledger.Acknowledge(obj.ResourceVersion, sentRevision)
	}
	if err != nil {
		return ipam.Record{}, fmt.Errorf("changing IPAllocation %s: %w", before.Name, err)
	}
	after.Version = obj.ResourceVersion
	return after, nil
}
