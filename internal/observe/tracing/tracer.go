// Package tracing defines the spans of the operator and their attributes, and the Tracer that
// starts them. It imports only the API of OpenTelemetry: a program that records spans makes a
// provider by package export.
//
// Spans can name claims, pools, blocks and users' objects. No span has a secret.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope is the instrumentation scope of the spans.
const scope = "github.com/cadastre-dev/cadastre"

// Tracer starts spans. A nil Tracer starts none, and costs nothing: no method of it, and none
// of the Span that it returns, allocates. All methods can be called from any goroutine.
type Tracer struct {
	tracer trace.Tracer
}

// New makes a tracer whose spans go to a provider.
func New(to trace.TracerProvider) *Tracer { return &Tracer{tracer: to.Tracer(scope)} }

// Start starts a span. It is a child of the span in ctx, if there is one. The caller ends it.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, name, trace.SpanKindInternal)
}

// Serve starts a span like Start, but for a request of another process.
func (t *Tracer) Serve(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, name, trace.SpanKindServer)
}

func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind) (context.Context, Span) {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind))
	return ctx, Span{span}
}

// Current returns the span in ctx.
func (t *Tracer) Current(ctx context.Context) Span {
	if t == nil {
		return Span{}
	}
	return Span{trace.SpanFromContext(ctx)}
}

// Received returns a context with the span that a request names as its parent, in the header
// traceparent of W3C Trace Context.
func Received(ctx context.Context, from *http.Request) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(from.Header))
}

// Span represents a span that a Tracer has started. The zero value represents no span.
type Span struct {
	span trace.Span
}

// IsRecording reports whether the span is recorded. Callers make attributes only then: they
// cost more than the span.
func (s Span) IsRecording() bool { return s.span != nil && s.span.IsRecording() }

// TraceID returns the ID of the trace, as the collector shows it.
func (s Span) TraceID() string { return s.span.SpanContext().TraceID().String() }

// Set adds attributes to a span that is recording.
func (s Span) Set(attributes ...attribute.KeyValue) { s.span.SetAttributes(attributes...) }

// Fail records on a span that is recording that its work has failed, with the type of the error
// and a message.
func (s Span) Fail(errorType, message string) {
	s.span.SetAttributes(ErrorType.String(errorType))
	s.span.SetStatus(codes.Error, message)
}

// End ends the span.
func (s Span) End() {
	if s.span != nil {
		s.span.End()
	}
}
