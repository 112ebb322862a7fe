package conformance

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func merge(patch string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(patch)) }

// named returns the kind and the name of an object, for messages.
func named(object client.Object) string {
	kind := object.GetObjectKind().GroupVersionKind().Kind
	if kind == "" {
		kind = strings.TrimPrefix(fmt.Sprintf("%T", object), "*")
		kind = kind[strings.LastIndex(kind, ".")+1:]
	}
	return kind + " " + object.GetName()
}

// newClaim returns a claim from the pool.
func (t *trial) newClaim(name string) *ipamv1.IPAddressClaim {
	return &ipamv1.IPAddressClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: t.namespace, Name: name},
		Spec: ipamv1.IPAddressClaimSpec{PoolRef: ipamv1.IPPoolReference{
			APIGroup: t.pool.GroupVersionKind().Group, Kind: t.pool.GetKind(), Name: t.pool.GetName(),
		}},
	}
}

// ofCluster sets the Cluster of a claim in both ways that the contract has.
func ofCluster(claim *ipamv1.IPAddressClaim, cluster string) *ipamv1.IPAddressClaim {
	claim.Spec.ClusterName = cluster
	claim.Labels = map[string]string{clusterv1.ClusterNameLabel: cluster}
	return claim
}

// claim creates a claim from the pool.
func (t *trial) claim(ctx context.Context, name string) (*ipamv1.IPAddressClaim, error) {
	claim := t.newClaim(name)
	return claim, t.Create(ctx, claim)
}

// claimed creates a claim from the pool, waits until it has an IPAddress, and returns both.
func (t *trial) claimed(ctx context.Context, name string) (*ipamv1.IPAddressClaim, *ipamv1.IPAddress, error) {
	claim, err := t.claim(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	address, err := t.served(ctx, claim)
	return claim, address, err
}

// served waits until a claim has an IPAddress.
func (t *trial) served(ctx context.Context, claim *ipamv1.IPAddressClaim) (address *ipamv1.IPAddress, err error) {
	err = t.until(ctx, func(ctx context.Context) error {
		address, err = t.addressOf(ctx, claim)
		if err == nil && address == nil {
			err = fmt.Errorf("no IPAddress exists for %s", named(claim))
		}
		return err
	})
	return address, err
}

// addressOf returns the IPAddress of a claim; nil if there is none. It finds it by any of the ways
// in which both are connected, each of which is a clause.
func (t *trial) addressOf(ctx context.Context, claim *ipamv1.IPAddressClaim) (*ipamv1.IPAddress, error) {
	addresses := &ipamv1.IPAddressList{}
	if err := t.List(ctx, addresses, client.InNamespace(t.namespace)); err != nil {
		return nil, err
	}
	current := claim.DeepCopy()
	if err := client.IgnoreNotFound(t.Get(ctx, client.ObjectKeyFromObject(claim), current)); err != nil {
		return nil, err
	}
	for _, isOf := range []func(*ipamv1.IPAddress) bool{
		func(a *ipamv1.IPAddress) bool { return owner(a, claim) != nil },
		func(a *ipamv1.IPAddress) bool { return a.Spec.ClaimRef.Name == claim.Name },
		func(a *ipamv1.IPAddress) bool { return a.Name == current.Status.AddressRef.Name },
		func(a *ipamv1.IPAddress) bool { return a.Name == claim.Name },
	} {
		for i := range addresses.Items {
			if isOf(&addresses.Items[i]) {
				return &addresses.Items[i], nil
			}
		}
	}
	return nil, nil
}

// owner returns the reference to an owner; nil if there is none.
func owner(object, of client.Object) *metav1.OwnerReference {
	for _, reference := range object.GetOwnerReferences() {
		if reference.UID == of.GetUID() {
			return &reference
		}
	}
	return nil
}

// settle waits until the provider has seen the earlier changes: it serves two further claims, one
// after the other.
func (t *trial) settle(ctx context.Context) error {
	for range 2 {
		t.markers++
		if _, _, err := t.claimed(ctx, fmt.Sprintf("marker-%d", t.markers)); err != nil {
			return fmt.Errorf("a claim that shows that the provider has seen the others: %w", err)
		}
	}
	return nil
}

// ignored returns an error if the provider has served a claim when it has seen all changes.
func (t *trial) ignored(ctx context.Context, claim *ipamv1.IPAddressClaim) error {
	if err := t.settle(ctx); err != nil {
		return err
	}
	address, err := t.addressOf(ctx, claim)
	if err != nil {
		return err
	}
	if address != nil {
		return fmt.Errorf("%s got %s, with the address %s", named(claim), named(address), address.Spec.Address)
	}
	return nil
}
