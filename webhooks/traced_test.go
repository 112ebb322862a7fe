package webhooks

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr/funcr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

const traceOfCaller = "0af7651916cd43dd8448eb211c80319c"

// answered has a webhook that answers so, asked with the header of a caller's trace, and returns
// its spans and what its handler logs.
func answered(t *testing.T, header string, answer admission.Response) (spans []sdktrace.ReadOnlySpan, logged string) {
	t.Helper()
	recorder, server := tracetest.NewSpanRecorder(), &registered{}
	tracer := tracing.New(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample()))))
	hook := &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, _ admission.Request) admission.Response {
		log.FromContext(ctx).Info("handled")
		return answer
	})}
	observedServer{server, observer{refusals: refusals{metrics.New(clock.RealClock{}), nil}, tracer: tracer}}.Register("/path", hook)
	over := httptest.NewRequest(http.MethodPost, "/path", nil)
	over.Header.Set("Traceparent", header)
	ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = args }, funcr.Options{}))
	server.hook.(*reviewer).hook.Handler.Handle(hook.WithContextFunc(ctx, over), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "uid", Namespace: "team", Name: "a", Operation: admissionv1.Create, DryRun: new(true),
		Resource: metav1.GroupVersionResource{Resource: "ipclaims"}, Kind: metav1.GroupVersionKind{Kind: "IPClaim"},
	}})
	return recorder.Ended(), logged
}

func TestARequestIsTracedAsAPartOfItsCallersTrace(t *testing.T) {
	spans, logged := answered(t, "00-"+traceOfCaller+"-b7ad6b7169203331-01", admission.Allowed(""))
	if len(spans) != 1 {
		t.Fatalf("there are %d spans, want 1", len(spans))
	}
	span := spans[0]
	if span.Name() != "admission CREATE ipclaims" || span.SpanKind() != trace.SpanKindServer {
		t.Errorf("the span is %q of kind %s", span.Name(), span.SpanKind())
	}
	if of := span.Parent(); of.TraceID().String() != traceOfCaller || of.SpanID().String() != "b7ad6b7169203331" {
		t.Errorf("its parent is %v, want the caller's", of)
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

func TestARequestThatItsCallerDoesNotSampleIsNotTraced(t *testing.T) {
	for name, header := range map[string]string{"not sampled": "00-" + traceOfCaller + "-b7ad6b7169203331-00", "no trace": ""} {
		spans, logged := answered(t, header, admission.Allowed(""))
		if len(spans) > 0 || logged != `"level"=0 "msg"="handled"` {
			t.Errorf("%s: there are %d spans, and logged is %s", name, len(spans), logged)
		}
	}
}

// TestOnlyWhatTheOperatorCannotDecideIsAFailure of it: other refusals are answers.
func TestOnlyWhatTheOperatorCannotDecideIsAFailure(t *testing.T) {
	of := subject{kind: "IPClaim", plural: "ipclaims"}
	for name, c := range map[string]struct {
		answer admission.Response
		code   int64
		want   codes.Code
	}{
		"denied":    {admission.Denied("no"), http.StatusForbidden, codes.Unset},
		"conflict":  {denied(of.conflict(errors.New("taken"))), http.StatusConflict, codes.Unset},
		"no room":   {denied(of.insufficient(errors.New("full"))), http.StatusInsufficientStorage, codes.Unset},
		"try again": {denied(tryAgain(errors.New("late"))), http.StatusTooManyRequests, codes.Unset},
		"a failure": {admission.Errored(http.StatusInternalServerError, errors.New("broken")), http.StatusInternalServerError, codes.Error},
	} {
		spans, _ := answered(t, "00-"+traceOfCaller+"-b7ad6b7169203331-01", c.answer)
		set := attribute.NewSet(spans[0].Attributes()...)
		code, _ := set.Value(tracing.Code)
		allowed, _ := set.Value(tracing.Allowed)
		if code.AsInt64() != c.code || allowed.AsBool() || spans[0].Status().Code != c.want {
			t.Errorf("%s: code %d, allowed %t, status %s", name, code.AsInt64(), allowed.AsBool(), spans[0].Status().Code)
		}
	}
}
