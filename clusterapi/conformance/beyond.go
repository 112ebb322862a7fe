package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// beyondClauses returns the checks of what the contract's page does not state: the fields of the
// API, and what clusterctl move needs.
func beyondClauses() []Clause {
	return []Clause{
		{
			ID: "B01", Name: "IPAddress_names_pool", Level: May,
			Requires: "spec.poolRef of the IPAddress is that of the claim",
			check: onAddress(func(_ *trial, claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
				return wants("spec.poolRef", address.Spec.PoolRef, claim.Spec.PoolRef)
			}),
		},
		{
			ID: "B02", Name: "prefix_and_gateway", Level: May,
			Requires: "the IPAddress has the prefix of its network, and the gateway, if there is one, is of the same network",
			check:    onAddress(networkFits),
		},
		{
			ID: "B03", Name: "claim_is_Ready", Level: May, check: claimIsReady,
			Requires: "the condition Ready of a claim that has an address is True",
		},
		{
			ID: "B04", Name: "paused_claim", Level: May, check: pausedClaim,
			Requires: "a claim gets no address while it has the annotation cluster.x-k8s.io/paused itself",
		},
		{
			ID: "B05", Name: "moved_claim_keeps_address", Level: May, check: movedClaimKeepsAddress,
			Requires: "a claim whose IPAddress exists, as after clusterctl move, keeps it",
		},
	}
}

func networkFits(_ *trial, _ *ipamv1.IPAddressClaim, address *ipamv1.IPAddress) error {
	addr, err := netip.ParseAddr(address.Spec.Address)
	if err != nil {
		return err
	}
	if address.Spec.Prefix == nil {
		return errors.New("it has no prefix")
	}
	network, err := addr.Prefix(int(*address.Spec.Prefix))
	if err != nil {
		return err
	}
	if address.Spec.Gateway == "" {
		return nil
	}
	gateway, err := netip.ParseAddr(address.Spec.Gateway)
	if err != nil {
		return err
	}
	if !network.Contains(gateway) {
		return fmt.Errorf("the gateway %s is not in %s", gateway, network)
	}
	return nil
}

func claimIsReady(ctx context.Context, t *trial) error {
	claim, _, err := t.claimed(ctx, "claim")
	if err != nil {
		return err
	}
	return t.until(ctx, func(ctx context.Context) error {
		if err := t.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(claim.Status.Conditions, ipamv1.IPAddressClaimReadyCondition) {
			return fmt.Errorf("the conditions of %s are %v", named(claim), claim.Status.Conditions)
		}
		return nil
	})
}

func pausedClaim(ctx context.Context, t *trial) error {
	claim := t.newClaim("claim")
	claim.Annotations = map[string]string{clusterv1.PausedAnnotation: ""}
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	return t.ignored(ctx, claim)
}

// movedClaimKeepsAddress creates the objects of a claim that was served, as clusterctl creates them
// in another cluster: without status, with new UIDs, and while the Cluster is paused. It is the second
// of two claims, so that a provider that allocates again would begin with the address of the first.
func movedClaimKeepsAddress(ctx context.Context, t *trial) error {
	first, firstAddress, err := t.claimed(ctx, "claim-a")
	if err != nil {
		return err
	}
	second, source, err := t.claimed(ctx, "claim-b")
	if err != nil {
		return err
	}
	if err := t.reported(ctx, second); err != nil {
		return skip("the status of the claim names no IPAddress: see C22")
	}
	for _, object := range []client.Object{first, second} {
		if err := t.Delete(ctx, object); err != nil {
			return err
		}
	}
	for _, object := range []client.Object{first, second, firstAddress, source} {
		if err := t.until(ctx, func(ctx context.Context) error { return t.gone(ctx, object) }); err != nil {
			return skip("a deleted claim or its IPAddress stays: see C25 to C27")
		}
	}
	cluster, err := t.cluster(ctx, "moved", pause{field: true})
	if err != nil {
		return err
	}
	claim := ofCluster(t.newClaim(second.Name), cluster.Name)
	if err := t.Create(ctx, claim); err != nil {
		return err
	}
	moved := t.movedAddress(source, claim)
	if err := t.Create(ctx, moved); err != nil {
		return err
	}
	if err := t.resume(ctx, cluster); err != nil {
		return err
	}
	if err := t.reported(ctx, claim); err != nil {
		return err
	}
	current, err := t.addressOf(ctx, claim)
	if err != nil {
		return err
	}
	return errors.Join(
		wants("the IPAddress of the moved claim", claim.Status.AddressRef.Name, moved.Name),
		wants("its UID", current.UID, moved.UID),
		wants("its address", current.Spec.Address, source.Spec.Address),
	)
}

// movedAddress returns an IPAddress as clusterctl creates it from another.
func (t *trial) movedAddress(source *ipamv1.IPAddress, claim *ipamv1.IPAddressClaim) *ipamv1.IPAddress {
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: t.namespace, Name: source.Name, Labels: source.Labels, Annotations: source.Annotations, Finalizers: source.Finalizers,
			OwnerReferences: []metav1.OwnerReference{
				{
					APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim", Name: claim.Name, UID: claim.UID,
					Controller: new(true), BlockOwnerDeletion: new(true),
				},
				{
					APIVersion: t.pool.GetAPIVersion(), Kind: t.pool.GetKind(), Name: t.pool.GetName(), UID: t.pool.GetUID(),
					Controller: new(false), BlockOwnerDeletion: new(true),
				},
			},
		},
		Spec: source.Spec,
	}
}
