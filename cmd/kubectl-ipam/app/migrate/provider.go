package migrate

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"

	"go4.org/netipx"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// provider represents another IPAM provider of Cluster API, from which an import takes over.
type provider struct {
	// name holds the name of the command.
	name string
	// kinds holds its kinds of pools.
	kinds []schema.GroupVersionKind
	// suffix is appended to the names of our pools.
	suffix string
	// servesByName is set if it serves claims by the name of the pool alone.
	servesByName bool
	// claimFinalizer and addressFinalizer name the finalizers that it puts on claims and
	// IPAddresses, and removes itself.
	claimFinalizer, addressFinalizer string
	// read reads a pool, as it was before it was closed. The error is the reason why no pool
	// can be made of it.
	read func(pool *unstructured.Unstructured) (source, error)
	// close changes a pool so that the provider hands out nothing of it any more except
	// addresses that a claim of the same name has already.
	close func(pool *unstructured.Unstructured, inUse []holding) error
	// reopen undoes close.
	reopen func(pool *unstructured.Unstructured) error
	// ownAddresses holds the kind of the addresses of its own claims; empty if it has none.
	ownAddresses schema.GroupVersionKind
}

// isLocal reports whether pools of a kind have a namespace.
func isLocal(group, kind string) bool {
	return kind != globalInClusterKind && (group != v1alpha1.GroupVersion.Group || kind != string(v1alpha1.PoolKindIPPool))
}

// poolRef names a pool of any provider. The namespace is empty if its kind has none.
type poolRef struct {
	Group     string `json:"apiGroup"`
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

func (r poolRef) String() string { return ipam.Holder(r).String() }

// refOfSource returns the reference to a pool of another provider.
func refOfSource(pool *unstructured.Unstructured) poolRef {
	return poolRef{Group: pool.GroupVersionKind().Group, Kind: pool.GetKind(), Namespace: pool.GetNamespace(), Name: pool.GetName()}
}

// refOfPool returns the reference to a pool of ours.
func refOfPool(pool v1alpha1.Pool) poolRef { return poolRef(convert.HolderOfPool(convert.KeyOf(pool))) }

// namedPool returns the pool that a claim or an IPAddress names.
func namedPool(obj *unstructured.Unstructured) poolRef {
	ref := poolRef{Group: textAt(obj, "poolRef", "apiGroup"), Kind: textAt(obj, "poolRef", "kind"), Name: textAt(obj, "poolRef", "name")}
	if isLocal(ref.Group, ref.Kind) {
		ref.Namespace = obj.GetNamespace()
	}
	return ref
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

// globalInClusterKind names the kind of the in-cluster provider's pools that have no namespace.
const globalInClusterKind = "GlobalInClusterIPPool"

// inCluster returns Cluster API's in-cluster provider,
// sigs.k8s.io/cluster-api-ipam-provider-in-cluster. The provider hands out nothing of a pool
// with Cluster API's annotation for pauses, and releases nothing either.
func inCluster() provider {
	version := schema.GroupVersion{Group: addressGroup, Version: "v1alpha2"}
	return provider{
		name:             "in-cluster",
		kinds:            []schema.GroupVersionKind{version.WithKind("InClusterIPPool"), version.WithKind(globalInClusterKind)},
		claimFinalizer:   "ipam.cluster.x-k8s.io/ReleaseAddress",
		addressFinalizer: "ipam.cluster.x-k8s.io/ProtectAddress",
		read:             readInCluster,
		close:            pause,
		reopen:           resume,
	}
}

// source represents a pool of another provider, as far as it can be read.
type source struct {
	// network holds the subnet that its addresses are configured with.
	network netip.Prefix
	// addresses holds the addresses that it can hand out, except those in excluded.
	addresses, excluded *netipx.IPSet
	gateway             string
	edges               bool
	dnsServers          []string
	// cluster names the Cluster that it belongs to.
	cluster string
	// notes holds remarks on the pool that is made of it.
	notes []string
}

// readInCluster reads an InClusterIPPool or a GlobalInClusterIPPool.
func readInCluster(pool *unstructured.Unstructured) (source, error) {
	s := source{cluster: pool.GetLabels()[v1alpha1.LabelCluster], gateway: textAt(pool, "gateway")}
	addresses, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "addresses")
	excluded, _, _ := unstructured.NestedStringSlice(pool.Object, "spec", "excludedAddresses")
	prefix, _, _ := unstructured.NestedInt64(pool.Object, "spec", "prefix")
	s.edges, _, _ = unstructured.NestedBool(pool.Object, "spec", "allocateReservedIPAddresses")
	var err error
	if s.addresses, err = setOf(addresses); err != nil {
		return s, fmt.Errorf("spec.addresses: %w", err)
	}
	if isEmpty(s.addresses) {
		return s, errors.New("spec.addresses: is empty: there is nothing to hand out")
	}
	if s.excluded, err = setOf(excluded); err != nil {
		return s, fmt.Errorf("spec.excludedAddresses: %w", err)
	}
	return s, s.setNetwork("spec.addresses", int(prefix))
}

// setNetwork sets the subnet of the addresses that a field states.
func (s *source) setNetwork(field string, prefix int) error {
	first, last := bounds(s.addresses)
	if first.Is4() != last.Is4() {
		return fmt.Errorf("%s: has addresses of both families: split it into two pools", field)
	}
	network, err := first.Prefix(prefix)
	switch {
	case err != nil || prefix == 0 && first.Is4():
		return fmt.Errorf("spec.prefix: %d is not the length of a subnet: correct it", prefix)
	case !network.Contains(last):
		return fmt.Errorf("%s: %s and %s do not lie in one subnet of length %d: split it into two pools, one for each CIDR", field, first, last, prefix)
	}
	s.network = network
	if first.BitLen()-prefix == 1 && !s.edges {
		s.notes = append(s.notes, "a subnet of two addresses has no network and broadcast address: both are handed out (RFC 3021, RFC 6164)")
	}
	return nil
}

// pausedByImport marks a pool of another provider that an import has paused.
const pausedByImport = "ipam.cadastre.dev/paused-by-import"

func isPausedByOthers(pool *unstructured.Unstructured) bool {
	_, paused := pool.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]
	_, byImport := pool.GetAnnotations()[pausedByImport]
	return paused && !byImport
}

// pause pauses a pool, and notes that it was not paused before.
func pause(pool *unstructured.Unstructured, _ []holding) error {
	if _, paused := pool.GetAnnotations()[v1alpha1.AnnotationClusterAPIPaused]; !paused {
		annotate(pool, map[string]string{v1alpha1.AnnotationClusterAPIPaused: "", pausedByImport: ""})
	}
	return nil
}

// resume ends the pause that an import began.
func resume(pool *unstructured.Unstructured) error {
	if _, ours := pool.GetAnnotations()[pausedByImport]; ours {
		unannotate(pool, v1alpha1.AnnotationClusterAPIPaused, pausedByImport)
	}
	return nil
}
