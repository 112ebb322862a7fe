package operator

import (
	"context"
	"net/http"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing/export"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// startTracing makes a tracer whose spans go to the collector that the options name, and has
// requests by the configuration carry traces on to the API server. Without collector the tracer
// is nil, and the configuration stays as it is. What it returns is to be stopped last.
func startTracing(ctx context.Context, cfg *rest.Config, o Options) (tracer *tracing.Tracer, stop func(), err error) {
	if o.TracingEndpoint == "" {
		return nil, func() {}, nil
	}
	endpoint, err := export.Endpoint(o.TracingEndpoint)
	if err != nil {
		return nil, nil, err
	}
	provider, err := export.New(ctx, export.Options{
		Endpoint: endpoint, SamplingRatePerMillion: o.TracingSamplingRate,
		Version: version.Own(), Namespace: o.Namespace, Pod: replica(), Clock: clock.RealClock{}, Log: o.Log.WithName("tracing"),
	})
	if err != nil {
		return nil, nil, err
	}
	cfg.Wrap(func(over http.RoundTripper) http.RoundTripper { return carrying(over, provider) })
	return tracing.New(provider), provider.Close, nil
}

// carrying has a span for each request that is made for a span, and names it to the server as
// the parent of the server's. Other requests, such as those of informers, are left as they are.
func carrying(over http.RoundTripper, provider trace.TracerProvider) http.RoundTripper {
	return otelhttp.NewTransport(over,
		otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanContextFromContext(r.Context()).IsValid() }),
	)
}
