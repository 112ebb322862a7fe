package tracing

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"go.opentelemetry.io/otel/attribute"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/collector"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// world holds a cluster of which all parts send their spans to one collector.
type world struct {
	*suite.World
	collector *collector.Collector
	// way leads to the collector.
	way *balancer.Balancer
}

func start(t *testing.T) *world {
	to, err := collector.Start(true)
	suite.Must(t, err)
	t.Cleanup(to.Stop)
	way, err := balancer.Start("127.0.0.1:0", to.Address)
	suite.Must(t, err)
	t.Cleanup(func() { suite.Must(t, way.Stop()) })
	address := way.Addr().String()
	return &world{collector: to, way: way, World: suite.Start(t, cluster.Options{
		Managers: 2, ClusterAPICRDs: true, TracesTo: address,
		ManagerArgs: []string{"--tracing-endpoint=http://" + address, "--tracing-sampling-rate-per-million=1000000"},
		ManagerEnv:  []string{"OTEL_BSP_SCHEDULE_DELAY=50"},
	})}
}

// disconnected cuts the collector's connections and lets it take no other, until end is called.
func (w *world) disconnected() (end func()) {
	w.way.Withdraw(w.collector.Address)
	w.way.Cut(w.collector.Address)
	return func() { w.way.Restore(w.collector.Address) }
}

// header sends requests as those of a trace that another client began.
type header struct {
	http.RoundTripper
	parent string
}

// RoundTrip implements http.RoundTripper.
func (h header) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Traceparent", h.parent)
	return h.RoundTripper.RoundTrip(r)
}

// trace holds a trace that begins with a client.
type trace struct {
	client.Client
	id, span string
}

// begin begins a trace. Kubernetes continues the traces of system:masters, which the administrator
// is in.
func (w *world) begin(sampled bool) trace {
	w.Helper()
	id := uuid.New()
	newTrace := trace{id: fmt.Sprintf("%x", id[:]), span: fmt.Sprintf("%x", id[:8])}
	flags := "00"
	if sampled {
		flags = "01"
	}
	config := w.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return header{next, "00-" + newTrace.id + "-" + newTrace.span + "-" + flags}
	})
	newTrace.Client = w.Client(config)
	return newTrace
}

// spans waits until those of the trace, with the traces that are linked to it, fulfill the
// condition, and returns them.
func (w *world) spans(root trace, what string, are func(collector.Spans) bool) collector.Spans {
	w.Helper()
	var spans collector.Spans
	w.Await(what, func(context.Context) bool {
		spans = w.received(root)
		return are(spans)
	})
	return spans
}

// received returns the spans of a trace, and of traces that are linked to it.
func (w *world) received(root trace) collector.Spans {
	all := w.collector.Spans(func(collector.Span) bool { return true })
	traces := []string{root.id}
	for i := 0; i < len(traces); i++ {
		for _, span := range all {
			if !slices.Contains(traces, span.Trace) && slices.ContainsFunc(span.Links, func(id string) bool { return isOf(all, id, traces[i]) }) {
				traces = append(traces, span.Trace)
			}
		}
	}
	return slices.DeleteFunc(all, func(s collector.Span) bool { return !slices.Contains(traces, s.Trace) })
}

func isOf(all []collector.Span, id, trace string) bool {
	return slices.ContainsFunc(all, func(s collector.Span) bool { return s.ID == id && s.Trace == trace })
}

// operatorSpans returns the operator's spans of a name, of any trace, that fit.
func (w *world) operatorSpans(name string, fits func(collector.Span) bool) collector.Spans {
	return w.collector.Spans(func(s collector.Span) bool {
		return s.Service == operator && strings.HasPrefix(s.Name, name) && fits(s)
	})
}

// has reports whether a span has an attribute with this value, as text.
func has(s collector.Span, key attribute.Key, value string) bool {
	return fmt.Sprint(s.Attributes[string(key)]) == value
}
