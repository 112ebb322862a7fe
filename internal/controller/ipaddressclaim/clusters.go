package ipaddressclaim

import (
	"context"
	"fmt"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// watchClusters keeps in the catalogue, on every replica, which Clusters are paused. The
// function that it returns reports whether all Clusters have been seen once.
func watchClusters(from cache.Cache, catalogue *inventory.Catalogue) (known func() bool, err error) {
	informer, err := from.GetInformer(context.Background(), &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	catalogue.KnowClusters()
	take := func(obj any) {
		cluster := obj.(*clusterv1.Cluster)
		catalogue.SetCluster(nameOf(cluster), annotations.IsPaused(cluster, cluster))
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    take,
		UpdateFunc: func(_, obj any) { take(obj) },
		DeleteFunc: func(obj any) {
			if missed, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = missed.Obj
			}
			if cluster, ok := obj.(*clusterv1.Cluster); ok {
				catalogue.DropCluster(nameOf(cluster))
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	return registration.HasSynced, nil
}

func nameOf(obj client.Object) ipam.Name {
	return ipam.Name{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
