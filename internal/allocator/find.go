package allocator

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// retakeOrFind takes over a retained block, or finds another, perhaps after a short wait.
func (a *Allocator) retakeOrFind(ctx context.Context, order Order) (ipam.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, confirmTimeout)
	defer cancel()
	if record, ok := a.retake(ctx, order); ok {
		return record, nil
	}
	frees := a.Ledger.Frees(order.keys())
	record, err := a.findInPools(ctx, order)
	if ipam.IsNoRoom(err) && !a.Queue.Has(order.Holder) && a.awaitRoom(ctx, order, frees, err) {
		order.Record = order.nextRecordName()
		record, err = a.findInPools(ctx, order)
	}
	return record, a.wrapEarlierAttempt(order, err)
}

// wrapEarlierAttempt returns ipam.ErrEarlierAttempt if the block that a create asks for is recorded
// for the same name: an earlier request failed after its record was made, or an earlier object is
// just gone. For the client the block is its own.
func (a *Allocator) wrapEarlierAttempt(order Order, err error) error {
	taken, ok := errors.AsType[*ipam.TakenError](err)
	if !ok || order.Origin != OriginAdmission || taken.Holder != order.Holder {
		return err
	}
	for _, record := range a.Ledger.HeldBy(order.Holder) {
		if record.State == ipam.StateBound && slices.Contains(record.Blocks(), taken.Overlap) {
			return fmt.Errorf("%s is recorded for %s: %w", record.Block, order.Holder, ipam.ErrEarlierAttempt)
		}
	}
	return err
}

