// Package export sends spans to a collector, by OTLP over gRPC. What it is not told by Options
// it takes from the environment variables that OpenTelemetry defines for an exporter and a
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

// flushWithin bounds how long the last spans are waited for when a process ends.
const flushWithin = 2 * time.Second

// Options are what a Provider is given when it is made.
type Options struct {
	// Endpoint of the collector: Endpoint reads it.
	Endpoint *url.URL
	// SamplingRatePerMillion of the traces that begin here are recorded. One that begins
	// elsewhere is recorded as its caller decided.
	SamplingRatePerMillion int
	// Version is that of the program, Namespace and Pod are where it runs; empty where
	// that is not known.
	Version, Namespace, Pod string
	Clock                   clock.PassiveClock
	// Log says of spans that are lost.
	Log logr.Logger
}

// Endpoint reads the address of a collector: with the scheme https it is reached by TLS, with
// http without.
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

// Provider records spans, and sends them in batches in the background. It never has a caller
// wait: what does not fit into its queue is lost.
type Provider struct {
	trace.TracerProvider
	provider *sdktrace.TracerProvider
	exporter *exporter
	ended    atomic.Int64
	log      logr.Logger
}

// New makes a provider. It does not wait until the collector is there.
func New(ctx context.Context, o Options) (*Provider, error) {
	sender, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(o.Endpoint.String()))
	if err != nil {
		return nil, fmt.Errorf("setting up the exporter of traces: %w", err)
	}
	of, err := described(ctx, o)
	if err != nil {
		return nil, err
	}
	p := &Provider{exporter: &exporter{SpanExporter: sender, clock: o.Clock, log: o.Log}, log: o.Log}
	p.provider = sdktrace.NewTracerProvider(
		sdktrace.WithResource(of),
		sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(float64(o.SamplingRatePerMillion)/PerMillion))),
		sdktrace.WithSpanProcessor(counting{sdktrace.NewBatchSpanProcessor(p.exporter), &p.ended}),
	)
	p.TracerProvider = p.provider
	return p, nil
}

// described is what spans are of. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME come first.
func described(ctx context.Context, o Options) (*resource.Resource, error) {
	own := []attribute.KeyValue{semconv.ServiceName("cadastre"), semconv.ServiceVersion(o.Version)}
	if o.Namespace != "" {
		own = append(own, semconv.K8SNamespaceName(o.Namespace))
	}
	if o.Pod != "" {
		own = append(own, semconv.K8SPodName(o.Pod), semconv.ServiceInstanceID(o.Pod))
	}
	of, err := resource.New(ctx,
		resource.WithAttributes(own...), resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("describing what traces are of: %w", err)
	}
	return of, nil
}

// Close sends what is left, for at most two seconds, and says how many spans were lost because
// they ended faster than the collector took them.
func (p *Provider) Close() {
	ctx, cancel := context.WithTimeout(context.Background(), flushWithin)
	defer cancel()
	if err := p.provider.Shutdown(ctx); err != nil {
		p.log.Info("Could not send the last spans to the collector of traces", "error", err.Error())
		_ = p.exporter.Shutdown(ctx) // ends what is under way
	}
	if lost := p.ended.Load() - p.exporter.taken.Load(); lost > 0 {
		p.log.Info("Spans were not sent, as the queue was full or the process ended: set OTEL_BSP_MAX_QUEUE_SIZE, or a lower sampling rate", "spans", lost)
	}
}

// counting counts spans that have ended and are to be sent.
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

// exporter logs what fails, rather than the handler of errors that all of a process has in
// common: at once the first time, and then once a minute at most.
type exporter struct {
	sdktrace.SpanExporter
	clock clock.PassiveClock
	log   logr.Logger
	// taken are spans that were sent, or given up.
	taken atomic.Int64

	// What follows is of the goroutine that sends.
	lost   int
	logged time.Time
}

// logEvery is how often failures are logged at most.
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
