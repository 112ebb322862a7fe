package operator

import (
	"slices"

	toolscache "k8s.io/client-go/tools/cache"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/controller/ipclaim"
)

// slimmer makes what the caches keep smaller. Of every object the managed fields go; of
// what tenants make, the labels and annotations that the operator does not read, of which
// one object may have hundreds of kilobytes; and of claims, which are the most, what need
// not be kept of them. Whatever is written to such an object is written as a patch, which
// leaves alone what is not in the cache.
func slimmer() toolscache.TransformFunc {
	strip := cache.TransformStripManagedFields()
	return func(obj any) (any, error) {
		switch made := obj.(type) {
		case *v1alpha1.IPClaim:
			keep(made, nil)
			ipclaim.Trim(made)
		case *v1alpha1.IPPool, *v1alpha1.LocalIPPool: // of which claims may select any label
			keepAnnotations(made.(client.Object))
		case *ipamv1.IPAddressClaim:
			keep(made, []string{clusterv1.ClusterNameLabel, clusterv1.WatchLabel})
		case *ipamv1.IPAddress:
			keep(made, []string{clusterv1.ClusterNameLabel, v1alpha1.LabelPool, v1alpha1.LabelPoolKind})
		}
		return strip(obj)
	}
}

// keep leaves an object these labels, and the annotations that are read.
func keep(obj client.Object, labels []string) {
	obj.SetLabels(only(obj.GetLabels(), labels))
	keepAnnotations(obj)
}

func keepAnnotations(obj client.Object) {
	obj.SetAnnotations(only(obj.GetAnnotations(), []string{
		v1alpha1.AnnotationAddress, v1alpha1.AnnotationSticky, v1alpha1.AnnotationAllocation, v1alpha1.AnnotationUseGranted,
		v1alpha1.AnnotationRequester, v1alpha1.AnnotationRequestedBy, v1alpha1.AnnotationPaused, v1alpha1.AnnotationClusterAPIPaused,
	}))
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
