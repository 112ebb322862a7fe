package kubeutil

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestWritesOfPassAreCounted(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(to http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/refused" {
			to.WriteHeader(http.StatusForbidden)
		}
	}))
	defer server.Close()
	over := &http.Client{Transport: CountingWrites(http.DefaultTransport)}
	for name, c := range map[string]struct {
		method, path string
		err          error
		want         string
	}{
		"it reads":                         {http.MethodGet, "/", nil, PassUnchanged},
		"it writes":                        {http.MethodPatch, "/", nil, PassChanged},
		"its write is refused":             {http.MethodPost, "/refused", nil, PassUnchanged},
		"it asks for a right":              {http.MethodPost, "/apis/authorization.k8s.io/v1/subjectaccessreviews", nil, PassUnchanged},
		"it fails":                         {http.MethodPost, "/refused", errors.New("refused"), PassFailed},
		"it writes, and fails":             {http.MethodPatch, "/", errors.New("refused"), PassFailed},
		"it fails, which the status has":   {http.MethodGet, "/", Reported(errors.New("refused")), PassFailed},
		"it fails, and is not tried again": {http.MethodGet, "/", reconcile.TerminalError(errors.New("refused")), PassFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var got passList
			b := NewBackoff(clock.RealClock{}, "test", &got)
			if err := b.Start(t.Context(), workqueue.NewTypedRateLimitingQueue(b.Limiter())); err != nil {
				t.Fatal(err)
			}
			_, _ = b.Passes(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
				request, err := http.NewRequestWithContext(ctx, c.method, server.URL+c.path, nil)
				if err != nil {
					t.Fatal(err)
				}
				answer, err := over.Do(request)
				if err != nil {
					t.Fatal(err)
				}
				_ = answer.Body.Close()
				return reconcile.Result{}, c.err
			})).Reconcile(t.Context(), RequestFor("team", "a"))
			if len(got) != 1 || got[0] != "test "+c.want {
				t.Errorf("counted are %v, want one that %s", got, c.want)
			}
		})
	}
}

// passList holds the passes that were counted.
type passList []string

func (l *passList) Passed(controller, result string) { *l = append(*l, controller+" "+result) }
