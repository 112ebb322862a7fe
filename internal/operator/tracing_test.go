package operator

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"k8s.io/client-go/rest"
)

// TestRequestsPropagateSpan expects that other requests, such as those of informers, are left as
// they are.
func TestRequestsPropagateSpan(t *testing.T) {
	var header string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { header = r.Header.Get("Traceparent") }))
	defer server.Close()
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	client := http.Client{Transport: propagateTraces(http.DefaultTransport, provider)}
	get := func(ctx context.Context) {
		t.Helper()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		response, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
	}
	get(t.Context())
	if header != "" || len(recorder.Ended()) > 0 {
		t.Errorf("a request of no span has the header %q, and %d spans", header, len(recorder.Ended()))
	}
	ctx, span := provider.Tracer("test").Start(t.Context(), "record")
	get(ctx)
	span.End()
	ended := recorder.Ended()
	if len(ended) != 2 || ended[0].Name() != "HTTP GET" || ended[0].Parent().SpanID() != span.SpanContext().SpanID() {
		t.Fatalf("spans are %v, want that of the request below that of the step", ended)
	}
	if spanContext := ended[0].SpanContext(); header != "00-"+spanContext.TraceID().String()+"-"+spanContext.SpanID().String()+"-01" {
		t.Errorf("the server has the header %q, want of span %s", header, spanContext.SpanID())
	}
}

func TestNothingIsTracedWithoutCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // this flag switches traces on
	cfg := &rest.Config{}
	tracer, stop, err := startTracing(t.Context(), cfg, Options{TracingSamplingRate: 1000})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if tracer != nil || cfg.WrapTransport != nil {
		t.Errorf("without collector there is the tracer %v, and requests are wrapped: %t", tracer, cfg.WrapTransport != nil)
	}
}

func TestRequestsAreWrappedWithCollector(t *testing.T) {
	cfg := &rest.Config{}
	tracer, stop, err := startTracing(t.Context(), cfg, Options{TracingEndpoint: "http://127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if tracer == nil || cfg.WrapTransport == nil {
		t.Error("there is no tracer, or requests do not carry traces on")
	}
}

func TestInvalidResourceAttributesAreReported(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "no-value")
	if _, _, err := startTracing(t.Context(), &rest.Config{}, Options{TracingEndpoint: "http://127.0.0.1:1"}); err == nil {
		t.Error("there is a tracer")
	}
}
