package ipaddressclaim

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/inorder"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// kind is that of the claims, in Cluster API's group.
const kind = "IPAddressClaim"

// Indexes of the cache of claims.
const (
	byCluster = "cluster"
	byTarget  = "target"
)

// Orphans settles records without holder.
type Orphans interface {
	// Judge has records of holders of the kind judged by f.
	Judge(kind string, f func(context.Context, client.Reader, ipam.Record) (bool, error))
	// Gone notes that the holder of the records, of the UID, has been deleted.
	Gone(uid string, records ...ipam.Name)
	// Look has the records judged, of whose holder nothing is known: one that has none
	// is released after a grace period.
	Look(records ...ipam.Name)
}

// SetUp has the claims served: at once where Cluster API is there, otherwise when
// it comes.
func (c *Controller) SetUp(mgr manager.Manager) error {
	c.events = mgr.GetEventRecorder("cadastre")
	return (&arrival{
		client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), log: mgr.GetLogger().WithName("cluster-api"),
		watchClusters: func() (func() bool, error) { return c.watchClusters(mgr.GetCache()) },
		require:       c.Allocator.FedBy,
		start:         func() error { return c.start(mgr) },
	}).setUp(mgr)
}

// start registers what there is to register once Cluster API's kinds are served.
func (c *Controller) start(mgr manager.Manager) error {
	ctx := context.Background() // an index needs no cancelling
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, byCluster, indexedCluster); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, byTarget, indexedTarget); err != nil {
		return err
	}
	c.Orphans.Judge(kind, holds)
	line := &line{allocator: c.Allocator, client: c.Client, serves: c.serves}
	if err := line.setUp(mgr); err != nil {
		return err
	}
	// IPAddresses are watched on every replica, so that one that becomes the leader
	// need not list them first.
	if _, err := mgr.GetCache().GetInformer(ctx, &ipamv1.IPAddress{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named("ipaddressclaim").
		WatchesRawSource(inorder.Sources(
			c.records(),
			source.Kind[client.Object](mgr.GetCache(), &ipamv1.IPAddress{}, c.addresses()),
			source.Kind[client.Object](mgr.GetCache(), &ipamv1.IPAddressClaim{}, c.claims()),
		)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(claimsOf(c.Client)), builder.WithPredicates(pauseChanged())).
		WatchesRawSource(c.catalogue()).
		WatchesRawSource(c.turns()).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backOff()}).
		Complete(c.Within.Limit(c))
}

// backOff has a claim that fails tried again a minute later at most: what refuses its
// IPAddress, such as a quota, does not say when it would not.
func backOff() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, time.Minute)
}

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
