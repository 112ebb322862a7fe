package webhooks

import (
	"context"
	"net/http"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// traceRequests has a span for each request to a webhook, as a child of the API server's. What is logged
// for a request whose span is recorded has the ID of its trace. Without a tracer it does
// nothing.
func traceRequests(hook *admission.Webhook, tracer *tracing.Tracer) {
	if tracer == nil {
		return
	}
	hook.WithContextFunc = tracing.Received
	of := hook.Handler
	hook.Handler = admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		ctx, span := tracer.Serve(ctx, tracing.NameOfAdmission(string(req.Operation), req.Resource.Resource))
		defer span.End()
		if !span.IsRecording() {
			return of.Handle(ctx, req)
		}
		describeRequest(span, req)
		response := of.Handle(log.IntoContext(ctx, log.FromContext(ctx).WithValues("traceID", span.TraceID())), req)
		describeResponse(span, response)
		return response
	})
}

func describeRequest(span tracing.Span, req admission.Request) {
	span.Set(
		tracing.Operation.String(string(req.Operation)), tracing.UID.String(string(req.UID)),
		tracing.DryRun.Bool(req.DryRun != nil && *req.DryRun), tracing.Kind.String(req.Kind.Kind),
	)
	if req.Namespace != "" {
		span.Set(tracing.Namespace.String(req.Namespace))
	}
	if req.Name != "" {
		span.Set(tracing.Name.String(req.Name))
	}
}

// describeResponse notes the answer. That a request is refused is no failure of the operator,
// unless its code says so.
func describeResponse(span tracing.Span, response admission.Response) {
	span.Set(tracing.Allowed.Bool(response.Allowed))
	if response.Allowed {
		return
	}
	code, reason := codeOf(response), ""
	if response.Result != nil {
		reason = response.Result.Message
	}
	span.Set(tracing.Code.Int(int(code)), tracing.Reason.String(reason))
	if code >= http.StatusInternalServerError && code != http.StatusInsufficientStorage {
		span.Fail(strconv.Itoa(int(code)), reason)
	}
}
