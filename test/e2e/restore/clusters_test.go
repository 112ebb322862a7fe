package restore

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// networks is the class of the blocks of Clusters.
const networks = "networks"

// asking returns a Cluster that asks for blocks of pods and services, and for an endpoint.
func asking(name string) *clusterv1.Cluster {
	return build.Networked(build.Cluster(team, name), map[string]string{
		v1alpha1.AnnotationPods: networks + "/28", v1alpha1.AnnotationServices: networks, v1alpha1.AnnotationControlPlaneEndpoint: networks + "/32",
	})
}

// unclaimedNetworks returns Clusters that lack a block, blocks of Clusters for which they own no claim,
// and claims of Clusters that no stored Cluster owns.
func (s *stored) unclaimedNetworks() []string {
	var wrong []string
	owners, claimed := map[types.UID]string{}, sets.New[string]()
	for _, c := range s.clusters.Items {
		owners[c.UID] = c.Name
	}
	for _, c := range s.claims.Items {
		name := c.Labels[clusterv1.ClusterNameLabel]
		refs := c.OwnerReferences
		switch {
		case name == "":
		case len(refs) == 1 && owners[refs[0].UID] == name && slices.Contains(c.Finalizers, v1alpha1.FinalizerClusterNetwork):
			claimed.Insert(name + " " + c.Spec.CIDR)
		default:
			wrong = append(wrong, fmt.Sprintf("IPClaim %s with %s is not owned by Cluster %s: owners %v, finalizers %v, deleted %v",
				c.Name, c.Spec.CIDR, name, refs, c.Finalizers, c.DeletionTimestamp))
		}
	}
	for _, c := range s.clusters.Items {
		pods, services := strings.Join(c.Spec.ClusterNetwork.Pods.CIDRBlocks, ","), strings.Join(c.Spec.ClusterNetwork.Services.CIDRBlocks, ",")
		host := c.Spec.ControlPlaneEndpoint.Host
		want := fmt.Sprintf("pods=%s@networks,services=%s@networks,control-plane-endpoint=%s@networks", pods, services, host)
		if filled := c.Annotations[v1alpha1.AnnotationNetworksFilled]; filled != want {
			wrong = append(wrong, fmt.Sprintf("Cluster %s notes %q instead of %q", c.Name, filled, want))
		}
		for _, block := range []string{pods, services, host + "/32"} {
			if !claimed.Has(c.Name + " " + block) {
				wrong = append(wrong, fmt.Sprintf("Cluster %s has no claim of %s", c.Name, block))
			}
		}
	}
	return wrong
}

// clusterIs returns the fault of a Cluster that came back, if there is any.
func (r *restoration) clusterIs(was *unstructured.Unstructured) string {
	current := &unstructured.Unstructured{}
	current.SetGroupVersionKind(was.GroupVersionKind())
	if err := r.w.Get(r.w.Context(), client.ObjectKeyFromObject(was), current); err != nil {
		return err.Error()
	}
	if current = stripped(current); !reflect.DeepEqual(current.Object, was.Object) {
		return fmt.Sprintf("was %v and is %v", was.Object, current.Object)
	}
	return ""
}
