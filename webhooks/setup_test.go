package webhooks

import (
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// TestEveryManifestPathIsServed expects a path for every webhook of the configurations, and a handler
// for each path: see test/e2e/security, which calls them all.
func TestEveryManifestPathIsServed(t *testing.T) {
	server := setUp(t, Options{})
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
		_, served := server.Handler(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		if served != path {
			t.Errorf("%s is served by %q", path, served)
		}
	}
}

// setUp returns a server with all webhooks, without an API server.
func setUp(t *testing.T, options Options) *http.ServeMux {
	t.Helper()
	scheme := runtime.NewScheme()
	must(t, v1alpha1.AddToScheme(scheme))
	must(t, incluster.AddToScheme(scheme))
	server := webhook.NewServer(webhook.Options{})
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Scheme: scheme, WebhookServer: server, Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	must(t, err)
	Setup(mgr, options)
	return server.WebhookMux()
}

// TestReviewsOfClustersLeaveBytesForOthers lets Clusters take all bytes in flight that they may.
func TestReviewsOfClustersLeaveBytesForOthers(t *testing.T) {
	server := setUp(t, Options{Metrics: metrics.New(clock.RealClock{})})
	const cluster = "/mutate-cluster-x-k8s-io-v1beta2-cluster"
	var reviews sync.WaitGroup
	defer reviews.Wait()
	for range 4 {
		body, unsent := io.Pipe()
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, cluster, body)
		req.ContentLength = largeBytes / 4
		reviews.Go(func() {
			server.ServeHTTP(httptest.NewRecorder(), req)
			_ = body.Close()
		})
		if _, err := unsent.Write([]byte(" ")); err != nil { // else it is read, and waits for more
			t.Fatal("it is answered before it is read")
		}
		defer func() { _ = unsent.Close() }()
	}
	for path, want := range map[string]int{cluster: http.StatusTooManyRequests, "/mutate-ipam-cadastre-dev-v1alpha1-ipclaim": http.StatusBadRequest} {
		handler, _ := server.Handler(httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, http.NoBody))
		if code, _ := sendReview(t.Context(), t, handler, strings.Repeat(" ", largeBytes/4)); code != want {
			t.Errorf("%s: the answer is %d, want %d", path, code, want)
		}
	}
}

// TestWebhooksBoundObjectsThatTheyJudge sends objects beyond the bounds, and pools with an invalid address.
func TestWebhooksBoundObjectsThatTheyJudge(t *testing.T) {
	const pools = "/validate-ipam-cluster-x-k8s-io-v1alpha2-inclusterippool"
	large := strings.Repeat("x", maxObjectBytes)
	invalid := `{"apiVersion":"ipam.cluster.x-k8s.io/v1alpha2","kind":"InClusterIPPool","metadata":{"name":"p"},"spec":{"addresses":["x"],"prefix":24}}`
	for name, c := range map[string]struct {
		isInCluster  bool
		path, object string
		want         bool
	}{
		"a large pool of ours":                {false, "/mutate-ipam-cadastre-dev-v1alpha1-ippool", `{"metadata":{"name":"p"},"spec":{"x":"` + large + `"}}`, false},
		"a large pool of another provider":    {false, pools, `{"metadata":{"name":"p"},"spec":{"x":"` + large + `"}}`, true},
		"an invalid pool of another provider": {false, pools, invalid, true},
		"a large in-cluster pool":             {true, pools, `{"metadata":{"name":"p"},"spec":{"x":"` + large + `"}}`, false},
		"an invalid in-cluster pool":          {true, pools, invalid, false},
		"a large Cluster":                     {false, "/mutate-cluster-x-k8s-io-v1beta2-cluster", `{"metadata":{"name":"c","annotations":{"` + v1alpha1.AnnotationNetworksFilled + `":"x"}},"spec":{"x":"` + large + `"}}`, true},
	} {
		server := setUp(t, Options{InCluster: c.isInCluster, Operator: operator, Metrics: metrics.New(clock.RealClock{})})
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, c.path, http.NoBody)
		handler, _ := server.Handler(req)
		body := bodyOf(t, admissionv1.AdmissionRequest{UID: "1", Namespace: "team", Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: []byte(c.object)}})
		_, response := sendReview(t.Context(), t, handler, string(body))
		if response.Allowed != c.want || strings.Contains(c.object, large) && !c.want && !strings.Contains(response.Result.Message, "Too long") {
			t.Errorf("%s: the answer is %+v, want that it is allowed: %t", name, response, c.want)
		}
	}
}

// TestSubresourcesAreNotJudged expects that the API server sends no writes of a status, or of another subresource, to
// a webhook: what is stored can be written to whatever its size.
func TestSubresourcesAreNotJudged(t *testing.T) {
	for _, configuration := range []string{manifests.MutatingWebhooks, manifests.ClusterWebhooks, manifests.ValidatingWebhooks} {
		webhooks := manifests.Webhooks(configuration, manifests.Account{})
		if len(webhooks) == 0 {
			t.Errorf("%s has no webhooks", configuration)
		}
		for name, webhook := range webhooks {
			for _, rule := range webhook.Rules {
				if slices.ContainsFunc(rule.Resources, func(resource string) bool { return strings.ContainsAny(resource, "/*") }) {
					t.Errorf("%s judges %q", name, rule.Resources)
				}
			}
		}
	}
}
