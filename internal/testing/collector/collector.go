// Package collector receives spans by OTLP over gRPC, as a collector of OpenTelemetry does, and
// keeps them for a test.
package collector

import (
	"context"
	"encoding/hex"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	collectorv1 "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
)

// Span represents a received span.
type Span struct {
	// Service is the program that made the span.
	Service string
	Name    string
	// Trace, ID and Parent are hexadecimal; Parent is empty for a span that begins a trace.
	Trace, ID, Parent string
	Begin, End        time.Time
	Attributes        map[string]any
	// Resource holds the attributes of the program.
	Resource map[string]any
	// Links are the IDs of spans of other traces.
	Links []string
	// Failed has the message if the status of the span is Error.
	Failed string
}

// Lasted returns the duration of the span.
func (s Span) Lasted() time.Duration { return s.End.Sub(s.Begin) }

// Collector receives spans on loopback.
type Collector struct {
	collectorv1.UnimplementedTraceServiceServer
	// Address is the address that the collector listens on.
	Address string

	server *grpc.Server
	served sync.WaitGroup
	count  atomic.Int64
	keep   bool

	mu    sync.Mutex
	spans []Span
	// grown is closed and replaced when spans are added.
	grown chan struct{}
}

// Start starts a collector. If it is not to keep spans, it only counts them.
func Start(keep bool) (*Collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{Address: listener.Addr().String(), server: grpc.NewServer(), keep: keep, grown: make(chan struct{})}
	collectorv1.RegisterTraceServiceServer(c.server, c)
	c.served.Go(func() { _ = c.server.Serve(listener) })
	return c, nil
}

// Stop stops the collector.
func (c *Collector) Stop() {
	c.server.Stop()
	c.served.Wait()
}

// Count returns the number of received spans.
func (c *Collector) Count() int { return int(c.count.Load()) }

// Export implements collectorv1.TraceServiceServer.
func (c *Collector) Export(_ context.Context, r *collectorv1.ExportTraceServiceRequest) (*collectorv1.ExportTraceServiceResponse, error) {
	var received []Span
	for _, resourceSpans := range r.ResourceSpans {
		resource := attributes(resourceSpans.GetResource().GetAttributes())
		for _, scope := range resourceSpans.ScopeSpans {
			c.count.Add(int64(len(scope.Spans)))
			if !c.keep {
				continue
			}
			for _, span := range scope.Spans {
				received = append(received, read(resource, span))
			}
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spans = append(c.spans, received...)
	close(c.grown)
	c.grown = make(chan struct{})
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// Spans returns the received spans that fit, in the order in which they began; and a channel
// that is closed when there are more.
func (c *Collector) Spans(fits func(Span) bool) (spans []Span, more <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		if fits(span) {
			spans = append(spans, span)
		}
	}
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Begin.Compare(b.Begin) })
	return spans, c.grown
}

func read(resource map[string]any, s *tracev1.Span) Span {
	service, _ := resource["service.name"].(string)
	span := Span{
		Service: service, Resource: resource, Name: s.Name,
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Begin: timeOf(s.StartTimeUnixNano), End: timeOf(s.EndTimeUnixNano), Attributes: attributes(s.Attributes),
	}
	for _, link := range s.Links {
		span.Links = append(span.Links, hex.EncodeToString(link.SpanId))
	}
	if s.Status.GetCode() == tracev1.Status_STATUS_CODE_ERROR {
		span.Failed = s.Status.GetMessage()
	}
	return span
}

func timeOf(nanoseconds uint64) time.Time {
	return time.Unix(0, int64(nanoseconds))
}

func attributes(list []*commonv1.KeyValue) map[string]any {
	read := map[string]any{}
	for _, pair := range list {
		switch value := pair.GetValue().GetValue().(type) {
		case *commonv1.AnyValue_StringValue:
			read[pair.Key] = value.StringValue
		case *commonv1.AnyValue_BoolValue:
			read[pair.Key] = value.BoolValue
		case *commonv1.AnyValue_IntValue:
			read[pair.Key] = value.IntValue
		case *commonv1.AnyValue_DoubleValue:
			read[pair.Key] = value.DoubleValue
		default:
			read[pair.Key] = pair.GetValue().String()
		}
	}
	return read
}
