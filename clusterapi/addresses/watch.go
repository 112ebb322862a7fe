package addresses

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Watch makes a controller reconcile the owner of a claim when the claim or its IPAddress changes
// or is gone. The client is the manager's, and owner any object of the kind of Machine.Owner,
// which the controller reconciles. The manager's cache then holds claims and IPAddresses.
//
// Contract: "Wait until an IP is allocated, ideally by watching the IPAddressClaim".
func Watch(b *builder.Builder, k8s client.Client, owner client.Object) error {
	kind, err := k8s.GroupVersionKindFor(owner)
	if err != nil {
		return err
	}
	b.Watches(&ipamv1.IPAddressClaim{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, claim client.Object) []reconcile.Request {
		return owners(claim, kind.GroupKind())
	}))
	b.Watches(&ipamv1.IPAddress{}, handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, address client.Object) []reconcile.Request {
		return claimOwners(ctx, k8s, address.(*ipamv1.IPAddress), kind.GroupKind())
	}))
	return nil
}

// claimOwners returns the owners of the claim of an IPAddress. If the cache does not show the claim
// yet, the event that shows it triggers the pass.
func claimOwners(ctx context.Context, k8s client.Reader, address *ipamv1.IPAddress, kind schema.GroupKind) []reconcile.Request {
	claim := &ipamv1.IPAddressClaim{}
	err := k8s.Get(ctx, client.ObjectKey{Namespace: address.Namespace, Name: address.Spec.ClaimRef.Name}, claim)
	if client.IgnoreNotFound(err) != nil {
		log.FromContext(ctx).Error(err, "could not read the IPAddressClaim of an IPAddress", "address", client.ObjectKeyFromObject(address))
	}
	return owners(claim, kind)
}

// owners returns the owners of an object that are of a kind, in any version.
func owners(object client.Object, kind schema.GroupKind) []reconcile.Request {
	var requests []reconcile.Request
	for _, owner := range object.GetOwnerReferences() {
		if schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind).GroupKind() == kind {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: object.GetNamespace(), Name: owner.Name}})
		}
	}
	return requests
}
