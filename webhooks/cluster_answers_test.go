package webhooks

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const topologySpec = `{"topology":{"classRef":{"name":"k"},"variables":[{"name":"a","value":1}]}}`

func TestClusterCreateAnswers(t *testing.T) {
	const all = `"clusterNetwork":{"serviceDomain":"x"},"topology":{"classRef":{"name":"k"},"variables":[{"name":"lb","value":""},{"name":"a","value":1}]}`
	answers{
		{name: "with pods of a class", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "with a length", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":[]}}}`, "pods=pods/18")},
		{name: "with two families", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=pods,pods-v6")},
		{name: "with all networks", kind: "Cluster", object: clusterJSON("prod", `{`+all+`}`, "pods=pods", "services=services", "control-plane-endpoint=vips:443", "variables=lb=ranges,more=pods-v6/64")},
		{name: "with the first variables", kind: "Cluster", object: clusterJSON("prod", `{"topology":{}}`, "variables=lb=ranges,vip=vips", "control-plane-endpoint=variable:vip")},
		{name: "with an endpoint of a class", kind: "Cluster", object: clusterJSON("prod", `{}`, "control-plane-endpoint=vips")},
		{name: "with a stated port", kind: "Cluster", object: clusterJSON("prod", `{"controlPlaneEndpoint":{"host":"","port":8443}}`, "control-plane-endpoint=vips:443")},
		{name: "with a stated host without port", kind: "Cluster", object: clusterJSON("prod", `{"controlPlaneEndpoint":{"host":"10.6.0.7"}}`, "control-plane-endpoint=vips:443")},
		{name: "with stated blocks", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.16.0/20"]}},"controlPlaneEndpoint":{"host":"10.6.0.7","port":443}}`, "pods=pods", "control-plane-endpoint=vips")},
		{name: "with stated pods, and services of a class", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.16.0/20"]}}}`, "pods=pods", "services=services")},
		{name: "with stated services, and pods of a class", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"services":{"cidrBlocks":["10.96.16.0/20"]}}}`, "pods=pods", "services=services")},
		{name: "with a stated variable that the endpoint has", kind: "Cluster", object: clusterJSON("prod", `{"topology":{"variables":[{"name":"vip","value":"10.6.0.7"}]}}`, "variables=vip=vips", "control-plane-endpoint=variable:vip")},
		{name: "that was moved with its networks", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=pods", "networks-filled=pods=10.64.0.0/20@pods")},
		{name: "again, after the answer was lost", kind: "Cluster", object: clusterJSON("again", `{}`, "pods=pods")},
		{name: "as a dry run", kind: "Cluster", how: dry, object: clusterJSON("prod", `{"topology":{}}`, "pods=pods", "variables=lb=ranges,other=ranges")},
		{name: "as a dry run, of more than there is", kind: "Cluster", how: dry, object: clusterJSON("prod", `{}`, "pods=full")},
		{name: "as a dry run, with a block that another has", kind: "Cluster", how: dry, object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.0.0/20"]}}}`, "pods=pods")},
		{name: "as a dry run, after the answer was lost", kind: "Cluster", how: dry, object: clusterJSON("again", `{}`, "pods=pods")},
		{name: "as a dry run, with a claim of its name that is not its own", kind: "Cluster", how: dry, object: clusterJSON("foreign", `{}`, "pods=pods")},
		{name: "with a host that is a name", kind: "Cluster", object: clusterJSON("prod", `{"controlPlaneEndpoint":{"host":"api.example.com"}}`, "control-plane-endpoint=vips", "pods=pods")},

		{name: "with networks that are no object", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":"x"}`, "pods=pods")},
		{name: "with an endpoint that is no object", kind: "Cluster", object: clusterJSON("prod", `{"controlPlaneEndpoint":"x"}`, "control-plane-endpoint=vips")},
		{name: "with a host, in place of an endpoint", kind: "Cluster", object: clusterJSON("prod", `{"controlPlaneEndpoint":["10.6.0.7"]}`, "control-plane-endpoint=vips")},
		{name: "with a topology that is no object", kind: "Cluster", object: clusterJSON("prod", `{"topology":"x"}`, "variables=vip=vips")},
		{name: "without classes", kind: "Cluster", object: clusterJSON("prod", `{}`)},
		{name: "with a name that is too long", kind: "Cluster", object: clusterJSON(strings.Repeat("a", 64), `{}`, "pods=pods")},
		{name: "with too many items", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":[`+repeatToSize(5*maxEntries, `""`)+`]}}}`, "pods=pods")},
		{name: "with three classes", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=a,b,c")},
		{name: "with a class that is none", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=A_", "services=pods/x")},
		{name: "with fewer blocks than classes", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.0.0/20"]}}}`, "pods=pods,pods-v6")},
		{name: "with a block that is none", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.0.1/20"]}}}`, "pods=pods")},
		{name: "with variables and no topology", kind: "Cluster", object: clusterJSON("prod", `{}`, "variables=lb=ranges")},
		{name: "with an endpoint of a variable and no topology", kind: "Cluster", object: clusterJSON("prod", `{}`, "control-plane-endpoint=variable:vip")},
		{name: "with many variables", kind: "Cluster", object: clusterJSON("prod", topologySpec, "variables="+strings.Repeat("a=b,", 17))},
		{name: "with variables that are none", kind: "Cluster", object: clusterJSON("prod", topologySpec, "variables=lb,a=ranges,b=ranges,b=ranges")},
		{name: "with a variable that is no block", kind: "Cluster", object: clusterJSON("prod", `{"topology":{"variables":[{"name":"lb","value":"x"}]}}`, "variables=lb=ranges")},
		{name: "with a port that is none", kind: "Cluster", object: clusterJSON("prod", `{}`, "control-plane-endpoint=vips:0")},
		{name: "with an endpoint of another variable", kind: "Cluster", object: clusterJSON("prod", topologySpec, "control-plane-endpoint=variable:vip")},
		{name: "with an endpoint beside its variable", kind: "Cluster", object: clusterJSON("prod", `{"controlPlaneEndpoint":{"host":"10.6.0.8"},"topology":{"variables":[{"name":"vip","value":"10.6.0.7"}]}}`, "variables=vip=vips", "control-plane-endpoint=variable:vip")},
		{name: "with an endpoint of many addresses", kind: "Cluster", object: clusterJSON("prod", `{}`, "control-plane-endpoint=ranges", "pods=pods")},
		{name: "with a class that is missing", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=missing", "services=services")},
		{name: "with a length that the class does not allow", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=pods/11")},
		{name: "with a block outside the pools", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.0.0.0/20"]}}}`, "pods=pods")},

		{name: "with a block that another has", kind: "Cluster", object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.0.0/20"]}}}`, "pods=pods", "services=services")},
		{name: "with a claim of its name that is not its own", kind: "Cluster", object: clusterJSON("foreign", `{}`, "pods=pods")},
		{name: "that exists", kind: "Cluster", object: clusterJSON("there", `{}`, "pods=pods")},
		{name: "of more than there is", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=full", "services=services")},
		{name: "with a class without pools", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=unbacked")},
		{name: "by a user who cannot claim", kind: "Cluster", how: unentitled, object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "again, with another length", kind: "Cluster", object: clusterJSON("again", `{}`, "pods=pods/18")},
		{name: "again, with another class", kind: "Cluster", object: clusterJSON("again", `{}`, "pods=services")},
		{name: "again, with another block", kind: "Cluster", object: clusterJSON("again", `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.64.0/20"]}}}`, "pods=pods")},
		{name: "again, while its claim has no block", kind: "Cluster", object: clusterJSON("waiting", `{}`, "pods=pods")},
		{name: "while the claim of its name is being released", kind: "Cluster", object: clusterJSON("going", `{}`, "pods=pods")},
		{name: "while the claim of its name has an owner", kind: "Cluster", object: clusterJSON("former", `{}`, "pods=pods")},
		{name: "again, while claims cannot be written", kind: "Cluster", fails: "patch IPClaim", object: clusterJSON("again", `{}`, "pods=pods")},
		{name: "while the webhook on claims does not answer", kind: "Cluster", fails: "review IPClaim", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "while the Namespace cannot be read", kind: "Cluster", fails: "get Namespace", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "while Clusters are read too slowly", kind: "Cluster", late: "get Cluster", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "while rights cannot be reviewed", kind: "Cluster", fails: "create SubjectAccessReview", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "while claims cannot be stored", kind: "Cluster", fails: "create IPClaim", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "while claims are stored too slowly", kind: "Cluster", late: "create IPClaim", object: clusterJSON("prod", `{}`, "pods=pods")},
		{name: "while nothing can be recorded", kind: "Cluster", fails: "create IPAllocation", object: clusterJSON("prod", `{}`, "pods=pods")},
	}.check(t, "cluster-created.txt", furnishClusters)
}

// furnishClusters puts on the stage claims of earlier attempts, and a Cluster.
func furnishClusters(t *testing.T, s *stage) {
	t.Helper()
	furnishNetworks(t, s)
	taken := claimRecord("others", "secret", "10.64.0.0/20")
	taken.Pool, taken.Class = ipam.PoolNamed("pods"), "pods"
	s.record(t, taken)
	again := podsClaim("again", "10.64.32.0/20")
	foreign := podsClaim("foreign", "10.64.32.0/20")
	foreign.Annotations = nil
	going := podsClaim("going", "10.64.32.0/20")
	going.Finalizers = []string{v1alpha1.FinalizerClusterNetwork}
	former := podsClaim("former", "10.64.32.0/20")
	former.OwnerReferences = []metav1.OwnerReference{{APIVersion: "cluster.x-k8s.io/v1beta2", Kind: "Cluster", Name: "former", UID: "1"}}
	for _, claim := range []*v1alpha1.IPClaim{again, foreign, going, former, podsClaim("waiting", "")} {
		must(t, s.store.Create(t.Context(), claim))
	}
	must(t, s.store.Delete(t.Context(), going))
	must(t, s.store.Create(t.Context(), clusterNamed("there")))
}

func clusterNamed(name string) *unstructured.Unstructured {
	cluster := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster"}}
	cluster.SetNamespace("team")
	cluster.SetName(name)
	return cluster
}

func TestClusterDefaultsAnswers(t *testing.T) {
	answers{
		{name: "by the defaults of its Namespace", kind: "Cluster", object: `{"metadata":{"name":"prod"},"spec":{"topology":{}}}`},
		{name: "by the defaults, without a topology", kind: "Cluster", object: `{"metadata":{"name":"prod","annotations":{"a":"b"}},"spec":{}}`},
		{name: "with a class in place of a default", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=pods/18", "variables=", "control-plane-endpoint=")},
		{name: "with the defaults left out", kind: "Cluster", object: clusterJSON("prod", `{}`, "pods=", "variables=", "control-plane-endpoint=")},
	}.check(t, "cluster-defaults.txt", func(t *testing.T, s *stage) {
		t.Helper()
		furnishNetworks(t, s)
		s.labelNamespace(t, map[string]string{v1alpha1.AnnotationPods: "pods", v1alpha1.AnnotationVariables: "vip=vips", v1alpha1.AnnotationControlPlaneEndpoint: "variable:vip:443"})
	})
}

// labelNamespace has the networks of the Clusters of the namespace filled in, with these defaults.
func (s *stage) labelNamespace(t *testing.T, defaults map[string]string) {
	t.Helper()
	namespace := &corev1.Namespace{}
	must(t, s.store.Get(t.Context(), client.ObjectKey{Name: "team"}, namespace))
	namespace.Annotations = defaults
	namespace.Labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled}
	must(t, s.store.Update(t.Context(), namespace))
}

func TestClusterUpdateRestoresNetworks(t *testing.T) {
	const spec = `{"clusterNetwork":{"pods":{"cidrBlocks":["10.64.0.0/20"]},"services":{"cidrBlocks":["10.96.0.0/20"]}},"controlPlaneEndpoint":{"host":"10.6.0.7","port":443},"topology":{"variables":[{"name":"vip","value":"10.6.0.7"}]}}`
	const noted = "networks-filled=pods=10.64.0.0/20@pods,services=10.96.0.0/20@services,variable.vip=10.6.0.7@vips,control-plane-endpoint=10.6.0.7"
	old := clusterJSON("prod", spec, noted)
	disabled := func(object string) string {
		return strings.Replace(object, `"`+v1alpha1.ClusterNetworksEnabled+`"`, `"`+v1alpha1.ClusterNetworksDisabled+`"`, 1)
	}
	answers{
		{name: "all is left out", kind: "Cluster", how: updating, object: clusterJSON("prod", `{"topology":{}}`), old: old},
		{name: "all is emptied", kind: "Cluster", how: updating, object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":[]},"services":{}},"controlPlaneEndpoint":{"host":"","port":0},"topology":{"variables":[{"name":"vip","value":""}]}}`), old: old},
		{name: "nothing is", kind: "Cluster", how: updating, object: old, old: old},
		{name: "a block differs, which a policy refuses", kind: "Cluster", how: updating, object: strings.Replace(old, "10.64.0.0", "10.64.16.0", 1), old: old},
		{name: "all is left out, and the label disables it", kind: "Cluster", how: updating, object: disabled(clusterJSON("prod", `{"topology":{}}`)), old: old},
		{name: "all is left out, and the label is", kind: "Cluster", how: updating, object: `{"metadata":{"name":"prod"},"spec":{}}`, old: old},
		{name: "nothing was filled in", kind: "Cluster", how: updating, object: clusterJSON("prod", `{}`), old: clusterJSON("prod", `{}`)},
		{name: "it has too many items", kind: "Cluster", how: updating, object: clusterJSON("prod", `{"clusterNetwork":{"pods":{"cidrBlocks":[`+repeatToSize(5*maxEntries, `""`)+`]}}}`), old: old},
		{name: "the Namespace cannot be read", kind: "Cluster", how: updating, fails: "get Namespace", object: clusterJSON("prod", `{}`), old: old},
	}.check(t, "cluster-updated.txt", func(*testing.T, *stage) {})
}

func TestClusterUpdateIsRestoredByLabelOfNamespace(t *testing.T) {
	s := newStage(t)
	s.labelNamespace(t, nil)
	req := review("Cluster", `{"metadata":{"name":"prod"},"spec":{}}`, clusterJSON("prod", `{}`, "networks-filled=pods=10.64.0.0/20@pods"), updating)
	if answer := s.answer(t, req); !strings.Contains(answer, "10.64.0.0/20") {
		t.Errorf("it is answered: %s", answer)
	}
}
