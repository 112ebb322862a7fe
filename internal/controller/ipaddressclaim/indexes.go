package ipaddressclaim

import (
	"context"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// Indexes of the cache of claims.
const (
	byCluster = "cluster"
	byTarget  = "target"
)

func indexedCluster(obj client.Object) []string {
	if name := clusterName(obj.(*ipamv1.IPAddressClaim)); name != "" {
		return []string{name}
	}
	return nil
}

// indexedTarget is the pool or class that a claim of ours names.
func indexedTarget(obj client.Object) []string {
	ref := obj.(*ipamv1.IPAddressClaim).Spec.PoolRef
	if !isOurs(ref) {
		return nil
	}
	return []string{target(ref.Kind, ref.Name)}
}

func target(kind, name string) string { return kind + "/" + name }

// claimsOf are the claims of a Cluster.
func claimsOf(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, cluster client.Object) []reconcile.Request {
		claims := &ipamv1.IPAddressClaimList{}
		err := reader.List(ctx, claims, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{byCluster: cluster.GetName()})
		if err != nil {
			return nil // the cache is not there yet, and will show every claim
		}
		requests := make([]reconcile.Request, len(claims.Items))
		for i := range claims.Items {
			requests[i] = requestOf(&claims.Items[i])
		}
		return requests
	}
}

// pauseChanged passes Clusters that come, go, are paused or go on.
func pauseChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
		return annotations.IsPaused(before, before) != annotations.IsPaused(after, after)
	}}
}

func holderNamed(namespace, name string) ipam.Holder {
	return convert.HolderOfAddressClaim(ipam.Name{Namespace: namespace, Name: name})
}

func requestOf(obj client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)}
}
