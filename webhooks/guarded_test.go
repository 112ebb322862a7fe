package webhooks

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

func TestAGuardedServerAnswersOnlyPathsWithTheSecret(t *testing.T) {
	called := 0
	server := Guarded(webhook.NewServer(webhook.Options{}), func(_ context.Context, secret string) bool { return secret == "good" })
	server.Register("/mutate", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called++ }))
	for path, want := range map[string]int{
		"/good/mutate": http.StatusOK,
		"/mutate":      http.StatusNotFound, "/": http.StatusNotFound, "/bad/mutate": http.StatusNotFound,
		"/good": http.StatusNotFound, "/good/": http.StatusNotFound, "/good/mutate/": http.StatusNotFound,
		"/good/good/mutate": http.StatusNotFound, "/good/other": http.StatusNotFound, "/%67ood%2Fmutate": http.StatusNotFound,
	} {
		called = 0
		answer := httptest.NewRecorder()
		server.WebhookMux().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, nil))
		if answer.Code != want || (called == 1) != (want == http.StatusOK) {
			t.Errorf("%s: %d, called %d times; want %d", path, answer.Code, called, want)
		}
	}
}

// Every webhook of the configurations has a path, and a path has a handler: see
// test/e2e/security, which calls them all.
func TestEveryWebhookHasAPath(t *testing.T) {
	paths, err := Paths()
	if err != nil {
		t.Fatal(err)
	}
	if got := paths.Mutating["create.ipclaim.ipam.cadastre.dev"]; got != "/mutate-ipam-cadastre-dev-v1alpha1-ipclaim" {
		t.Errorf("claims are created at %q", got)
	}
	if got := paths.Validating["update.ipclaim.ipam.cadastre.dev"]; got != "/validate-ipam-cadastre-dev-v1alpha1-ipclaim" {
		t.Errorf("claims are updated at %q", got)
	}
	if len(paths.Mutating) < 8 || len(paths.Validating) < 7 {
		t.Errorf("%d and %d paths", len(paths.Mutating), len(paths.Validating))
	}
}
