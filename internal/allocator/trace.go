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

// traceRecord logs a step of an allocation after its block was found.
func traceRecord(ctx context.Context, message string, record ipam.Record, more ...any) {
	logRecord(ctx, stepLevel, message, record, more...)
}

// logChange logs a change of a record.
func logChange(ctx context.Context, message string, record ipam.Record, more ...any) {
	logRecord(ctx, changeLevel, message, record, more...)
}

func logRecord(ctx context.Context, level int, message string, r ipam.Record, more ...any) {
	if l := log.FromContext(ctx).V(level); l.Enabled() {
		l.Info(message, append([]any{
			"claim", r.Holder.String(), "pool", r.Pool.String(), "block", r.Block.String(), "record", r.Name.String(),
		}, more...)...)
	}
}

// traceResolution logs the result of a request: its pools in order, and the reasons why others that
// it could name are passed over.
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

// nopTracer starts no spans. Unlike the Tracer of package noop it allocates nothing, as it returns
// the context that it is given.
type nopTracer struct{ noop.Tracer }

// Start implements trace.Tracer.
func (nopTracer) Start(ctx context.Context, _ string, _ ...oteltrace.SpanStartOption) (context.Context, oteltrace.Span) {
	return ctx, oteltrace.SpanFromContext(context.Background())
}

// resultLostRace is the result for a record that gives way to another one.
const resultLostRace = "lost_race"

// allocation represents one allocation, counted when it ends and, if it is traced, with a span.
type allocation struct {
	allocator *Allocator
	labels    metrics.Allocation
	startTime time.Time
	span      oteltrace.Span
}

// startAllocation starts the measurement of an allocation.
func (a *Allocator) startAllocation(ctx context.Context, order Order) (context.Context, allocation) {
	ctx, span := a.tracer.Start(ctx, tracing.Allocate)
	started := allocation{allocator: a, labels: metricsOf(order), startTime: a.metrics.Now(), span: span}
	if span.IsRecording() {
		started.describe(order)
	}
	return ctx, started
}

// describe sets the attributes of the order on the span.
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
	n.allocator.metrics.Allocated(n.labels, resultOf(err), n.startTime)
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

// step begins a step.
func (a *Allocator) step(ctx context.Context, kind metrics.Step, name string) (context.Context, step) {
	ctx, span := a.tracer.Start(ctx, name)
	return ctx, step{a.metrics.Time(kind), span}
}

// end ends the step.
func (s step) end(err error) {
	s.stopTimer()
	endSpan(s.span, err)
}

// endSpan sets the result on a span, and ends it. No room, or a block that another request has, is a
// result like any other; a failure is a request that was not decided.
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

// describeRecord sets the attributes of a record, or the known ones before it is made.
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

// Results of waiting for room.
const (
	resultRoomAgain = "look_again"
	resultNoRoom    = "exhausted"
)

// endAwait ends the span of a wait for room.
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

// Results of a release.
const (
	resultReleased = "released"
	resultInUse    = "in_use"
)

// beginRelease begins the span of a release.
func (a *Allocator) beginRelease(ctx context.Context, record ipam.Record) (context.Context, oteltrace.Span) {
	ctx, span := a.tracer.Start(ctx, tracing.Release)
	if span.IsRecording() {
		span.SetAttributes(holderAttributes(record.Holder)...)
		describeRecord(span, record)
	}
	return ctx, span
}

// endRelease ends the span of a release.
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

// holderAttributes returns the attributes that name a holder.
func holderAttributes(holder ipam.Holder) []attribute.KeyValue {
	attributes := []attribute.KeyValue{tracing.Kind.String(holder.Kind), tracing.Name.String(holder.Name)}
	if holder.Namespace != "" {
		attributes = append(attributes, tracing.Namespace.String(holder.Namespace))
	}
	return attributes
}
