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
// Errors: *ipam.TakenError, *ipam.PolicyError, and those of Grant that mean to
// try again.
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
	hold, err := a.ledger.Hold(order.inUse(pool, a.unboundLimit()))
	if err != nil {
		return ipam.Record{}, err
	}
	record, err := a.confirm(ctx, hold, order)
	if apierrors.IsAlreadyExists(err) {
		return ipam.Record{}, errors.Join(ipam.ErrUnconfirmed, err)
	}
	return record, err
}

// EnterAddress records the address of an IPAddress that is being made by somebody
// else than the operator, for the claim of its name, whether or not that exists.
// The pool is the zero key where it is not known; then, and where the namespace
// may not use the pool, the error is a *ipam.MissingError.
func (a *Allocator) EnterAddress(ctx context.Context, claim ipam.Name, pool ipam.PoolKey, text string) (ipam.Record, error) {
	addr, invalid := adapt.AddressInUse(field.NewPath("spec", "address"), text)
	if invalid != nil {
		return ipam.Record{}, invalid
	}
	if pool == (ipam.PoolKey{}) {
		return ipam.Record{}, missing(v1alpha1.ReasonPoolNotFound, "neither spec.poolRef nor the label %s names its pool: one of the class that has the address is looked for", v1alpha1.LabelPool)
	}
	if err := a.MayHold(ipam.Request{Claim: claim}, pool); err != nil {
		return ipam.Record{}, err
	}
	order := Order{Holder: HolderOfAddressClaim(claim)}
	order.Record = AttemptName(order.Holder)
	order.Terms = ipam.Terms{Block: netip.PrefixFrom(addr, addr.BitLen()), Length: addr.BitLen(), Reclaim: ipam.Delete}
	return a.Enter(ctx, order, pool)
}

// blockField is where the holder says which block it has.
func (o Order) blockField() string {
	if o.Holder.Kind == AddressClaimKind {
		return "spec.address"
	}
	return "spec.cidr"
}

// MayHold is a *ipam.MissingError where a namespace may not use the pool: what it
// says it holds there, it does not.
func (a *Allocator) MayHold(req ipam.Request, key ipam.PoolKey) error {
	req, err := a.onBehalf(req)
	if err != nil {
		return err
	}
	if pool, ok := a.catalogue.Pool(key); ok && !req.MayName(pool) {
		return missing(v1alpha1.ReasonPoolNotFound, "there is no %s %q: create it, or name another one", key.Kind, key.Name)
	}
	return nil
}
