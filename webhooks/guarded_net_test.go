package webhooks

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/internal/certs"
)

type notingPaths struct{ noted chan string }

func (notingPaths) Judge(context.Context, string) certs.Standing { return certs.PathAccepted }

func (p notingPaths) Unanswered(secret string) { p.noted <- secret }

// The API server talks HTTP/1.1 to webhooks: a call that is cut off is a connection that ends.
func TestACallThatIsCutOffIsNoted(t *testing.T) {
	paths := notingPaths{make(chan string, 1)}
	hooks := Graceful(Guarded(webhook.NewServer(webhook.Options{}), paths))
	ctx, leave := context.WithCancel(t.Context())
	hooks.Register("/mutate", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.ReadAll(r.Body)
		leave()
		<-r.Context().Done()
	}))
	server := httptest.NewTLSServer(http.HandlerFunc(hooks.WebhookMux().ServeHTTP))
	defer server.Close()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/good/mutate?timeout=30s", strings.NewReader(reviewText))
	if err != nil {
		t.Fatal(err)
	}
	if response, err := server.Client().Do(req); err == nil {
		_ = response.Body.Close()
		t.Error("it is answered")
	}
	if secret := <-paths.noted; secret != "good" {
		t.Errorf("%q is noted", secret)
	}
}
