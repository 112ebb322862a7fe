package export

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/internal/testing/collector"
)

// lines holds the log entries.
type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all = append(l.all, args)
	}, funcr.Options{})
}

func (l *lines) expect(t *testing.T, contain ...string) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.all) != len(contain) {
		t.Fatalf("%d lines are logged, want %d: %q", len(l.all), len(contain), l.all)
	}
	for i, want := range contain {
		if !strings.Contains(l.all[i], want) {
			t.Errorf("line %d is %s, want %s in it", i, l.all[i], want)
		}
	}
}

// provider returns one that sends to an address, in batches as small as possible.
func provider(t *testing.T, address string, rate int, log *lines) *Provider {
	t.Helper()
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	endpoint, err := Endpoint("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	p, err := New(t.Context(), Options{
		Endpoint: endpoint, SamplingRatePerMillion: rate, Version: "v1.2.3", Namespace: "system", Pod: "pod-1",
		Clock: clocktesting.NewFakePassiveClock(time.Unix(0, 0)), Log: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// runSpans starts and ends so many spans below a parent, and returns the time that it took.
func runSpans(ctx context.Context, p *Provider, spans int) time.Duration {
	tracer, began := p.Tracer("test"), time.Now()
	for n := range spans {
		_, span := tracer.Start(ctx, fmt.Sprint("span ", n))
		span.End()
	}
	return time.Since(began)
}

// callerContext returns the context of a request whose caller has decided whether to sample.
func callerContext(t *testing.T, sampled bool) context.Context {
	parent := trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, Remote: true}
	return trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(parent).WithTraceFlags(trace.TraceFlags(0).WithSampled(sampled)))
}

func newCollector(t *testing.T) *collector.Collector {
	t.Helper()
	c, err := collector.Start(true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// TestCallerDecidesSampling expects the rate to decide if there is no caller.
func TestCallerDecidesSampling(t *testing.T) {
	for name, c := range map[string]struct {
		ctx  context.Context //nolint:containedctx // what is tested
		rate int
		want int
	}{
		"its caller samples, and the rate is 0":      {callerContext(t, true), 0, 10},
		"its caller does not, and the rate is all":   {callerContext(t, false), PerMillion, 0},
		"it begins here, and the rate is 0":          {t.Context(), 0, 0},
		"it begins here, and all of them are traced": {t.Context(), PerMillion, 10},
	} {
		t.Run(name, func(t *testing.T) {
			var log lines
			to := newCollector(t)
			p := provider(t, to.Address, c.rate, &log)
			runSpans(c.ctx, p, 10)
			p.Close()
			if got := to.Count(); got != c.want {
				t.Errorf("the collector has %d spans, want %d", got, c.want)
			}
			log.expect(t)
		})
	}
}

func TestSpansHaveResourceAttributes(t *testing.T) {
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=blue")
	var log lines
	to := newCollector(t)
	p := provider(t, to.Address, PerMillion, &log)
	runSpans(t.Context(), p, 1)
	p.Close()
	spans := to.Spans(func(collector.Span) bool { return true })
	if len(spans) != 1 {
		t.Fatalf("the collector has %d spans, want 1", len(spans))
	}
	for key, want := range map[string]string{
		"service.name": "cadastre", "service.version": "v1.2.3", "service.instance.id": "pod-1",
		"k8s.namespace.name": "system", "k8s.pod.name": "pod-1", "deployment.environment.name": "blue",
	} {
		if got := spans[0].Resource[key]; got != want {
			t.Errorf("%s is %v, want %s", key, got, want)
		}
	}
}

// TestMissingCollectorBlocksNoCaller uses an address without a listener.
func TestMissingCollectorBlocksNoCaller(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // its port is free
	checkBlocksNoCaller(t, listener.Addr().String())
}

// TestHangingCollectorBlocksNoCaller uses a collector that accepts connections, and never
// answers.
func TestHangingCollectorBlocksNoCaller(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "50")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	checkBlocksNoCaller(t, listener.Addr().String())
}

// checkBlocksNoCaller ends ten times as many spans as the queue holds. The end of a span takes
// microseconds; one that waited for the collector would take 50 ms. Of hundreds of failures one is
// logged, and at the end the number of lost spans.
func checkBlocksNoCaller(t *testing.T, address string) {
	t.Setenv("OTEL_BSP_MAX_QUEUE_SIZE", "100")
	t.Setenv("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "10")
	var log lines
	p := provider(t, address, PerMillion, &log)
	if took := runSpans(t.Context(), p, 1000); took > time.Second {
		t.Errorf("1000 spans took %s", took)
	}
	began := time.Now()
	p.Close()
	if took := time.Since(began); took > flushWithin+time.Second {
		t.Errorf("to close took %s, want %s at most", took, flushWithin)
	}
	log.expect(t, "Could not send spans to the collector", "Spans were not sent")
}

// TestHangingCollectorDoesNotDelayShutdown covers an export that would take a minute.
func TestHangingCollectorDoesNotDelayShutdown(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60000")
	t.Setenv("OTEL_BSP_EXPORT_TIMEOUT", "60000")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var log lines
	p := provider(t, listener.Addr().String(), PerMillion, &log)
	runSpans(t.Context(), p, 10)
	began := time.Now()
	p.Close()
	if took := time.Since(began); took < flushWithin || took > flushWithin+time.Second {
		t.Errorf("to close took %s, want %s", took, flushWithin)
	}
}

// failing implements an exporter that fails.
type failing struct{ sdktrace.SpanExporter }

func (failing) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error {
	return context.DeadlineExceeded
}

func TestFailuresAreLoggedOncePerMinute(t *testing.T) {
	var log lines
	now := clocktesting.NewFakePassiveClock(time.Unix(100, 0))
	e := &exporter{SpanExporter: failing{}, clock: now, log: log.logger()}
	for range 61 {
		if err := e.ExportSpans(t.Context(), make([]sdktrace.ReadOnlySpan, 2)); err != nil {
			t.Fatalf("the handler of errors of the process gets %v", err)
		}
		now.SetTime(now.Now().Add(time.Second))
	}
	log.expect(t, `"spans"=2`, `"spans"=120`)
}

func TestEndpoint(t *testing.T) {
	for text, want := range map[string]string{
		"https://collector.example.com:4317": "",
		"http://127.0.0.1:4317":              "",
		"http://[::1]:4317/":                 "",
		"collector:4317":                     `"collector:4317" is not the address of a collector: set one such as https://collector.example.com:4317, or http:// for a connection without TLS`,
		"https://collector":                  `"https://collector" is not the address of a collector: set one such as https://collector.example.com:4317, or http:// for a connection without TLS`,
		"grpc://collector:4317":              `"grpc://collector:4317" is not the address of a collector: set one such as https://collector.example.com:4317, or http:// for a connection without TLS`,
		"https://u:p@collector:4317":         `"https://u:xxxxx@collector:4317" has more than scheme, host and port: leave the rest out`,
		"https://collector:4318/v1/traces":   `"https://collector:4318/v1/traces" has more than scheme, host and port: leave the rest out`,
	} {
		_, err := Endpoint(text)
		if got := fmt.Sprint(err); err == nil && want != "" || err != nil && got != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}
