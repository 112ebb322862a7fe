package migrate

import (
	"maps"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The group of IPAddressClaims and IPAddresses, and the version in which they are read and
// written, which is the one that the operator serves.
const (
	addressGroup   = "ipam.cluster.x-k8s.io"
	addressVersion = "v1beta2"
	kindClaim      = "IPAddressClaim"
	kindAddress    = "IPAddress"
)

// refOfSource returns the reference to a pool of Metal3.
func refOfSource(namespace, name string) ipam.Holder {
	kind := metal3Kind("IPPool")
	return ipam.Holder{Group: kind.Group, Kind: kind.Kind, Namespace: namespace, Name: name}
}

// refOfPool returns the reference to a pool of ours.
func refOfPool(pool v1alpha1.Pool) ipam.Holder { return convert.HolderOfPool(convert.KeyOf(pool)) }

// namedPool returns the pool that a claim or an IPAddress names, as a pool of its namespace.
func namedPool(obj *unstructured.Unstructured) ipam.Holder {
	return ipam.Holder{Group: textAt(obj, "poolRef", "apiGroup"), Kind: textAt(obj, "poolRef", "kind"), Namespace: obj.GetNamespace(), Name: textAt(obj, "poolRef", "name")}
}

// textAt returns the text of a field of the spec; it is empty if there is none.
func textAt(obj *unstructured.Unstructured, path ...string) string {
	text, _, _ := unstructured.NestedString(obj.Object, append([]string{"spec"}, path...)...)
	return text
}

// claimOf returns the claim that an IPAddress fulfills, by its claimRef.
func claimOf(address *unstructured.Unstructured) client.ObjectKey {
	return client.ObjectKey{Namespace: address.GetNamespace(), Name: textAt(address, "claimRef", "name")}
}

// addressOf returns the address of an IPAddress, which is not valid if it cannot be read.
func addressOf(obj *unstructured.Unstructured) netip.Addr {
	addr, err := netip.ParseAddr(textAt(obj, "address"))
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}
	}
	return addr.Unmap()
}

// clusterOf returns the name of the Cluster that a claim belongs to; empty if there is none.
func clusterOf(claim *unstructured.Unstructured) string {
	if name := textAt(claim, "clusterName"); name != "" {
		return name
	}
	return claim.GetLabels()[v1alpha1.LabelCluster]
}

func isPaused(cluster *unstructured.Unstructured) bool {
	paused, _, _ := unstructured.NestedBool(cluster.Object, "spec", "paused")
	_, annotated := cluster.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]
	return paused || annotated
}

// keyOf returns the namespace and the name of an object.
func keyOf(obj metav1.Object) client.ObjectKey {
	return client.ObjectKey{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

func annotate(obj *unstructured.Unstructured, values map[string]string) {
	annotations := obj.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	maps.Copy(annotations, values)
	obj.SetAnnotations(annotations)
}

func unannotate(obj *unstructured.Unstructured, keys ...string) {
	annotations := obj.GetAnnotations()
	for _, key := range keys {
		delete(annotations, key)
	}
	if len(annotations) == 0 {
		annotations = nil
	}
	obj.SetAnnotations(annotations)
}
