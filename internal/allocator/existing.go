package allocator

import (
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

// RecordExisting records a block that its holder has already: after a restore or a move, or because
// a user assigned it by hand. It does not matter whether the block is withheld, or within policy;
// only another holder prevents the record, or a pool that does not contain the block.
//
// Errors: *ipam.TakenError, *ipam.PolicyError, *ipam.LimitError (an IPAddress), *ipam.MissingError
// if the pool's own record is missing: the block is recorded nevertheless, and confirmed once the
// pool's record exists; and the errors of Allocate that ask the caller to try again.
func (a *Allocator) RecordExisting(ctx context.Context, order Order, pool ipam.PoolKey) (record ipam.Record, err error) {
	order.isExisting = true
	ctx, attempt := a.startAllocation(ctx, order)
	defer func() { attempt.finish(record, err) }()
	if err := a.checkSynced(); err != nil {
		return ipam.Record{}, err
	}
	block := order.Terms.Block
	if knownPool, ok := a.catalog.Pool(pool); ok && knownPool.CIDR.IsValid() && !knownPool.Has(block) {
		return ipam.Record{}, &ipam.PolicyError{Field: order.blockField(), Value: block, Remedy: fmt.Sprintf("lies outside %s, which is %s: correct it, or name another pool", pool, knownPool.CIDR)}
	}
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	order = a.withRecordName(order)
	hold, err := a.ledger.Hold(a.askInUse(order, pool))
	if err != nil {
		return ipam.Record{}, err
	}
	record, err = a.recordHold(ctx, hold, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, []ipam.PoolKey{pool})
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}

// askInUse returns the request to the ledger for a block that the holder has already. An existing
// block is recorded whatever the limits are, except for IPAddresses, which are not made by the
// operator.
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
	// Address and Gateway are the values as written. Gateway is empty if the IPAddress has none.
	Address, Gateway string
	// Class is empty if the IPAddress names none.
	Class string
}

// RecordAddress records the address of an IPAddress that another client than the operator makes,
// for the claim of its name, whether or not that claim exists. The pool is the zero key if it is
// not known. In that case, and if the namespace may not use the pool, the error is a
// *ipam.MissingError.
func (a *Allocator) RecordAddress(ctx context.Context, claim ipam.Name, pool ipam.PoolKey, address Address) (ipam.Record, error) {
	addr, invalid := convert.AddressInUse(field.NewPath("spec", "address"), address.Address)
	if invalid != nil {
		return ipam.Record{}, invalid
	}
	if pool == (ipam.PoolKey{}) {
		return ipam.Record{}, &ipam.MissingError{Reason: v1alpha1.ReasonPoolNotFound, Message: fmt.Sprintf("neither spec.poolRef nor the label %s names its pool: set the label, or wait until the address is found in a pool of its class", v1alpha1.LabelPool)}
	}
	isKnown, err := a.catalog.MayHold(ipam.Request{Claim: claim}, pool)
	if err != nil {
		return ipam.Record{}, err
	}
	order := Order{Origin: OriginAdmission, Holder: convert.HolderOfAddressClaim(claim), PoolUnknown: !isKnown}
	order.Terms = a.catalog.TermsOfAddress(addr, address.Class)
	order.Gateway = convert.GatewayGiven(address.Gateway)
	record, err := a.RecordExisting(ctx, order, pool)
	if record.UID != "" { // its controller confirms it once the pool exists
		err = nil
	}
	return record, err
}

