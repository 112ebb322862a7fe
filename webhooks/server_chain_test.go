package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/testing/entries"
)

func TestRefusalsAreCountedByCode(t *testing.T) {
	counter := metrics.New(clock.RealClock{})
	answers := map[string]admission.Response{
		"allowed":   admission.Allowed(""),
		"denied":    admission.Denied("no"),
		"conflict":  denied(subject{kind: "IPClaim"}.conflict(errors.New("taken"))),
		"exhausted": admission.Errored(http.StatusInsufficientStorage, errors.New("full")),
	}
	handler := refusals{counter, nil}.countRefusals(admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response { return answers[req.Name] }))
	for name := range answers {
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Name: name, Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Resource: "ipclaims"},
		}}
		if response := handler.Handle(t.Context(), req); response.Allowed != answers[name].Allowed {
			t.Errorf("%s: the answer was changed", name)
		}
	}
	expectRefusals(t, counter, `
cadastre_webhook_refusals_total{code="403",operation="create",resource="ipclaims"} 1
cadastre_webhook_refusals_total{code="409",operation="create",resource="ipclaims"} 1
cadastre_webhook_refusals_total{code="507",operation="create",resource="ipclaims"} 1
`)
}

// expectRefusals fails if other refusals than these were counted.
func expectRefusals(t *testing.T, counter *metrics.Instruments, want string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(counter.Collectors()...)
	head := "# HELP cadastre_webhook_refusals_total " + metrics.DefinitionOf(metrics.Refusals).Help + "\n# TYPE cadastre_webhook_refusals_total counter"
	if err := testutil.GatherAndCompare(registry, strings.NewReader(head+want), metrics.Refusals); err != nil {
		t.Error(err)
	}
}

// TestRefusalBeforeHandlerIsCounted sends requests that no handler sees: one that is too large,
// one that is no review, one while all room for small ones is taken, and a large one whose time is
// up while another is handled.
func TestRefusalBeforeHandlerIsCounted(t *testing.T) {
	counter, busy := metrics.New(clock.RealClock{}), newInFlight()
	hook := chain{refusals: refusals{counter, nil}, inFlight: busy}.wrap(admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response {
			t.Error("a handler is called")
			return admission.Allowed("")
		}))
	send := func(ctx context.Context, body string, want int) {
		t.Helper()
		if code, _ := sendReview(ctx, t, hook, body); code != want {
			t.Errorf("it is answered %d, want %d", code, want)
		}
	}
	send(t.Context(), reviewOf(maxRequestBytes), http.StatusRequestEntityTooLarge)
	send(t.Context(), "{", http.StatusBadRequest)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, busy.turn.Acquire(t.Context(), 1))
	named := `{"request":{"uid":"u-1","operation":"CREATE","resource":{"resource":"ipclaims"},"object":{"a":"` + strings.Repeat("x", smallRequestBytes) + `"}}}`
	send(late, named, http.StatusTooManyRequests)
	must(t, busy.small.Acquire(t.Context(), smallBytes))
	send(t.Context(), reviewOf(2), http.StatusTooManyRequests)
	expectRefusals(t, counter, `
cadastre_webhook_refusals_total{code="400",operation="",resource=""} 1
cadastre_webhook_refusals_total{code="413",operation="",resource=""} 1
cadastre_webhook_refusals_total{code="429",operation="",resource=""} 1
cadastre_webhook_refusals_total{code="429",operation="create",resource="ipclaims"} 1
`)
}

// TestHistoryHasRefusals expects the user and the refused object, except for dry runs, which
// change nothing.
func TestHistoryHasRefusals(t *testing.T) {
	recorder, take := entries.Recorder()
	conflict := denied(subject{kind: "IPClaim", name: "shop"}.conflict(errors.New("taken")))
	handler := refusals{metrics.New(clock.RealClock{}), recorder}.countRefusals(admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response {
			if req.Name == "allowed" {
				return admission.Allowed("")
			}
			return conflict
		}))
	ask := func(name, object string, dryRun bool) {
		handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind{Kind: "IPClaim"}, Namespace: "team", Name: name, Operation: admissionv1.Create, DryRun: &dryRun,
			Object: runtime.RawExtension{Raw: []byte(object)}, UserInfo: authenticationv1.UserInfo{Username: "alice"},
		}})
	}
	ask("allowed", `{}`, false)
	ask("tried", `{"spec":{"cidr":"10.0.0.0/24"}}`, true)
	ask("shop", `{"spec":{"cidr":"10.0.0.0/24"}}`, false)
	ask("address", `{"spec":{"address":"10.0.0.7"}}`, false)
	ask("odd", `{"spec":{"cidr":["10.0.0.0/24"]}}`, false)
	ask("wrong", `{"spec":{"cidr":"10.0.0.0/99"}}`, false)
	var got []string
	for _, e := range take() {
		got = append(got, fmt.Sprintf("%s %s %s %s/%s %s %d %s", e.Action, e.Operation, e.HolderKind, e.HolderNamespace, e.Holder, e.Block, e.Code, e.Reason))
		if e.RequestedBy != "alice" || !strings.Contains(e.Message, "taken") {
			t.Errorf("entry %+v, want the user and the message", e)
		}
	}
	want := []string{
		"Refused CREATE IPClaim team/shop 10.0.0.0/24 409 Conflict",
		"Refused CREATE IPClaim team/address 10.0.0.7/32 409 Conflict",
		"Refused CREATE IPClaim team/odd invalid Prefix 409 Conflict",
		"Refused CREATE IPClaim team/wrong invalid Prefix 409 Conflict",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

const traceOfCaller = "0af7651916cd43dd8448eb211c80319c"

// runTracedHook runs a webhook with this answer, called with the header of a caller's trace, and returns
// its spans and the log entries of its handler.
func runTracedHook(t *testing.T, header string, answer admission.Response) (spans []sdktrace.ReadOnlySpan, logged string) {
	t.Helper()
	recorder := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))).Tracer("test")
	hook := chain{refusals: refusals{metrics.New(clock.RealClock{}), nil}, tracer: tracer}.wrap(admission.HandlerFunc(func(ctx context.Context, _ admission.Request) admission.Response {
		log.FromContext(ctx).Info("handled")
		return answer
	})).(*reviewer).hook
	over := httptest.NewRequest(http.MethodPost, "/path", nil)
	over.Header.Set("Traceparent", header)
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = args }, funcr.Options{}))
	hook.Handler.Handle(hook.WithContextFunc(ctx, over), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "uid", Namespace: "team", Name: "a", Operation: admissionv1.Create, DryRun: new(true),
		Resource: metav1.GroupVersionResource{Resource: "ipclaims"}, Kind: metav1.GroupVersionKind{Kind: "IPClaim"},
	}})
	return recorder.Ended(), logged
}

