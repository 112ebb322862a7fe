package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	oteltrace "go.opentelemetry.io/otel/trace"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// TestLogHasEachChangeOfBlock expects the log from the pool that is passed over to the release:
// each change at level 1, each step at level 2. The caller that gets an error logs it.
func TestLogHasEachChangeOfBlock(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		var lines []string
		ctx := log.IntoContext(t.Context(), funcr.New(func(_, args string) {
			level, rest, _ := strings.Cut(strings.TrimPrefix(args, `"level"=`), ` "msg"="`)
			message, _, _ := strings.Cut(rest, `"`)
			lines = append(lines, fmt.Sprint(level, " ", message))
		}, funcr.Options{Verbosity: stepLevel}))
		order := orderFromPools(claimOrder("x", 28), openSecondPool(a, api, t), parent())
		record, err := a.Allocate(ctx, order)
		must(t, err)
		kept := ipam.Transition{State: ipam.StateRetained, ReleaseAfter: time.Now().Add(time.Hour)}
		must(t, a.ApplyTransition(ctx, record, kept))
		gone := record
		gone.UID = "another"
		if a.ApplyTransition(ctx, gone, kept) == nil {
			t.Error("another record of the name is changed")
		}
		synctest.Wait() // until the watch has shown it
		again := orderFromPools(claimOrder("x", 28), parent())
		record, err = a.Allocate(ctx, again)
		must(t, err)
		record, err = a.TakeOver(ctx, record, "uid")
		must(t, err)
		must(t, a.Release(ctx, record))
		want := []string{
			"2 Passed over a pool", "2 Holding a block", "2 Recorded a block; waiting until the watch shows it", "1 Allocated a block",
			"1 Changed the state of a record", "1 Took over a retained record", "1 Adopted a record", "1 Released a record",
		}
		if diff := cmp.Diff(want, lines); diff != "" {
			t.Errorf("the log differs (-want +got):\n%s", diff)
		}
	})
}

func TestErrorMapsToMetricResult(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want metrics.Result
	}{
		"none":                     {nil, metrics.ResultAllocated},
		"no room":                  {&ipam.ExhaustedError{}, metrics.ResultExhausted},
		"another's block":          {fmt.Errorf("holding: %w", &ipam.TakenError{}), metrics.ResultTaken},
		"a limit":                  {&ipam.LimitError{}, metrics.ResultLimitReached},
		"a pool that is going":     {&ipam.MissingError{}, metrics.ResultPoolNotReady},
		"a former pool's blocks":   {ipam.ErrPoolInUse, metrics.ResultPoolNotReady},
		"too many creates at once": {&ipam.UnclaimedError{}, metrics.ResultTooManyUnclaimed},
		"not confirmed":            {errors.Join(ipam.ErrUnconfirmed, errors.New("timeout")), metrics.ResultUnconfirmed},
		"anything else":            {errors.New("refused"), metrics.ResultError},
	} {
		if got := resultOf(c.err); got != c.want {
			t.Errorf("%s counts as %s, want %s", name, got, c.want)
		}
	}
}

