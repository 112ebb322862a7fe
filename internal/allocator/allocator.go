// Package allocator hands out blocks: it finds a block in the pools to which a request was resolved
// (package inventory), records and confirms it (package ledger), adopts existing records, and
// releases records that are no longer held. Only this package creates or deletes IPAllocations.
//
// All methods of Allocator may be called concurrently, and on every replica: nothing here needs a
// leader.
package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	oteltrace "go.opentelemetry.io/otel/trace"
	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// Options holds the dependencies and limits of an Allocator.
type Options struct {
	// Client reads and writes without a cache: a read returns the state of a quorum of etcd.
	Client client.Client
	// UnclaimedLimit bounds the records of a namespace, and of a project, that are unclaimed.
	UnclaimedLimit int
	// PoolRanges lets pools occupy their ranges alone. Every replica must know such records.
	PoolRanges bool
	Metrics    *metrics.Instruments
	// History records grants and releases of blocks; nil: nothing is recorded.
	History *history.Recorder
	// Tracer starts a span for each allocation, its steps, and each release. Nil: no spans.
	Tracer oteltrace.Tracer
	Log    logr.Logger
}

// MaxConcurrentAttempts bounds the records that a replica makes at the same time for claims and
// pools that do not exist yet. If there were more than the API server has room for, none would be
// confirmed in time, and each would also cost it a deletion. At 10 ms a record the bound is enough
// for 3,200 claims a second.
const MaxConcurrentAttempts = 32

// Allocator hands out blocks.
type Allocator struct {
	Options
	Ledger  *ledger.Ledger
	Catalog *inventory.Catalog
	Queue   *queue.Queue

	// attempts bounds the attempts for holders that do not exist yet.
	attempts *semaphore.Weighted
	// claimsSynced reports whether every IPClaim has been seen once, areWaitersListed whether the waiting
	// ones have been.
	claimsSynced     atomic.Pointer[func() bool]
	areWaitersListed atomic.Bool
	// takeOvers has a takeOverMark for each record that was taken over for a holder that exists, by its
	// UID, while the record exists.
	takeOvers sync.Map
	// background counts records that are being given up.
	background sync.WaitGroup
}

// New returns an allocator with a new catalog and a new queue of one ledger, which the caller feeds. It
// deletes records whose creation seemed to fail.
func New(view *ledger.Ledger, c inventory.Options, q queue.Options, o Options) *Allocator {
	if o.Tracer == nil {
		o.Tracer = nopTracer{}
	}
	a := &Allocator{Options: o, Ledger: view, attempts: semaphore.NewWeighted(MaxConcurrentAttempts)}
	c.Ledger = view
	a.Catalog = inventory.New(c)
	q.Ledger, q.Catalog, q.Log = view, a.Catalog, o.Log
	a.Queue = queue.New(q)
	alwaysSynced := func() bool { return true }
	a.claimsSynced.Store(&alwaysSynced)
	a.Ledger.Listen(func(c ledger.Change) {
		switch c.Kind {
		case ledger.Abandoned:
			a.discard(context.Background(), c.Record, func() {})
		case ledger.Removed:
			a.takeOvers.Delete(c.Record.UID)
		}
	})
	return a
}

// checkSynced returns ipam.ErrNotSynced until all objects that decisions depend on have been seen
// once.
func (a *Allocator) checkSynced() error { return a.Queue.Synced() }

// Close ends the queue's Run, and waits until the records that are being given up are gone.
func (a *Allocator) Close() {
	a.Queue.Close()
	a.background.Wait()
}

// Allocate gives a holder a block, recorded and confirmed. A holder that exists, or that is a pool,
// gets the block that is recorded for it already, if there is one. If there is none, but a release
// is on its way, Allocate waits for that, unless the holder waits for its turn in the queue. A new
// request that only an earlier waiter keeps from a block also waits a moment.
//
// Errors: *ipam.ExhaustedError, *ipam.TakenError, *ipam.LimitError, *ipam.MissingError if the pool
// is being released, ipam.ErrNotSynced, ipam.ErrUnconfirmed, ipam.ErrCrowded,
// ipam.ErrTooManyUnclaimed, ipam.ErrEarlierAttempt, or an error of the API. After any error nothing
// is held, or it will be collected.
func (a *Allocator) Allocate(ctx context.Context, order Order) (record ipam.Record, err error) {
	ctx, attempt := a.startAllocation(ctx, order)
	defer func() { attempt.finish(record, err) }()
	order = a.withRecordName(order)
	switch {
	case order.Holder.IsPool():
		return a.carve(ctx, order)
	case order.Origin == OriginController:
		return a.bind(ctx, order)
	}
	return a.retakeOrFind(ctx, order)
}

