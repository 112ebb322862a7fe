package ipaddressclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/trace"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/annotations"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Replica implements the work of every replica for IPAddressClaims, whether it leads or not: it
// knows which Clusters are paused, and keeps in the queue the claims that the leader could not
// serve, so that no other replica lets a newer claim overtake them. It also marks in the view
// addresses that are about to be released. It writes nothing.
type Replica struct {
	Ledger  *ledger.Ledger
	Catalog *inventory.Catalog
	Queue   *queue.Queue
	Tracer  trace.Tracer

	// Client reads from the cache.
	Client client.Reader
	// Within and WatchFilter have the values of the Controller.
	Within      kubeutil.Namespaces
	WatchFilter string
	Targets     convert.Targets
	// Handler is notified of all IPAddressClaims that the cache has.
	Handler toolscache.ResourceEventHandler
	// StartLeader registers a Controller, which the leader runs from then on. It is called when Cluster
	// API's kinds are served: at once, or when Cluster API has been installed.
	StartLeader func() error
}

// SetupWithManager registers the work of every replica.
func (r *Replica) SetupWithManager(mgr manager.Manager) error {
	return (&arrival{
		client: r.Client, mapper: mgr.GetRESTMapper(), log: mgr.GetLogger().WithName("cluster-api"),
		watchClusters: func() (func() bool, error) { return watchClusters(mgr.GetCache(), r.Catalog) },
		addSource:     r.Queue.AddSource,
		start:         func() error { return r.start(mgr) },
	}).setup(mgr)
}

// start registers the indexes, handlers and controllers that need Cluster API's kinds to be served.
func (r *Replica) start(mgr manager.Manager) error {
	ctx := context.Background() // an index needs no canceling
	for field, valuesOf := range map[string]client.IndexerFunc{byCluster: indexedCluster, byTarget: indexedTarget} {
		if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddressClaim{}, field, valuesOf); err != nil {
			return err
		}
	}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &ipamv1.IPAddress{}, byAddress, indexedAddress); err != nil {
		return err
	}
	if err := r.watchClaims(mgr); err != nil {
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

func (r *Replica) watchClaims(mgr manager.Manager) error {
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "ipaddressclaim-waiters", nil)
	return builder.ControllerManagedBy(mgr).
		Named("ipaddressclaim-waiters").
		For(&ipamv1.IPAddressClaim{}).
		Watches(&ipamv1.IPAddress{}, &handler.EnqueueRequestForObject{}).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(claimsOf(r.Client)), builder.WithPredicates(pauseChanged())).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(tracing.Passes(r.Tracer, "ipaddressclaim-waiters", r)))
}

// Reconcile implements reconcile.Reconciler. The request names a claim.
func (r *Replica) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := readScope(ctx, r.Client, req.NamespacedName, r.Targets)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.claim != nil && !s.claim.DeletionTimestamp.IsZero() && !isInUse(s.claim) {
		s.markLeaving(r.Ledger)
	}
	if s.mayWait() && isUnserved(s.claim) && isServed(s.claim, r.Within, r.WatchFilter) {
		r.Queue.Wait(s.waiter())
	} else {
		r.Queue.Leave(s.holder())
	}
	return reconcile.Result{}, nil
}

// isUnserved reports whether the leader could not serve the claim, by the claim's status.
func isUnserved(claim *ipamv1.IPAddressClaim) bool {
	ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition)
	return ready != nil && ready.Status == metav1.ConditionFalse && claim.Status.AddressRef.Name == ""
}

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

// arrival implements the wait for Cluster API: on every replica it waits until Cluster API's kinds
// are served, and then starts the code that serves them, once.
type arrival struct {
	client client.Reader
	mapper meta.RESTMapper
	log    logr.Logger
	// watchClusters begins to watch Clusters; known reports whether all have been seen.
	watchClusters func() (known func() bool, err error)
	// addSource stops the operator from handing out blocks, of any kind, before all Clusters are
	// known.
	addSource func(known func() bool)
	// start serves claims, and needs caches that have started.
	start func() error

	mu                sync.Mutex
	areClustersSynced func() bool // set when Clusters are watched
	isStarted         bool
}

// requiredKinds returns the kinds without which no claim can be served.
func requiredKinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		ipamv1.GroupVersion.WithKind(kind),
		ipamv1.GroupVersion.WithKind("IPAddress"),
		clusterv1.GroupVersion.WithKind("Cluster"),
	}
}

// crdNames returns the names of the CRDs of the needed kinds.
func crdNames() []string {
	return []string{"ipaddressclaims." + ipamv1.GroupVersion.Group, "ipaddresses." + ipamv1.GroupVersion.Group, "clusters." + clusterv1.GroupVersion.Group}
}

func isRequiredCRD(obj client.Object) bool { return slices.Contains(crdNames(), obj.GetName()) }

func (a *arrival) setup(mgr manager.Manager) error {
	isInstalled, err := a.isInstalled()
	if err != nil {
		return err
	}
	if isInstalled {
		a.isStarted = true
		hasSynced, err := a.watchClusters()
		if err != nil {
			return err
		}
		a.addSource(hasSynced)
		return mgr.Add(onEveryReplica(a.start))
	}
	a.log.Info("Cluster API is not installed: its IPAddressClaims are served as soon as it is")
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "cluster-api-arrival", nil)
	return builder.ControllerManagedBy(mgr).
		Named("cluster-api-arrival").
		For(newCRD(), builder.WithPredicates(predicate.NewPredicateFuncs(isRequiredCRD))).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(a))
}

