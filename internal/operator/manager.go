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
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// reconcileTimeout bounds one pass of a controller: the API server gives up a
// request after the same time.
const reconcileTimeout = time.Minute

// syncTimeout bounds the wait of a controller for the objects that it watches. With a hundred
// thousand claims the two minutes of the library can be too short.
const syncTimeout = 10 * time.Minute

// shutdownTimeout bounds the time for which a replica continues after it was asked to end. The manager
// then ends even if the handler of a request ignores its context, and gives up the lease. It is
// shorter than terminationGracePeriodSeconds of the manifests, after which the kubelet kills the
// replica, and longer than the time that the manifests give requests.
const shutdownTimeout = 10 * time.Second

// managerOptions returns the options of the manager, with the webhook server of the guard and
// informers that list records first.
func managerOptions(cfg *rest.Config, o Options, conn apiConnection, informers *recordsFirst, guard guard) (ctrl.Options, error) {
	accepts, diagnostics, err := flags.GetManagerOptions(o.Manager)
	if err != nil {
		return ctrl.Options{}, err
	}
	server, err := guard.server(o, accepts)
	if err != nil {
		return ctrl.Options{}, err
	}
	options := ctrl.Options{
		Logger:         o.Log,
		Scheme:         conn.scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return conn.client.RESTMapper(), nil },
		Cache:          cache.Options{DefaultTransform: slimmer(), NewInformer: informers.newInformer},
		Metrics:        *diagnostics, HealthProbeBindAddress: o.ProbeAddress,
		WebhookServer: server, GracefulShutdownTimeout: new(shutdownTimeout),
		// The priority queue of controller-runtime v0.24 can block for good when it is
		// shut down with work left in it (kubernetes-sigs/controller-runtime#3538).
		// A call that gets no answer must not hold up its object for good.
		Controller: config.Controller{
			SkipNameValidation: &o.SkipNameValidation, UsePriorityQueue: new(false), ReconciliationTimeout: reconcileTimeout,
			CacheSyncTimeout: syncTimeout,
		},
	}
	if o.SyncPeriod != 0 {
		options.Cache.SyncPeriod = &o.SyncPeriod
	}
	if err := electLeader(&options, cfg, o); err != nil {
		return ctrl.Options{}, fmt.Errorf("setting up leader election: %w", err)
	}
	return options, nil
}

// slimmer returns a transform that makes the objects in the caches smaller. It removes the managed
// fields of every object. From objects that tenants make it removes the labels, owners and
// annotations that the operator does not read: one object can have hundreds of kilobytes of them.
// From claims, the most numerous objects, it removes all that the cache need not keep. The
// operator writes to such objects by patch only, which leaves fields alone that are not in the
// cache. A patch replaces the finalizers as a whole: so the transform keeps the finalizers of
// objects whose finalizers the operator writes, and the owners of an IPAddress.
func slimmer() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	return func(obj any) (any, error) {
		switch typed := obj.(type) {
		case *v1alpha1.IPClaim:
			trimMetadata(typed, nil)
			metadata := typed.ObjectMeta
			typed.Finalizers, typed.OwnerReferences = nil, nil
			convert.TrimSelector(typed)
			ipclaim.Trim(typed)
			if metadata.Annotations[v1alpha1.AnnotationClusterNetwork] != "" {
				typed.Annotations, typed.Finalizers, typed.OwnerReferences = metadata.Annotations, metadata.Finalizers, metadata.OwnerReferences
			}
		case v1alpha1.Pool: // claims can select any label of these
			keepAnnotations(typed)
			typed.SetOwnerReferences(nil)
			typed.SetLabels(firstLabels(typed.GetLabels(), labelsOfPool))
		case *ipamv1.IPAddressClaim:
			trimMetadata(typed, []string{clusterv1.ClusterNameLabel, clusterv1.WatchLabel})
			typed.OwnerReferences = nil
		case *ipamv1.IPAddress:
			trimMetadata(typed, []string{clusterv1.ClusterNameLabel, v1alpha1.LabelPool, v1alpha1.LabelPoolKind})
		}
		return strip(obj)
	}
}

// labelsOfPool is the number of labels of a pool that are kept. No webhook sees an edit of labels,
// and an object can have tens of thousands of them.
const labelsOfPool = 256

// firstLabels returns the first n labels, in the order of their keys, so that all replicas keep the same.
func firstLabels(labels map[string]string, n int) map[string]string {
	if len(labels) <= n {
		return labels
	}
	return filterKeys(labels, slices.Sorted(maps.Keys(labels))[:n])
}

// trimMetadata removes all labels of an object but these, and all annotations that the operator does not
// read.
func trimMetadata(obj client.Object, labels []string) {
	obj.SetLabels(filterKeys(obj.GetLabels(), labels))
	keepAnnotations(obj)
}

