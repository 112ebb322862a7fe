package allocator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// RecordExisting records a block that its holder has already: after a restore or a move, or by
// hand. Only another holder prevents that, or a pool that does not contain the block; it may be
// withheld, or against policy.
//
// Errors: *ipam.TakenError, *ipam.PolicyError, *ipam.LimitError (an IPAddress), *ipam.MissingError
// if the pool's own record is missing: the block is recorded nevertheless, and confirmed once that
// exists; and the errors of Allocate that ask the caller to try again.
func (a *Allocator) RecordExisting(ctx context.Context, order Order, pool ipam.PoolKey) (record ipam.Record, err error) {
	order.isExisting = true
	ctx, attempt := a.startAllocation(ctx, order)
	defer func() { attempt.finish(record, err) }()
	if err := a.checkSynced(); err != nil {
		return ipam.Record{}, err
	}
	block := order.Terms.Block
	if knownPool, ok := a.Catalog.Pool(pool); ok && knownPool.CIDR.IsValid() && !mayExistIn(knownPool, block) {
		return ipam.Record{}, &ipam.PolicyError{Field: order.blockField(), Value: block, Remedy: fmt.Sprintf("lies outside %s, which is %s: correct it, or name another pool", pool, knownPool.Extent())}
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	order = a.withRecordName(order)
	hold, err := a.Ledger.Hold(a.askInUse(order, pool))
	if err != nil {
		return ipam.Record{}, err
	}
	record, err = a.recordHold(ctx, hold, order)
	return record, a.awaitExisting(ctx, order, []ipam.PoolKey{pool}, err)
}

// mayExistIn reports whether a block that is in use can be recorded in a pool. The addresses of a pool of
// the in-cluster provider can lie outside of what the pool occupies, in its subnet: they are confirmed
// once an edit includes them.
func mayExistIn(pool ipam.Pool, block netip.Prefix) bool {
	return pool.Has(block) || pool.Key.Kind.IsInCluster() && ipam.Covers(pool.CIDR, block)
}

// askInUse returns the request for a block that the holder has already. Limits hold for IPAddresses
// alone, which the operator does not make.
func (a *Allocator) askInUse(order Order, pool ipam.PoolKey) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool, Bits: order.Terms.Length, Block: order.Terms.Block,
		Record: order.Record, Holder: order.Holder, InUse: true, Gateway: order.Gateway,
	}
	if a.setAccount(&ask, order); order.Holder.Kind != convert.AddressClaimKind {
		ask.Unlimited, ask.ClassLimit = true, ipam.Limit{}
	}
	return ask
}

// Address holds the fields of an IPAddress.
type Address struct {
	// Address and Gateway are the values as written. Gateway and Class can be empty.
	Address, Gateway string
	Class            string
}

// RecordAddress records the address of an IPAddress that another client makes, for the claim of its
// name, whether or not that exists. If the pool is the zero key, or the namespace may not use it,
// the error is a *ipam.MissingError.
func (a *Allocator) RecordAddress(ctx context.Context, claim ipam.Name, pool ipam.PoolKey, address Address) (ipam.Record, error) {
	addr, invalid := convert.AddressInUse(field.NewPath("spec", "address"), address.Address)
	if invalid != nil {
		return ipam.Record{}, invalid
	}
	if pool == (ipam.PoolKey{}) {
		return ipam.Record{}, &ipam.MissingError{Reason: v1alpha1.ReasonPoolNotFound, Message: fmt.Sprintf("neither spec.poolRef nor the label %s names its pool: set the label, or wait until the address is found in a pool of its class", v1alpha1.LabelPool)}
	}
	isKnown, err := a.Catalog.MayHold(ipam.Request{Claim: claim}, pool)
	if err != nil {
		return ipam.Record{}, err
	}
	order := Order{Origin: OriginAdmission, Holder: convert.HolderOfAddressClaim(claim), PoolUnknown: !isKnown}
	order.Terms = a.Catalog.TermsOfAddress(addr, address.Class)
	order.Gateway = convert.GatewayGiven(address.Gateway)
	record, err := a.RecordExisting(ctx, order, pool)
	if record.UID != "" { // its controller confirms it once the pool exists
		err = nil
	}
	return record, err
}

// JudgeUse judges whether the request's namespace may use the pool of a record that was made before
// that was known, and whether its project may have as much. If so, it removes the mark from the
// record; if not, it releases the record, with a *ipam.MissingError or *ipam.LimitError. While the
// pool is not known, the record stays, with a *ipam.MissingError.
func (a *Allocator) JudgeUse(ctx context.Context, req ipam.Request, record ipam.Record) (ipam.Record, error) {
	isKnown, err := a.Catalog.MayHold(req, record.Pool)
	if isKnown && err == nil {
		err = a.checkRecordLimits(record)
	}
	switch {
	case isKnown && err != nil:
		if err := a.Release(ctx, record); err != nil {
			return record, err
		}
		a.History.Released(record, history.NotAllowed)
		return ipam.Record{}, err
	case err != nil:
		return record, err
	case !isKnown:
		return record, inventory.NoSuchPool(req, record.Pool)
	}
	judged := record
	judged.PoolUnknown = false
	return a.updateRecord(ctx, record, judged)
}

