package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/requester"
)

// reconcileWithin bounds one pass of a controller: the API server gives up a
// request after as long.
const reconcileWithin = time.Minute

// syncWithin bounds the wait of a controller for what it watches. With a hundred
// thousand claims the two minutes of the library can be too short.
const syncWithin = 10 * time.Minute

// endWithin bounds how long a replica goes on once it is to end. The manager then ends in spite
// of a request whose handler does not heed its context, and gives up the lease: earlier than
// terminationGracePeriodSeconds of the manifests, when the kubelet kills it, and later than
// requests have time by them.
const endWithin = 10 * time.Second

// newManager makes the manager, with the webhook server of the guard and informers that
// list records first.
func newManager(cfg *rest.Config, o Options, to api, first *recordsFirst, guard guard) (ctrl.Manager, error) {
	accepts, diagnostics, err := flags.GetManagerOptions(o.Manager)
	if err != nil {
		return nil, err
	}
	server, err := guard.server(o, accepts)
	if err != nil {
		return nil, err
	}
	options := ctrl.Options{
		Logger:         o.Log,
		Scheme:         to.scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return to.client.RESTMapper(), nil },
		Cache:          cache.Options{DefaultTransform: slimmer(), NewInformer: first.newInformer, SyncPeriod: syncPeriod(o)},
		Metrics:        *diagnostics, HealthProbeBindAddress: o.ProbeAddress,
		WebhookServer: server, GracefulShutdownTimeout: new(endWithin),
		// The priority queue of controller-runtime v0.24 can block for good when it is
		// shut down with work left in it (kubernetes-sigs/controller-runtime#3538).
		// A call of which no answer comes must not hold up its object for good.
		Controller: config.Controller{
			SkipNameValidation: &o.SkipNameValidation, UsePriorityQueue: new(false), ReconciliationTimeout: reconcileWithin,
			CacheSyncTimeout: syncWithin,
		},
	}
	if err := electLeader(&options, cfg, o); err != nil {
		return nil, fmt.Errorf("setting up leader election: %w", err)
	}
	return ctrl.NewManager(cfg, options)
}

// syncPeriod is nil for the library's own.
func syncPeriod(o Options) *time.Duration {
	if o.SyncPeriod == 0 {
		return nil
	}
	return &o.SyncPeriod
}

// slimmer makes what the caches keep smaller. Of every object the managed fields go; of
// what tenants make, the labels, owners and annotations that the operator does not read, of which
// one object may have hundreds of kilobytes; and of claims, which are the most, what need
// not be kept of them. Whatever is written to such an object is written as a patch, which
// leaves alone what is not in the cache. A patch replaces the finalizers as a whole: so those of
// objects of which the operator writes them stay, and so do the owners of an IPAddress.
func slimmer() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	return func(obj any) (any, error) {
		switch made := obj.(type) {
		case *v1alpha1.IPClaim:
			keep(made, nil)
			made.Finalizers, made.OwnerReferences = nil, nil
			convert.TrimSelector(made)
			ipclaim.Trim(made)
		case *v1alpha1.IPPool, *v1alpha1.LocalIPPool: // of which claims may select any label
			pool := made.(client.Object)
			keepAnnotations(pool)
			pool.SetOwnerReferences(nil)
			pool.SetLabels(first(pool.GetLabels(), labelsOfPool))
		case *ipamv1.IPAddressClaim:
			keep(made, []string{clusterv1.ClusterNameLabel, clusterv1.WatchLabel})
			made.OwnerReferences = nil
		case *ipamv1.IPAddress:
			keep(made, []string{clusterv1.ClusterNameLabel, v1alpha1.LabelPool, v1alpha1.LabelPoolKind})
		}
		return strip(obj)
	}
}

// labelsOfPool is how many labels of a pool are kept. No webhook sees an edit of labels, of which an
// object may have tens of thousands.
const labelsOfPool = 256

// first returns the first n labels, in the order of their keys, so that all replicas keep the same.
func first(all map[string]string, n int) map[string]string {
	if len(all) <= n {
		return all
	}
	return only(all, slices.Sorted(maps.Keys(all))[:n])
}

// keep leaves an object these labels, and the annotations that are read.
func keep(obj client.Object, labels []string) {
	obj.SetLabels(only(obj.GetLabels(), labels))
	keepAnnotations(obj)
}

