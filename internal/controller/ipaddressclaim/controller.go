// Package ipaddressclaim serves Cluster API's IPAddressClaims that name a pool or a class of
// Cadastre, by the IPAM contract v1beta2 of Cluster API 1.14
// (docs/book/src/developer/providers/contracts/ipam.md there). Claims of other providers are left
// untouched.
//
// IPAllocations record the held addresses, as for every holder; an IPAddress shows one. An
// IPAddress that exists already, after a move or a restore or because a user made it, is adopted:
// its block is recorded, and never renumbered.
package ipaddressclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ippools/finalizers;localippools/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles IPAddressClaims, and the IPAddresses of their names. Only
// the leader runs it.
type Controller struct {
	// Ledger is the view of all allocations.
	Ledger *ledger.Ledger
	// Catalog holds the pools, classes, namespaces and Clusters.
	Catalog *inventory.Catalog
	// Queue holds the waiting claims and pools.
	Queue *queue.Queue
	// Allocator creates and deletes IPAllocations.
	Allocator *allocator.Allocator
	// Metrics counts passes.
	Metrics *metrics.Instruments
	// Tracer starts the spans; nil: no spans.
	Tracer trace.Tracer
	// Client writes, and reads from the cache.
	Client client.Client
	// Live reads without a cache.
	Live client.Reader
	// Asker asks again for the right to use a pool.
	Asker *authorize.Asker
	// Orphans collects the records whose claims are gone.
	Orphans Orphans
	// Workers is the number of claims that are reconciled at a time.
	Workers int
	// Within holds the namespaces whose claims it reconciles.
	Within kubeutil.Namespaces
	// WatchFilter is the required value of Cluster API's label for filters; empty:
	// any, or none.
	WatchFilter string
	Clock       clock.PassiveClock
	// Events receives the events.
	Events events.EventRecorder

	// expectations holds the changes that the caches do not show yet.
	expectations expectations
}

// SetupWithManager registers the controller. The API server must serve Cluster API's kinds.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	c.Orphans.Judge(kind, holds)
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "ipaddressclaim", c.Metrics)
	return builder.ControllerManagedBy(mgr).
		Named("ipaddressclaim").
		WatchesRawSource(kubeutil.OrderedSources(
			c.records(),
			source.Kind[client.Object](mgr.GetCache(), &ipamv1.IPAddress{}, c.addresses()),
			source.Kind[client.Object](mgr.GetCache(), &ipamv1.IPAddressClaim{}, c.claims()),
		)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(claimsOf(c.Client)), builder.WithPredicates(pauseChanged())).
		WatchesRawSource(c.changes()).
		WatchesRawSource(c.Queue.Turns(kind)).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(c.Within.Limit(backoff.Passes(tracing.Passes(c.Tracer, "ipaddressclaim", c))))
}

// Reconcile implements reconcile.Reconciler. The request names a claim.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := c.readScope(ctx, req.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.claim != nil && !c.serves(s.claim) {
		return reconcile.Result{}, nil
	}
	if !s.mayWait() { // if it can wait, that is decided when it is not served
		c.Queue.Leave(s.holder())
	}
	delay := c.addressDelay(s)
	c.forgetShownDeletion(s, delay)
	switch s.nextStep() {
	case leaveAlone:
		return reconcile.Result{RequeueAfter: delay}, nil
	case refuse:
		return reconcile.Result{}, c.refuse(ctx, s)
	case keepAddress:
		return requeueIfNotSeen(c.retry(s, c.keepAddress(ctx, s)))
	case dropAddress:
		return requeueIfNotSeen(c.unprotect(ctx, s))
	case release:
		if s.finalizerRemoved.isOf(s.claim, c.Clock.Now()) {
			return reconcile.Result{RequeueAfter: cacheTimeout}, nil
		}
		return requeueIfNotSeen(c.reportRefusal(ctx, s, c.release(ctx, s)))
	default:
		return withRequeue(ctx, s, c.serve)
	}
}

// addressDelay returns the time within which an IPAddress without claim that this process created can
// still appear; 0 if there is none.
func (c *Controller) addressDelay(s *scope) time.Duration {
	if s.claim != nil || s.address != nil {
		return 0
	}
	return c.expectations.addressDelay(s.name, c.Clock.Now())
}

// forgetShownDeletion forgets that the deletion of a claim was seen if there is another claim of its name, or
// neither a claim nor an IPAddress. A pass that began before the deletion was seen may still have
// that same claim.
func (c *Controller) forgetShownDeletion(s *scope, delay time.Duration) {
	uid, ok := c.expectations.deletedClaim(s.name)
	switch {
	case !ok, s.claim != nil && string(s.claim.UID) == uid:
	case s.claim != nil, s.address == nil && delay == 0:
		c.expectations.forgetDeletedClaim(s.name, uid)
	}
}

func (c *Controller) serves(claim *ipamv1.IPAddressClaim) bool {
	return isServed(claim, c.Within, c.WatchFilter)
}

// requeueIfNotSeen requeues a claim if an object of it has not been seen yet: if this process, or the leader
// before it, made the object, its appearance does not enqueue the claim.
func requeueIfNotSeen(err error) (reconcile.Result, error) {
	if errors.Is(err, errNotSeen) {
		return reconcile.Result{RequeueAfter: cacheTimeout}, nil
	}
	return reconcile.Result{}, err
}

// withRequeue serves a claim. It requeues the claim for the time when the right to use its pool is asked
// for again, or when a claim that has lost its turn is tried again.
func withRequeue(ctx context.Context, s *scope, serve func(context.Context, *scope) error) (reconcile.Result, error) {
	result, err := requeueIfNotSeen(serve(ctx, s))
	if err == nil && result.IsZero() {
		result.RequeueAfter = cmp.Or(s.grantRetry, s.retry)
	}
	return result, err
}

