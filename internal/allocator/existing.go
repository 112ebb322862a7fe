package allocator

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

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
