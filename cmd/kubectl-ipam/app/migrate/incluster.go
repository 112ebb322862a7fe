package migrate

import (
	"fmt"
	"maps"
	"net/netip"

	"go4.org/netipx"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// inCluster returns Cluster API's in-cluster provider,
// sigs.k8s.io/cluster-api-ipam-provider-in-cluster. The provider hands out nothing of a pool
// with Cluster API's annotation for pauses, and releases nothing either.
func inCluster() provider {
	version := schema.GroupVersion{Group: addressGroup, Version: "v1alpha2"}
	return provider{
		name: "in-cluster",
		kinds: []sourceKind{
			{version.WithKind("InClusterIPPool"), v1alpha1.PoolKindLocalIPPool},
			{version.WithKind("GlobalInClusterIPPool"), v1alpha1.PoolKindIPPool},
		},
		claimFinalizer:   "ipam.cluster.x-k8s.io/ReleaseAddress",
		addressFinalizer: "ipam.cluster.x-k8s.io/ProtectAddress",
		read:             readInCluster,
		close:            pause,
		reopen:           resume,
	}
}

// readInCluster reads an InClusterIPPool or a GlobalInClusterIPPool.
func readInCluster(pool *unstructured.Unstructured) source {
	s := source{obj: pool, addresses: &netipx.IPSet{}, excluded: &netipx.IPSet{}, cluster: pool.GetLabels()[v1alpha1.LabelCluster], paused: isPausedByOthers(pool)}
	texts, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	excluded, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "excludedAddresses")
	prefix, _, _ := unstructured.NestedInt64(pool.Object, "spec", "prefix")
	s.gateway, _, _ = unstructured.NestedString(pool.Object, "spec", "gateway")
	s.edges, _, _ = unstructured.NestedBool(pool.Object, "spec", "allocateReservedIPAddresses")
	set, err := setOf(texts)
	if err != nil {
		return s.without("spec.addresses: %s", err)
	}
	if isEmpty(set) {
		return s.without("spec.addresses: is empty: there is nothing to hand out")
	}
	out, err := setOf(excluded)
	if err != nil {
		return s.without("spec.excludedAddresses: %s", err)
	}
	s.addresses, s.excluded = set, out
	return s.inNetwork("spec.addresses", int(prefix))
}

// without adds a problem: the reason why no pool can be made of a source.
func (s source) without(format string, args ...any) source {
	s.problems = append(s.problems, fmt.Sprintf(format, args...))
	return s
}

// with adds a note about a source.
func (s source) with(format string, args ...any) source {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
	return s
}

// inNetwork sets the subnet of the addresses that a field states.
func (s source) inNetwork(field string, prefix int) source {
	if isMixed(s.addresses) {
		return s.without("%s: has addresses of both families: split it into two pools", field)
	}
	first, last := bounds(s.addresses)
	network, err := first.Prefix(prefix)
	switch {
	case err != nil || prefix == 0 && first.Is4():
		return s.without("spec.prefix: %d is not the length of a subnet: correct it", prefix)
	case !network.Contains(last):
		return s.without("%s: %s and %s do not lie in one subnet of length %d: split it into two pools, one for each CIDR", field, first, last, prefix)
	}
	s.network = network.Masked()
	if size := first.BitLen() - prefix; size == 1 && !s.edges {
		s = s.with("a subnet of two addresses has no network and broadcast address: both are handed out (RFC 3021, RFC 6164)")
	}
	return s
}

// pausedByImport marks a pool of another provider that an import has paused.
const pausedByImport = "ipam.cadastre.dev/paused-by-import"

func isPausedByOthers(pool *unstructured.Unstructured) bool {
	_, paused := pool.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]
	_, byImport := pool.GetAnnotations()[pausedByImport]
	return paused && !byImport
}

// pause pauses a pool, and notes that it was not paused before.
func pause(pool *unstructured.Unstructured, _ []holding) (bool, error) {
	if _, paused := pool.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]; paused {
		return false, nil
	}
	annotate(pool, map[string]string{v1alpha1.AnnotationClusterAPIPaused: "", pausedByImport: ""})
	return true, nil
}

// resume ends the pause that an import began.
func resume(pool *unstructured.Unstructured) error {
	if _, ours := pool.GetAnnotations()[pausedByImport]; ours {
		unannotate(pool, v1alpha1.AnnotationClusterAPIPaused, pausedByImport)
	}
	return nil
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

// addressOf returns the address of an IPAddress, which is not valid if it cannot be read.
func addressOf(obj *unstructured.Unstructured) netip.Addr {
	text, _, _ := unstructured.NestedString(obj.Object, "spec", "address")
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}
	}
	return addr.Unmap()
}
