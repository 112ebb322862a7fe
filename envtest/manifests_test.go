package envtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/config"
)

// TestInstalledManifestsMatchKustomize compares CRDs, policies and webhooks with those of
// config/default, except the address at which the API server reaches the webhooks.
func TestInstalledManifestsMatchKustomize(t *testing.T) {
	kubectl := filepath.Join(os.Getenv("KUBEBUILDER_ASSETS"), "kubectl")
	rendered, err := exec.CommandContext(t.Context(), kubectl, "kustomize", "../config/default").Output()
	must(t, err)
	want, err := decode[map[string]any](rendered)
	must(t, err)

	got, err := webhookConfigurations(1)
	must(t, err)
	for _, files := range []func(func([]byte) error) error{
		func(do func([]byte) error) error { return eachFile(config.CRDs, "crd/bases/*.yaml", do) },
		func(do func([]byte) error) error { return eachFile(config.Policies, "policy/*.yaml", do) },
	} {
		must(t, files(func(text []byte) error {
			objects, err := decode[map[string]any](text)
			got = append(got, objects...)
			return err
		}))
	}
	if diff := cmp.Diff(compared(want), compared(got)); diff != "" {
		t.Errorf("Start installs something else:\n%s", diff)
	}
}

// compared returns the spec or the webhooks of each object, by kind and name.
func compared(objects []map[string]any) map[string]any {
	all := map[string]any{}
	for _, object := range objects {
		kind, _ := object["kind"].(string)
		name := kind + " " + object["metadata"].(map[string]any)["name"].(string)
		switch {
		case strings.HasSuffix(kind, "WebhookConfiguration"):
			for _, hook := range object["webhooks"].([]any) {
				hook := hook.(map[string]any)
				delete(hook, "clientConfig")
				hook["timeoutSeconds"] = number(hook["timeoutSeconds"])
				all[name+" "+hook["name"].(string)] = hook
			}
		case strings.Contains(kind, "AdmissionPolicy"), kind == "CustomResourceDefinition":
			all[name] = object["spec"]
		}
	}
	return all
}

// number returns the same value for a number, however it was read.
func number(n any) any {
	if n, ok := n.(int64); ok {
		return float64(n)
	}
	return n
}

func TestOlderClusterAPICRDsAreRejected(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, apiextensionsv1.AddToScheme(scheme))
	others, err := definitions(clusterAPI, "clusterapi/*.yaml")
	must(t, err)
	names := map[string]bool{}
	for _, wanted := range others {
		names[wanted.Name] = true
		older := &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: wanted.Name},
			Spec:       apiextensionsv1.CustomResourceDefinitionSpec{Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1beta1", Served: true}, {Name: "v1beta2"}}},
		}
		on := &plane{k8s: fake.NewClientBuilder().WithScheme(scheme).WithObjects(older).Build()}
		want := "the CRD " + wanted.Name + " does not serve v1beta2: install the CRDs of Cluster API 1.11 or later, or leave it out"
		if _, err := on.isMissing(t.Context(), wanted); err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
		on = &plane{k8s: fake.NewClientBuilder().WithScheme(scheme).Build()}
		if missing, err := on.isMissing(t.Context(), wanted); !missing || err != nil {
			t.Errorf("%s: missing: %t, %v", wanted.Name, missing, err)
		}
	}
	want := map[string]bool{"ipaddressclaims.ipam.cluster.x-k8s.io": true, "ipaddresses.ipam.cluster.x-k8s.io": true, "clusters.cluster.x-k8s.io": true}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("the CRDs of Cluster API that are installed are not those:\n%s", diff)
	}
}
