package tracing

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// These are the results of a pass of a controller.
const (
	passDone     = "done"
	passRequeued = "requeued"
	passError    = "error"
)

// Passes returns a reconciler that makes a span for each pass of r. Without a tracer it returns r.
func Passes(tracer trace.Tracer, controller string, r reconcile.Reconciler) reconcile.Reconciler {
	if tracer == nil {
		return r
	}
	name := Reconcile + " " + controller
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		ctx, span := tracer.Start(ctx, name)
		defer span.End()
		result, err := r.Reconcile(ctx, req)
		if span.IsRecording() {
			span.SetAttributes(Controller.String(controller), Name.String(req.Name))
			if req.Namespace != "" {
				span.SetAttributes(Namespace.String(req.Namespace))
			}
			setResult(span, result, err)
		}
		return result, err
	})
}

// typeOf returns the reason of an error of the API server, and otherwise OpenTelemetry's value for
// an error without type.
func typeOf(err error) string {
	return cmp.Or(string(apierrors.ReasonForError(err)), "_OTHER")
}

// setResult sets the result of a pass on its span.
func setResult(span trace.Span, result reconcile.Result, err error) {
	switch {
	case err != nil:
		span.SetAttributes(Result.String(passError), ErrorType.String(typeOf(err)))
		span.SetStatus(codes.Error, err.Error())
	case result.RequeueAfter > 0:
		span.SetAttributes(Result.String(passRequeued), RequeueAfter.Float64(result.RequeueAfter.Seconds()))
	default:
		span.SetAttributes(Result.String(passDone))
	}
}
