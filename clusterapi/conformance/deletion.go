package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func deletionClauses() []Clause {
	return []Clause{
		{
			ID: "C23", Name: "deleted_claim_of_paused_cluster", Level: Must, Section: deleted, Step: "1", check: deletedClaimOfPausedCluster,
			Requires: "a deleted claim keeps its address while its Cluster is paused",
		},
		{
			ID: "C24", Name: "address_is_released", Level: Must, Section: deleted, Step: "2", check: addressIsReleased,
			Requires: "the address of a deleted claim is free for another claim",
		},
		{
			ID: "C25", Name: "IPAddress_is_deleted", Level: Must, Section: deleted, Step: "3", check: addressIsDeleted,
			Requires: "the IPAddress of a deleted claim is deleted",
		},
		{
			ID: "C26", Name: "finalizers_of_IPAddress_are_removed", Level: Must, Section: deleted, Step: "3.1", check: finalizersOfAddressAreRemoved,
			Requires: "the provider removes its finalizers from that IPAddress",
		},
		{
			ID: "C27", Name: "finalizer_of_claim_is_removed", Level: Must, Section: deleted, Step: "4", check: finalizerOfClaimIsRemoved,
			Requires: "the provider removes its finalizer from the deleted claim",
		},
		{
			ID: "C28", Name: "IPAddress_is_deleted_before_claim", Level: Must, Section: deleted, Step: "3-4", check: addressIsDeletedBeforeClaim,
			Requires: "the deletion of the IPAddress comes before the removal of the claim's finalizer",
		},
	}
}

// held creates a claim, and skips the clause if the provider puts no finalizer on it.
func (t *trial) held(ctx context.Context, claim *ipamv1.IPAddressClaim) (*ipamv1.IPAddress, error) {
	if err := t.Create(ctx, claim); err != nil {
		return nil, err
	}
	address, err := t.served(ctx, claim)
	if err != nil {
		return nil, err
	}
	if err := t.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
		return nil, err
	}
	if len(claim.Finalizers) == 0 {
		return nil, skip("the provider puts no finalizer on the claim, which is gone when it is deleted: see C15")
	}
	return address, nil
}

func deletedClaimOfPausedCluster(ctx context.Context, t *trial) error {
	cluster, err := t.cluster(ctx, "cluster", pause{})
	if err != nil {
		return err
	}
	claim := ofCluster(t.newClaim("claim"), "cluster")
	address, err := t.held(ctx, claim)
	if err != nil {
		return err
	}
	if err := errors.Join(t.annotate(ctx, cluster, `""`), t.Patch(ctx, cluster, merge(`{"spec":{"paused":true}}`))); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if err := t.Delete(ctx, claim); err != nil {
		return err
	}
	if err := t.settle(ctx); err != nil {
		return err
	}
	if t.gone(ctx, claim) == nil {
		return fmt.Errorf("the provider has removed its finalizer from %s", named(claim))
	}
	if err := t.Get(ctx, client.ObjectKeyFromObject(address), address); apierrors.IsNotFound(err) || err == nil && address.DeletionTimestamp != nil {
		return fmt.Errorf("the provider has deleted %s", named(address))
	}
	return nil
}

func addressIsReleased(ctx context.Context, t *trial) error {
	if t.Addresses == 0 {
		return skip("the number of addresses of the pool is not known: set -addresses")
	}
	var claims []*ipamv1.IPAddressClaim
	for i := range t.Addresses {
		claim, err := t.claim(ctx, fmt.Sprintf("claim-%d", i))
		if err != nil {
			return err
		}
		claims = append(claims, claim)
	}
	holders, err := t.distinct(ctx, claims)
	if err != nil {
		return skip("the pool cannot be filled with %d claims: see C16: %v", t.Addresses, err)
	}
	released, err := t.addressOf(ctx, claims[0])
	if err != nil {
		return err
	}
	waiting, err := t.claim(ctx, "waiting")
	if err != nil {
		return err
	}
	if err := t.Delete(ctx, claims[0]); err != nil {
		return err
	}
	address, err := t.served(ctx, waiting)
	if err != nil {
		return fmt.Errorf("the claim of %s is deleted, and all other addresses are in use: %w", released.Spec.Address, err)
	}
	if got, _ := netip.ParseAddr(address.Spec.Address); holders[got] == "" {
		return skip("the pool has more than %d addresses: %s is one of them", t.Addresses, got)
	}
	return wants("the address of the claim that waited", address.Spec.Address, released.Spec.Address)
}

