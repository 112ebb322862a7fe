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

// RecordExisting records a block that its holder has already: after a restore or a move,
// or because somebody assigned it by hand. Whether it is withheld, or within
// policy, does not count; only another holder is in the way, or a pool that it
// does not lie in.
//
// Errors: *ipam.TakenError, *ipam.PolicyError, *ipam.LimitError (an IPAddress),
// *ipam.MissingError where the pool's own record is missing: the block is recorded
// all the same, and confirmed once that is there; and those of Allocate that mean to try
// again.
func (a *Allocator) RecordExisting(ctx context.Context, order Order, pool ipam.PoolKey) (record ipam.Record, err error) {
	order.existing = true
	ctx, allocation := a.begun(ctx, order)
	defer func() { allocation.ended(record, err) }()
	if err := a.synced(); err != nil {
		return ipam.Record{}, err
	}
	block := order.Terms.Block
	if known, ok := a.catalogue.Pool(pool); ok && known.CIDR.IsValid() && !known.Has(block) {
		return ipam.Record{}, &ipam.PolicyError{Field: order.blockField(), Value: block, Remedy: fmt.Sprintf("lies outside %s, which is %s: correct it, or name another pool", pool, known.CIDR)}
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	order = a.named(order)
	hold, err := a.ledger.Hold(a.inUse(order, pool))
	if err != nil {
		return ipam.Record{}, err
	}
	record, err = a.confirm(ctx, hold, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, []ipam.PoolKey{pool})
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}

// inUse asks the ledger for a block that the holder has already. What exists is
// recorded whatever the limits say, but for IPAddresses, which are made by others than
// the operator.
func (a *Allocator) inUse(order Order, pool ipam.PoolKey) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool, Bits: order.Terms.Length, Block: order.Terms.Block,
		Record: order.Record, Holder: order.Holder, InUse: true, Gateway: order.Gateway,
	}
	if a.account(&ask, order); order.Holder.Kind != convert.AddressClaimKind {
		ask.Unlimited, ask.ClassLimit = true, ipam.Limit{}
	}
	return ask
}

// Address is what an IPAddress says of itself.
type Address struct {
	// Address and Gateway are as they are written. The gateway is empty where it has none.
	Address, Gateway string
	// Class is empty where it names none.
	Class string
}

// RecordAddress records the address of an IPAddress that is being made by somebody
// else than the operator, for the claim of its name, whether or not that exists.
// The pool is the zero key where it is not known; then, and where the namespace
// may not use the pool, the error is a *ipam.MissingError.
func (a *Allocator) RecordAddress(ctx context.Context, claim ipam.Name, pool ipam.PoolKey, address Address) (ipam.Record, error) {
	addr, invalid := convert.AddressInUse(field.NewPath("spec", "address"), address.Address)
	if invalid != nil {
		return ipam.Record{}, invalid
	}
	if pool == (ipam.PoolKey{}) {
		return ipam.Record{}, &ipam.MissingError{Reason: v1alpha1.ReasonPoolNotFound, Message: fmt.Sprintf("neither spec.poolRef nor the label %s names its pool: set the label, or wait until the address is found in a pool of its class", v1alpha1.LabelPool)}
	}
	known, err := a.catalogue.MayHold(ipam.Request{Claim: claim}, pool)
	if err != nil {
		return ipam.Record{}, err
	}
	order := Order{Origin: OriginAdmission, Holder: convert.HolderOfAddressClaim(claim), PoolUnknown: !known}
	order.Terms = a.catalogue.TermsOfAddress(addr, address.Class)
	order.Gateway = convert.GatewayGiven(address.Gateway)
	record, err := a.RecordExisting(ctx, order, pool)
	if record.UID != "" { // its controller confirms it once the pool is there
		err = nil
	}
	return record, err
}

