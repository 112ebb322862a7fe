package webhooks

import (
	"context"
	"encoding/json"
	"errors"
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

// bare implements a server that serves until its context is done. Requests have the same context.
type bare struct {
	webhook.Server
	hook    http.Handler
	serving chan context.Context
	failed  error
}

func (b *bare) Register(_ string, hook http.Handler) { b.hook = hook }

func (b *bare) Start(ctx context.Context) error {
	if b.failed != nil {
		return b.failed
	}
	b.serving <- ctx
	<-ctx.Done()
	return nil
}

// deadlines implements a response whose connection takes a deadline.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.read = at
	return nil
}

// sendRequest sends one request to the server, and returns the answer and the reason why the request was
// cut off.
func sendRequest(ctx context.Context, server webhook.Server, of *bare, target string, during func(context.Context)) (answer *deadlines, cut error) {
	server.Register("/", http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		during(r.Context())
		cut = r.Context().Err()
	}))
	answer = &deadlines{ResponseRecorder: httptest.NewRecorder()}
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, target, http.NoBody)
	req.SetPathValue(secretElement, "good")
	of.hook.ServeHTTP(answer, req)
	return answer, cut
}

func TestRequestIsAnsweredBeforeAPIServerTimeout(t *testing.T) {
	for target, want := range map[string]time.Duration{
		"/":              4 * time.Second,
		"/?timeout=5s":   4 * time.Second,
		"/?timeout=30s":  29 * time.Second,
		"/?timeout=1s":   time.Second / 2,
		"/?timeout=-1s":  4 * time.Second,
		"/?timeout=0s":   4 * time.Second,
		"/?timeout=soon": 4 * time.Second,
	} {
		t.Run(target, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				inner := &bare{}
				began := time.Now()
				answer, cut := sendRequest(t.Context(), NewServer(inner, &fixedPaths{}), inner, target, func(ctx context.Context) { <-ctx.Done() })
				if took := time.Since(began); took != want || !errors.Is(cut, context.DeadlineExceeded) {
					t.Errorf("it was cut off after %v: %v; want %v", took, cut, want)
				}
				if !answer.read.Equal(began.Add(want)) || answer.Header().Get("Connection") != "" {
					t.Errorf("it is read until %v, with the header %v", answer.read, answer.Header())
				}
			})
		})
	}
}

func TestRequestEndsWhenCallerDisconnects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &bare{}
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		_, cut := sendRequest(ctx, NewServer(inner, &fixedPaths{}), inner, "/", func(ctx context.Context) {
			leave()
			<-ctx.Done()
		})
		if !errors.Is(cut, context.Canceled) || time.Since(began) > 0 {
			t.Errorf("it ended after %v: %v", time.Since(began), cut)
		}
	})
}

func TestStoppingServerAnswersPendingAndNewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := &bare{serving: make(chan context.Context, 1)}
		server := NewServer(inner, &fixedPaths{})
		until, end := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- server.Start(until) }()
		serving := <-inner.serving
		_, cut := sendRequest(serving, server, inner, "/", func(context.Context) {
			end()
			began := time.Now()
			synctest.Wait()
			if answer, _ := sendRequest(serving, server, inner, "/", func(context.Context) {}); answer.Header().Get("Connection") != "close" {
				t.Errorf("a request while it ends is answered with the header %v", answer.Header())
			}
			if err := <-ended; err != nil || time.Since(began) != drainPeriod {
				t.Errorf("it ended after %v: %v; want %v", time.Since(began), err, drainPeriod)
			}
			synctest.Wait()
		})
		if cut != nil {
			t.Errorf("a request under way was cut off: %v", cut)
		}
	})
}

func TestServerReturnsStartError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := errors.New("the port is taken")
		if err := NewServer(&bare{failed: failed}, &fixedPaths{}).Start(t.Context()); !errors.Is(err, failed) {
			t.Errorf("the error is %v", err)
		}
	})
}

const reviewText = `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","object":{}}}`

// fixedPaths accepts "good" and knows "former", and notes the unanswered paths.
type fixedPaths struct{ unanswered []string }

func (*fixedPaths) Judge(_ context.Context, secret string) certs.Standing {
	return map[string]certs.Standing{"good": certs.PathAccepted, "former": certs.PathOlder}[secret]
}

func (p *fixedPaths) Unanswered(secret string) { p.unanswered = append(p.unanswered, secret) }

func TestGuardedServerAnswersOnlySecretPaths(t *testing.T) {
	called, paths := 0, &fixedPaths{}
	server := NewServer(webhook.NewServer(webhook.Options{}), paths)
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

func TestRequestOnFormerPathIsRetriable(t *testing.T) {
	server := NewServer(webhook.NewServer(webhook.Options{}), &fixedPaths{})
	server.Register("/mutate", http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it is served") }))
	for body, want := range map[string]int{reviewText: http.StatusOK, "": http.StatusBadRequest, "[": http.StatusBadRequest, strings.Repeat(" ", maxRequestBytes+1) + reviewText: http.StatusBadRequest} {
		answer := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		server.WebhookMux().ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/former/mutate", strings.NewReader(body)))
		if answer.read.IsZero() {
			t.Errorf("%.20q: its reading has no deadline", body)
		}
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

func TestUnansweredRequestIsRecorded(t *testing.T) {
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
				server := NewServer(webhook.NewServer(webhook.Options{}), paths)
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

// TestAnswerAtTimeoutCountsAsAnswered lets a hook use up its time: the API server waits
// longer.
func TestAnswerAtTimeoutCountsAsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		paths := &fixedPaths{}
		server := NewServer(webhook.NewServer(webhook.Options{}), paths)
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
