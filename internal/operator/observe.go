package operator

import (
	"context"
	"fmt"
	"net/http"
	"os"

	"github.com/spf13/pflag"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/history/export"
	tracingexport "github.com/cadastre-dev/cadastre/internal/observe/tracing/export"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// HistoryOptions holds the destinations of the history: the changes of each block, and the
// refused requests. An empty path, or an empty endpoint, means none.
type HistoryOptions struct {
	Log      bool
	File     export.FileOptions
	Endpoint string
}

func (o *HistoryOptions) bind(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Log, "history-log", true, "Write the history to the log: one line for each block that is granted, retained or released, and for each request that is refused.")
	fs.StringVar(&o.File.Path, "history-file", "", "File to which the history is written, one JSON object a line. kubectl ipam who --history-file reads it. Default: none.")
	fs.IntVar(&o.File.MaxSize, "history-file-maxsize", 100, "Size in megabytes at which the history file is rotated.")
	fs.IntVar(&o.File.MaxBackups, "history-file-maxbackup", 10, "How many rotated history files are kept. 0: all.")
	fs.IntVar(&o.File.MaxAge, "history-file-maxage", 0, "For how many days rotated history files are kept. 0: for ever.")
	fs.StringVar(&o.Endpoint, "history-otlp-endpoint", "", "URL of the OTLP endpoint (gRPC) to which the history is sent as log records, such as http://collector:4317, or https:// for TLS. Default: none.")
}

func (o *HistoryOptions) validate() error {
	for name, value := range map[string]int{"maxsize": o.File.MaxSize, "maxbackup": o.File.MaxBackups, "maxage": o.File.MaxAge} {
		if value < 0 {
			return fmt.Errorf("--history-file-%s=%d is negative: set 0 or more", name, value)
		}
	}
	return nil
}

// sinks opens all sinks, by their names in metrics.
func (o *Options) sinks(ctx context.Context) (map[string]history.Sink, error) {
	sinks := map[string]history.Sink{}
	if o.History.Log {
		sinks["log"] = export.Log(o.Log.WithName("history"))
	}
	if o.History.File.Path != "" {
		file, err := export.File(o.History.File)
		if err != nil {
			return nil, fmt.Errorf("--history-file=%s cannot be written: %w", o.History.File.Path, err)
		}
		sinks["file"] = file
	}
	if o.History.Endpoint != "" {
		endpoint, err := export.OTLP(ctx, o.History.Endpoint, podName())
		if err != nil {
			return nil, fmt.Errorf("--history-otlp-endpoint: %w", err)
		}
		sinks["otlp"] = endpoint
	}
	return sinks, nil
}

// podName returns the name of this process: the name of its pod if it runs in one.
func podName() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return name
}

// startTracing makes a tracer whose spans go to the collector that the options name, and wraps
// the configuration so that its requests carry traces on to the API server. Without a collector
// the tracer is nil, and the configuration stays as it is. The caller must call stop last.
func startTracing(ctx context.Context, cfg *rest.Config, o Options) (tracer trace.Tracer, stop func(), err error) {
	if o.TracingEndpoint == "" {
		return nil, func() {}, nil
	}
	endpoint, err := tracingexport.Endpoint(o.TracingEndpoint)
	if err != nil {
		return nil, nil, err
	}
	provider, err := tracingexport.New(ctx, tracingexport.Options{
		Endpoint: endpoint, SamplingRatePerMillion: o.TracingSamplingRate,
		Version: version.Own(), Namespace: o.Namespace, Pod: podName(), Clock: clock.RealClock{}, Log: o.Log.WithName("tracing"),
	})
	if err != nil {
		return nil, nil, err
	}
	cfg.Wrap(func(base http.RoundTripper) http.RoundTripper { return propagateTraces(base, provider) })
	return provider.Tracer("github.com/cadastre-dev/cadastre"), provider.Close, nil
}

// propagateTraces returns a transport that makes a span for each request that is made within a span, and
// names it to the server as the parent of the server's span. Other requests, such as requests of
// informers, stay as they are.
func propagateTraces(base http.RoundTripper, provider trace.TracerProvider) http.RoundTripper {
	return otelhttp.NewTransport(base,
		otelhttp.WithTracerProvider(provider), otelhttp.WithPropagators(propagation.TraceContext{}), otelhttp.WithMeterProvider(noop.NewMeterProvider()),
		otelhttp.WithFilter(func(r *http.Request) bool { return trace.SpanContextFromContext(r.Context()).IsValid() }),
	)
}
