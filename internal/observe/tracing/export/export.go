// Package export sends spans to a collector, by OTLP over gRPC. It takes the settings that are
// not in Options from the environment variables that OpenTelemetry defines for an exporter and a
// batch processor, such as OTEL_EXPORTER_OTLP_HEADERS and OTEL_BSP_MAX_QUEUE_SIZE.
package export

import (
	"context"
	"fmt"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.41.0"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"
)

// PerMillion is the rate at which every trace is recorded.
const PerMillion = 1_000_000

// flushWithin bounds the wait for the last spans when a process ends.
const flushWithin = 2 * time.Second

// Options holds the settings of a Provider.
type Options struct {
	// Endpoint is the address of the collector, as the function Endpoint reads it.
	Endpoint *url.URL
	// SamplingRatePerMillion is the number of recorded traces out of a million that begin here.
	// The caller decides whether a trace that begins elsewhere is recorded.
	SamplingRatePerMillion int
	// Version is the version of the program. Namespace and Pod are the namespace and the pod in
	// which it runs; empty if unknown.
	Version, Namespace, Pod string
	Clock                   clock.PassiveClock
	// Log takes messages about lost spans.
	Log logr.Logger
}

// Endpoint reads the address of a collector. The scheme https means a connection with TLS, http
// means one without.
func Endpoint(text string) (*url.URL, error) {
	endpoint, err := url.Parse(text)
	switch {
	case err != nil, endpoint.Scheme != "http" && endpoint.Scheme != "https", endpoint.Port() == "", endpoint.Hostname() == "":
		return nil, fmt.Errorf("%q is not the address of a collector: set one such as https://collector.example.com:4317, or http:// for a connection without TLS", text)
	case endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "" || endpoint.Path != "" && endpoint.Path != "/":
		return nil, fmt.Errorf("%q has more than scheme, host and port: leave the rest out", endpoint.Redacted())
	}
	return endpoint, nil
}

// Provider records spans, and sends them in batches in the background. It never makes a caller
// wait: spans that do not fit into its queue are lost.
type Provider struct {
	trace.TracerProvider
	provider *sdktrace.TracerProvider
	exporter *exporter
	ended    atomic.Int64
	log      logr.Logger
}

// New makes a provider. It does not wait for the collector.
func New(ctx context.Context, o Options) (*Provider, error) {
	sender, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(o.Endpoint.String()))
	if err != nil {
		return nil, fmt.Errorf("setting up the exporter of traces: %w", err)
	}
	res, err := described(ctx, o)
	if err != nil {
		return nil, err
	}
	p := &Provider{exporter: &exporter{SpanExporter: sender, clock: o.Clock, log: o.Log}, log: o.Log}
	p.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(res),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.SamplingRatePerMillion)/PerMillion))),
		sdktrace.WithSpanProcessor(counting{sdktrace.NewBatchSpanProcessor(p.exporter), &p.ended}),
	)
	p.TracerProvider = p.provider
	return p, nil
}

// described returns the resource of the spans. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
// take precedence.
func described(ctx context.Context, o Options) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{semconv.ServiceName("cadastre"), semconv.ServiceVersion(o.Version)}
	if o.Namespace != "" {
		attributes = append(attributes, semconv.K8SNamespaceName(o.Namespace))
	}
	if o.Pod != "" {
		attributes = append(attributes, semconv.K8SPodName(o.Pod), semconv.ServiceInstanceID(o.Pod))
	}
	res, err := resource.New(ctx,
		resource.WithAttributes(attributes...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describing the source of traces: %w", err)
	}
	return res, nil
}

// Close sends the remaining spans, for at most two seconds, and logs the number of spans that were
// lost because they ended faster than the collector took them.
func (p *Provider) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := p.provider.Shutdown(ctx); err != nil {
		p.log.Info("Could not send the last spans to the collector of traces", "error", err.Error())
		_ = p.exporter.Shutdown(ctx) // ends the sends under way
	}
	if lost := p.ended.Load() - p.exporter.taken.Load(); lost > 0 {
		p.log.Info("Spans were not sent, as the queue was full or the process ended: set OTEL_BSP_MAX_QUEUE_SIZE, or a lower sampling rate", "spans", lost)
	}
}

// counting counts the ended spans that the processor is to send.
type counting struct {
	sdktrace.SpanProcessor
	ended *atomic.Int64
}

// OnEnd implements sdktrace.SpanProcessor.
func (c counting) OnEnd(span sdktrace.ReadOnlySpan) {
	if span.SpanContext().IsSampled() {
		c.ended.Add(1)
	}
	c.SpanProcessor.OnEnd(span)
}

// exporter logs failures itself, instead of the error handler that the whole process shares: at
// once the first time, and then at most once a minute.
type exporter struct {
	sdktrace.SpanExporter
	clock clock.PassiveClock
	log   logr.Logger
	// taken is the number of spans that were sent, or given up.
	taken atomic.Int64

	// The following fields belong to the goroutine that sends.
	lost   int
	logged time.Time
}

// logEvery is the shortest interval between two logged failures.
const logEvery = time.Minute

// ExportSpans implements sdktrace.SpanExporter. It is called by one goroutine at a time.
func (e *exporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	e.taken.Add(int64(len(spans)))
	err := e.SpanExporter.ExportSpans(ctx, spans)
	if err == nil {
		return nil
	}
	e.lost += len(spans)
	if now := e.clock.Now(); e.logged.IsZero() || now.Sub(e.logged) >= logEvery {
		e.log.Info("Could not send spans to the collector of traces; they are lost", "spans", e.lost, "error", err.Error())
		e.lost, e.logged = 0, now
	}
	return nil
}
