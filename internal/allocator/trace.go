package allocator

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	oteltrace "go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// Levels of the log: for a change of a record, and for each step of an allocation. Keys are claim
// (the holder, with its kind), pool, block and record.
const (
	changeLevel = 1
	stepLevel   = 2
)

// trace logs a step of an allocation. It costs little if the log does not want it.
func trace(ctx context.Context, holder ipam.Holder, message string, pool ipam.PoolKey, more ...any) {
	if l := log.FromContext(ctx).V(stepLevel); l.Enabled() {
		l.Info(message, append([]any{"claim", holder.String(), "pool", pool.String()}, more...)...)
	}
}

// logRecord logs a change of a record, or a step of an allocation after its block was found.
func logRecord(ctx context.Context, level int, message string, r ipam.Record, more ...any) {
	if l := log.FromContext(ctx).V(level); l.Enabled() {
		l.Info(message, append([]any{
			"claim", r.Holder.String(), "pool", r.Pool.String(), "block", r.Block.String(), "record", r.Name.String(),
		}, more...)...)
	}
}

// traceResolution logs the pools of a request, and why others that it could name are passed over.
func traceResolution(ctx context.Context, req ipam.Request, res inventory.Resolution, err error) {
	l := log.FromContext(ctx).V(stepLevel)
	if !l.Enabled() {
		return
	}
	holder := convert.HolderOfClaim(req.Claim)
	if req.Single { // one of Cluster API's
		holder = convert.HolderOfAddressClaim(req.Claim)
	}
	claim := holder.String()
	for _, result := range res.PassedOver {
		l.Info("Passed over a pool", "claim", claim, "pool", result.Pool.String(), "reason", result.Err.Error())
	}
	pools := make([]string, len(res.Pools))
	for i, pool := range res.Pools {
		pools[i] = pool.Key.String()
	}
	values := []any{"claim", claim, "class", res.Terms.Class, "length", res.Terms.Length, "pools", pools}
	if err != nil {
		values = append(values, "reason", err.Error())
	}
	l.Info("Resolved a request", values...)
}

// nopTracer starts no spans. Unlike that of package noop it allocates nothing: it returns the given
// context.
type nopTracer struct{ noop.Tracer }

// Start implements trace.Tracer.
func (nopTracer) Start(ctx context.Context, _ string, _ ...oteltrace.SpanStartOption) (context.Context, oteltrace.Span) {
	return ctx, oteltrace.SpanFromContext(context.Background())
}

// Results of spans beside those of allocations.
const (
	resultLostRace  = "lost_race" // a record that gives way to another one
	resultRoomAgain = "look_again"
	resultNoRoom    = "exhausted"
	resultReleased  = "released"
	resultInUse     = "in_use"
)

// allocation represents one allocation, counted when it ends and, if it is traced, with a span.
type allocation struct {
	allocator *Allocator
	labels    metrics.Allocation
	startTime time.Time
	span      oteltrace.Span
}

func (a *Allocator) startAllocation(ctx context.Context, order Order) (context.Context, allocation) {
	ctx, span := a.Tracer.Start(ctx, tracing.Allocate)
	started := allocation{allocator: a, labels: metricsOf(order), startTime: a.Metrics.Now(), span: span}
	if span.IsRecording() {
		started.describe(order)
	}
	return ctx, started
}

func (n allocation) describe(order Order) {
	n.span.SetAttributes(holderAttributes(order.Holder)...)
	n.span.SetAttributes(tracing.Origin.String(string(n.labels.Origin)), tracing.Candidates.Int(len(order.Pools)))
	if n.labels.Class != "" {
		n.span.SetAttributes(tracing.Class.String(n.labels.Class))
	}
	if n.labels.Family != "" {
		n.span.SetAttributes(tracing.Family.String(n.labels.Family))
	}
	if order.Terms.Length != ipam.NoLength {
		n.span.SetAttributes(tracing.Length.Int(order.Terms.Length))
	}
	if !order.Waiting.Since.IsZero() {
		n.span.SetAttributes(tracing.Waited.Float64(n.startTime.Sub(order.Waiting.Since).Seconds()))
	}
}

