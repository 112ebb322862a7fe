package webhooks

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// reviewing serves a handler, with the bounds of all webhooks.
func newReviewer(handle func(ctx context.Context, req admission.Request) admission.Response) *reviewer {
	return &reviewer{&admission.Webhook{Handler: admission.HandlerFunc(handle)}, newInFlight(), refusals{metrics: metrics.New(clock.RealClock{})}}
}

// sentTo sends a review, and returns the answer: an HTTP status, or that of the API server.
func sendReview(ctx context.Context, t *testing.T, hook http.Handler, body string) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	w := httptest.NewRecorder()
	hook.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body)))
	if w.Code != http.StatusOK {
		return w.Code, nil
	}
	var review admissionv1.AdmissionReview
	must(t, json.Unmarshal(w.Body.Bytes(), &review))
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" {
		t.Errorf("the answer is a %s %s", review.APIVersion, review.Kind)
	}
	if review.Response.Result != nil && review.Response.Result.Code != 0 {
		return int(review.Response.Result.Code), review.Response
	}
	return http.StatusOK, review.Response
}

func reviewOf(bytes int) string {
	return `{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1","name":"c","operation":"CREATE","object":{"a":"` +
		strings.Repeat("x", bytes) + `"},"oldObject":null,"dryRun":true}}`
}

func TestRequestIsReadUnchanged(t *testing.T) {
	hook := newReviewer(func(_ context.Context, req admission.Request) admission.Response {
		if req.UID != "u-1" || req.Name != "c" || req.Operation != admissionv1.Create || !*req.DryRun || string(req.Object.Raw) != `{"a":"xx"}` || req.OldObject.Raw != nil {
			t.Errorf("the request is %+v", req)
		}
		return admission.Allowed("")
	})
	if code, answer := sendReview(t.Context(), t, hook, reviewOf(2)); code != http.StatusOK || !answer.Allowed || answer.UID != "u-1" {
		t.Errorf("it is answered %d: %+v", code, answer)
	}
	for body, want := range map[string]int{
		``: 400, `{`: 400, `{"request":7}`: 400, `{"request":{"uid":7}}`: 400, `[]`: 400, reviewOf(maxRequestBytes): 413,
	} {
		code, answer := sendReview(t.Context(), t, hook, body)
		if code != want || answer == nil {
			t.Errorf("a body of %d bytes is answered %d, want %d in a review", len(body), code, want)
			continue
		}
		if want == http.StatusRequestEntityTooLarge {
			messages.Golden(t, []messages.Row{{Object: "any", On: messages.CreateOrUpdate, Answer: "413 RequestEntityTooLarge", Message: answer.Result.Message}})
		}
	}
}

// TestLargeRequestsDoNotBlockSmallOnes sends as many large ones as are read at a time:
// one is handled, the next is asked to come again, and a small one is answered.
func TestLargeRequestsDoNotBlockSmallOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		hook := newReviewer(func(_ context.Context, req admission.Request) admission.Response {
			if len(req.Object.Raw) > smallRequestBytes {
				<-release
			}
			return admission.Allowed("")
		})
		large := reviewOf(largeBytes / 4)
		answers := make(chan int)
		send := func(ctx context.Context) {
			code, answer := sendReview(ctx, t, hook, large)
			if answer.UID != "u-1" {
				t.Errorf("the answer has the UID %q", answer.UID)
			}
			answers <- code
		}
		ctx, leave := context.WithCancel(t.Context())
		for range 3 {
			go send(ctx)
			synctest.Wait()
		}
		code, answer := sendReview(t.Context(), t, hook, large)
		if code != http.StatusTooManyRequests || answer.UID != "u-1" || answer.Result.Details.RetryAfterSeconds != 1 {
			t.Fatalf("one more is answered %d: %+v", code, answer)
		}
		messages.Golden(t, []messages.Row{{Object: "any", On: messages.CreateOrUpdate, Answer: "429 TooManyRequests", Message: answer.Result.Message}})
		if code, _ := sendReview(t.Context(), t, hook, reviewOf(2)); code != http.StatusOK {
			t.Errorf("a small one is answered %d", code)
		}
		leave() // two wait for their turn
		for range 2 {
			if code := <-answers; code != http.StatusTooManyRequests {
				t.Errorf("one whose time is up is answered %d", code)
			}
		}
		close(release)
		if code := <-answers; code != http.StatusOK {
			t.Errorf("the first is answered %d", code)
		}
		if code, _ := sendReview(t.Context(), t, hook, large); code != http.StatusOK {
			t.Errorf("when all have left, one is answered %d", code)
		}
	})
}