// TakeOver adopts a record for the holder of that UID. It gives up one that is not confirmed, or
// exceeds a limit.
func (a *Allocator) TakeOver(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	err := a.checkTakeOver(record)
	switch {
	case err == nil:
		return a.adopt(ctx, record, uid)
	case errors.Is(err, ipam.ErrUnconfirmed):
		return ipam.Record{}, err
	}
	return ipam.Record{}, a.giveUp(ctx, record, err)
}

// takeOver takes over a record for the holder of an order, without a write if this process has done so
// before and neither has changed since: Fence has not written to the holder then, and once it has, the
// holder cannot be written in this version.
func (a *Allocator) takeOver(ctx context.Context, record ipam.Record, order Order) (ipam.Record, error) {
	mark := takeOverMark{record: record.Version, holder: order.HolderVersion}
	last, _ := a.takeOvers.Load(record.UID)
	if last == mark && a.checkTakeOver(record) == nil {
		return record, nil
	}
	taken, err := a.TakeOver(ctx, record, order.HolderUID)
	if err == nil && order.HolderVersion != "" {
		mark.record = taken.Version
		a.takeOvers.Store(taken.UID, mark)
	}
	return taken, err
}

// takeOverMark holds the versions of a record that was taken over and of its holder.
type takeOverMark struct{ record, holder string }

func (a *Allocator) checkTakeOver(record ipam.Record) error {
	return cmp.Or(a.checkConfirmedNow(record), a.checkRecordLimits(record))
}

func (a *Allocator) checkRecordLimits(record ipam.Record) error {
	class, _ := a.Catalog.Class(record.Class)
	return a.Ledger.CheckRecordLimits(record, class.Limit)
}

// CheckConfirmed returns nil if the view shows the record, and no other record has its block.
// Otherwise it returns a *ipam.TakenError; a *ipam.MissingError while the pool hands out nothing;
// or ipam.ErrUnconfirmed if the view does not show the record.
func (a *Allocator) CheckConfirmed(record ipam.Record) error {
	err := a.Ledger.CheckConfirmed(record)
	if errors.Is(err, ledger.ErrPoolClosed) {
		return poolClosed(record.Holder, record.Pool)
	}
	return err
}

// checkConfirmedNow also returns ipam.ErrUnconfirmed while the watch is interrupted: the store may
// have gone back to a state in which another record has the block.
func (a *Allocator) checkConfirmedNow(record ipam.Record) error {
	if !a.Ledger.IsWatching() {
		return ipam.ErrUnconfirmed
	}
	return a.CheckConfirmed(record)
}

// Adopt takes over a confirmed record for the holder that it names; it may be kept without holder.
func (a *Allocator) Adopt(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	if err := a.checkConfirmedNow(record); err != nil {
		return ipam.Record{}, err
	}
	return a.adopt(ctx, record, record.HolderUID)
}

// adopt takes over a confirmed record that this process did not confirm, for the holder of that
// UID, which is empty if the holder does not exist yet. A pool's own record is not released any
// more then. It writes in any case, so that whoever has judged the record before, this process
// too, can no longer delete it: deletions carry the version that they judged.
func (a *Allocator) adopt(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	adopted := record
	adopted.Adopted, adopted.HolderUID, adopted.State = true, uid, ipam.StateBound
	isAgain := record.Adopted && record.HolderUID == uid && record.State == ipam.StateBound
	adopted, err := a.updateAdopted(ctx, record, adopted)
	if err == nil && !isAgain {
		logRecord(ctx, changeLevel, "Adopted a record", adopted)
		a.History.Granted(adopted, history.Adopted)
	}
	return adopted, err
}

// Stamp writes the holder's UID into a record that was made before its holder existed, so that the
// holder's deletion releases this record and no other. The cached holder may be gone, replaced by
// another of its name that owns this record: so Stamp reads it once more, and returns a conflict if
// it is not the same.
func (a *Allocator) Stamp(ctx context.Context, record ipam.Record, holder client.Object) (ipam.Record, error) {
	uid, current := holder.GetUID(), holder.DeepCopyObject().(client.Object)
	if err := a.Client.Get(ctx, client.ObjectKeyFromObject(holder), current); err != nil {
		return ipam.Record{}, fmt.Errorf("looking for %s again: %w", record.Holder, err)
	}
	if current.GetUID() != uid {
		return ipam.Record{}, fmt.Errorf("stamping IPAllocation %s: %w", record.Name,
			apierrors.NewConflict(schema.GroupResource{Group: record.Holder.Group, Resource: record.Holder.Kind}, record.Holder.Name,
				errors.New("it was deleted and made again")))
	}
	stamped := record
	stamped.HolderUID, stamped.ReleaseAfter = string(uid), time.Time{}
	return a.updateRecord(ctx, record, stamped)
}

