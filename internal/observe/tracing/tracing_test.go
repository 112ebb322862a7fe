package tracing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

func TestPassHasSpanWithResult(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "ipclaims"}, "a", errors.New("changed"))
	for name, c := range map[string]struct {
		result reconcile.Result
		err    error
		want   []attribute.KeyValue
		status codes.Code
	}{
		"done":       {want: []attribute.KeyValue{tracing.Result.String("done")}},
		"once more":  {result: reconcile.Result{RequeueAfter: 1500 * time.Millisecond}, want: []attribute.KeyValue{tracing.Result.String("requeued"), tracing.RequeueAfter.Float64(1.5)}},
		"an error":   {err: errors.New("broken"), want: []attribute.KeyValue{tracing.Result.String("error"), tracing.ErrorType.String("_OTHER")}, status: codes.Error},
		"a conflict": {err: conflict, want: []attribute.KeyValue{tracing.Result.String("error"), tracing.ErrorType.String("Conflict")}, status: codes.Error},
	} {
		recorder := tracetest.NewSpanRecorder()
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder)).Tracer("test")
		inner := reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) { return c.result, c.err })
		result, err := tracing.Passes(tracer, "ipclaim", inner).Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "team", Name: "a"}})
		if result != c.result || !errors.Is(err, c.err) {
			t.Errorf("%s: the pass returns %v, %v", name, result, err)
		}
		span := recorder.Ended()[0]
		got := attribute.NewSet(span.Attributes()...)
		want := attribute.NewSet(append(c.want, tracing.Controller.String("ipclaim"), tracing.Namespace.String("team"), tracing.Name.String("a"))...)
		if span.Name() != "reconcile ipclaim" || !got.Equals(&want) || span.Status().Code != c.status {
			t.Errorf("%s: the span %q has %v and %s, want %v", name, span.Name(), got.ToSlice(), span.Status().Code, want.ToSlice())
		}
	}
}