// JudgeUse judges whether the request's namespace may use the pool of a record that was
// made before that was known, and its project may have as much of it. If so, the mark is
// taken off the record, if not, the record is released: the error is a
// *ipam.MissingError or a *ipam.LimitError. While the pool is still not known, the record
// stays as it is, with a *ipam.MissingError.
func (a *Allocator) JudgeUse(ctx context.Context, req ipam.Request, record ipam.Record) (ipam.Record, error) {
	known, err := a.catalogue.MayHold(req, record.Pool)
	if known && err == nil {
		err = a.withinLimits(record)
	}
	switch {
	case known && err != nil:
		if err := a.Release(ctx, record); err != nil {
			return record, err
		}
		a.history.Released(record, history.NotAllowed)
		return ipam.Record{}, err
	case err != nil:
		return record, err
	case !known:
		return record, inventory.NoSuchPool(req, record.Pool)
	}
	judged := record
	judged.PoolUnknown = false
	return a.update(ctx, record, judged)
}

// takeOver adopts a record for the holder of that UID, as if it had just been made; one
// that is not confirmed, or exceeds a limit, is given up.
func (a *Allocator) takeOver(ctx context.Context, record ipam.Record, uid string) (ipam.Record, error) {
	err := a.confirmedNow(record)
	if err == nil {
		err = a.withinLimits(record)
	}
	switch {
	case err == nil && a.hasTakenOver(record, uid):
		return record, nil
	case err == nil:
		taken, err := a.adopt(ctx, record, uid)
		if err == nil {
			a.taken.Store(taken.UID, taken.Version)
		}
		return taken, err
	case errors.Is(err, ipam.ErrUnconfirmed):
		return ipam.Record{}, err
	}
	return ipam.Record{}, a.giveUp(ctx, record, err)
}

// hasTakenOver reports whether this process has taken the record over as it is, so that
// its maker cannot delete it: there is no need to write to it again.
func (a *Allocator) hasTakenOver(record ipam.Record, uid string) bool {
	version, ok := a.taken.Load(record.UID)
	return ok && version == record.Version && record.HolderUID == uid && record.State == ipam.StateBound
}

// withinLimits is a *ipam.LimitError where the record's project has more of its pool or its
// class than it may.
func (a *Allocator) withinLimits(record ipam.Record) error {
	class, _ := a.catalogue.Class(record.Class)
	return a.ledger.WithinLimits(record, class.Limit)
}

// Confirmed is nil where the view shows the record and nothing else has its block:
// a replica that records a block which overlaps it gives way. Otherwise it is a
// *ipam.TakenError; a *ipam.MissingError while its pool hands out nothing; or
// ipam.ErrUnconfirmed where the view does not show the record.
func (a *Allocator) Confirmed(record ipam.Record) error {
	err := a.ledger.Confirmed(record)
	if errors.Is(err, ledger.ErrPoolClosed) {
		return poolClosed(record.Holder, record.Pool)
	}
	return err
}

// confirmedNow is Confirmed, and ipam.ErrUnconfirmed while the watch is interrupted: the store
// may have gone back to where something else has the block.
func (a *Allocator) confirmedNow(record ipam.Record) error {
	if !a.ledger.IsWatching() {
		return ipam.ErrUnconfirmed
	}
	return a.Confirmed(record)
}

// Adopt takes over a record, also one that is kept without holder, for the holder that it
// names, where it is confirmed; the error is that of Confirmed.
func (a *Allocator) Adopt(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	if err := a.confirmedNow(record); err != nil {
		return ipam.Record{}, err
	}
	return a.adopt(ctx, record, record.HolderUID)
}

// adopt takes over a confirmed record that this process did not confirm, for the
// holder of that UID; empty where it does not exist yet. The own record of a pool that
// was to be released is kept from then on.
//
// The record is written to, so that a maker that was paused cannot delete it
// any more: deletions carry the version that they judged.
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

// Stamp writes the holder's UID into a record that was made before its holder
// existed, so that the holder's deletion releases this record and no other. The
// holder has been read from a cache, and may be gone by now, with another of its
// name in its place whose record this is: so it is read once more, after the
// record was. Where it is not the same any more, the error is a conflict.
func (a *Allocator) Stamp(ctx context.Context, record ipam.Record, holder client.Object) (ipam.Record, error) {
	uid, now := holder.GetUID(), holder.DeepCopyObject().(client.Object)
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(holder), now); err != nil {
		return ipam.Record{}, fmt.Errorf("looking for %s again: %w", record.Holder, err)
	}
	if now.GetUID() != uid {
		return ipam.Record{}, fmt.Errorf("stamping IPAllocation %s: %w", record.Name,
			apierrors.NewConflict(schema.GroupResource{Group: record.Holder.Group, Resource: record.Holder.Kind}, record.Holder.Name,
				errors.New("it was deleted and made again")))
	}
	stamped := record
	stamped.HolderUID, stamped.ReleaseAfter = string(uid), time.Time{}
	return a.update(ctx, record, stamped)
}

