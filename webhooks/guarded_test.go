package webhooks

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

const reviewText = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","object":{}}}`

// fixedPaths accepts "good" and knows "former", and notes what was not answered.
type fixedPaths struct{ unanswered []string }

func (*fixedPaths) Judge(_ context.Context, secret string) certs.Standing {
	return map[string]certs.Standing{"good": certs.PathAccepted, "former": certs.PathOlder}[secret]
}

func (p *fixedPaths) Unanswered(secret string) { p.unanswered = append(p.unanswered, secret) }

func TestAGuardedServerAnswersOnlyPathsWithTheSecret(t *testing.T) {
	called, paths := 0, &fixedPaths{}
	server := Guarded(webhook.NewServer(webhook.Options{}), paths)
	server.Register("/mutate", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { called++ }))
	for path, want := range map[string]int{
		"/good/mutate": http.StatusOK,
		"/mutate":      http.StatusNotFound, "/": http.StatusNotFound, "/bad/mutate": http.StatusNotFound,
		"/good": http.StatusNotFound, "/good/": http.StatusNotFound, "/good/mutate/": http.StatusNotFound,
		"/good/good/mutate": http.StatusNotFound, "/good/other": http.StatusNotFound, "/%67ood%2Fmutate": http.StatusNotFound,
		"/former": http.StatusNotFound, "/former/other": http.StatusNotFound,
	} {
		called = 0
		answer := httptest.NewRecorder()
		server.WebhookMux().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, nil))
		if answer.Code != want || (called == 1) != (want == http.StatusOK) {
			t.Errorf("%s: %d, called %d times; want %d", path, answer.Code, called, want)
		}
	}
	if len(paths.unanswered) > 0 {
		t.Errorf("%q count as not answered", paths.unanswered)
	}
}

func TestARequestOnAFormerPathIsToBeTriedAgain(t *testing.T) {
	server := Guarded(webhook.NewServer(webhook.Options{}), &fixedPaths{})
	server.Register("/mutate", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is served") }))
	for body, want := range map[string]int{reviewText: http.StatusOK, "": http.StatusBadRequest, "[": http.StatusBadRequest, strings.Repeat(" ", longestReview+1) + reviewText: http.StatusBadRequest} {
		answer := httptest.NewRecorder()
		server.WebhookMux().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/former/mutate", strings.NewReader(body)))
		if answer.Code != want {
			t.Errorf("%.20q: %d %s, want %d", body, answer.Code, answer.Body, want)
		}
		if want != http.StatusOK {
			continue
		}
		var got admissionv1.AdmissionReview
		if err := json.Unmarshal(answer.Body.Bytes(), &got); err != nil {
			t.Fatal(err)
		}
		result := got.Response.Result
		if got.Response.UID != "u-1" || got.Kind != "AdmissionReview" || got.APIVersion != "admission.k8s.io/v1" ||
			got.Response.Allowed || result.Code != http.StatusServiceUnavailable || result.Details.RetryAfterSeconds == 0 {
			t.Errorf("answered with %+v, %+v", got.Response, result)
		}
		messages.Golden(t, []messages.Row{{Object: "IPClaim", On: "create", Answer: fmt.Sprint(result.Code, " ", result.Reason), Message: result.Message}})
	}
}

func TestARequestThatEndsWithoutItsAnswerIsNoted(t *testing.T) {
	for name, test := range map[string]struct {
		hook func(leave func())
		want int
	}{
		"answered":                 {func(func()) {}, 0},
		"answered after a moment":  {func(func()) { <-time.After(defaultTimeout - 1) }, 0},
		"later than is waited for": {func(func()) { <-time.After(defaultTimeout) }, 1},
		"its caller went":          {func(leave func()) { leave() }, 1},
		"the hook panicked":        {func(func()) { panic(http.ErrAbortHandler) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				paths := &fixedPaths{}
				server := Guarded(webhook.NewServer(webhook.Options{}), paths)
				ctx, leave := context.WithCancel(t.Context())
				defer leave()
				server.Register("/mutate", http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
					test.hook(leave)
					synctest.Wait()
				}))
				defer func() {
					_ = recover()
					if len(paths.unanswered) != test.want {
						t.Errorf("%q count as not answered, want %d", paths.unanswered, test.want)
					}
				}()
				server.WebhookMux().ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/good/mutate", http.NoBody))
			})
		})
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

// TestAnswerAtTheEndOfItsTimeCountsAsAnswered has a hook use up its time: the API server
// waits longer.
func TestAnswerAtTheEndOfItsTimeCountsAsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := &fixedPaths{}
		server := Served(webhook.NewServer(webhook.Options{}), paths)
		server.Register("/mutate", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			w.WriteHeader(http.StatusTooManyRequests)
		}))
		answer := httptest.NewRecorder()
		server.WebhookMux().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/good/mutate?timeout=5s", http.NoBody))
		if answer.Code != http.StatusTooManyRequests || len(paths.unanswered) > 0 {
			t.Errorf("answered with %d, and %q count as not answered", answer.Code, paths.unanswered)
		}
	})
}
