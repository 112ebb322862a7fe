package migrate

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// state holds the objects that were read from the cluster.
type state struct {
	// sources holds the pools of the other provider.
	sources []*unstructured.Unstructured
	// pools holds our pools.
	pools []v1alpha1.Pool
	// claims and addresses hold Cluster API's objects, of all providers.
	claims, addresses []*unstructured.Unstructured
	// ownClaims and ownAddresses hold the objects of the other provider's own kinds.
	ownClaims, ownAddresses []*unstructured.Unstructured
	// clusters holds the Clusters, by namespace and name.
	clusters map[client.ObjectKey]*unstructured.Unstructured
}

// readState reads all objects that a plan is made of: those of a namespace, or of all
// namespaces if it is empty. If a kind is not served, its list is empty, except for claims and
// IPAddresses.
func readState(ctx context.Context, reader client.Reader, p provider, namespace string) (state, error) {
	st := state{clusters: map[client.ObjectKey]*unstructured.Unstructured{}}
	inNamespace := client.InNamespace(namespace)
	var err error
	found := false
	for _, kind := range p.kinds {
		if namespace != "" && !kind.isLocal() {
			continue
		}
		pools, served, err := list(ctx, reader, kind.GroupVersionKind, inNamespace)
		if err != nil {
			return st, err
		}
		found = found || served
		st.sources = append(st.sources, pools...)
	}
	if !found {
		return st, fmt.Errorf("the API server does not serve %s.%s: is the %s provider installed in this cluster?", p.kinds[0].Kind, p.kinds[0].GroupVersion(), p.name)
	}
	version := schema.GroupVersion{Group: addressGroup, Version: addressVersion}
	for _, read := range []struct {
		kind   schema.GroupVersionKind
		target *[]*unstructured.Unstructured
	}{{version.WithKind(kindClaim), &st.claims}, {version.WithKind(kindAddress), &st.addresses}, {p.ownClaims, &st.ownClaims}, {p.ownAddresses, &st.ownAddresses}} {
		if read.kind.Empty() {
			continue
		}
		var served bool
		if *read.target, served, err = list(ctx, reader, read.kind, inNamespace); err != nil {
			return st, err
		}
		if !served && read.kind.Group == addressGroup {
			return st, fmt.Errorf("the API server does not serve %s.%s: Cadastre takes Cluster API 1.11 or later: upgrade it first", read.kind.Kind, read.kind.GroupVersion())
		}
	}
	clusters, _, err := list(ctx, reader, schema.GroupVersionKind{Group: clusterGroup, Version: addressVersion, Kind: "Cluster"}, inNamespace)
	if err != nil {
		return st, err
	}
	for _, cluster := range clusters {
		st.clusters[client.ObjectKeyFromObject(cluster)] = cluster
	}
	st.pools, err = ourPools(ctx, reader, namespace)
	return st, err
}

const clusterGroup = "cluster.x-k8s.io"

// list lists the objects of a kind. It reports whether the kind is served.
func list(ctx context.Context, reader client.Reader, kind schema.GroupVersionKind, inNamespace client.InNamespace) (objects []*unstructured.Unstructured, served bool, err error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err = reader.List(ctx, all, inNamespace)
	switch {
	case meta.IsNoMatchError(err):
		return nil, false, nil
	case err != nil:
		return nil, false, fmt.Errorf("listing all %s of %s: %w", ipam.Plural(kind.Kind), kind.Group, err)
	}
	for i := range all.Items {
		objects = append(objects, &all.Items[i])
	}
	return objects, true, nil
}

// ourPools lists the pools of Cadastre: the LocalIPPools of a namespace, or all pools if it is
// empty.
func ourPools(ctx context.Context, reader client.Reader, namespace string) ([]v1alpha1.Pool, error) {
	pools, locals := &v1alpha1.IPPoolList{}, &v1alpha1.LocalIPPoolList{}
	if namespace == "" {
		if err := reader.List(ctx, pools); err != nil {
			return nil, fmt.Errorf("listing all IPPools: %w", err)
		}
	}
	if err := reader.List(ctx, locals, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("listing LocalIPPools: %w", err)
	}
	var out []v1alpha1.Pool
	for i := range pools.Items {
		out = append(out, &pools.Items[i])
	}
	for i := range locals.Items {
		out = append(out, &locals.Items[i])
	}
	return out, nil
}

// clusterOf returns the name of the Cluster that a claim belongs to; it is empty if there is
// none.
func clusterOf(claim *unstructured.Unstructured) string {
	if name, _, _ := unstructured.NestedString(claim.Object, "spec", "clusterName"); name != "" {
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

// readAddresses reads only claims and IPAddresses.
func (r *run) readAddresses(ctx context.Context) (state, error) {
	version := schema.GroupVersion{Group: addressGroup, Version: addressVersion}
	claims, _, err := list(ctx, r.client, version.WithKind(kindClaim), client.InNamespace(r.o.Namespace))
	if err != nil {
		return state{}, err
	}
	addresses, _, err := list(ctx, r.client, version.WithKind(kindAddress), client.InNamespace(r.o.Namespace))
	return state{claims: claims, addresses: addresses}, err
}

func sortedObjectKeys[V any](m map[client.ObjectKey]V) []client.ObjectKey {
	keys := slices.Collect(maps.Keys(m))
	slices.SortFunc(keys, func(a, b client.ObjectKey) int { return cmp.Compare(a.String(), b.String()) })
	return keys
}

// addressOfBlock returns the address of a block of one.
func addressOfBlock(cidr string) string {
	text, _, _ := strings.Cut(cidr, "/")
	return text
}