// onEveryReplica implements manager.Runnable: it is called when the existing caches have all
// objects that they watch. If it creates another cache, no other code waits for the objects of that
// cache: there can be many claims and addresses, and IPClaims are served without them.
type onEveryReplica func() error

// Start implements manager.Runnable.
func (f onEveryReplica) Start(context.Context) error { return f() }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEveryReplica) NeedLeaderElection() bool { return false }

// servedPollInterval is the approximate time until the API server serves a kind whose CRD it has
// accepted. Nothing notifies a client when it does.
const servedPollInterval = time.Second

// knownPollInterval is the approximate time to list the Clusters of a cluster that did not have Cluster
// API before.
const knownPollInterval = 100 * time.Millisecond

// Reconcile implements reconcile.Reconciler: a CRD was created or changed. When all CRDs exist, it
// is tried again until all kinds are served, and the Clusters are known. No other code waits for
// these: IPClaims are served as before.
func (a *arrival) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.isStarted {
		return reconcile.Result{}, nil
	}
	isInstalled, err := a.isInstalled()
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !isInstalled && a.isDefined(ctx):
		return reconcile.Result{RequeueAfter: servedPollInterval}, nil
	case !isInstalled:
		return reconcile.Result{}, nil // the next CRD is another event
	}
	if a.areClustersSynced == nil {
		if a.areClustersSynced, err = a.watchClusters(); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !a.areClustersSynced() {
		return reconcile.Result{RequeueAfter: knownPollInterval}, nil
	}
	if err := a.start(); err != nil {
		return reconcile.Result{}, fmt.Errorf("serving IPAddressClaims: %w", err)
	}
	a.isStarted = true
	a.log.Info("Cluster API is installed: serving its IPAddressClaims")
	return reconcile.Result{}, nil
}

// isDefined reports whether all CRDs exist.
func (a *arrival) isDefined(ctx context.Context) bool {
	for _, name := range crdNames() {
		if a.client.Get(ctx, client.ObjectKey{Name: name}, newCRD()) != nil {
			return false
		}
	}
	return true
}

// newCRD returns an empty CRD, of which only the metadata are watched.
func newCRD() *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return obj
}

// isInstalled reports whether all kinds are served.
func (a *arrival) isInstalled() (bool, error) {
	for _, gvk := range requiredKinds() {
		_, err := a.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("asking whether the API server knows %s: %w", gvk.Kind, err)
		}
	}
	return true, nil
}

// watchClusters keeps in the catalog, on every replica, which Clusters are paused. The returned
// function reports whether all Clusters have been seen once.
func watchClusters(informerCache cache.Cache, catalog *inventory.Catalog) (hasSynced func() bool, err error) {
	informer, err := informerCache.GetInformer(context.Background(), &clusterv1.Cluster{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	catalog.TrackClusters()
	registration, err := informer.AddEventHandler(kubeutil.Handler(
		func(cluster *clusterv1.Cluster) {
			catalog.SetCluster(nameOf(cluster), annotations.IsPaused(cluster, cluster))
		},
		func(cluster *clusterv1.Cluster) { catalog.DropCluster(nameOf(cluster)) },
	))
	if err != nil {
		return nil, fmt.Errorf("watching Clusters: %w", err)
	}
	return registration.HasSynced, nil
}

// Indexes of the cache of claims.
const (
	byCluster = "cluster"
	byTarget  = "target"
)

// byAddress is the index of the cache of IPAddresses of in-cluster pools, by their address.
const byAddress = "address"

func indexedAddress(obj client.Object) []string {
	spec := obj.(*ipamv1.IPAddress).Spec
	addr, invalid := convert.AddressInUse(nil, spec.Address)
	if invalid != nil || !isInCluster(spec.PoolRef) {
		return nil
	}
	return []string{addr.String()}
}

func indexedCluster(obj client.Object) []string {
	if name := clusterName(obj.(*ipamv1.IPAddressClaim)); name != "" {
		return []string{name}
	}
	return nil
}

// indexedTarget returns the pool or class that a claim of ours names.
func indexedTarget(obj client.Object) []string {
	ref := obj.(*ipamv1.IPAddressClaim).Spec.PoolRef
	if !isAnyTarget(ref) {
		return nil
	}
	return []string{targetKey(ref.Kind, ref.Name)}
}

func targetKey(kind, name string) string { return kind + "/" + name }

// claimsOf returns a function that maps a Cluster to its claims.
func claimsOf(reader client.Reader) handler.MapFunc {
	return func(ctx context.Context, cluster client.Object) []reconcile.Request {
		return listRequests(ctx, reader, client.InNamespace(cluster.GetNamespace()), client.MatchingFields{byCluster: cluster.GetName()})
	}
}

// listRequests returns a request for each claim that the cache lists. It returns none before the
// cache exists, which will show every claim.
func listRequests(ctx context.Context, reader client.Reader, options ...client.ListOption) []reconcile.Request {
	claims := &ipamv1.IPAddressClaimList{}
	if err := reader.List(ctx, claims, options...); err != nil {
		return nil
	}
	requests := make([]reconcile.Request, len(claims.Items))
	for i := range claims.Items {
		requests[i] = requestOf(&claims.Items[i])
	}
	return requests
}

// pauseChanged returns a predicate that passes Clusters that are created, deleted, paused or
// resumed.
func pauseChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, after := e.ObjectOld.(*clusterv1.Cluster), e.ObjectNew.(*clusterv1.Cluster)
		return annotations.IsPaused(before, before) != annotations.IsPaused(after, after)
	}}
}