// JudgeUse judges whether the request's namespace may use the pool of a record that was made before
// that was known, and whether its project may have as much of the pool. If so, JudgeUse removes the
// mark from the record; if not, it releases the record, and the error is a *ipam.MissingError or a
// *ipam.LimitError. As long as the pool is not known, the record stays as it is, with a
// *ipam.MissingError.
func (a *Allocator) JudgeUse(ctx context.Context, req ipam.Request, record ipam.Record) (ipam.Record, error) {
	isKnown, err := a.catalog.MayHold(req, record.Pool)
	if isKnown && err == nil {
		err = a.checkRecordLimits(record)
	}
	switch {
	case isKnown && err != nil:
		if err := a.Release(ctx, record); err != nil {
			return record, err
		}
		a.history.Released(record, history.NotAllowed)
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

// takeOver adopts a record for the holder of that UID, as if it had just been made. It gives up a
// record that is not confirmed, or that exceeds a limit.
func (a *Allocator) takeOver(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	err := a.checkConfirmedNow(record)
	if err == nil {
		err = a.checkRecordLimits(record)
	}
	switch {
	case err == nil && a.hasTakenOver(record, uid):
		return record, nil
	case err == nil:
		taken, err := a.adopt(ctx, record, uid)
		if err == nil {
			a.takenVersions.Store(taken.UID, taken.Version)
		}
		return taken, err
	case errors.Is(err, ipam.ErrUnconfirmed):
		return ipam.Record{}, err
	}
	return ipam.Record{}, a.giveUp(ctx, record, err)
}

// hasTakenOver reports whether this process has taken over the record in its present version, so
// that its maker cannot delete it: then another write is not needed.
func (a *Allocator) hasTakenOver(record ipam.Record, uid string) bool {
	version, ok := a.takenVersions.Load(record.UID)
	return ok && version == record.Version && record.HolderUID == uid && record.State == ipam.StateBound
}

// checkRecordLimits returns a *ipam.LimitError if the record's project has more of its pool or its class
// than it may have.
func (a *Allocator) checkRecordLimits(record ipam.Record) error {
	class, _ := a.catalog.Class(record.Class)
	return a.ledger.CheckRecordLimits(record, class.Limit)
}

// CheckConfirmed returns nil if the view shows the record and no other record has its block: a replica
// that records a block which overlaps it gives way. Otherwise it returns a *ipam.TakenError; a
// *ipam.MissingError while the record's pool hands out nothing; or ipam.ErrUnconfirmed if the view
// does not show the record.
func (a *Allocator) CheckConfirmed(record ipam.Record) error {
	err := a.ledger.CheckConfirmed(record)
	if errors.Is(err, ledger.ErrPoolClosed) {
		return poolClosed(record.Holder, record.Pool)
	}
	return err
}

// checkConfirmedNow returns the error of Confirmed, but ipam.ErrUnconfirmed while the watch is
// interrupted: the store may have gone back to a state in which another record has the block.
func (a *Allocator) checkConfirmedNow(record ipam.Record) error {
	if !a.ledger.IsWatching() {
		return ipam.ErrUnconfirmed
	}
	return a.CheckConfirmed(record)
}

// Adopt takes over a record for the holder that it names, if the record is confirmed; it may also
// be one that is kept without holder. The error is from Confirmed.
func (a *Allocator) Adopt(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	if err := a.checkConfirmedNow(record); err != nil {
		return ipam.Record{}, err
	}
	return a.adopt(ctx, record, record.HolderUID)
}

// adopt takes over a confirmed record that this process did not confirm, for the holder of that
// UID, which is empty if the holder does not exist yet. A pool's own record that was to be released
// is kept from then on.
//
// adopt writes to the record, so that a paused maker can no longer delete it: deletions carry the
// version that they judged.
func (a *Allocator) adopt(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	adopted := record
	adopted.Adopted, adopted.HolderUID, adopted.State = true, uid, ipam.StateBound
	adopted, err := a.updateAdopted(ctx, record, adopted)
	if err == nil {
		logChange(ctx, "Adopted a record", adopted)
		a.history.Granted(adopted, history.Adopted)
	}
	return adopted, err
}

// Stamp writes the holder's UID into a record that was made before its holder existed, so that the
// holder's deletion releases this record and no other. The holder was read from a cache, and may be
// gone, replaced by another of its name that owns this record. Therefore Stamp reads the holder
// once more, after the record was read. If it is not the same any more, the error is a conflict.
func (a *Allocator) Stamp(ctx context.Context, record ipam.Record, holder client.Object) (ipam.Record, error) {
	uid, current := holder.GetUID(), holder.DeepCopyObject().(client.Object)
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(holder), current); err != nil {
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

// Restore takes over the record of an earlier claim when that claim was saved and is created again.
// It takes over the record that the claim named if the record still exists, still matches, and
// belongs to a resolved pool, so that the claim may have it.
func (a *Allocator) Restore(ctx context.Context, order Order, name string) (ipam.Record, bool) {
	record, ok := a.ledger.Record(ipam.Name{Namespace: order.Holder.Namespace, Name: name})
	if !ok || record.Holder != order.Holder || record.Block != order.Terms.Block || record.State != ipam.StateBound || record.Terminating {
		return ipam.Record{}, false
	}
	isAllowed := slices.ContainsFunc(order.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
	if !isAllowed || record.Class != order.Terms.Class || a.CheckConfirmed(record) != nil {
		return ipam.Record{}, false
	}
	adopted, err := a.adopt(ctx, record, "")
	return adopted, err == nil
}

// retainedRecord returns the block that was kept for a claim of this namespace and name, or of its sticky
// key, if it still matches the claim. Of several blocks under one key it returns the one that is
// kept longest: the last that was given back. It skips a record whose block another record has.
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

// isUndisputed reports whether a record is confirmed, and in conflict with no other one.
func (a *Allocator) isUndisputed(record ipam.Record) bool {
	return a.ledger.CheckConfirmed(record) == nil && a.ledger.Conflict(record) == nil
}

// formerRecords returns the records of earlier claims of this name, or of the sticky key.
func (a *Allocator) formerRecords(order Order) []ipam.Record {
	records := a.ledger.HeldBy(order.Holder)
	if order.Sticky == "" {
		return records
	}
	return append(records, a.ledger.StickyRecords(ipam.Name{Namespace: order.Holder.Namespace, Name: order.Sticky})...)
}

// mayRetake reports whether a record is retained, or was retained until an earlier create of the
// same name took it over. The object of that create is not stored, because the name is free. If it
// is stored after all, then this claim is not, and both name the one record.
func (o Order) mayRetake(record ipam.Record) bool {
	return record.State == ipam.StateRetained || record.WasTakenOver() && record.Holder == o.Holder
}

func (o Order) isSatisfiedBy(record ipam.Record) bool {
	if o.Terms.Block.IsValid() && o.Terms.Block != record.Block || o.Terms.Length != record.Block.Bits() {
		return false
	}
	return slices.ContainsFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
}

// gatewayFor returns the gateway that is handed out with a retained block: the pool's gateway may
// have changed since the block was handed out before.
func (o Order) gatewayFor(record ipam.Record) netip.Addr {
	at := slices.IndexFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
	_, gateway := o.Pools[at].Subnet(record.Block) // isSatisfiedBy found it in o.Pools
	return gateway
}

// retake takes over a retained record, by an update of the version that was seen: of several claims
// that try, and of a release of the record, one succeeds. retake waits for a record that is about
// to be retained.
//
// For a claim that does not exist yet, policy and time stay in the record as they were: if the
// claim is never stored, the record is retained again, unchanged.
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
		logChange(ctx, "Took over a retained record", taken)
		a.history.Granted(taken, history.TakenOver)
	}
	return taken, err == nil // after a failure the caller looks for another block
}

// awaitRetained waits, for a short time, if an earlier claim of this name is gone and its record
// not handled yet.
func (a *Allocator) awaitRetained(ctx context.Context, order Order) {
	isPending := func() bool {
		return slices.ContainsFunc(a.formerRecords(order), func(r ipam.Record) bool {
			return r.State == ipam.StateBound && (r.Reclaim == ipam.ReclaimRetain || r.Sticky != "") && a.ledger.IsLeaving(r.Name)
		})
	}
	if !isPending() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	a.ledger.Await(ctx, order.keys(), func() bool { return !isPending() })
}