// Restore takes over the record that a saved claim named, when the claim is created again, if the
// record is Restorable.
func (a *Allocator) Restore(ctx context.Context, order Order, name string) (ipam.Record, bool) {
	record, ok := a.Restorable(order, name)
	if !ok {
		return ipam.Record{}, false
	}
	adopted, err := a.adopt(ctx, record, "")
	return adopted, err == nil
}

// Restorable returns the record that a saved claim named, if the record still exists, matches, and
// belongs to a resolved pool.
func (a *Allocator) Restorable(order Order, name string) (ipam.Record, bool) {
	record, ok := a.Ledger.Record(ipam.Name{Namespace: order.Holder.Namespace, Name: name})
	if !ok || record.Holder != order.Holder || record.Block != order.Terms.Block || record.State != ipam.StateBound || record.Terminating {
		return ipam.Record{}, false
	}
	if !slices.Contains(order.keys(), record.Pool) || record.Class != order.Terms.Class || a.CheckConfirmed(record) != nil {
		return ipam.Record{}, false
	}
	return record, true
}

// retainedRecord returns the block that was kept for a claim of this name, or of its sticky key, if
// it still matches the claim and no other record has it: of several under one key the one that is
// kept longest, which was given back last.
func (a *Allocator) retainedRecord(order Order) (ipam.Record, bool) {
	var last ipam.Record
	for _, record := range a.formerRecords(order) {
		if !order.mayRetake(record) || record.Terminating || !order.isSatisfiedBy(record) || !a.isUndisputed(record) {
			continue
		}
		if record.Holder == order.Holder {
			return record, true
		}
		if last.UID == "" || record.ReleaseAfter.After(last.ReleaseAfter) {
			last = record
		}
	}
	return last, last.UID != ""
}

func (a *Allocator) isUndisputed(record ipam.Record) bool {
	return a.Ledger.CheckConfirmed(record) == nil && a.Ledger.Conflict(record) == nil
}

// formerRecords returns the records of earlier claims of this name, or of the sticky key.
func (a *Allocator) formerRecords(order Order) []ipam.Record {
	records := a.Ledger.HeldBy(order.Holder)
	if order.Sticky == "" {
		return records
	}
	return append(records, a.Ledger.StickyRecords(ipam.Name{Namespace: order.Holder.Namespace, Name: order.Sticky})...)
}

// mayRetake reports whether a record is retained, or was until an earlier create of the same name
// took it over. The object of that create is not stored, because the name is free. If it is stored
// after all, this claim is not, and both name the one record.
func (o Order) mayRetake(record ipam.Record) bool {
	return record.State == ipam.StateRetained || record.WasTakenOver() && record.Holder == o.Holder
}

func (o Order) isSatisfiedBy(record ipam.Record) bool {
	if o.Terms.Block.IsValid() && o.Terms.Block != record.Block || o.Terms.Length != record.Block.Bits() {
		return false
	}
	return slices.Contains(o.keys(), record.Pool)
}

// gatewayFor returns the gateway for a retained block: the pool's may have changed.
func (o Order) gatewayFor(record ipam.Record) netip.Addr {
	_, gateway := o.Pools[slices.Index(o.keys(), record.Pool)].Subnet(record.Block) // isSatisfiedBy found it
	return gateway
}

// retake takes over a retained record by an update of the version that was seen: of several claims
// that try, and of a release, one succeeds. For a claim that does not exist yet, policy and time
// stay in the record: if the claim is never stored, the record is retained again, unchanged.
func (a *Allocator) retake(ctx context.Context, order Order) (ipam.Record, bool) {
	a.awaitRetained(ctx, order)
	record, ok := a.retainedRecord(order)
	if !ok {
		return ipam.Record{}, false
	}
	taken := record
	taken.State, taken.Adopted = ipam.StateBound, true
	taken.Holder, taken.HolderUID, taken.Gateway = order.Holder, order.HolderUID, order.gatewayFor(record)
	if order.Origin == OriginController {
		taken.Reclaim, taken.ReleaseAfter = order.Terms.Reclaim, time.Time{}
	}
	taken, err := a.updateAdopted(ctx, record, taken)
	if err == nil {
		logRecord(ctx, changeLevel, "Took over a retained record", taken)
		a.History.Granted(taken, history.TakenOver)
	}
	return taken, err == nil // after a failure the caller looks for another block
}

// awaitRetained waits until IsRetaining is false, for releaseTimeout at most.
func (a *Allocator) awaitRetained(ctx context.Context, order Order) {
	if !a.IsRetaining(order) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	a.Ledger.Await(ctx, order.keys(), func() bool { return !a.IsRetaining(order) })
}

// IsRetaining reports whether a record that suits the order, of an earlier claim of this name or of the sticky
// key, is about to be retained: the claim was deleted, and the record is still Bound.
func (a *Allocator) IsRetaining(order Order) bool {
	return slices.ContainsFunc(a.formerRecords(order), func(r ipam.Record) bool {
		isOwn := order.HolderUID != "" && r.HolderUID == order.HolderUID
		return r.State == ipam.StateBound && (r.Reclaim == ipam.ReclaimRetain || r.Sticky != "") && !isOwn && order.isSatisfiedBy(r) && a.Ledger.IsLeaving(r.Name)
	})
}