// bind allocates a block for a claim that exists, or takes over the recorded one.
func (a *Allocator) bind(ctx context.Context, order Order) (ipam.Record, error) {
	for _, record := range a.Ledger.HeldBy(order.Holder) {
		if record.HolderUID == order.HolderUID && record.State == ipam.StateBound && !record.Terminating {
			return a.takeOver(ctx, record, order)
		}
	}
	record, err := a.retakeOrFind(ctx, order)
	if apierrors.IsAlreadyExists(err) {
		a.Ledger.AwaitStored(ctx, order.Record, order.keys())
		return ipam.Record{}, fmt.Errorf("another process is binding %s: %w", order.Holder, ipam.ErrUnconfirmed)
	}
	return record, err
}

// Preview returns the block that Allocate would give now. It records nothing.
func (a *Allocator) Preview(order Order) (ipam.Record, error) { return a.preview(order, a.Ledger.Peek) }

// PreviewHeld returns the block that Allocate would give now, and holds the block until release is called:
// previews of several orders at a time have different blocks. It records nothing.
func (a *Allocator) PreviewHeld(order Order) (record ipam.Record, release func(), err error) {
	release = func() {}
	record, err = a.preview(order, func(ask ledger.Ask) (netip.Prefix, error) {
		hold, err := a.Ledger.Hold(ask)
		if err != nil {
			return netip.Prefix{}, err
		}
		release = hold.Drop
		return hold.Block, nil
	})
	return record, release, err
}

func (a *Allocator) preview(order Order, find func(ledger.Ask) (netip.Prefix, error)) (ipam.Record, error) {
	order = a.withRecordName(order)
	if record, ok := a.retainedRecord(order); ok {
		record.Gateway = order.gatewayFor(record)
		return record, nil
	}
	exhausted := order.newShortage()
	for _, pool := range order.Pools {
		block, err := find(a.ask(order, pool))
		if err == nil {
			return order.recordOf(pool, block), nil
		}
		if !exhausted.addResult(pool, err) {
			return ipam.Record{}, err
		}
	}
	return ipam.Record{}, exhausted.err()
}

// Consider reports whether each pool that an order may use has a block for it now, or why not:
// first for the pools that Allocate would try, by name, then for the others. It asks the ledger
// only about the first few, and records nothing.
func (a *Allocator) Consider(order Order, limit int) []ipam.PoolResult {
	exhausted := order.newShortage()
	pools := slices.SortedFunc(slices.Values(order.Pools), ipam.ByName)
	results := make([]ipam.PoolResult, len(pools), len(pools)+len(order.PassedOver))
	for i, pool := range pools {
		if results[i].Pool = pool.Key; i < limit {
			_, err := a.Ledger.Peek(a.ask(order, pool))
			results[i].Err = exhausted.poolError(pool, err)
		}
	}
	return append(results, order.PassedOver...)
}

// ask returns the request to the ledger for a block, unless that would overtake a waiting claim.
func (a *Allocator) ask(order Order, pool ipam.Pool) ledger.Ask {
	ask := ledger.Ask{
		Pool: pool.Key, Bits: order.Terms.Length, Block: order.Terms.Block,
		AdditionalBlocks: order.AdditionalBlocks,
		Strategy:         pool.Strategy, Record: order.Record, Holder: order.Holder, HolderUID: order.HolderUID,
		Turn: a.Queue.Turn(pool, order.Holder, order.Waiting),
	}
	a.setAccount(&ask, order)
	if order.Terms.Strategy != "" {
		ask.Strategy = order.Terms.Strategy
	}
	return ask
}

// setAccount sets the project and the class for which the block counts, and the limits of both.
func (a *Allocator) setAccount(ask *ledger.Ask, order Order) {
	if order.isUnclaimed() {
		ask.UnclaimedLimit = a.unclaimedLimit()
	}
	ask.Project = a.projectOf(order.Holder)
	ask.Class = order.Terms.Class
	class, _ := a.Catalog.Class(ask.Class)
	ask.ClassLimit = class.Limit
}

// unclaimedLimit returns 0, which means any number, as long as the unclaimed records are not known.
func (a *Allocator) unclaimedLimit() int {
	if !a.KnowsClaims() {
		return 0
	}
	return a.UnclaimedLimit
}

// projectOf returns the project of a holder; empty for a cluster-scoped pool.
func (a *Allocator) projectOf(holder ipam.Holder) string {
	tenant, _ := a.Catalog.Tenant(holder.Namespace)
	return tenant.Project
}

const (
	// patience bounds the wait for the sign of a release: the watch of claims is a few milliseconds
	// behind a user who deletes one claim and at once creates another.
	patience = 50 * time.Millisecond
	// fewRecords bounds the records of a pool whose claims are read from the API server.
	fewRecords = 4
)

