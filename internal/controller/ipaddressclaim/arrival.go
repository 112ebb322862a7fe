package ipaddressclaim

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// +kubebuilder:rbac:groups=apiextensions.k8s.io,resources=customresourcedefinitions,verbs=list;watch

// arrival waits, on every replica, until Cluster API's kinds are served, and then
// starts what serves them, once.
type arrival struct {
	client client.Reader
	mapper meta.RESTMapper
	log    logr.Logger
	// watchClusters begins to watch Clusters; known reports whether all have been seen.
	watchClusters func() (known func() bool, err error)
	// require has nothing handed out, of any kind, before all are known.
	require func(known func() bool)
	// start serves claims, and needs caches that have begun.
	start func() error

	mu      sync.Mutex
	known   func() bool // set when Clusters are watched
	started bool
}

// needed are the kinds without which no claim can be served.
func needed() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		ipamv1.GroupVersion.WithKind(kind),
		ipamv1.GroupVersion.WithKind("IPAddress"),
		clusterv1.GroupVersion.WithKind("Cluster"),
	}
}

// definitions are the names of their CRDs.
func definitions() []string {
	return []string{"ipaddressclaims." + ipamv1.GroupVersion.Group, "ipaddresses." + ipamv1.GroupVersion.Group, "clusters." + clusterv1.GroupVersion.Group}
}

func (a *arrival) setup(mgr manager.Manager) error {
	if there, err := a.there(); err != nil || there {
		if err != nil {
			return err
		}
		a.started = true
		known, err := a.watchClusters()
		if err != nil {
			return err
		}
		a.require(known)
		return mgr.Add(onEveryReplica(a.start))
	}
	a.log.Info("Cluster API is not installed: its IPAddressClaims are served as soon as it is")
	wanted := predicate.NewPredicateFuncs(func(obj client.Object) bool { return slices.Contains(definitions(), obj.GetName()) })
	backoff := kubeutil.NewBackoff(clock.RealClock{}, nil)
	return builder.ControllerManagedBy(mgr).
		Named("cluster-api-arrival").
		For(definition(), builder.WithPredicates(wanted)).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{NeedLeaderElection: new(false), RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(a))
}

// onEveryReplica is called when the caches that are there have all that they watch.
// One that is made then has nobody wait for what it watches: there may be many claims
// and addresses, and IPClaims are served without them.
type onEveryReplica func() error

// Start implements manager.Runnable.
func (f onEveryReplica) Start(context.Context) error { return f() }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (onEveryReplica) NeedLeaderElection() bool { return false }

// servedWithin is about how long the API server takes until it serves a kind whose
// CRD it has accepted. Nothing notifies a client when it does.
const servedWithin = time.Second

// knownWithin is about how long it takes to list the Clusters of a cluster that had none
// of Cluster API before.
const knownWithin = 100 * time.Millisecond

// Reconcile implements reconcile.Reconciler: a CRD has come or changed. When all
// have come, it is tried again until all are served, and the Clusters are known. Nobody
// else waits for these: IPClaims are served as before.
func (a *arrival) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.started {
		return reconcile.Result{}, nil
	}
	there, err := a.there()
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case !there && a.defined(ctx):
		return reconcile.Result{RequeueAfter: servedWithin}, nil
	case !there:
		return reconcile.Result{}, nil // the next CRD is another event
	}
	if a.known == nil {
		if a.known, err = a.watchClusters(); err != nil {
			return reconcile.Result{}, err
		}
	}
	if !a.known() {
		return reconcile.Result{RequeueAfter: knownWithin}, nil
	}
	if err := a.start(); err != nil {
		return reconcile.Result{}, fmt.Errorf("serving IPAddressClaims: %w", err)
	}
	a.started = true
	a.log.Info("Cluster API is there: serving its IPAddressClaims")
	return reconcile.Result{}, nil
}

// defined reports whether all CRDs have come.
func (a *arrival) defined(ctx context.Context) bool {
	for _, name := range definitions() {
		if a.client.Get(ctx, client.ObjectKey{Name: name}, definition()) != nil {
			return false
		}
	}
	return true
}

// definition is an empty CRD, of which the metadata are watched alone.
func definition() *metav1.PartialObjectMetadata {
	obj := &metav1.PartialObjectMetadata{}
	obj.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
	return obj
}

// there reports whether all kinds are served.
func (a *arrival) there() (bool, error) {
	for _, gvk := range needed() {
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
