package webhooks

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestEveryManifestPathIsServed expects a path for every webhook of the configurations, and a handler
// for each path: see test/e2e/security, which calls them all.
func TestEveryManifestPathIsServed(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	server := webhook.NewServer(webhook.Options{})
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	must(t, err)
	Setup(mgr, Options{})
	paths := Paths()
	if len(paths.Mutating) < 8 || len(paths.Validating) < 7 {
		t.Fatalf("the paths are %v", paths)
	}
	if got := paths.Mutating["create.ipclaim.ipam.cadastre.dev"]; got != "/mutate-ipam-cadastre-dev-v1alpha1-ipclaim" {
		t.Errorf("claims are created at %q", got)
	}
	if got := paths.Mutating["create.cluster.ipam.cadastre.dev"]; got != "/mutate-cluster-x-k8s-io-v1beta2-cluster" {
		t.Errorf("Clusters are created at %q", got)
	}
	if got := paths.Validating["update.ipclaim.ipam.cadastre.dev"]; got != "/validate-ipam-cadastre-dev-v1alpha1-ipclaim" {
		t.Errorf("claims are updated at %q", got)
	}
	for _, path := range slices.Concat(slices.Collect(maps.Values(paths.Mutating)), slices.Collect(maps.Values(paths.Validating))) {
		_, served := server.WebhookMux().Handler(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		if served != path {
			t.Errorf("%s is served by %q", path, served)
		}
	}
}