// awaitRoom waits, for a short time, until there may be room, and reports whether to look again.
func (a *Allocator) awaitRoom(ctx context.Context, order Order, frees int, cause error) (mayBeRoom bool) {
	ctx, span := a.Tracer.Start(ctx, tracing.Await)
	defer func() { endAwait(span, mayBeRoom) }()
	if exhausted, ok := errors.AsType[*ipam.ExhaustedError](cause); ok && exhausted.OutOfTurn {
		return a.awaitTurn(ctx, order)
	}
	return a.awaitRelease(ctx, order, frees, cause)
}

// awaitTurn waits, for a short time, until no waiter precedes the order. A waiter may not be
// waiting at all: a child pool whose CIDR was recorded when it was created is seen before that
// record, because each arrives by a separate watch.
func (a *Allocator) awaitTurn(ctx context.Context, order Order) (isTurn bool) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	a.Ledger.Await(ctx, order.keys(), func() bool {
		_, err := a.Preview(order)
		isTurn = err == nil
		return isTurn
	})
	return isTurn
}

// awaitRelease waits, for a short time, for a release that is on its way to one of the pools.
func (a *Allocator) awaitRelease(ctx context.Context, order Order, frees int, cause error) bool {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	for _, pool := range order.Pools {
		a.markLeavingRecords(ctx, pool.Key)
	}
	wait := patience
	var exhausted *ipam.ExhaustedError
	if !errors.As(cause, &exhausted) || exhausted.OnExhaustion == ipam.OnExhaustionReject {
		wait = 0
	}
	return a.Ledger.AwaitRelease(ctx, order.keys(), order.Holder, frees, wait)
}

// markLeavingRecords asks the API server about the claims of a pool with few records: the watch may
// not have shown yet that one is about to be released.
func (a *Allocator) markLeavingRecords(ctx context.Context, pool ipam.PoolKey) {
	for _, record := range a.Ledger.FewRecords(pool, fewRecords) {
		if record.Holder.Kind != "IPClaim" {
			continue
		}
		claim := &v1alpha1.IPClaim{}
		err := a.Client.Get(ctx, client.ObjectKey{Namespace: record.Holder.Namespace, Name: record.Holder.Name}, claim)
		if kubeutil.IsNotFound(err) || err == nil && (claim.Spec.AllocationName != record.Name.Name || !claim.DeletionTimestamp.IsZero()) {
			a.Ledger.MarkLeaving(record.Name)
		}
	}
}

// metricsOf returns the labels with which the metrics count an order.
func metricsOf(o Order) metrics.Allocation {
	m := metrics.Allocation{Origin: metrics.OriginController, Class: o.Terms.Class, Family: string(o.family())}
	switch {
	case o.isExisting:
		m.Origin = metrics.OriginExisting
	case o.Origin == OriginAdmission:
		m.Origin = metrics.OriginAdmission
	}
	return m
}

// family returns the family of the block; empty if the order names none.
func (o Order) family() ipam.Family {
	switch {
	case o.Terms.Family != "":
		return o.Terms.Family
	case o.Terms.Block.IsValid():
		return ipam.FamilyOf(o.Terms.Block)
	case len(o.Pools) > 0:
		return o.Pools[0].Family
	}
	return ""
}

// resultOf returns the result as which the metrics count the error of an allocation.
func resultOf(err error) metrics.Result {
	var limit *ipam.LimitError
	var taken *ipam.TakenError
	var missing *ipam.MissingError
	switch {
	case err == nil:
		return metrics.ResultAllocated
	case errors.As(err, &limit):
		return metrics.ResultLimitReached
	case errors.As(err, &taken):
		return metrics.ResultTaken
	case ipam.IsNoRoom(err):
		return metrics.ResultExhausted
	case errors.As(err, &missing), errors.Is(err, ipam.ErrPoolInUse):
		return metrics.ResultPoolNotReady
	case errors.Is(err, ipam.ErrTooManyUnclaimed):
		return metrics.ResultTooManyUnclaimed
	case ipam.IsTransient(err):
		return metrics.ResultUnconfirmed
	}
	return metrics.ResultError
}

// Time limits for the steps of a request. At admission the deadline of the request comes first.
const (
	// confirmTimeout bounds the whole way from finding to confirming.
	confirmTimeout = 3500 * time.Millisecond
	// attemptTimeout bounds the wait until the API server may be asked: the rest must suffice.
	attemptTimeout = 1500 * time.Millisecond
	// releaseTimeout bounds the wait for a release that is on its way.
	releaseTimeout = 250 * time.Millisecond
	// discardTimeout bounds giving up a record, which is otherwise left to the collection of orphans.
	discardTimeout = 30 * time.Second
)
