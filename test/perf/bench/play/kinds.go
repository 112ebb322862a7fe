package play

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/config"
)

const (
	ours   = "ipam.cadastre.dev/v1alpha1"
	claims = "/apis/" + ours + "/namespaces/%s/ipclaims"
)

// bare returns a custom object as large as an IPClaim that has its block, of a kind
// without webhooks and rules: the most that the control plane can do.
func bare() contender {
	return contender{
		scenario: "bare", apiVersion: "bench.cadastre.dev/v1", kind: "Bare",
		collection: "/apis/bench.cadastre.dev/v1/namespaces/%s/bares", answered: `"cidr":"`,
		spec: func(n int) map[string]any {
			return map[string]any{
				"allocationName": fmt.Sprintf("c-%06d-abcdefgh", n), "cidr": "10.100.100.0/28", "ipFamily": "IPv4",
				"poolRef": map[string]any{"kind": "IPPool", "name": "by-pool"}, "prefixLength": 28, "reclaimPolicy": "Delete",
			}
		},
	}
}

// twoWrites returns the writes of a claim, made by the client itself: an object like its record,
// and one with a status, as the claim has it. More claims than these the control plane
// could not do if all but their writes cost nothing.
func twoWrites() contender {
	c := bare()
	c.scenario, c.done = "writes", bound
	c.then = func(ctx context.Context, wire *wire, path string, answer []byte) error {
		record := &v1alpha1.IPClaim{}
		if err := json.Unmarshal(answer, record); err != nil {
			return err
		}
		claim := &v1alpha1.IPClaim{TypeMeta: record.TypeMeta, Spec: record.Spec, Status: boundStatus()}
		claim.Name = record.Name + "-abcdefgh"
		if err := wire.send(ctx, http.MethodPost, path, claim); err != nil {
			return fmt.Errorf("the second write: %w", err)
		}
		return nil
	}
	return c
}

// boundStatus returns a status as large as that of a bound claim.
func boundStatus() v1alpha1.IPClaimStatus {
	status := v1alpha1.IPClaimStatus{
		Phase: v1alpha1.ClaimBound, AllocatedCIDR: "10.100.100.0/28",
		PoolRef:            &v1alpha1.PoolReference{Kind: "IPPool", Name: "by-pool"},
		BoundAllocationRef: &v1alpha1.AllocationReference{Name: "c-000000-abcdefgh"},
	}
	for _, kind := range []string{v1alpha1.ConditionReady, v1alpha1.ConditionBound} {
		status.Conditions = append(status.Conditions, metav1.Condition{
			Type: kind, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonBound, LastTransitionTime: metav1.Now(),
			Message: "10.100.100.0/28 of IPPool by-pool is held for this claim",
		})
	}
	return status
}

// service returns a Service, for Kubernetes' own synchronous allocator.
func service() contender {
	return contender{
		scenario: "service", apiVersion: "v1", kind: "Service",
		collection: "/api/v1/namespaces/%s/services", answered: `"clusterIP":"1`,
		spec: func(int) map[string]any {
			return map[string]any{"type": "ClusterIP", "ports": []map[string]any{{"port": 80}}}
		},
	}
}

// claim returns an IPClaim that has its block in the answer.
func claim(variant string, spec func(n int) map[string]any) contender {
	return contender{
		scenario: "claim", variant: variant, apiVersion: ours, kind: "IPClaim",
		collection: claims, answered: `"phase":"Bound"`, done: bound, spec: spec,
	}
}

func poolRef(name string) map[string]any { return map[string]any{"kind": "IPPool", "name": name} }

// byPool returns claims of a /28 of a pool.
func byPool(pool string) contender {
	return claim("by pool", func(int) map[string]any {
		return map[string]any{"poolRef": poolRef(pool), "prefixLength": 28}
	})
}

// byClass returns claims of the class's default length, a /28.
func byClass() contender {
	return claim("by class", func(int) map[string]any { return map[string]any{"className": "bench"} })
}

