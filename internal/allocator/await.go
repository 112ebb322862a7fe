package allocator

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

const (
	// patience is how long a request that may wait anyhow is kept for the sign
	// of a release: our watch of claims is a few milliseconds behind somebody
	// who deletes one and at once creates another.
	patience = 50 * time.Millisecond
	// fewRecords are so few that each one's claim can be asked for.
	fewRecords = 4
)

// awaitRoom waits, for a short time, until there may be room for an order that was not
// served because of the cause. It reports whether to look for a block again.
func (a *Allocator) awaitRoom(ctx context.Context, order Order, frees int, cause error) (mayBeRoom bool) {
	ctx, span := a.tracer.Start(ctx, tracing.Await)
	defer func() { awaited(span, mayBeRoom) }()
	if exhausted, ok := errors.AsType[*ipam.ExhaustedError](cause); ok && exhausted.OutOfTurn {
		return a.awaitTurn(ctx, order)
	}
	return a.awaitRelease(ctx, order, frees, cause)
}

// awaitTurn waits, for a short time, until a pool has room for the order and nobody comes
// before it. One that comes first may not wait at all: a child pool whose CIDR was recorded
// when it was created is seen before that record, as each comes by a watch of its own.
func (a *Allocator) awaitTurn(ctx context.Context, order Order) (isTurn bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.ledger.Await(ctx, order.keys(), func() bool {
		_, err := a.Preview(order)
		isTurn = err == nil
		return isTurn
	})
	return isTurn
}

// awaitRelease waits, for a short time, for a release that is on its way to one
// of the order's pools. It reports whether to look for a block again.
func (a *Allocator) awaitRelease(ctx context.Context, order Order, frees int, cause error) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	for _, pool := range order.Pools {
		a.lookForLeaving(ctx, pool.Key)
	}
	wait := patience
	var exhausted *ipam.ExhaustedError
	if !errors.As(cause, &exhausted) || exhausted.OnExhaustion == ipam.OnExhaustionReject {
		wait = 0
	}
	return a.ledger.AwaitRelease(ctx, order.keys(), order.Holder, frees, wait)
}

// lookForLeaving asks the API server, where a pool has few records, whether
// their claims are about to go: our watch may not have said so yet.
func (a *Allocator) lookForLeaving(ctx context.Context, pool ipam.PoolKey) {
	for _, record := range a.ledger.Few(pool, fewRecords) {
		if record.Holder.Kind != "IPClaim" {
			continue
		}
		claim := &v1alpha1.IPClaim{}
		err := a.client.Get(ctx, client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}, claim)
		if kubeutil.IsNotFound(err) || err == nil && (claim.Spec.AllocationName != record.Name.Name || !claim.DeletionTimestamp.IsZero()) {
			a.ledger.Leaving(record.Name)
		}
	}
}
