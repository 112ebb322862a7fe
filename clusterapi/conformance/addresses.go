package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func addressClauses() []Clause {
	return []Clause{
		{
			ID: "C15", Name: "claim_has_finalizer", Level: Should, Section: normal, Step: "3", check: claimHasFinalizer,
			Requires: "the provider adds the finalizer that it needs to the claim, before it reports an address",
		},
		{
			ID: "C16", Name: "address_is_allocated", Level: Must, Section: normal, Step: "4", check: addressIsAllocated,
			Requires: "each claim gets an IP address, and no two claims at a time get the same",
		},
		{
			ID: "C17", Name: "IPAddress_names_claim", Level: Must, Section: normal, Step: "5",
			Requires: "the IPAddress is created for the claim, which its spec.claimRef names",
			check: onAddress(func(_ *trial, claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
				return wants("spec.claimRef.name", address.Spec.ClaimRef.Name, claim.Name)
			}),
		},
		{
			ID: "C18", Name: "IPAddress_has_name_of_claim", Level: Should, Section: normal, Step: "5.1",
			Requires: "the IPAddress has the same name as the claim",
			check: onAddress(func(_ *trial, claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
				return wants("metadata.name", address.Name, claim.Name)
			}),
		},
		{
			ID: "C19", Name: "claim_owns_IPAddress", Level: Must, Section: normal, Step: "5.2",
			Requires: "the claim is an owner of the IPAddress, with controller: true and blockOwnerDeletion: true",
			check: onAddress(func(_ *trial, claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
				return isOwned(address, claim, ipamv1.GroupVersion.Group, "IPAddressClaim", true)
			}),
		},
		{
			ID: "C20", Name: "pool_owns_IPAddress", Level: Must, Section: normal, Step: "5.3",
			Requires: "the pool is an owner of the IPAddress, with controller: false and blockOwnerDeletion: true",
			check: onAddress(func(t *trial, _ *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
				return isOwned(address, t.pool, t.pool.GroupVersionKind().Group, t.pool.GetKind(), false)
			}),
		},
		{
			ID: "C21", Name: "IPAddress_has_finalizer", Level: Should, Section: normal, Step: "5.4",
			Requires: "the IPAddress has a finalizer against accidental deletion",
			check: onAddress(func(_ *trial, _ *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
				if len(address.Finalizers) == 0 {
					return errors.New("it has no finalizer")
				}
				return nil
			}),
		},
		{
			ID: "C22", Name: "status_names_IPAddress", Level: Must, Section: normal, Step: "6", check: statusNamesAddress,
			Requires: "status.addressRef of the claim names the IPAddress",
		},
	}
}

// onAddress returns a check of the IPAddress of a claim, which waits until it has no error.
func onAddress(check func(*trial, *ipamv1.IPAddressClaim, *ipamv1.IPAddress) error) func(context.Context, *trial) error {
	return func(ctx context.Context, t *trial) error {
		claim, address, err := t.claimed(ctx, "claim")
		if err != nil {
			return err
		}
		return t.until(ctx, func(ctx context.Context) error {
			if err := t.Get(ctx, client.ObjectKeyFromObject(address), address); err != nil {
				return err
			}
			if err := check(t, claim, address); err != nil {
				return fmt.Errorf("%s: %w", named(address), err)
			}
			return nil
		})
	}
}

func wants[T comparable](field string, got, want T) error {
	if got != want {
		return fmt.Errorf("%s is %v: want %v", field, got, want)
	}
	return nil
}

// isOwned returns an error unless a reference to an owner is as the contract has it.
func isOwned(address *ipamv1.IPAddress, by client.Object, group, kind string, controller bool) error {
	reference := owner(address, by)
	if reference == nil {
		return fmt.Errorf("it has the owners %v: want %s", owners(address), named(by))
	}
	refersTo, _, _ := strings.Cut(reference.APIVersion, "/")
	isTrue := func(flag *bool) bool { return flag != nil && *flag }
	return errors.Join(
		wants("the API group of the owner", refersTo, group),
		wants("the kind of the owner", reference.Kind, kind),
		wants("the name of the owner", reference.Name, by.GetName()),
		wants("controller of "+named(by), isTrue(reference.Controller), controller),
		wants("blockOwnerDeletion of "+named(by), isTrue(reference.BlockOwnerDeletion), true),
	)
}

func owners(object metav1.Object) (names []string) {
	for _, reference := range object.GetOwnerReferences() {
		names = append(names, reference.Kind+" "+reference.Name)
	}
	return names
}

// reported waits until the status of a claim names an IPAddress, and reads the claim.
func (t *trial) reported(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	return t.until(ctx, func(ctx context.Context) error {
		if err := t.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if claim.Status.AddressRef.Name == "" {
			return fmt.Errorf("status.addressRef of %s is empty", named(claim))
		}
		return nil
	})
}

func claimHasFinalizer(ctx context.Context, t *trial) error {
	claim, address, err := t.claimed(ctx, "claim")
	if err != nil {
		return err
	}
	if err := t.reported(ctx, claim); err != nil {
		return skip("the status of the claim names no IPAddress: see C22")
	}
	if len(claim.Finalizers) == 0 {
		return fmt.Errorf("%s has no finalizer when its status names %s", named(claim), named(address))
	}
	return nil
}

func addressIsAllocated(ctx context.Context, t *trial) error {
	var claims []*ipamv1.IPAddressClaim
	for i := range 4 {
		claim, err := t.claim(ctx, fmt.Sprintf("claim-%d", i))
		if err != nil {
			return err
		}
		claims = append(claims, claim)
	}
	_, err := t.distinct(ctx, claims)
	return err
}

// distinct waits until all claims have IPAddresses, and returns the claims by their address.
func (t *trial) distinct(ctx context.Context, claims []*ipamv1.IPAddressClaim) (map[netip.Addr]string, error) {
	holders := map[netip.Addr]string{}
	for _, claim := range claims {
		address, err := t.served(ctx, claim)
		if err != nil {
			return nil, err
		}
		parsed, err := netip.ParseAddr(address.Spec.Address)
		if err != nil {
			return nil, fmt.Errorf("spec.address of %s: %w", named(address), err)
		}
		if other := holders[parsed]; other != "" {
			return nil, fmt.Errorf("%s is the address of the claims %s and %s", parsed, other, claim.Name)
		}
		holders[parsed] = claim.Name
	}
	return holders, nil
}

func statusNamesAddress(ctx context.Context, t *trial) error {
	claim, address, err := t.claimed(ctx, "claim")
	if err != nil {
		return err
	}
	if err := t.reported(ctx, claim); err != nil {
		return err
	}
	return wants("status.addressRef.name", claim.Status.AddressRef.Name, address.Name)
}