func TestRequestJoinsTraceOfCaller(t *testing.T) {
	spans, logged := runTracedHook(t, "00-"+traceOfCaller+"-b7ad6b7169203331-01", admission.Allowed(""))
	if len(spans) != 1 {
		t.Fatalf("there are %d spans, want 1", len(spans))
	}
	span := spans[0]
	if span.Name() != "admission CREATE ipclaims" || span.SpanKind() != trace.SpanKindServer {
		t.Errorf("the span is %q of kind %s", span.Name(), span.SpanKind())
	}
	if parent := span.Parent(); parent.TraceID().String() != traceOfCaller || parent.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("its parent is %v, want the caller's", parent)
	}
	got := attribute.NewSet(span.Attributes()...)
	want := attribute.NewSet(
		tracing.Kind.String("IPClaim"), tracing.Namespace.String("team"), tracing.Name.String("a"), tracing.UID.String("uid"),
		tracing.Operation.String("CREATE"), tracing.DryRun.Bool(true), tracing.Allowed.Bool(true),
	)
	if !got.Equals(&want) {
		t.Errorf("it has %v, want %v", got.ToSlice(), want.ToSlice())
	}
	if want := `"level"=0 "msg"="handled" "traceID"="` + traceOfCaller + `"`; logged != want {
		t.Errorf("logged is %s, want %s", logged, want)
	}
}

func TestUnsampledRequestIsNotTraced(t *testing.T) {
	for name, header := range map[string]string{"not sampled": "00-" + traceOfCaller + "-b7ad6b7169203331-00", "no trace": ""} {
		spans, logged := runTracedHook(t, header, admission.Allowed(""))
		if len(spans) > 0 || logged != `"level"=0 "msg"="handled"` {
			t.Errorf("%s: there are %d spans, and logged is %s", name, len(spans), logged)
		}
	}
}

func TestBlockIsReadFromObjectWithinBounds(t *testing.T) {
	const object = `{"spec":{"cidr":"10.0.0.7/24"}}`
	for length, want := range map[int]string{maxObjectBytes: "10.0.0.0/24", maxObjectBytes + 1: "invalid Prefix"} {
		if got := blockIn([]byte(object + strings.Repeat(" ", length-len(object)))); got.String() != want {
			t.Errorf("of an object of %d bytes it is %s, want %s", length, got, want)
		}
	}
}

// TestOnlyUndecidedRequestIsFailure counts other refusals as answers.
func TestOnlyUndecidedRequestIsFailure(t *testing.T) {
	claimSubject := subject{kind: "IPClaim"}
	for name, c := range map[string]struct {
		answer admission.Response
		code   int64
		want   codes.Code
	}{
		"denied":    {admission.Denied("no"), http.StatusForbidden, codes.Unset},
		"conflict":  {denied(claimSubject.conflict(errors.New("taken"))), http.StatusConflict, codes.Unset},
		"no room":   {denied(claimSubject.insufficient("full")), http.StatusInsufficientStorage, codes.Unset},
		"try again": {denied(tryAgain(errors.New("late"))), http.StatusTooManyRequests, codes.Unset},
		"a failure": {admission.Errored(http.StatusInternalServerError, errors.New("broken")), http.StatusInternalServerError, codes.Error},
	} {
		spans, _ := runTracedHook(t, "00-"+traceOfCaller+"-b7ad6b7169203331-01", c.answer)
		set := attribute.NewSet(spans[0].Attributes()...)
		code, _ := set.Value(tracing.Code)
		allowed, _ := set.Value(tracing.Allowed)
		if errorType, isError := set.Value(tracing.ErrorType); isError != (c.want == codes.Error) || isError && errorType.AsString() != fmt.Sprint(c.code) {
			t.Errorf("%s: the type of the error is %q", name, errorType.AsString())
		}
		if code.AsInt64() != c.code || allowed.AsBool() || spans[0].Status().Code != c.want {
			t.Errorf("%s: code %d, allowed %t, status %s", name, code.AsInt64(), allowed.AsBool(), spans[0].Status().Code)
		}
	}
}
