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

func TestEveryManifestPathIsServed(t *testing.T) {
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	server := webhook.NewServer(webhook.Options{})
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	must(t, err)
	must(t, Setup(mgr, Options{}))
	paths, err := Paths()
	must(t, err)
	if len(paths.Mutating) == 0 || len(paths.Validating) == 0 {
		t.Fatalf("the paths are %v", paths)
	}
	for _, path := range slices.Concat(slices.Collect(maps.Values(paths.Mutating)), slices.Collect(maps.Values(paths.Validating))) {
		_, served := server.WebhookMux().Handler(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		if served != path {
			t.Errorf("%s is served by %q", path, served)
		}
	}
}
