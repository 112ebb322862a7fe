// Package tracing defines the spans of the operator and their attributes, and has the Tracer
// that starts them. It imports the API of OpenTelemetry alone: a program that records spans
// makes a provider by package export.
//
// Spans may name claims, pools, blocks and users' objects. No span has a secret.
package tracing

import (
	"context"
	"net/http"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// scope names what the spans are of.
const scope = "github.com/cadastre-dev/cadastre"

// Tracer starts spans. A nil Tracer starts none, and costs nothing: no method of it, and none
// of the Span that it returns, allocates. All methods may be called from any goroutine.
type Tracer struct {
	tracer trace.Tracer
}

// New makes a tracer whose spans go to a provider.
func New(to trace.TracerProvider) *Tracer { return &Tracer{tracer: to.Tracer(scope)} }

// Start starts a span, which is a child of the span that ctx has, where it has one. The caller
// ends it.
func (t *Tracer) Start(ctx context.Context, name string) (context.Context, Span) {
	if t == nil {
		return ctx, Span{}
	}
	return t.start(ctx, name, trace.SpanKindInternal)
}

// Serve is Start for a request of another process.
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

// Current is the span that ctx has.
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

// Span is what a Tracer has started. The zero value is none.
type Span struct {
	span trace.Span
}

// IsRecording reports whether somebody will see the span. Attributes are made only then: they
// cost more than the span.
func (s Span) IsRecording() bool { return s.span != nil && s.span.IsRecording() }

// TraceID is that of the trace, as the collector has it.
func (s Span) TraceID() string { return s.span.SpanContext().TraceID().String() }

// Set adds attributes to a span that is recording.
func (s Span) Set(attributes ...attribute.KeyValue) { s.span.SetAttributes(attributes...) }

// Fail notes on a span that is recording that what it is about has failed, as what type of
// error, and why.
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
