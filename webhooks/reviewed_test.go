package webhooks

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// newReviewer serves a handler, with the bounds of all webhooks.
func newReviewer(handle func(ctx context.Context, req admission.Request) admission.Response) *reviewer {
	return &reviewer{&admission.Webhook{Handler: admission.HandlerFunc(handle)}, newInFlight(), refusals{metrics: metrics.New(clock.RealClock{})}}
}

// sendReview sends a review, and returns the answer: an HTTP status, or that of the API server.
func sendReview(ctx context.Context, t *testing.T, hook http.Handler, body string) (int, *admissionv1.AdmissionResponse) {
	t.Helper()
	w := httptest.NewRecorder()
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	hook.ServeHTTP(w, req)
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

func TestRequestIsPassedToHandler(t *testing.T) {
	type key struct{}
	hook := newReviewer(func(ctx context.Context, req admission.Request) admission.Response {
		if string(req.Object.Raw) != `{"a":1}` || string(req.OldObject.Raw) != `{"b":2}` || req.Name != strings.Repeat("n", maxMessageBytes)+"..." {
			t.Errorf("the request of a name of %d bytes has the objects %s and %s", len(req.Name), req.Object.Raw, req.OldObject.Raw)
		}
		if ctx.Value(key{}) != "/path" {
			t.Error("the context is not that of the request")
		}
		return admission.Allowed("")
	})
	hook.hook.WithContextFunc = func(ctx context.Context, r *http.Request) context.Context {
		return context.WithValue(ctx, key{}, r.URL.Path)
	}
	body := `{"request":{"uid":"u-1","name":"` + strings.Repeat("n", maxMessageBytes+1) + `","object":{"a":1},"oldObject":{"b":2}}}`
	for name, c := range map[string]struct {
		body   io.Reader
		length int64
		code   string
	}{
		"of known length":      {strings.NewReader(body), int64(len(body)), ""},
		"of unknown length":    {strings.NewReader(body), -1, ""},
		"as long as allowed":   {strings.NewReader(body + strings.Repeat(" ", maxRequestBytes-len(body))), maxRequestBytes, ""},
		"that is interrupted":  {iotest.ErrReader(io.ErrUnexpectedEOF), int64(len(body)), `"code":400`},
		"longer than is known": {strings.NewReader(body), int64(len(body) - 1), `"code":400`},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/path", c.body)
		r.ContentLength = c.length
		hook.ServeHTTP(w, r)
		if answer := w.Body.String(); strings.Contains(answer, `"allowed":true`) != (c.code == "") || !strings.Contains(answer, c.code) {
			t.Errorf("a request %s is answered %s", name, answer)
		}
	}
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
		if !hook.inFlight.small.TryAcquire(smallBytes) {
			t.Error("the large ones count among the small ones")
		}
		hook.inFlight.small.Release(smallBytes)
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

func TestLongestStringIsMeasured(t *testing.T) {
	for text, want := range map[string]int{
		`{}`: 0, `{"a":"bcd"}`: 3, `{"abcd":[1,{"x":"\\\""}]}`: 4, `[12345,1.5e100]`: 7, `{"a":-12,"b":null}`: 2, `{"a":"b`: 1,
	} {
		if got := count([]byte(text)).longest; got != want {
			t.Errorf("that of %s is %d, want %d", text, got, want)
		}
	}
}

func TestTextThatIsNoObjectIsRefused(t *testing.T) {
	for _, text := range []string{
		``, `[]`, `"a"`, `{`, `{7}`, `{"a`, `{"a"`, `{"a" 1}`, `{"a":`, `{"a":}`, `{"a":"b`, `{"a":1`, `{"a":"b"`, `{"a":{"b":1}`, `{"a":1 2}`, `{"a":"b""c":1}`, `{"a":1,`, `{"a":1,}`, `{"a":1,2}`, `{"a":]}`,
	} {
		if eachMember([]byte(text), func(_, _ []byte) {}) == nil {
			t.Errorf("%s is read as an object", text)
		}
	}
}

// FuzzRawJSON compares the values that are read from a text with those that the library decodes
// from it.
func FuzzRawJSON(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"a":1}`, ` { "a" : [ ] , "b" : { } } `, `{"a":"\"","b":"\\","c":"\\\"}"}`, `{"a":[1,[2,{"x":"]"}],{}],"b":null}`,
		`{"metadata":{"labels":{"a":"b"},"managedFields":[{"f:x":{}}]},"spec":{}}`, `{"a":-1.5e9,"b":true}`, `[{}]`, `{"a"`, `{"a":`, `{"a":}`, `{"a":1`, `{"a":"`, `"`, ``,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		members := map[string]json.RawMessage{}
		names := 0
		err := eachMember([]byte(text), func(name, value []byte) {
			names++
			members[string(name)] = value
		})
		got := count([]byte(text))
		var want map[string]json.RawMessage
		if json.Unmarshal([]byte(text), &want) != nil || want == nil {
			return // that it does not panic is enough
		}
		if err != nil {
			t.Fatalf("%q cannot be read: %v", text, err)
		}
		for name := range want {
			if quoted, _ := json.Marshal(name); len(want) != names || string(quoted) != `"`+name+`"` || members[name] == nil {
				return // names with escapes, or more than once, are not written by the API server
			}
		}
		if diff := cmp.Diff(want, members); diff != "" {
			t.Errorf("members of %q (-want +got):\n%s", text, diff)
		}
		if all := entriesOf(decodeJSON(t, []byte(text))); got.direct != len(want) || got.total != all {
			t.Errorf("%q has %+v; want %d entries, and %d in all", text, got, len(want), all)
		}
		same, err := appendObject(nil, []byte(text), func(to []byte, _ string, value []byte) []byte { return append(to, value...) })
		if err != nil || !cmp.Equal(decodeJSON(t, same), decodeJSON(t, []byte(text))) {
			t.Errorf("%q is written again as %q: %v", text, same, err)
		}
	})
}

func decodeJSON(t *testing.T, text []byte) any {
	t.Helper()
	var value any
	must(t, json.Unmarshal(text, &value))
	return value
}

// entriesOf counts the entries of a decoded text.
func entriesOf(value any) int {
	n := 0
	switch value := value.(type) {
	case map[string]any:
		for _, v := range value {
			n += 1 + entriesOf(v)
		}
	case []any:
		for _, v := range value {
			n += 1 + entriesOf(v)
		}
	}
	return n
}