// annotationBytes are the annotations that are read, and how many bytes of each are: one more than a
// value that means something can have, so that a longer one means as little as before.
var annotationBytes = map[string]int{ //nolint:gochecknoglobals // a table, made once
	v1alpha1.AnnotationAddress: 64, v1alpha1.AnnotationSticky: 254, v1alpha1.AnnotationAllocation: 254, v1alpha1.AnnotationUseGranted: 254,
	v1alpha1.AnnotationRequester: requester.MaxSealed + 1, v1alpha1.AnnotationRequestedBy: 4 * v1alpha1.MaxRequestedBy,
	v1alpha1.AnnotationPaused: 0, v1alpha1.AnnotationClusterAPIPaused: 0,
}

func keepAnnotations(obj client.Object) {
	kept := only(obj.GetAnnotations(), slices.Collect(maps.Keys(annotationBytes)))
	for key, value := range kept {
		if most := annotationBytes[key]; len(value) > most {
			kept[key] = strings.Clone(value[:most]) // else the whole of it is kept
		}
	}
	obj.SetAnnotations(kept)
}

// only is what has these keys.
func only(all map[string]string, keys []string) map[string]string {
	var kept map[string]string
	for key, value := range all {
		if !slices.Contains(keys, key) {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[key] = value
	}
	return kept
}

// recordsFirst has the caches of kinds that are as numerous as records list them when the
// records are there: blocks can be handed out by then, and if all were listed at once the
// API server, whose CPU is the limit, would take several times as long for the records.
type recordsFirst struct {
	records                          kubeutil.StreamingSource
	claims, addressClaims, addresses kubeutil.StreamingSource
	// listed reports whether the records are there.
	listed    func() bool
	rollbacks *rollbacks
}

// listedPoll is how often a cache checks whether the records are there.
const listedPoll = 20 * time.Millisecond

// newRecordsFirst makes the sources.
func newRecordsFirst(cfg *rest.Config, to api, listed func() bool, rollbacks *rollbacks) (*recordsFirst, error) {
	r, slim, errs := &recordsFirst{listed: listed, rollbacks: rollbacks}, slimmer(), [4]error{}
	r.records, errs[0] = kubeutil.NewStreamingSource[v1alpha1.IPAllocation](cfg, to.http, to.scheme, "ipallocations", slim)
	r.claims, errs[1] = kubeutil.NewStreamingSource[v1alpha1.IPClaim](cfg, to.http, to.scheme, "ipclaims", slim)
	r.addressClaims, errs[2] = kubeutil.NewStreamingSource[ipamv1.IPAddressClaim](cfg, to.http, to.scheme, "ipaddressclaims", slim)
	r.addresses, errs[3] = kubeutil.NewStreamingSource[ipamv1.IPAddress](cfg, to.http, to.scheme, "ipaddresses", slim)
	return r, errors.Join(errs[:]...)
}

// newInformer makes the informers of a toolscache.
func (r *recordsFirst) newInformer(of toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	switch example.(type) {
	case *v1alpha1.IPClaim:
		of = r.after(r.claims)
	case *ipamv1.IPAddressClaim:
		of = r.after(r.addressClaims)
	case *ipamv1.IPAddress:
		of = r.after(r.addresses)
	}
	informer := toolscache.NewSharedIndexInformer(r.rollbacks.verified(of, example), example, resync, indexers)
	if _, ok := example.(*v1alpha1.IPClaim); ok {
		return kubeutil.PackedInformer(informer, ipclaim.Pack)
	}
	return informer
}

// after lists and watches as of does, when the records are there.
func (r *recordsFirst) after(of kubeutil.StreamingSource) kubeutil.StreamingSource {
	return kubeutil.StreamingSource{ListWatch: &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			if err := r.await(ctx); err != nil {
				return nil, err
			}
			return of.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if err := r.await(ctx); err != nil {
				return nil, err
			}
			return of.WatchWithContext(ctx, options)
		},
	}}
}

func (r *recordsFirst) await(ctx context.Context) error {
	return wait.PollUntilContextCancel(ctx, listedPoll, true, func(context.Context) (bool, error) { return r.listed(), nil })
}
