// Package conformance shows that the conformance kit of clusterapi/conformance finds a provider that
// breaks a clause: for each clause a small provider breaks it, and nothing else. With -short, the
// other clauses are checked of a provider that breaks none.
package conformance

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/cadastre-dev/cadastre/clusterapi/conformance"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

var version = schema.GroupVersion{Group: "conformance.example.org", Version: "v1"}

// poolSize is the number of addresses of each pool.
const poolSize = 8

// alsoSkipped has the clauses that cannot be checked when another one is broken.
var alsoSkipped = map[string]string{
	"C04": "C05",
	"C15": "C23 C27 C28",
	"C16": "C24",
	"C22": "C15 B05",
	"C25": "C26 C28 B05",
	"C26": "B05",
	"C27": "C28 B05",
}

func TestKitFindsEachDefect(t *testing.T) {
	w := suite.Start(t, cluster.Options{Bare: true, ClusterAPICRDs: true})
	k8s, err := conformance.NewClient(w.Config())
	suite.Must(t, err)
	defects := []string{"none"}
	for _, c := range conformance.Clauses() {
		defects = append(defects, c.ID)
	}
	results := runAll(t, w, k8s, defects)
	for i, breaks := range defects {
		t.Run(breaks, func(t *testing.T) {
			want := map[string]conformance.Outcome{}
			for _, c := range checked(breaks) {
				if prerequisite := breaks == "C01" || breaks == "C06"; prerequisite && (c.ID > breaks || c.Section == "") || strings.Contains(alsoSkipped[breaks], c.ID) {
					want[c.ID] = conformance.Skipped
				}
			}
			if breaks != "none" {
				want[breaks] = conformance.Failed
			}
			got := map[string]conformance.Outcome{}
			for _, result := range results[i] {
				if result.Outcome != conformance.Passed {
					got[result.Clause.ID] = result.Outcome
				}
				if result.Outcome == conformance.Failed {
					t.Logf("%s: %s", result.Clause.ID, result.Reason)
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// runAll checks a provider for each defect, several at a time, and returns the results of each.
func runAll(t *testing.T, w *suite.World, k8s client.WithWatch, defects []string) [][]conformance.Result {
	manager, err := ctrl.NewManager(w.Config(), ctrl.Options{Scheme: k8s.Scheme(), Metrics: server.Options{BindAddress: "0"}})
	suite.Must(t, err)
	for _, breaks := range defects {
		if breaks == "C01" {
			continue
		}
		suite.Must(t, k8s.Create(t.Context(), definition(breaks)))
	}
	suite.Must(t, w.AwaitKinds(t.Context()))
	for _, breaks := range defects {
		if breaks == "C01" {
			continue
		}
		p := &provider{Client: k8s, kind: kindOf(breaks), breaks: breaks, ledger: map[types.NamespacedName][]types.NamespacedName{}}
		suite.Must(t, p.setUp(manager))
	}
	ctx, cancel := context.WithCancel(t.Context())
	var providers errgroup.Group
	providers.Go(func() error { return manager.Start(ctx) })
	t.Cleanup(func() {
		cancel()
		suite.Must(t, providers.Wait())
	})
	results := make([][]conformance.Result, len(defects))
	var kits errgroup.Group
	kits.SetLimit(8)
	for i, breaks := range defects {
		kits.Go(func() error {
			kit := conformance.New(conformance.Target{Client: k8s, Pool: template(breaks), Addresses: poolSize, Deadline: 5 * time.Second})
			for _, c := range checked(breaks) {
				results[i] = append(results[i], kit.Check(ctx, c))
			}
			return nil
		})
	}
	suite.Must(t, kits.Wait())
	return results
}

// checked returns the clauses that are checked of a provider with a defect: all, or with -short only
// the one that it breaks.
func checked(breaks string) []conformance.Clause {
	all := conformance.Clauses()
	if !testing.Short() || breaks == "none" {
		return all
	}
	return slices.DeleteFunc(all, func(c conformance.Clause) bool { return c.ID != breaks })
}

func kindOf(breaks string) string { return "Pool" + strings.ToUpper(breaks[:1]) + breaks[1:] }

func template(breaks string) string {
	return fmt.Sprintf("apiVersion: %s\nkind: %s\nmetadata: {name: \"{{.Name}}\"}\nspec: {network: 10.0.{{.Index}}}\n", version, kindOf(breaks))
}

// definition returns the CRD of the provider with a defect.
func definition(breaks string) *apiextensionsv1.CustomResourceDefinition {
	kind := kindOf(breaks)
	plural := strings.ToLower(kind) + "s"
	if breaks == "C02" {
		plural = strings.ToLower(kind) + "z"
	}
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	status := object(map[string]apiextensionsv1.JSONSchemaProps{"phase": text})
	if breaks != "C04" {
		condition := object(map[string]apiextensionsv1.JSONSchemaProps{"type": text, "status": text})
		status.Properties["conditions"] = apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &condition}}
	}
	root := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec": object(map[string]apiextensionsv1.JSONSchemaProps{"network": text}), "status": status,
	})
	if breaks != "C03" {
		root.Properties["apiVersion"], root.Properties["kind"], root.Properties["metadata"] = text, text, object(nil)
	}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + version.Group}}
	crd.Spec.Group, crd.Spec.Scope = version.Group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Kind: kind, ListKind: kind + "List", Plural: plural, Singular: strings.ToLower(kind)}
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: version.Version, Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &root},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}}
	return crd
}
