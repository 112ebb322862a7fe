package ipaddressclaim

import (
	"context"

	toolscache "k8s.io/client-go/tools/cache"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Replica is what every replica does for IPAddressClaims, whether it leads or not: it
// knows which Clusters are paused, and who waits.
type Replica struct {
	allocator.Parts
	// Within and WatchFilter are those of the Controller.
	Within      kubeutil.Namespaces
	WatchFilter string
	// Notified is notified of all IPAddressClaims that the cache has.
	Notified toolscache.ResourceEventHandler
	// Lead has the leader run a Controller from now on. It is called when Cluster API's
	// kinds are served: at once, or when it has been installed.
	Lead func() error
}

// Setup registers what every replica does.
func (r *Replica) Setup(mgr manager.Manager) error {
	return (&arrival{
		client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), log: mgr.GetLogger().WithName("cluster-api"),
		watchClusters: func() (func() bool, error) { return watchClusters(mgr.GetCache(), r.Catalogue) },
		require:       r.Queue.FedBy,
		start:         func() error { return r.start(mgr) },
	}).setup(mgr)
}

// start registers what there is to register once Cluster API's kinds are served.
func (r *Replica) start(mgr manager.Manager) error {
	ctx := context.Background() // an index needs no cancelling
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, byCluster, indexedCluster); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, byTarget, indexedTarget); err != nil {
		return err
	}
	waiters := &waiters{Parts: r.Parts, client: mgr.GetClient(), serves: func(claim *ipamv1.IPAddressClaim) bool {
		return isServed(claim, r.Within, r.WatchFilter)
	}}
	if err := waiters.setup(mgr); err != nil {
		return err
	}
	claims, err := mgr.GetCache().GetInformer(ctx, &ipamv1.IPAddressClaim{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := claims.AddEventHandler(r.Notified); err != nil {
		return err
	}
	// IPAddresses are watched on every replica, so that one that becomes the leader
	// need not list them first.
	if _, err := mgr.GetCache().GetInformer(ctx, &ipamv1.IPAddress{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	return r.Lead()
}
