package tracing

import (
	"cmp"
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// These are the results of a pass of a controller.
const (
	passDone     = "done"
	passRequeued = "requeued"
	passError    = "error"
)

// Passes returns a reconciler that makes a span for each pass of r. A nil Tracer returns r.
func (t *Tracer) Passes(controller string, r reconcile.Reconciler) reconcile.Reconciler {
	if t == nil {
		return r
	}
	name := NameOfPass(controller)
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		ctx, span := t.Start(ctx, name)
		defer span.End()
		result, err := r.Reconcile(ctx, req)
		if span.IsRecording() {
			span.Set(Controller.String(controller), Name.String(req.Name))
			if req.Namespace != "" {
				span.Set(Namespace.String(req.Namespace))
			}
			span.passed(result, err)
		}
		return result, err
	})
}

// typeOf returns the reason of an error of the API server, and otherwise OpenTelemetry's value for
// an error without type.
func typeOf(err error) string {
	return cmp.Or(string(apierrors.ReasonForError(err)), "_OTHER")
}

// passed sets the result of a pass on its span.
func (s Span) passed(result reconcile.Result, err error) {
	switch {
	case err != nil:
		s.Set(Result.String(passError))
		s.Fail(typeOf(err), err.Error())
	case result.RequeueAfter > 0:
		s.Set(Result.String(passRequeued), RequeueAfter.Float64(result.RequeueAfter.Seconds()))
	default:
		s.Set(Result.String(passDone))
	}
}
