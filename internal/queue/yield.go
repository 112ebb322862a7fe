package queue

import (
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Yield decides what the outcome of an attempt to serve a holder that waits means for
// its turn. It returns the error for its status, and, where a limit is reached, after how
// long it is to be tried again. An *ipam.ParkedError with a cause is for the back-off.
//
// Who fails for want of room keeps its place. Who waits for something that is missing,
// or not allowed, has none, and is notified when that changes. Everybody else loses its
// turn: at once where the API server refuses the record, or the error says so itself,
// and otherwise when that has happened a few times in a row.
func (q *Queue) Yield(holder ipam.Holder, err error) (time.Duration, error) {
	var missing *ipam.MissingError
	var policy *ipam.PolicyError
	var parked *ipam.ParkedError
	var limit *ipam.LimitError
	switch {
	case errors.As(err, &parked):
		return q.Park(holder, parked), err
	case errors.As(err, &limit):
		parked = &ipam.ParkedError{Reason: v1alpha1.ReasonLimitReached, Message: limit.Stable(), Awaits: limit.Awaits, Pools: ipam.PoolsOf(err)}
		return q.Park(holder, parked), parked
	case err == nil, errors.As(err, &missing), errors.As(err, &policy):
		return 0, err
	case ipam.IsNoRoom(err):
		return 0, q.keep(holder, err)
	case passes(err) && !q.lines.Stumble(holder):
		return 0, err
	}
	parked = &ipam.ParkedError{
		Reason:  v1alpha1.ReasonRecordRefused,
		Message: fmt.Sprintf("the IPAllocation cannot be recorded: %s: remove the cause; others are served first until it can", kubeutil.Refusal(err)),
	}
	q.Park(holder, parked)
	q.log.V(1).Info("Claim loses its turn in the queue", "claim", holder.String(), "error", err.Error())
	failed := *parked // not what keep returns: it is tried then when it has its turn
	failed.Cause = err
	return 0, &failed
}

// keep has a holder keep its place, unless its namespace has too many.
func (q *Queue) keep(holder ipam.Holder, err error) error {
	if q.lines.IsBeyond(holder) {
		return &ipam.ParkedError{Reason: v1alpha1.ReasonTooManyWaiting, Message: q.tooManyWaiting(holder.Namespace).Error()}
	}
	if refusal := q.lines.Keep(holder); refusal != nil {
		return refusal
	}
	return err
}

// Park has a holder that waits lose its turn until Resume is called with what it awaits,
// and returns after how long it is to be tried again all the same. Those behind it are
// served. Tried again without room it is in line again, as what was in its way may be
// gone; its status says the same until that is known.
func (q *Queue) Park(holder ipam.Holder, why *ipam.ParkedError) time.Duration {
	parked := q.lines.Park(holder, why.Awaits, why)
	q.wakePools(parked.Pools)
	return parked.Retry
}

// Resume puts those back in line that are parked until just that has changed, and has the
// first served whose turn it is. It may be called under the ledger's lock.
func (q *Queue) Resume(changed ipam.Awaited) { q.wakePools(q.lines.Resume(changed)) }

// resumeLimited resumes those that wait until the project of a record, which is gone, holds
// less: of its pool, which is woken anyway, or of its class, whose other pools may have
// room for them.
func (q *Queue) resumeLimited(record ipam.Record) {
	if record.Project == "" {
		return
	}
	q.Resume(ipam.Awaited{Project: record.Project, Pool: record.Pool})
	class, ok := q.catalogue.Class(record.Class)
	if !ok || !class.Limit.IsSet() {
		return
	}
	q.Resume(ipam.Awaited{Project: record.Project, Class: record.Class})
	q.wakePools(q.lines.Waited(q.catalogue.PoolsNaming(record.Class)))
}

// passes reports whether an error is of a kind that passes by itself: another process
// changes the same, or the API server or the watch is late.
func passes(err error) bool {
	return !kubeutil.IsRejected(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsTooManyRequests(err)
}

// IsRefused reports whether the API server refuses something, and will again until
// something else changes.
func IsRefused(err error) bool { return !passes(err) }

// MayWait returns a *ipam.TooManyWaitingError if a claim of the namespace with this request that is
// created now would be beyond the bound of those that wait.
func (q *Queue) MayWait(namespace string, request ipam.Request) error {
	if q.lines.IsFull(namespace, request) {
		return q.tooManyWaiting(namespace)
	}
	return nil
}

func (q *Queue) tooManyWaiting(namespace string) error {
	return &ipam.TooManyWaitingError{Namespace: namespace, Limit: q.lines.Limit()}
}