// serve ensures that the claim has its address, and writes the result into its status.
func (c *Controller) serve(ctx context.Context, s *scope) error {
	recordErr := c.recordExisting(ctx, s)
	if halt := c.haltOf(s); halt != nil {
		return errors.Join(c.reportHalt(ctx, s, halt), c.retry(s, recordErr))
	}
	before := s.claim.DeepCopy()
	err := recordErr
	switch {
	case s.hasFormerAddress():
		err = c.dropFormerAddress(ctx, s)
	case err == nil:
		err = c.serveClaim(ctx, s)
	}
	retry := c.applyResult(s, err)
	if err := c.writeStatusAndEvent(ctx, before, s.claim); err != nil {
		return err
	}
	return retry
}

// serveClaim gives the claim an address, or repairs its present one.
func (c *Controller) serveClaim(ctx context.Context, s *scope) error {

	if s.address != nil {
		if err := c.protectClaim(ctx, s); err != nil {
			return err
		}
		return c.repair(ctx, s)
	}
	if err := c.bindAndYield(ctx, s); err != nil {
		return err
	}
	return c.createAddress(ctx, s)
}

// Replica implements the work of every replica for IPAddressClaims, whether it leads or not: it
// knows which Clusters are paused, and which claims wait.
type Replica struct {
	// Ledger is the view of all allocations.
	Ledger *ledger.Ledger
	// Catalog holds the pools, classes, namespaces and Clusters.
	Catalog *inventory.Catalog
	// Queue holds the waiting claims and pools.
	Queue *queue.Queue
	// Tracer starts the spans; nil: no spans.
	Tracer trace.Tracer
	// Within and WatchFilter have the values of the Controller.
	Within      kubeutil.Namespaces
	WatchFilter string
	// Handler is notified of all IPAddressClaims that the cache has.
	Handler toolscache.ResourceEventHandler
	// StartLeader registers a Controller, which the leader runs from then on. It is called when Cluster
	// API's kinds are served: at once, or when Cluster API has been installed.
	StartLeader func() error
}

// SetupWithManager registers the work of every replica.
func (r *Replica) SetupWithManager(mgr manager.Manager) error {
	return (&arrival{
		client: mgr.GetClient(), mapper: mgr.GetRESTMapper(), log: mgr.GetLogger().WithName("cluster-api"),
		watchClusters: func() (func() bool, error) { return watchClusters(mgr.GetCache(), r.Catalog) },
		addSource:     r.Queue.AddSource,
		start:         func() error { return r.start(mgr) },
	}).setup(mgr)
}

// start registers the indexes, handlers and controllers that need Cluster API's kinds to be served.
func (r *Replica) start(mgr manager.Manager) error {
	ctx := context.Background() // an index needs no canceling
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, byCluster, indexedCluster); err != nil {
		return err
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, byTarget, indexedTarget); err != nil {
		return err
	}
	waiters := &waiters{ledger: r.Ledger, queue: r.Queue, tracer: r.Tracer, client: mgr.GetClient(), serves: func(claim *ipamv1.IPAddressClaim) bool {
		return isServed(claim, r.Within, r.WatchFilter)
	}}
	if err := waiters.setup(mgr); err != nil {
		return err
	}
	claims, err := mgr.GetCache().GetInformer(ctx, &ipamv1.IPAddressClaim{}, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	if _, err := claims.AddEventHandler(r.Handler); err != nil {
		return err
	}
	// Every replica watches IPAddresses, so that a replica that becomes the leader need not list
	// them first.
	if _, err := mgr.GetCache().GetInformer(ctx, &ipamv1.IPAddress{}, cache.BlockUntilSynced(false)); err != nil {
		return err
	}
	return r.StartLeader()
}

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

// indexedTarget returns the pool or class that a claim of ours names.
func indexedTarget(obj client.Object) []string {
	ref := obj.(*ipamv1.IPAddressClaim).Spec.PoolRef
	if !isOurs(ref) {
		return nil
	}
	return []string{targetKey(ref.Kind, ref.Name)}
}

func targetKey(kind, name string) string { return kind + "/" + name }

// claimsOf returns a function that maps a Cluster to its claims.
func claimsOf(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, cluster client.Object) []reconcile.Request {
		claims := &ipamv1.IPAddressClaimList{}
		err := reader.List(ctx, claims, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{byCluster: cluster.GetName()})
		if err != nil {
			return nil // the cache does not exist yet, and will show every claim
		}
		requests := make([]reconcile.Request, len(claims.Items))
		for i := range claims.Items {
			requests[i] = requestOf(&claims.Items[i])
		}
		return requests
	}
}

// pauseChanged returns a predicate that passes Clusters that are created, deleted, paused or
// resumed.
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

// watchClusters keeps in the catalog, on every replica, which Clusters are paused. The returned
// function reports whether all Clusters have been seen once.
func watchClusters(informerCache cache.Cache, catalog *inventory.Catalog) (hasSynced func() bool, err error) {
	informer, err := informerCache.GetInformer(context.Background(), &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	catalog.TrackClusters()
	setCluster := func(obj any) {
		cluster := obj.(*clusterv1.Cluster)
		catalog.SetCluster(nameOf(cluster), annotations.IsPaused(cluster, cluster))
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    setCluster,
		UpdateFunc: func(_, obj any) { setCluster(obj) },
		DeleteFunc: func(obj any) {
			if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
				obj = tombstone.Obj
			}
			if cluster, ok := obj.(*clusterv1.Cluster); ok {
				catalog.DropCluster(nameOf(cluster))
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
