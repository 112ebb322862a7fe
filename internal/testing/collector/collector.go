// Package collector receives spans by OTLP over gRPC, as a collector of OpenTelemetry does, and
// keeps them for a test.
package collector

import (
	"context"
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

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
}

// Start starts a collector. If it is not to keep spans, it only counts them.
func Start(keep bool) (*Collector, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &Collector{Address: listener.Addr().String(), server: grpc.NewServer(), keep: keep}
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
	return &collectorv1.ExportTraceServiceResponse{}, nil
}

// Hang makes the collector answer no more, until resume is called.
func (c *Collector) Hang() (resume func()) {
	c.mu.Lock()
	return c.mu.Unlock
}

// Spans returns the received spans that fit, in the order in which they began.
func (c *Collector) Spans(fits func(Span) bool) (spans []Span) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, span := range c.spans {
		if fits(span) {
			spans = append(spans, span)
		}
	}
	slices.SortStableFunc(spans, func(a, b Span) int { return a.Begin.Compare(b.Begin) })
	return spans
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

// Spans holds the spans of one or more traces.
type Spans []Span

// Of returns the first span of a service with that name, whose ancestors fit.
func (s Spans) Of(service, name string, below ...string) (Span, bool) {
	i := slices.IndexFunc(s, func(span Span) bool {
		return span.Service == service && span.Name == name && s.IsBelow(span, below...)
	})
	if i < 0 {
		return Span{}, false
	}
	return s[i], true
}

// IsBelow reports whether a span has ancestors of these names, the nearest first. Others may
// stand between them. A name may be that of the service and the span, with a blank between.
func (s Spans) IsBelow(span Span, names ...string) bool {
	for len(names) > 0 {
		i := slices.IndexFunc(s, func(other Span) bool { return other.ID == span.Parent && other.Trace == span.Trace })
		if i < 0 {
			return false
		}
		span = s[i]
		if span.Service+" "+span.Name == names[0] {
			names = names[1:]
		}
	}
	return true
}

// Picture holds the settings with which spans are drawn.
type Picture struct {
	// Passes reports whether a span is left out, and those below it drawn in its place.
	Passes func(Span) bool
	// Describe returns the text about a span.
	Describe func(Span) string
}

// line holds one span as it is drawn.
type line struct{ name, service, lasted, said string }

// Draw draws spans as text, each below its parent, in the order in which they began, with its
// service and its duration. The trace that is linked to a span is drawn below it, behind an
// arrow.
func (p Picture) Draw(spans Spans) string {
	ids := map[string]bool{}
	for _, span := range spans {
		ids[span.ID] = true
	}
	return align(p.lines(spans, "", func(span Span) bool { return !ids[span.Parent] && len(span.Links) == 0 }))
}

// lines returns the lines of the spans that fit, and of all below them.
func (p Picture) lines(spans Spans, indent string, fit func(Span) bool) (lines []line) {
	for _, span := range spans {
		if !fit(span) {
			continue
		}
		deeper := indent
		if !p.Passes(span) {
			lines = append(lines, line{indent + span.Name, span.Service, span.Lasted().Round(10 * time.Microsecond).String(), p.Describe(span)})
			deeper += "  "
		}
		lines = append(lines, p.lines(spans, deeper, func(child Span) bool { return child.Parent == span.ID && child.Trace == span.Trace })...)
		linked := p.lines(spans, deeper, func(other Span) bool { return slices.Contains(other.Links, span.ID) })
		if len(linked) > 0 {
			linked[0].name = strings.TrimSuffix(deeper, "  ") + "→ " + strings.TrimLeft(linked[0].name, " ")
		}
		lines = append(lines, linked...)
	}
	return lines
}

// align returns the lines as text, with their columns aligned.
func align(lines []line) string {
	name, service, lasted := 0, 0, 0
	for _, l := range lines {
		name, service, lasted = max(name, utf8.RuneCountInString(l.name)), max(service, len(l.service)), max(lasted, utf8.RuneCountInString(l.lasted))
	}
	var text strings.Builder
	for _, l := range lines {
		text.WriteString(strings.TrimRight(fmt.Sprintf("%-*s  %-*s %*s  %s", name, l.name, service, l.service, lasted, l.lasted, l.said), " ") + "\n")
	}
	return text.String()
}
