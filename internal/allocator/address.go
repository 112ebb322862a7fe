package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Cluster API's claims as holders.
const (
	AddressClaimGroup = "ipam.cluster.x-k8s.io"
	AddressClaimKind  = "IPAddressClaim"
)

// HolderOfAddressClaim is one of Cluster API's IPAddressClaims as a holder.
func HolderOfAddressClaim(claim ipam.Name) ipam.Holder {
	return ipam.Holder{Group: AddressClaimGroup, Kind: AddressClaimKind, Namespace: claim.Namespace, Name: claim.Name}
}

// Enter records a block that its holder has already: after a restore or a move,
// or because somebody assigned it by hand. Whether it is withheld, or within
// policy, does not count; only another holder is in the way, or a pool that it
// does not lie in.
//
// Errors: *ipam.TakenError, *ipam.PolicyError, *ipam.LimitError (an IPAddress),
// *ipam.MissingError where the pool's own record is missing: the block is recorded
// all the same, and confirmed once that is there; and those of Grant that mean to try
// again.
func (a *Allocator) Enter(ctx context.Context, order Order, pool ipam.PoolKey) (ipam.Record, error) {
	if err := a.Synced(); err != nil {
		return ipam.Record{}, err
	}
	block := order.Terms.Block
	if known, ok := a.catalogue.Pool(pool); ok && known.CIDR.IsValid() && !known.Has(block) {
		return ipam.Record{}, &ipam.PolicyError{Field: order.blockField(), Value: block, Remedy: fmt.Sprintf("lies outside %s, which is %s", pool, known.CIDR)}
	}
	ctx, cancel := context.WithTimeout(ctx, confirmWithin)
	defer cancel()
	order.Existing = true
	hold, err := a.ledger.Hold(a.inUse(order, pool))
	if err != nil {
		return ipam.Record{}, err
	}
	record, err := a.confirm(ctx, hold, order)
	if apierrors.IsAlreadyExists(err) {
		a.ledger.AwaitStored(ctx, order.Record, []ipam.PoolKey{pool})
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}

// EnterAddress records the address of an IPAddress that is being made by somebody
// else than the operator, for the claim of its name, whether or not that exists.
// The pool is the zero key where it is not known; then, and where the namespace
// may not use the pool, the error is a *ipam.MissingError. The class is empty where it
// names none.
func (a *Allocator) EnterAddress(ctx context.Context, claim ipam.Name, pool ipam.PoolKey, class, text string) (ipam.Record, error) {
	addr, invalid := adapt.AddressInUse(field.NewPath("spec", "address"), text)
	if invalid != nil {
		return ipam.Record{}, invalid
	}
	if pool == (ipam.PoolKey{}) {
		return ipam.Record{}, missing(v1alpha1.ReasonPoolNotFound, "neither spec.poolRef nor the label %s names its pool: one of the class that has the address is looked for", v1alpha1.LabelPool)
	}
	known, err := a.MayHold(ipam.Request{Claim: claim}, pool)
	if err != nil {
		return ipam.Record{}, err
	}
	order := Order{Holder: HolderOfAddressClaim(claim), PoolUnknown: !known}
	order.Record = AttemptName(order.Holder)
	order.Terms = a.TermsOfAddress(addr, class)
	record, err := a.Enter(ctx, order, pool)
	if record.UID != "" { // its controller confirms it once the pool is there
		err = nil
	}
	return record, err
}

// TermsOfAddress are those on which an address is recorded that an IPAddress has already.
func (a *Allocator) TermsOfAddress(addr netip.Addr, class string) ipam.Terms {
	terms := ipam.Terms{Class: class, Block: netip.PrefixFrom(addr, addr.BitLen()), Length: addr.BitLen(), Reclaim: ipam.ReclaimDelete}
	if known, ok := a.catalogue.Class(class); ok {
		terms.Reclaim = known.Reclaim
	}
	return terms
}

// blockField is where the holder says which block it has.
func (o Order) blockField() string {
	if o.Holder.Kind == AddressClaimKind {
		return "spec.address"
	}
	return "spec.cidr"
}

// MayHold reports whether the pool is known. The error is a *ipam.MissingError where it
// is, and the namespace may not use it: what it says it holds there, it does not.
func (a *Allocator) MayHold(req ipam.Request, key ipam.PoolKey) (known bool, err error) {
	req, err = a.onBehalf(req)
	if err != nil {
		return false, err
	}
	pool, known := a.catalogue.Pool(key)
	if known && !req.MayName(pool) {
		return true, noSuchPool(req, key)
	}
	return known, nil
}

// JudgeUse judges whether the request's namespace may use the pool of a record that was
// made before that was known, and its project may have as much of it. If so, the mark is
// taken off the record, if not, the record is released: the error is a
// *ipam.MissingError or a *ipam.LimitError. While the pool is still not known, the record
// stays as it is, with a *ipam.MissingError.
func (a *Allocator) JudgeUse(ctx context.Context, req ipam.Request, record ipam.Record) (ipam.Record, error) {
	known, err := a.MayHold(req, record.Pool)
	if known && err == nil {
		err = a.withinLimits(record)
	}
	switch {
	case known && err != nil:
		if err := a.Release(ctx, record); err != nil {
			return record, err
		}
		return ipam.Record{}, err
	case err != nil:
		return record, err
	case !known:
		return record, noSuchPool(req, record.Pool)
	}
	record.PoolUnknown = false
	return a.patch(ctx, record, fmt.Sprintf(`{"metadata":{"uid":%q,"resourceVersion":%q,"annotations":{%q:null}}}`,
		record.UID, record.Version, v1alpha1.AnnotationPoolUnknown))
}

func noSuchPool(req ipam.Request, key ipam.PoolKey) error {
	req.Pool = key
	return noPool(req, v1alpha1.ReasonPoolNotFound, "one")
}
