package allocator

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// The levels of the log: a change of what is recorded, and each step of an allocation.
// Keys are claim (the holder, with its kind), pool, block and record.
const (
	changeLevel = 1
	stepLevel   = 2
)

// trace logs a step of an allocation. It costs little where the log does not want it.
func trace(ctx context.Context, holder ipam.Holder, message string, pool ipam.PoolKey, more ...any) {
	if l := log.FromContext(ctx).V(stepLevel); l.Enabled() {
		l.Info(message, append([]any{"claim", holder.String(), "pool", pool.String()}, more...)...)
	}
}

// traceRecord logs a step of an allocation after its block was found.
func traceRecord(ctx context.Context, message string, record ipam.Record, more ...any) {
	logRecord(ctx, stepLevel, message, record, more...)
}

// logChange logs a change of what is recorded.
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

// traceResolution logs what a request comes to: its pools in order, and why others that
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
	for _, passed := range res.PassedOver {
		l.Info("Passed over a pool", "claim", claim, "pool", passed.Pool.String(), "reason", passed.Err.Error())
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
