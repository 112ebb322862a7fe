package allocator

import (
	"context"
	"errors"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/absent"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

const (
	// patience is how long a request that may wait anyhow is kept for the sign
	// of a release: our watch of claims is a few milliseconds behind somebody
	// who deletes one and at once creates another.
	patience = 50 * time.Millisecond
	// fewRecords are so few that each one's claim can be asked for.
	fewRecords = 4
)

func noRoom(err error) bool {
	var exhausted *ipam.ExhaustedError
	var taken *ipam.TakenError
	var limit *ipam.LimitError
	return errors.As(err, &exhausted) || errors.As(err, &taken) || errors.As(err, &limit)
}

// awaitRelease waits, for a short time, for a release that is on its way to one
// of the order's pools. It says whether it is worth looking again.
func (a *Allocator) awaitRelease(ctx context.Context, order Order, frees int, cause error) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseWithin)
	defer cancel()
	for _, pool := range order.Pools {
		a.lookForLeaving(ctx, pool.Key)
	}
	wait := patience
	var exhausted *ipam.ExhaustedError
	if !errors.As(cause, &exhausted) || exhausted.OnExhaustion == ipam.Reject {
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
		if absent.Is(err) || err == nil && (claim.Spec.AllocationName != record.Name.Name || !claim.DeletionTimestamp.IsZero()) {
			a.ledger.Leaving(record.Name)
		}
	}
}

func (o Order) keys() []ipam.PoolKey {
	keys := make([]ipam.PoolKey, len(o.Pools))
	for i, pool := range o.Pools {
		keys[i] = pool.Key
	}
	return keys
}
