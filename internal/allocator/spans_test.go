package allocator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// recorded holds the spans of an allocator, as the tests read them.
type recorded struct{ *tracetest.SpanRecorder }

// traced makes an allocator record spans, and returns them.
func traceAllocator(a *Allocator) recorded {
	spans := recorded{tracetest.NewSpanRecorder()}
	a.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	return spans
}

// tree prints a line for each span, below its parent, with the named attributes.
func (r recorded) tree(keys ...attribute.Key) string {
	ended := slices.SortedStableFunc(slices.Values(r.Ended()), func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var text strings.Builder
	var write func(parent, indent string)
	write = func(parent, indent string) {
		for _, span := range ended {
			if parentContext := span.Parent(); parentContext.IsValid() && parentContext.SpanID().String() != parent || !parentContext.IsValid() && parent != "" {
				continue
			}
			text.WriteString(indent + span.Name())
			for _, key := range keys {
				for _, attr := range span.Attributes() {
					if attr.Key == key {
						fmt.Fprintf(&text, " %s", attr.Value.String())
					}
				}
			}
			if span.Status().Code == codes.Error {
				text.WriteString(" FAILED")
			}
			text.WriteString("\n")
			write(span.SpanContext().SpanID().String(), indent+"  ")
		}
	}
	write("", "")
	return text.String()
}

func expectTree(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimLeft(want, "\n"); got != want {
		t.Errorf("got spans\n%s\nwant\n%s", got, want)
	}
}

func TestAllocationHasSpanForEachStep(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		spans := traceAllocator(a)
		order := orderFromPools(claimOrder("a", 30), parent())
		order.Terms.Class = "gold"
		if _, err := a.Allocate(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		expectTree(t, spans.tree(tracing.Name, tracing.Origin, tracing.Class, tracing.Length, tracing.Candidates, tracing.Attempts, tracing.Block, tracing.Result), `
allocate a admission gold 30 1 1 10.0.0.0/30 allocated
  find 10.0.0.0/30 allocated
  record 10.0.0.0/30 allocated
  confirm 10.0.0.0/30 allocated
`)
	})
}

// racing implements a link on which a callback runs before a record is created.
type racing struct {
	*steady
	before func()
}

// Create implements client.Writer.
func (r *racing) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	r.before()
	return r.steady.Create(ctx, obj, opts...)
}

// TestTraceShowsLostRace lets another replica record the block first; the record that gives
// way is released, and the next block is tried.
func TestTraceShowsLostRace(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		spans := traceAllocator(a)
		a.client = &racing{api, sync.OnceFunc(func() { api.stores(t, heldBlock("x", "10.0.0.0/30")) })}
		if _, err := a.Allocate(t.Context(), orderFromPools(claimOrder("a", 30), parent())); err != nil {
			t.Fatal(err)
		}
		a.Close()
		// The release runs in the background, and begins at any time.
		const release = "  release released\n"
		tree := spans.tree(tracing.Attempts, tracing.Result)
		if strings.Count(tree, release) != 1 {
			t.Errorf("not one release among\n%s", tree)
		}
		expectTree(t, strings.Replace(tree, release, "", 1), `
allocate 2 allocated
  find allocated
  record allocated
  confirm lost_race
  find allocated
  record allocated
  confirm allocated
`)
	})
}

func TestExhaustedSpanIsNotError(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		spans := traceAllocator(a)
		if _, err := a.Allocate(t.Context(), orderFromPools(claimOrder("b", 8), parent())); err == nil {
			t.Fatal("a block larger than the pool is allocated")
		}
		expectTree(t, spans.tree(tracing.Attempts, tracing.Result), `
allocate 1 exhausted
  find exhausted
  await room exhausted
`)
	})
}

func TestUnansweredCreateSpanIsError(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		spans := traceAllocator(a)
		api.fails = errCut
		if _, err := a.Allocate(t.Context(), orderFromPools(claimOrder("a", 30), parent())); err == nil {
			t.Fatal("a block is allocated without an API server")
		}
		expectTree(t, spans.tree(tracing.Result, tracing.ErrorType), `
allocate error error FAILED
  find allocated
  record error error FAILED
`)
	})
}

// TestSpanStatesWaitDuration expects the spans of a controller.
func TestSpanStatesWaitDuration(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		spans := traceAllocator(a)
		order := orderFromPools(claimOrder("a", 30), parent())
		order.Origin, order.HolderUID = OriginController, "uid"
		order.Waiting.Since = a.metrics.Now().Add(-90 * time.Second)
		if _, err := a.Allocate(t.Context(), order); err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(spans.tree(tracing.Origin, tracing.Waited), "\n")
		if first != "allocate controller 90" {
			t.Errorf("the span is %q", first)
		}
	})
}

// TestMissingTracerCostsNoMemory expects that the begin and the end of an allocation and of its
// steps allocate as much memory as metrics alone.
func TestMissingTracerCostsNoMemory(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		record := heldBlock("x", "10.0.0.0/30")
		ctx := t.Context()
		spent := testing.AllocsPerRun(100, func() {
			ctx, span := a.tracer.Start(ctx, tracing.Record)
			describeRecord(span, record)
			endSpan(span, nil)
			ctx, span = a.beginRelease(ctx, record)
			endRelease(span, nil)
			setAttempts(ctx, 1)
			endAwait(span, true)
		})
		if spent != 0 {
			t.Errorf("without a tracer %v objects are allocated, want none", spent)
		}
	})
}

// BenchmarkAllocate allocates and releases an address with an API server in memory, and so measures
// the cost of the operator itself.
func BenchmarkAllocate(b *testing.B) {
	sending := func(sampler sdktrace.Sampler) oteltrace.Tracer {
		return sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler), sdktrace.WithBatcher(tracetest.NewNoopExporter())).Tracer("test")
	}
	for name, tracer := range map[string]oteltrace.Tracer{
		"off": nopTracer{}, "unsampled": sending(sdktrace.NeverSample()), "sampled": sending(sdktrace.AlwaysSample()),
	} {
		b.Run(name, func(b *testing.B) {
			a := newBenchAllocator(b)
			a.tracer = tracer
			order := orderFromPools(claimOrder("a", 32), parent())
			order.Record = ipam.Name{} // a new one each time
			b.ReportAllocs()
			for b.Loop() {
				record, err := a.Allocate(b.Context(), order)
				if err != nil {
					b.Fatal(err)
				}
				if err := a.Release(b.Context(), record); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// benched returns an allocator whose view follows an API server in memory.
func newBenchAllocator(b *testing.B) *Allocator {
	api := &steady{link: link{server: newAPIServer(parent())}}
	view := ledger.New(ledger.Options{Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 1))})
	a := newAllocator(testOptions{Ledger: view, Client: api})
	view.Describe(parent())
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		view.Run(ctx, quick{api.server}, &v1alpha1.IPAllocation{})
	}()
	b.Cleanup(func() { stop(); <-ended; a.Close() })
	for !view.Synced() {
		runtime.Gosched()
	}
	return a
}