// Restore takes over the record of a claim's former life, when a claim that
// was saved is created again: the record that it named, if that is still there
// and still says the same, and the claim may have it: it is of a pool that was resolved.
func (a *Allocator) Restore(ctx context.Context, order Order, name string) (ipam.Record, bool) {
	record, ok := a.ledger.Record(ipam.Name{Namespace: order.Holder.Namespace, Name: name})
	if !ok || record.Holder != order.Holder || record.Block != order.Terms.Block || record.State != ipam.StateBound || record.Terminating {
		return ipam.Record{}, false
	}
	may := slices.ContainsFunc(order.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
	if !may || record.Class != order.Terms.Class || a.Confirmed(record) != nil {
		return ipam.Record{}, false
	}
	adopted, err := a.adopt(ctx, record, "")
	return adopted, err == nil
}

// retained is the block that was kept for a claim of this namespace and name, or
// of its sticky key, where it is still what the claim asks for. Of several under
// one key it is the one that is kept longest: the last that was given back. A record
// whose block another one has is not taken over.
func (a *Allocator) retained(order Order) (ipam.Record, bool) {
	var last ipam.Record
	for _, record := range a.formerly(order) {
		if !order.mayRetake(record) || record.Terminating || !order.accepts(record) || !a.isUndisputed(record) {
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
	return a.ledger.Confirmed(record) == nil && a.ledger.Conflict(record) == nil
}

// formerly are the records of earlier claims of this name, or of the sticky key.
func (a *Allocator) formerly(order Order) []ipam.Record {
	records := a.ledger.HeldBy(order.Holder)
	if order.Sticky == "" {
		return records
	}
	return append(records, a.ledger.Sticky(ipam.Name{Namespace: order.Holder.Namespace, Name: order.Sticky})...)
}

// mayRetake reports whether a record is retained, or was until an earlier create of the
// same name took it over. That one is not stored: the name is free. Should it be after
// all, it is this claim that is not, and both name the one record.
func (o Order) mayRetake(record ipam.Record) bool {
	return record.State == ipam.StateRetained || record.WasTakenOver() && record.Holder == o.Holder
}

func (o Order) accepts(record ipam.Record) bool {
	if o.Terms.Block.IsValid() && o.Terms.Block != record.Block || o.Terms.Length != record.Block.Bits() {
		return false
	}
	return slices.ContainsFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
}

// gatewayFor returns the gateway that is handed out with a retained block: its pool may have
// another one than when the block was handed out before.
func (o Order) gatewayFor(record ipam.Record) netip.Addr {
	at := slices.IndexFunc(o.Pools, func(p ipam.Pool) bool { return p.Key == record.Pool })
	_, gateway := o.Pools[at].Subnet(record.Block) // one of those that it accepts
	return gateway
}

// retake takes a retained record over, by an update of the version that was
// seen: of several that try, and of one that releases it, one succeeds. A record
// that is about to be retained is waited for.
//
// For a claim that does not exist yet, policy and time stay in the record as they were:
// where the claim is never stored, it is retained again, unchanged.
func (a *Allocator) retake(ctx context.Context, order Order) (ipam.Record, bool) {
	a.awaitRetained(ctx, order)
	record, ok := a.retained(order)
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
	return taken, err == nil // otherwise there are other blocks
}

// awaitRetained waits, for a short time, where the claim of this name that was
// there before is gone and its record not handled yet.
func (a *Allocator) awaitRetained(ctx context.Context, order Order) {
	isPending := func() bool {
		return slices.ContainsFunc(a.formerly(order), func(r ipam.Record) bool {
			return r.State == ipam.StateBound && (r.Reclaim == ipam.ReclaimRetain || r.Sticky != "") && a.ledger.IsLeaving(r.Name)
		})
	}
	if !isPending() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	a.ledger.Await(ctx, order.keys(), func() bool { return !isPending() })
}