// findInPools tries the pools in order until a block is confirmed.
func (a *Allocator) findInPools(ctx context.Context, order Order) (ipam.Record, error) {
	exhausted, attempts := order.newShortage(), 0
	defer func() { setAttempts(ctx, attempts) }()
	for i := 0; i < len(order.Pools); {
		attempts++
		pool := order.Pools[i]
		record, err := a.holdAndRecord(ctx, order, a.ask(order, pool))
		switch {
		case err == nil:
			return record, nil
		case errors.Is(err, ledger.ErrLost):
			a.Metrics.LostRace()
			trace(ctx, order.Holder, "Lost a race for a block; trying another one", pool.Key, "record", order.Record)
			order.Record = order.nextRecordName() // and the next block of the same pool
		case exhausted.addResult(pool, err):
			trace(ctx, order.Holder, "Passed over a pool", pool.Key, "reason", err)
			i++
		default:
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
}

// holdAndRecord finds a block in one pool, records and confirms it. Controllers have a separate
// bound on their work.
func (a *Allocator) holdAndRecord(ctx context.Context, order Order, ask ledger.Ask) (ipam.Record, error) {
	hold, err := a.awaitHold(ctx, ask)
	if err != nil {
		return ipam.Record{}, err
	}
	if order.Origin != OriginController {
		if err := a.acquireAttempt(ctx); err != nil {
			hold.Drop()
			return ipam.Record{}, err
		}
		defer a.attempts.Release(1)
	}
	return a.recordHold(ctx, hold, order)
}

// awaitHold finds a block and holds it. At the limit of unclaimed records it waits for a moment:
// the records of creates under way are claimed within milliseconds.
func (a *Allocator) awaitHold(ctx context.Context, ask ledger.Ask) (hold *ledger.Hold, err error) {
	ctx, step := a.step(ctx, metrics.StepFind, tracing.Find)
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	a.Ledger.Await(ctx, []ipam.PoolKey{ask.Pool}, func() bool {
		hold, err = a.Ledger.Hold(ask)
		return !errors.Is(err, ipam.ErrTooManyUnclaimed)
	})
	found := ipam.Record{Pool: ask.Pool}
	if err == nil {
		found.Block = hold.Block
	}
	describeRecord(step.span, found)
	step.end(err)
	return hold, err
}

// acquireAttempt waits until few enough attempts are under way, oldest first. One that waits too
// long has cost the API server nothing.
func (a *Allocator) acquireAttempt(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	if a.attempts.Acquire(ctx, 1) != nil {
		return ipam.ErrCrowded
	}
	return nil
}

// recordHold records a held block, and waits until the ledger knows which record has it.
//
// A record that may have been created although the call failed is abandoned, if its name is this
// attempt's alone and nothing else relies on it: see leavesRecord. Otherwise it is left for the next
// attempt, which confirms it as if it had just been made, or for the collection of orphans.
func (a *Allocator) recordHold(ctx context.Context, hold *ledger.Hold, order Order) (ipam.Record, error) {
	record := order.recordOf(hold.Pool, hold.Block)
	record.Project, record.Gateway = hold.Project(), hold.Gateway() // the project that was judged, the gateway that was found
	logRecord(ctx, stepLevel, "Holding a block", record)
	sentRevision := a.Ledger.Revision()
	record, err := a.createRecord(ctx, record)
	if err != nil {
		if kubeutil.IsRejected(err) || order.leavesRecord() {
			hold.Drop()
		} else {
			hold.Abandon()
		}
		return ipam.Record{}, unconfirmedIfDone(ctx, fmt.Errorf("recording %s: %w", record.Block, err))
	}
	logRecord(ctx, stepLevel, "Recorded a block; waiting until the watch shows it", record)
	if err = a.Ledger.Acknowledge(record.Version, sentRevision); err != nil {
		hold.Drop()
	} else {
		err = a.awaitConfirmation(ctx, hold, record)
	}
	switch {
	case err == nil:
		logRecord(ctx, changeLevel, "Allocated a block", record)
		a.History.Granted(record, order.grantReason())
		return record, nil
	case order.isExisting && errors.Is(err, ledger.ErrPoolClosed):
		a.History.Granted(record, history.Existing)
		return record, poolClosed(order.Holder, record.Pool)
	}
	return ipam.Record{}, a.abandonRecord(ctx, order, record, err)
}

// createRecord creates the IPAllocation, and returns the record with UID and version.
func (a *Allocator) createRecord(ctx context.Context, record ipam.Record) (ipam.Record, error) {
	ctx, step := a.step(ctx, metrics.StepRecord, tracing.Record)
	describeRecord(step.span, record)
	obj := convert.Allocation(record)
	err := a.Client.Create(ctx, obj)
	step.end(err)
	record.UID, record.Version = string(obj.UID), obj.ResourceVersion
	return record, err
}

func (a *Allocator) awaitConfirmation(ctx context.Context, hold *ledger.Hold, record ipam.Record) error {
	ctx, step := a.step(ctx, metrics.StepConfirm, tracing.Confirm)
	describeRecord(step.span, record)
	err := hold.Confirm(ctx, record.UID)
	step.end(err)
	return err
}

// abandonRecord gives up a record that could not be confirmed, and returns the error for the
// caller. A record on which others rely stays as long as it is unknown which record has the block: it
// may be seen yet, and is then judged as if it had just been made.
func (a *Allocator) abandonRecord(ctx context.Context, order Order, record ipam.Record, cause error) error {
	_, isOverLimit := errors.AsType[*ipam.LimitError](cause)
	isPoolClosed := errors.Is(cause, ledger.ErrPoolClosed)
	logRecord(ctx, stepLevel, "Gave up a record", record, "reason", cause)
	switch {
	case order.leavesRecord() && errors.Is(cause, ipam.ErrUnconfirmed):
		if order.isExisting { // no later step records it, when the record is seen
			a.History.Granted(record, history.Existing)
		}
	case !order.nameIsFixed():
		a.discard(ctx, record, func() {})
	default: // the name is needed again
		cause = errors.Join(cause, a.release(ctx, record, order.isEdit()))
	}
	switch {
	case isPoolClosed:
		return poolClosed(order.Holder, record.Pool)
	case isOverLimit: // the records that exceed the limit may be about to give way too: the next try finds out
		return errors.Join(ledger.ErrLost, cause)
	}
	return cause
}

func unconfirmedIfDone(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return errors.Join(ipam.ErrUnconfirmed, err)
	}
	return err
}

// shortage collects the errors of pools that have no room.
type shortage struct {
	exhausted ipam.ExhaustedError
	// results holds the errors of the tried pools, passedOver the reasons why others are not tried.
	results, passedOver []ipam.PoolResult
}

func (o Order) newShortage() *shortage {
	return &shortage{
		exhausted:  ipam.ExhaustedError{Bits: o.Terms.Length, Largest: ipam.NoLength, OnExhaustion: o.Terms.WhenExhausted(o.Pools), Provisioner: o.Terms.Provisioner},
		passedOver: o.PassedOver,
	}
}

// addResult records an error that means no room, or room for other waiters; false for another
// error.
func (s *shortage) addResult(pool ipam.Pool, err error) bool {
	err = s.poolError(pool, err)
	if !ipam.IsNoRoom(err) {
		return false
	}
	s.results = append(s.results, ipam.PoolResult{Pool: pool.Key, Err: err})
	return true
}

// poolError returns the ledger's error of one pool, for the request.
func (s *shortage) poolError(pool ipam.Pool, err error) error {
	if errors.Is(err, ledger.ErrOutOfTurn) {
		return &ipam.ExhaustedError{OutOfTurn: true, Pools: []ipam.PoolKey{pool.Key}, Bits: s.exhausted.Bits, Largest: ipam.NoLength}
	}
	return err
}

// err returns the error of all pools together. It does not depend on the order in which they were
// tried, which changes with their utilization.
func (s *shortage) err() error {
	ipam.SortByPool(s.results)
	return ipam.WithPools(s.combinedError(), slices.Concat(s.results, s.passedOver))
}

func (s *shortage) combinedError() error {
	var taken *ipam.TakenError
	var limits []*ipam.LimitError
	total := s.exhausted
	for _, result := range s.results {
		if full, ok := errors.AsType[*ipam.ExhaustedError](result.Err); ok {
			total.OutOfTurn = total.OutOfTurn || full.OutOfTurn
			total.Pools = append(total.Pools, result.Pool)
			total.Largest = larger(total.Largest, full.Largest)
		} else if limit, ok := errors.AsType[*ipam.LimitError](result.Err); ok {
			limits = append(limits, limit)
		} else {
			errors.As(result.Err, &taken)
		}
	}
	switch {
	case taken != nil:
		return taken
	case len(limits) > 0 && len(total.Pools) == 0: // there is no pool in which room alone would help
		return limits[len(limits)-1]
	}
	total.Limits = limits
	return &total
}

// larger returns the length of the larger of two blocks; either may be ipam.NoLength.
func larger(a, b int) int {
	if a == ipam.NoLength || b == ipam.NoLength {
		return max(a, b)
	}
	return min(a, b)
}

// poolClosed returns the error of a pool from which nothing is handed out.
func poolClosed(holder ipam.Holder, pool ipam.PoolKey) error {
	reason := v1alpha1.ReasonPoolNotReady
	if holder.IsPool() {
		reason = v1alpha1.ReasonParentNotReady
	}
	return &ipam.MissingError{Reason: reason, Message: pool.String() + " is being released, or its CIDR is not recorded: wait until it is ready, or use another pool"}
}