// sumCounter sums a counter over its labels.
func sumCounter(a *Allocator, name string) (sum float64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.Metrics.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestAllocationsAreCounted(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		registry := prometheus.NewPedanticRegistry()
		for _, c := range a.Metrics.Collectors() {
			must(t, registry.Register(c))
		}
		admitted := orderFromPools(claimOrder("a", 30), parent())
		admitted.Terms.Class = "gold"
		_, err := a.Allocate(t.Context(), admitted)
		must(t, err)
		if _, err := a.Allocate(t.Context(), orderFromPools(claimOrder("b", 8), parent())); err == nil {
			t.Fatal("a block larger than the pool is allocated")
		}
		existing := claimOrder("c", 32)
		existing.Terms.Block = netip.MustParsePrefix("10.0.0.200/32")
		_, err = a.RecordExisting(t.Context(), existing, parent().Key)
		must(t, err)
		want := "# HELP cadastre_allocations_total " + metrics.DefinitionOf(metrics.Allocations).Help + `
# TYPE cadastre_allocations_total counter
cadastre_allocations_total{class="",family="IPv4",origin="admission",result="exhausted"} 1
cadastre_allocations_total{class="",family="IPv4",origin="existing",result="allocated"} 1
cadastre_allocations_total{class="gold",family="IPv4",origin="admission",result="allocated"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.Allocations); err != nil {
			t.Error(err)
		}
		families, err := registry.Gather()
		must(t, err)
		steps := map[string]uint64{}
		for _, family := range families {
			if family.GetName() == metrics.StepDuration {
				for _, m := range family.GetMetric() {
					steps[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
				}
			}
		}
		if steps["find"] < 2 || steps["record"] != 2 || steps["confirm"] != 2 {
			t.Errorf("steps were timed so often: %v", steps)
		}
	})
}

// recorded holds the spans of an allocator, as the tests read them.
type recorded struct{ *tracetest.SpanRecorder }

// traceAllocator makes an allocator record spans, and returns them.
func traceAllocator(a *Allocator) recorded {
	spans := recorded{tracetest.NewSpanRecorder()}
	a.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
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
		_, err := a.Allocate(t.Context(), order)
		must(t, err)
		expectTree(t, spans.tree(tracing.Kind, tracing.Namespace, tracing.Name, tracing.Origin, tracing.Class, tracing.Family, tracing.Length, tracing.Candidates, tracing.Attempts, tracing.Pool, tracing.Block, tracing.Result), `
allocate IPClaim ns a admission gold IPv4 30 1 1 pool parent 10.0.0.0/30 allocated
  find pool parent 10.0.0.0/30 allocated
  record pool parent 10.0.0.0/30 allocated
  confirm pool parent 10.0.0.0/30 allocated
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
		a.Client = &racing{api, sync.OnceFunc(func() { api.stores(t, heldBlock("x", "10.0.0.0/30")) })}
		_, err := a.Allocate(t.Context(), orderFromPools(claimOrder("a", 30), parent()))
		must(t, err)
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
		expectTree(t, spans.tree(tracing.Attempts, tracing.Result, tracing.Reason), `
allocate 1 exhausted no free /8 in pool parent: the largest free block is a /16
  find exhausted no free /8 in pool parent: the largest free block is a /16
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

func TestSpanStatesWaitDuration(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		spans := traceAllocator(a)
		order := orderFromPools(claimOrder("a", 30), parent())
		order.Origin, order.HolderUID = OriginController, "uid"
		order.Waiting.Since = a.Metrics.Now().Add(-90 * time.Second)
		_, err := a.Allocate(t.Context(), order)
		must(t, err)
		first, _, _ := strings.Cut(spans.tree(tracing.Origin, tracing.Waited), "\n")
		if first != "allocate controller 90" {
			t.Errorf("the span is %q", first)
		}
	})
}

func TestReleaseSpanHasResult(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		spans := traceAllocator(a)
		record := heldBlock("x", "10.0.0.0/30")
		record.Holder.Namespace = ""
		for _, err := range []error{nil, ipam.ErrPoolInUse, errCut} {
			_, span := a.beginRelease(t.Context(), record)
			endRelease(span, err)
		}
		for _, mayBeRoom := range []bool{true, false} {
			_, span := a.Tracer.Start(t.Context(), tracing.Await)
			endAwait(span, mayBeRoom)
		}
		expectTree(t, spans.tree(tracing.Kind, tracing.Namespace, tracing.Name, tracing.Pool, tracing.Block, tracing.AllocationName, tracing.Result, tracing.Reason, tracing.ErrorType), strings.ReplaceAll(`
release IPClaim x pool parent 10.0.0.0/30 NAME released
release IPClaim x pool parent 10.0.0.0/30 NAME in_use the pool is in use
release IPClaim x pool parent 10.0.0.0/30 NAME error error FAILED
await room look_again
await room exhausted
`, "NAME", record.Name.String()))
	})
}

func TestMissingTracerCostsNoMemory(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		record := heldBlock("x", "10.0.0.0/30")
		ctx := t.Context()
		spent := testing.AllocsPerRun(100, func() {
			ctx, span := a.Tracer.Start(ctx, tracing.Record)
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
			a.Tracer = tracer
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

// newBenchAllocator returns an allocator whose view follows an API server in memory.
func newBenchAllocator(b *testing.B) *Allocator {
	api := newSteady(parent())
	api.pass()
	a, stop := newReplica(api, parent())
	b.Cleanup(stop)
	for !a.Ledger.Synced() {
		runtime.Gosched()
	}
	return a
}