// removed creates a claim, and deletes it when it has an IPAddress.
func (t *trial) removed(ctx context.Context) (*ipamv1.IPAddress, error) {
	claim, address, err := t.claimed(ctx, "claim")
	if err != nil {
		return nil, err
	}
	return address, t.Delete(ctx, claim)
}

// deleting returns an error while an object is not being deleted.
func (t *trial) deleting(ctx context.Context, address *ipamv1.IPAddress) error {
	err := t.gone(ctx, address)
	if err == nil {
		return nil
	}
	current := address.DeepCopy()
	if err := t.Get(ctx, client.ObjectKeyFromObject(address), current); err != nil {
		return client.IgnoreNotFound(err)
	}
	if current.DeletionTimestamp != nil {
		return nil
	}
	return err
}

func addressIsDeleted(ctx context.Context, t *trial) error {
	address, err := t.removed(ctx)
	if err != nil {
		return err
	}
	return t.until(ctx, func(ctx context.Context) error { return t.deleting(ctx, address) })
}

func finalizersOfAddressAreRemoved(ctx context.Context, t *trial) error {
	address, err := t.removed(ctx)
	if err != nil {
		return err
	}
	if err := t.until(ctx, func(ctx context.Context) error { return t.deleting(ctx, address) }); err != nil {
		return skip("the IPAddress is not deleted: see C25")
	}
	return t.until(ctx, func(ctx context.Context) error { return t.gone(ctx, address) })
}

func finalizerOfClaimIsRemoved(ctx context.Context, t *trial) error {
	claim := t.newClaim("claim")
	if _, err := t.held(ctx, claim); err != nil {
		return err
	}
	if err := t.Delete(ctx, claim); err != nil {
		return err
	}
	return t.until(ctx, func(ctx context.Context) error { return t.gone(ctx, claim) })
}

// addressIsDeletedBeforeClaim compares the revisions of both deletions, which are of one etcd.
func addressIsDeletedBeforeClaim(ctx context.Context, t *trial) error {
	claim := t.newClaim("claim")
	address, err := t.held(ctx, claim)
	if err != nil {
		return err
	}
	if err := t.Delete(ctx, claim); err != nil {
		return err
	}
	var claimGone, addressDeleted string
	err = t.until(ctx, func(context.Context) error {
		events, err := t.seen()
		if err != nil {
			return err
		}
		if claimGone = revision(events, claim, false); claimGone == "" {
			return skip("the claim is not gone: see C27")
		}
		if addressDeleted = revision(events, address, true); addressDeleted == "" {
			return skip("the IPAddress is not deleted: see C25")
		}
		return nil
	})
	if err != nil {
		return err
	}
	order, err := resourceversion.CompareResourceVersion(addressDeleted, claimGone)
	if err != nil {
		return err
	}
	if order > 0 {
		return fmt.Errorf("%s was deleted at revision %s, after %s was gone at %s", named(address), addressDeleted, named(claim), claimGone)
	}
	return nil
}

// revision returns the resource version at which an object was removed, or, if marked is true, at
// which its deletion began; nothing if there is no such event.
func revision(events []watch.Event, of client.Object, marked bool) string {
	for _, event := range events {
		object, ok := event.Object.(client.Object)
		if ok && object.GetUID() == of.GetUID() && (event.Type == watch.Deleted || marked && object.GetDeletionTimestamp() != nil) {
			return object.GetResourceVersion()
		}
	}
	return ""
}
