// Package tracing defines the names of the operator's spans and of their attributes, which
// docs/tracing.md explains, and makes the spans of passes. It imports only the API of OpenTelemetry:
// a program that records spans makes a provider by package export.
//
// Spans can name claims, pools, blocks and users' objects. No span has a secret.
package tracing

import (
	"cmp"
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// These are the names of spans. The name of a span of admission continues with the operation and
// the resource, and that of a pass with the controller.
const (
	Admission = "admission"
	Reconcile = "reconcile"
	Allocate  = "allocate"
	Find      = "find"
	Await     = "await room"
	Record    = "record"
	Confirm   = "confirm"
	Release   = "release"
)

// These are the attributes of spans. Attributes without the prefix cadastre come from
// OpenTelemetry's semantic conventions.
const (
	ErrorType      attribute.Key = "error.type"
	Kind           attribute.Key = "cadastre.object.kind"
	Namespace      attribute.Key = "cadastre.object.namespace"
	Name           attribute.Key = "cadastre.object.name"
	Operation      attribute.Key = "cadastre.admission.operation"
	UID            attribute.Key = "cadastre.admission.uid"
	DryRun         attribute.Key = "cadastre.admission.dry_run"
	Allowed        attribute.Key = "cadastre.admission.allowed"
	Code           attribute.Key = "cadastre.admission.code"
	Controller     attribute.Key = "cadastre.controller"
	RequeueAfter   attribute.Key = "cadastre.requeue_after"
	Origin         attribute.Key = "cadastre.origin"
	Class          attribute.Key = "cadastre.class"
	Family         attribute.Key = "cadastre.ip_family"
	Length         attribute.Key = "cadastre.prefix_length"
	Candidates     attribute.Key = "cadastre.candidates"
	Attempts       attribute.Key = "cadastre.attempts"
	Waited         attribute.Key = "cadastre.waited"
	Pool           attribute.Key = "cadastre.pool"
	Block          attribute.Key = "cadastre.block"
	AllocationName attribute.Key = "cadastre.allocation"
	Result         attribute.Key = "cadastre.result"
	Reason         attribute.Key = "cadastre.reason"
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