// variants returns the other ways to claim.
func variants() []contender {
	return []contender{
		claim("IPv6", func(int) map[string]any {
			return map[string]any{"poolRef": poolRef("ipv6"), "prefixLength": 64}
		}),
		claim("host addresses", func(int) map[string]any { return map[string]any{"poolRef": poolRef("hosts")} }),
		claim("mixed sizes", func(n int) map[string]any {
			return map[string]any{"poolRef": poolRef("mixed"), "prefixLength": 24 + n%9}
		}),
	}
}

// addressClaim returns Cluster API's claim of one address.
func addressClaim() contender {
	return contender{
		scenario: "capi", apiVersion: "ipam.cluster.x-k8s.io/v1beta2", kind: "IPAddressClaim",
		collection: "/apis/ipam.cluster.x-k8s.io/v1beta2/namespaces/%s/ipaddressclaims", answered: `"poolRef":{`, done: addressed,
		spec: func(int) map[string]any {
			return map[string]any{"poolRef": map[string]any{"apiGroup": "ipam.cadastre.dev", "kind": "IPPool", "name": "machines"}}
		},
	}
}

// clusterAPICluster returns a Cluster of Cluster API that gets as many of its blocks as annotations ask for.
func clusterAPICluster(blocks int) contender {
	c := contender{
		scenario: "cluster", variant: fmt.Sprintf("%d blocks", blocks), apiVersion: "cluster.x-k8s.io/v1beta2", kind: "Cluster",
		collection: "/apis/cluster.x-k8s.io/v1beta2/namespaces/%s/clusters", answered: `"kind":"Cluster"`,
		spec: func(int) map[string]any {
			return map[string]any{"infrastructureRef": map[string]any{"apiGroup": "infrastructure.cluster.x-k8s.io", "kind": "NobodysCluster", "name": "none"}}
		},
	}
	if blocks > 0 {
		c.answered = `"ipam.cadastre.dev/networks-filled":"`
		c.labels = map[string]string{v1alpha1.LabelClusterNetworks: v1alpha1.ClusterNetworksEnabled}
		c.annotations = map[string]string{}
	}
	for _, annotation := range []string{v1alpha1.AnnotationPods, v1alpha1.AnnotationServices, v1alpha1.AnnotationControlPlaneEndpoint}[:blocks] {
		c.annotations[annotation] = "bench"
	}
	if blocks == 3 {
		c.annotations[v1alpha1.AnnotationControlPlaneEndpoint] = "bench/32"
	}
	return c
}

// installBare installs a kind with the fields of IPClaim, and nothing else of it.
func (w *World) installBare(ctx context.Context) error {
	file, err := fs.ReadFile(config.CRDs, "crd/bases/ipam.cadastre.dev_ipclaims.yaml")
	if err != nil {
		return err
	}
	var text map[string]any
	if err := yaml.Unmarshal(file, &text); err != nil {
		return err
	}
	withoutRules(text)
	encoded, err := json.Marshal(text)
	if err != nil {
		return err
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(encoded, definition); err != nil {
		return err
	}
	definition.Name = "bares.bench.cadastre.dev"
	definition.Spec.Group = "bench.cadastre.dev"
	definition.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: "bares", Singular: "bare", Kind: "Bare", ListKind: "BareList"}
	version := &definition.Spec.Versions[0]
	version.Name, version.SelectableFields, version.AdditionalPrinterColumns = "v1", nil, nil
	return w.define(ctx, definition)
}

// withoutRules takes the CEL rules out of a schema.
func withoutRules(in any) {
	switch in := in.(type) {
	case map[string]any:
		delete(in, "x-kubernetes-validations")
		for _, value := range in {
			withoutRules(value)
		}
	case []any:
		for _, value := range in {
			withoutRules(value)
		}
	}
}

// define installs a kind and waits until it is served.
func (w *World) define(ctx context.Context, definition *apiextensionsv1.CustomResourceDefinition) error {
	definition.TypeMeta.APIVersion, definition.TypeMeta.Kind = "apiextensions.k8s.io/v1", "CustomResourceDefinition"
	const path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	if err := w.watch.send(ctx, "POST", path, definition); err != nil {
		return fmt.Errorf("installing %s: %w", definition.Name, err)
	}
	return w.cluster.AwaitKinds(ctx)
}
