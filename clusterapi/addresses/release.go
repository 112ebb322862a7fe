package addresses

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Release deletes all claims of the machine, those of removed devices included, and returns a
// sentence for each that still exists. The caller calls it when the owner is being deleted and the
// machine is gone from its infrastructure, and removes its finalizer from the owner when Release
// returns no sentence and no error. Otherwise it returns without RequeueAfter: Watch triggers the
// next pass.
//
// Claims of other owners stay. Devices must be those of the last call of Ensure, but need not be
// valid: a claim that the cache does not show yet is found by the name of its device.
//
// Contract: "the claim should be deleted as well. The infrastructure Machine deletion should be
// blocked until the claim is deleted."
func (m *Machine) Release(ctx context.Context) (waiting []string, err error) {
	claims, err := m.claims(ctx)
	if err != nil {
		return nil, err
	}
	if len(claims) == 0 {
		if claims, err = m.liveClaims(ctx); err != nil {
			return nil, err
		}
	}
	return m.deleteClaims(ctx, claims)
}

// ReleaseRemoved deletes the claims of the machine that no device needs, and returns a sentence for
// each that still exists. The caller calls it when the infrastructure has removed the devices, and
// does not have to wait for the claims.
//
// It deletes nothing, and returns ErrClaimChanged, if a device needs another pool or Cluster than its
// claim has: devices or pools can have moved within their list, and then the claim that no device
// seems to need has an address that is in use.
func (m *Machine) ReleaseRemoved(ctx context.Context) (waiting []string, err error) {
	if err := m.validate(); err != nil {
		return nil, err
	}
	claims, err := m.claims(ctx)
	if err != nil {
		return nil, err
	}
	requests := m.requests()
	var removed []*ipamv1.IPAddressClaim
	var errs []error
	for _, claim := range claims {
		i := slices.IndexFunc(requests, func(r request) bool { return r.claim == claim.Name })
		if i < 0 {
			removed = append(removed, claim)
		} else if err := m.check(requests[i], claim); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return m.deleteClaims(ctx, removed)
}

// claims returns the claims of the machine that the client shows.
func (m *Machine) claims(ctx context.Context) ([]*ipamv1.IPAddressClaim, error) {
	list := &ipamv1.IPAddressClaimList{}
	// The claims of all machines of the namespace are read, and only those of this one copied.
	if err := m.Client.List(ctx, list, client.InNamespace(m.Owner.GetNamespace()), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing IPAddressClaims: %w", err)
	}
	var claims []*ipamv1.IPAddressClaim
	for i := range list.Items {
		if m.owns(&list.Items[i]) {
			claims = append(claims, list.Items[i].DeepCopy())
		}
	}
	return claims, nil
}

// liveClaims returns the claims of the machine's devices that the API server has.
func (m *Machine) liveClaims(ctx context.Context) ([]*ipamv1.IPAddressClaim, error) {
	var claims []*ipamv1.IPAddressClaim
	for _, r := range m.requests() {
		claim := &ipamv1.IPAddressClaim{}
		err := m.Live.Get(ctx, client.ObjectKey{Namespace: m.Owner.GetNamespace(), Name: r.claim}, claim)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("looking for IPAddressClaim %s: %w", r.claim, err)
		}
		if err == nil && m.owns(claim) {
			claims = append(claims, claim)
		}
	}
	return claims, nil
}

// deleteClaims deletes claims. Each exists until its IPAM provider has freed its address.
func (m *Machine) deleteClaims(ctx context.Context, claims []*ipamv1.IPAddressClaim) (waiting []string, _ error) {
	var errs []error
	for _, claim := range claims {
		waiting = append(waiting, fmt.Sprintf("IPAddressClaim %s is being deleted", claim.Name))
		if !claim.DeletionTimestamp.IsZero() {
			continue
		}
		if err := m.Client.Delete(ctx, claim, client.Preconditions{UID: &claim.UID}); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting IPAddressClaim %s: %w", claim.Name, err))
		}
	}
	return waiting, errors.Join(errs...)
}
