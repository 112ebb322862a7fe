package bundle

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
)

// listing describes one kind of object, and which objects of it a bundle holds.
type listing struct {
	file string
	kind schema.GroupVersionKind
	// namespace is the only namespace that is listed; empty: the namespaces that the caller asks
	// for.
	namespace     string
	clusterScoped bool
	// optional kinds are not noted as left out if the cluster does not have them.
	optional bool
	// only selects some of the objects; nil: all.
	only func(*unstructured.Unstructured) bool
}

// what returns the resource, as in a role.
func (l *listing) what() string {
	resource, _ := meta.UnsafeGuessKindToResource(l.kind)
	return resource.Resource
}

func (l *listing) selected(page []unstructured.Unstructured) []unstructured.Unstructured {
	if l.only == nil {
		return page
	}
	return slices.DeleteFunc(page, func(obj unstructured.Unstructured) bool { return !l.only(&obj) })
}

// listings returns all listings of a bundle, in the order of its files. Secrets are not among
// them.
func listings(operator string) []listing {
	ours := func(kind string) schema.GroupVersionKind { return v1alpha1.GroupVersion.WithKind(kind) }
	kind := func(group, version, kind string) schema.GroupVersionKind {
		return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
	}
	clusterAPI := func(name string) schema.GroupVersionKind { return kind(convert.AddressClaimGroup, "v1beta2", name) }
	admission := func(name string) schema.GroupVersionKind { return kind("admissionregistration.k8s.io", "v1", name) }
	flow := func(name string) schema.GroupVersionKind { return kind("flowcontrol.apiserver.k8s.io", "v1", name) }
	return []listing{
		{file: "cadastre/ipclasses.yaml", kind: ours("IPClass"), clusterScoped: true},
		{file: "cadastre/ippools.yaml", kind: ours("IPPool"), clusterScoped: true},
		{file: "cadastre/localippools.yaml", kind: ours("LocalIPPool")},
		{file: "cadastre/ipclaims.yaml", kind: ours("IPClaim")},
		{file: "cadastre/ipallocations.yaml", kind: ours("IPAllocation")},
		{file: "cluster-internal/inclusterippools.yaml", kind: kind(incluster.GroupVersion.Group, incluster.GroupVersion.Version, "InClusterIPPool"), optional: true},
		{file: "cluster-api/globalinclusterippools.yaml", kind: kind(incluster.GroupVersion.Group, incluster.GroupVersion.Version, "GlobalInClusterIPPool"), clusterScoped: true, optional: true},
		{file: "cluster-api/ipaddressclaims.yaml", kind: clusterAPI("IPAddressClaim"), only: refersToUs},
		{file: "cluster-api/ipaddresses.yaml", kind: clusterAPI("IPAddress"), only: refersToUs},
		{file: "events.yaml", kind: kind("events.k8s.io", "v1", "Event"), only: regardsUs},
		{file: "installation/crds.yaml", kind: kind("apiextensions.k8s.io", "v1", "CustomResourceDefinition"), clusterScoped: true, only: isOurDefinition},
		{file: "installation/mutatingwebhooks.yaml", kind: admission("MutatingWebhookConfiguration"), clusterScoped: true, only: isNamedAfterUs},
		{file: "installation/validatingwebhooks.yaml", kind: admission("ValidatingWebhookConfiguration"), clusterScoped: true, only: isNamedAfterUs},
		{file: "installation/policies.yaml", kind: admission("ValidatingAdmissionPolicy"), clusterScoped: true, only: isNamedAfterUs},
		{file: "installation/policybindings.yaml", kind: admission("ValidatingAdmissionPolicyBinding"), clusterScoped: true, only: isNamedAfterUs},
		{file: "installation/flowschemas.yaml", kind: flow("FlowSchema"), clusterScoped: true, only: isNamedAfterUs},
		{file: "installation/prioritylevels.yaml", kind: flow("PriorityLevelConfiguration"), clusterScoped: true, only: isNamedAfterUs},
		{file: "installation/deployments.yaml", kind: kind("apps", "v1", "Deployment"), namespace: operator},
		{file: "installation/pods.yaml", kind: kind("", "v1", "Pod"), namespace: operator},
		{file: "installation/services.yaml", kind: kind("", "v1", "Service"), namespace: operator},
		{file: "installation/leases.yaml", kind: kind("coordination.k8s.io", "v1", "Lease"), namespace: operator},
		{file: "installation/networkpolicies.yaml", kind: kind("networking.k8s.io", "v1", "NetworkPolicy"), namespace: operator},
		{file: "installation/poddisruptionbudgets.yaml", kind: kind("policy", "v1", "PodDisruptionBudget"), namespace: operator},
	}
}

// Rights returns the rights to collect a whole bundle except its reports: in all namespaces, and
// in the operator's namespace alone.
func Rights() (everywhere, operator []rbacv1.PolicyRule) {
	for _, l := range listings("operator") {
		rules := &everywhere
		if l.namespace != "" {
			rules = &operator
		}
		if last := len(*rules) - 1; last >= 0 && (*rules)[last].APIGroups[0] == l.kind.Group {
			(*rules)[last].Resources = append((*rules)[last].Resources, l.what())
			continue
		}
		*rules = append(*rules, rbacv1.PolicyRule{APIGroups: []string{l.kind.Group}, Resources: []string{l.what()}, Verbs: []string{"list"}})
	}
	return everywhere, append(operator, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/log"}, Verbs: []string{"get"}})
}

// refersToUs reports whether an object of Cluster API names a pool or class that Cadastre can serve.
func refersToUs(obj *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(obj.Object, "spec", "poolRef", "apiGroup")
	kind, _, _ := unstructured.NestedString(obj.Object, "spec", "poolRef", "kind")
	return convert.IsOurGroup(group) || convert.IsInCluster(group, kind)
}

// regardsUs reports whether an event is about our objects, or about the address objects of Cluster
// API.
func regardsUs(event *unstructured.Unstructured) bool {
	version, _, _ := unstructured.NestedString(event.Object, "regarding", "apiVersion")
	group, _, _ := strings.Cut(version, "/")
	return convert.IsOurGroup(group) || group == convert.AddressClaimGroup
}

func isOurDefinition(obj *unstructured.Unstructured) bool {
	group, _, _ := unstructured.NestedString(obj.Object, "spec", "group")
	return convert.IsOurGroup(group)
}

// isNamedAfterUs reports whether an object is one that the manifests install cluster-wide.
func isNamedAfterUs(obj *unstructured.Unstructured) bool {
	return strings.Contains(obj.GetName(), "cadastre")
}