// finish counts the allocation.
func (n allocation) finish(record ipam.Record, err error) {
	n.allocator.Metrics.Allocated(n.labels, resultOf(err), n.startTime)
	if err == nil {
		describeRecord(n.span, record)
	}
	endSpan(n.span, err)
}

// setAttempts sets on the span of the allocation in ctx the number of attempts to find a block.
func setAttempts(ctx context.Context, attempts int) {
	if span := oteltrace.SpanFromContext(ctx); span.IsRecording() {
		span.SetAttributes(tracing.Attempts.Int(attempts))
	}
}

// step represents one step of an allocation, which is timed and, if it is traced, a span.
type step struct {
	stopTimer func()
	span      oteltrace.Span
}

func (a *Allocator) step(ctx context.Context, kind metrics.Step, name string) (context.Context, step) {
	ctx, span := a.Tracer.Start(ctx, name)
	return ctx, step{a.Metrics.Time(kind), span}
}

func (s step) end(err error) {
	s.stopTimer()
	endSpan(s.span, err)
}

// endSpan sets the result on a span, and ends it. A failure is a request that was not decided; no
// room, or a taken block, is a result.
func endSpan(span oteltrace.Span, err error) {
	if span.IsRecording() {
		setResult(span, err)
	}
	span.End()
}

func setResult(span oteltrace.Span, err error) {
	result := resultOf(err)
	switch {
	case errors.Is(err, ledger.ErrLost):
		span.SetAttributes(tracing.Result.String(resultLostRace))
	case result == metrics.ResultError, result == metrics.ResultUnconfirmed:
		span.SetAttributes(tracing.Result.String(string(result)), tracing.ErrorType.String(string(result)))
		span.SetStatus(codes.Error, err.Error())
		return
	default:
		span.SetAttributes(tracing.Result.String(string(result)))
	}
	if err != nil {
		span.SetAttributes(tracing.Reason.String(err.Error()))
	}
}

// describeRecord sets the known attributes of a record.
func describeRecord(span oteltrace.Span, record ipam.Record) {
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(tracing.Pool.String(record.Pool.String()))
	if record.Block.IsValid() {
		span.SetAttributes(tracing.Block.String(record.Block.String()))
	}
	if record.Name != (ipam.Name{}) {
		span.SetAttributes(tracing.AllocationName.String(record.Name.String()))
	}
}

func endAwait(span oteltrace.Span, mayBeRoom bool) {
	if span.IsRecording() {
		result := resultNoRoom
		if mayBeRoom {
			result = resultRoomAgain
		}
		span.SetAttributes(tracing.Result.String(result))
	}
	span.End()
}

func (a *Allocator) beginRelease(ctx context.Context, record ipam.Record) (context.Context, oteltrace.Span) {
	ctx, span := a.Tracer.Start(ctx, tracing.Release)
	if span.IsRecording() {
		span.SetAttributes(holderAttributes(record.Holder)...)
		describeRecord(span, record)
	}
	return ctx, span
}

func endRelease(span oteltrace.Span, err error) {
	if span.IsRecording() {
		switch {
		case err == nil:
			span.SetAttributes(tracing.Result.String(resultReleased))
		case errors.Is(err, ipam.ErrPoolInUse):
			span.SetAttributes(tracing.Result.String(resultInUse), tracing.Reason.String(err.Error()))
		default:
			span.SetAttributes(tracing.Result.String(string(metrics.ResultError)), tracing.ErrorType.String(string(metrics.ResultError)))
			span.SetStatus(codes.Error, err.Error())
		}
	}
	span.End()
}

func holderAttributes(holder ipam.Holder) []attribute.KeyValue {
	attributes := []attribute.KeyValue{tracing.Kind.String(holder.Kind), tracing.Name.String(holder.Name)}
	if holder.Namespace != "" {
		attributes = append(attributes, tracing.Namespace.String(holder.Namespace))
	}
	return attributes
}
