package convert

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// LabelClusterName is Cluster API's label for the Cluster of an object.
const LabelClusterName = "cluster.x-k8s.io/cluster-name"

// Cluster holds the fields of a Cluster of Cluster API that have its networks.
type Cluster struct {
	ipam.Name
	Labels, Annotations map[string]string
	Pods, Services      []string
	Host                string
	Port                int64
	// Variables has the values of the topology variables; nil if the Cluster has no topology.
	Variables map[string]any
}

// ClusterOf reads a Cluster of v1beta2 from its JSON.
func ClusterOf(name ipam.Name, object map[string]any) Cluster {
	obj := unstructured.Unstructured{Object: object}
	c := Cluster{Name: name, Labels: obj.GetLabels(), Annotations: obj.GetAnnotations()}
	c.Pods, _, _ = unstructured.NestedStringSlice(object, "spec", "clusterNetwork", "pods", "cidrBlocks")
	c.Services, _, _ = unstructured.NestedStringSlice(object, "spec", "clusterNetwork", "services", "cidrBlocks")
	c.Host, _, _ = unstructured.NestedString(object, "spec", "controlPlaneEndpoint", "host")
	switch port, _, _ := unstructured.NestedFieldNoCopy(object, "spec", "controlPlaneEndpoint", "port"); port := port.(type) {
	case int64:
		c.Port = port
	case float64:
		c.Port = int64(port)
	}
	if topology, _, _ := unstructured.NestedFieldNoCopy(object, "spec", "topology"); topology == nil {
		return c
	}
	c.Variables = map[string]any{}
	variables, _, _ := unstructured.NestedFieldNoCopy(object, "spec", "topology", "variables")
	list, _ := variables.([]any)
	for _, item := range list {
		if variable, ok := item.(map[string]any); ok {
			name, _ := variable["name"].(string)
			c.Variables[name] = variable["value"]
		}
	}
	return c
}

// Has reports whether the Cluster has the block of the network in its place.
func (c Cluster) Has(n ClusterNetwork) bool {
	var values []string
	switch variable, isVariable := n.Purpose.Variable(); {
	case isVariable:
		value, _ := c.Variables[variable].(string)
		values = []string{value}
	case n.Purpose == PurposePods:
		values = c.Pods
	case n.Purpose == PurposeServices:
		values = c.Services
	case n.Purpose == PurposeEndpoint:
		values = []string{c.Host}
	}
	return slices.ContainsFunc(values, func(value string) bool {
		block, err := stated(nil, value)
		return err == nil && block == n.Block
	})
}

// Uses reports whether the Cluster has the block of a claim, as what its identity says or as its
// endpoint, which can be the address of a variable.
func (c Cluster) Uses(claim *v1alpha1.IPClaim) bool {
	purpose := PurposeOfClaim(claim)
	block, _ := Block(nil, claim.Spec.CIDR) // no Cluster has the zero block
	return c.Has(ClusterNetwork{Purpose: purpose, Block: block}) || c.Has(ClusterNetwork{Purpose: PurposeEndpoint, Block: block})
}

// IsEnabled reports whether the networks of the Cluster are filled in and kept, by its label and that of
// its Namespace.
func (c Cluster) IsEnabled(namespace map[string]string) bool {
	value := c.Labels[v1alpha1.LabelClusterNetworks]
	if value != v1alpha1.ClusterNetworksEnabled && value != v1alpha1.ClusterNetworksDisabled {
		value = namespace[v1alpha1.LabelClusterNetworks]
	}
	return value == v1alpha1.ClusterNetworksEnabled
}
