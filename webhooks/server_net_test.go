package webhooks

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/internal/certs"
)

// listening implements a server that is stopped as the library's own, on a listener that is open
// already: it waits for requests under way.
type listening struct {
	webhook.Server
	listener net.Listener
	http     http.Server
}

func (l *listening) Register(_ string, hook http.Handler) { l.http.Handler = hook }

func (l *listening) Start(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- l.http.Shutdown(context.WithoutCancel(ctx))
	}()
	_ = l.http.Serve(l.listener)
	return <-ended
}

// TestReplicaEndsDespiteHangingRequest runs a handler that ignores its context: neither the
// end of its time nor that of the server cuts it off, but the manager ends.
func TestReplicaEndsDespiteHangingRequest(t *testing.T) {
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	must(t, err)
	server := &listening{listener: listener}
	hooks := NewServer(server, notingPaths{})
	began, release := make(chan struct{}), make(chan struct{})
	hooks.Register("/", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		close(began)
		<-release
	}))
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		WebhookServer: hooks, Metrics: metricsserver.Options{BindAddress: "0"}, GracefulShutdownTimeout: new(time.Millisecond),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return meta.NewDefaultRESTMapper(nil), nil },
	})
	must(t, err)
	mgr.GetWebhookServer()
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(running) }()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		req, err := http.NewRequestWithContext(context.WithoutCancel(running), http.MethodPost, "http://"+listener.Addr().String(), strings.NewReader(reviewOf(largeBytes/4)))
		if err != nil {
			t.Error(err)
			return
		}
		response, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Errorf("it is not answered: %v", err)
			return
		}
		_ = response.Body.Close()
	}()
	<-began
	stop()
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "grace period") {
		t.Errorf("the manager has ended: %v; want that it has not waited", err)
	}
	select {
	case <-answered:
		t.Error("the request has ended")
	default:
	}
	close(release)
	<-answered
}

type notingPaths struct{ noted chan string }

func (notingPaths) Judge(context.Context, string) certs.Standing { return certs.PathAccepted }

func (p notingPaths) Unanswered(secret string) { p.noted <- secret }

// TestInterruptedCallIsRecorded covers HTTP/1.1, by which the API server calls webhooks: a call that
// is cut off is a connection that ends.
func TestInterruptedCallIsRecorded(t *testing.T) {
	paths := notingPaths{make(chan string, 1)}
	hooks := NewServer(webhook.NewServer(webhook.Options{}), paths)
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
