package operator

import (
	"maps"
	"slices"
	"strings"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/requester"
)

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