// annotationBytes holds the annotations that the operator reads, and the number of bytes that are
// kept of each: one more than a valid value can have, so that a longer value stays invalid.
var annotationBytes = map[string]int{ //nolint:gochecknoglobals // a table, made once
	v1alpha1.AnnotationAddress: 64, v1alpha1.AnnotationSticky: 254, v1alpha1.AnnotationAllocation: 254, v1alpha1.AnnotationUseGranted: 254 + 37,
	v1alpha1.AnnotationRequester: 0, v1alpha1.AnnotationRequestedBy: 4 * v1alpha1.MaxRequestedBy,
	v1alpha1.AnnotationClusterNetwork: 512, incluster.AnnotationRoutingDomain: 64, v1alpha1.AnnotationAttempt: 64,
	v1alpha1.AnnotationPaused: 0, v1alpha1.AnnotationClusterAPIPaused: 0,
}

func keepAnnotations(obj client.Object) {
	annotations := filterKeys(obj.GetAnnotations(), slices.Collect(maps.Keys(annotationBytes)))
	for key, value := range annotations {
		if limit := annotationBytes[key]; len(value) > limit {
			annotations[key] = strings.Clone(value[:limit]) // else the whole value stays in memory
		}
	}
	obj.SetAnnotations(annotations)
}

// filterKeys returns the entries that have these keys.
func filterKeys(values map[string]string, keys []string) map[string]string {
	var filtered map[string]string
	for key, value := range values {
		if !slices.Contains(keys, key) {
			continue
		}
		if filtered == nil {
			filtered = map[string]string{}
		}
		filtered[key] = value
	}
	return filtered
}

// recordsFirst holds the sources of the kinds that are as numerous as records. The caches list
// these kinds after the records: with the records the operator can hand out blocks. If all were
// listed at once, the API server, whose CPU is the limit, would take several times as long for the
// records.
type recordsFirst struct {
	records                          kubeutil.StreamingSource
	claims, addressClaims, addresses kubeutil.StreamingSource
	// areRecordsListed reports whether the records have been listed.
	areRecordsListed func() bool
	rollbacks        *rollbacks
}

// listedPoll is the interval at which a cache checks whether the records have been listed.
const listedPoll = 20 * time.Millisecond

// newRecordsFirst makes the sources.
func newRecordsFirst(cfg *rest.Config, conn apiConnection, areRecordsListed func() bool, rollbacks *rollbacks) (*recordsFirst, error) {
	r, slim, errs := &recordsFirst{areRecordsListed: areRecordsListed, rollbacks: rollbacks}, slimmer(), [4]error{}
	r.records, errs[0] = kubeutil.NewStreamingSource[v1alpha1.IPAllocation](cfg, conn.http, conn.scheme, kubeutil.Selection{Resource: "ipallocations"}, slim)
	r.claims, errs[1] = kubeutil.NewStreamingSource[v1alpha1.IPClaim](cfg, conn.http, conn.scheme, kubeutil.Selection{Resource: "ipclaims"}, slim)
	r.addressClaims, errs[2] = kubeutil.NewStreamingSource[ipamv1.IPAddressClaim](cfg, conn.http, conn.scheme, kubeutil.Selection{Resource: "ipaddressclaims"}, slim)
	r.addresses, errs[3] = kubeutil.NewStreamingSource[ipamv1.IPAddress](cfg, conn.http, conn.scheme, kubeutil.Selection{Resource: "ipaddresses"}, slim)
	return r, errors.Join(errs[:]...)
}

// newInformer makes the informers of a toolscache.
func (r *recordsFirst) newInformer(listerWatcher toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	switch example.(type) {
	case *v1alpha1.IPClaim:
		listerWatcher = r.afterRecords(r.claims)
	case *ipamv1.IPAddressClaim:
		listerWatcher = r.afterRecords(r.addressClaims)
	case *ipamv1.IPAddress:
		listerWatcher = r.afterRecords(r.addresses)
	}
	informer := r.rollbacks.newInformer(listerWatcher, example, resync, indexers)
	if _, ok := example.(*v1alpha1.IPClaim); ok {
		return kubeutil.PackedInformer(informer, ipclaim.Pack)
	}
	return informer
}

// afterRecords returns a source that lists and watches as streamingSource does, when the records have been listed.
func (r *recordsFirst) afterRecords(streamingSource kubeutil.StreamingSource) kubeutil.StreamingSource {
	return kubeutil.StreamingSource{ListWatch: &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			isListed := func(context.Context) (bool, error) { return r.areRecordsListed(), nil }
			if err := wait.PollUntilContextCancel(ctx, listedPoll, true, isListed); err != nil {
				return nil, err
			}
			return streamingSource.ListWithContext(ctx, options)
		},
		WatchFuncWithContext: streamingSource.WatchWithContext, // which follows a list
	}}
}
