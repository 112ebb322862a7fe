// Package allocationgc collects IPAllocations whose holder does not exist, or does not name them
// because their release was interrupted: at once when the holder's deletion was seen, and otherwise
// after a grace period on this process's own clock and a quorum read that confirms it. The record
// is read first, the holder second, so that an allocation in flight is never mistaken.
package allocationgc

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller collects records without a holder. Only the leader runs it. Its
// requests are names of IPAllocations.
type Controller struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	History   *history.Recorder
	Tracer    trace.Tracer

	Client client.Reader
	// Live reads without a cache.
	Live  client.Reader
	Clock clock.PassiveClock
	// Grace is the time for which a record can be without holder if the holder's deletion was not
	// seen.
	Grace time.Duration
	// Workers is the number of records that are reconciled at a time. It must be at least the
	// number that allocators make at a time: otherwise, on an API server that is fully loaded, the
	// released records fall behind the new ones, without end.
	Workers int
	Within  kubeutil.Namespaces
	// InCluster has the own records of the in-cluster provider's pools collected, too.
	InCluster bool
	Events    events.EventRecorder

	mu sync.Mutex
	// judges report for other kinds of holders whether they exist.
	judges map[string]Judge
	// queue is the work queue for records that are to be reconciled.
	queue kubeutil.Queue
	// sightings has the time since which a state of a record has been seen without holder.
	sightings map[ipam.Name]sighting
	// deletedHolders has the UID of the holder whose deletion was seen, by its record.
	deletedHolders map[ipam.Name]string
	// newRecords has the records that are reconciled only if they still have no holder after the time in
	// which holders appear.
	newRecords []ipam.Name
	// releases has the last release by the record's name; the view shows the removal a moment
	// later.
	releases map[ipam.Name]lastRelease
}

// Judge reports whether the holder that a record names exists and names it.
type Judge func(context.Context, client.Reader, ipam.Record) (bool, error)

// SetupWithManager registers the controller.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	c.sightings, c.deletedHolders, c.releases = map[ipam.Name]sighting{}, map[ipam.Name]string{}, map[ipam.Name]lastRelease{}
	c.judges = map[string]Judge{}
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "orphan", c.Metrics)
	b := builder.ControllerManagedBy(mgr)
	for _, pool := range convert.PoolTypes(c.InCluster) {
		b = b.Watches(pool, c.pools())
	}
	return b.Named("orphan").
		Watches(&v1alpha1.IPClaim{}, c.claims()).
		WatchesRawSource(c.records()).
		WatchesRawSource(c.arrivals()).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(c.Within.Limit(backoff.Passes(tracing.Passes(c.Tracer, "orphan", c))))
}

// Reconcile implements reconcile.Reconciler.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	name := ipam.Name{Namespace: req.Namespace, Name: req.Name}
	record, ok := c.Ledger.Record(name)
	if !ok {
		c.forget(name)
		return reconcile.Result{}, nil
	}
	if c.isReleased(record) {
		return reconcile.Result{RequeueAfter: c.Grace}, nil
	}
	isHeld, err := c.holds(ctx, c.Client, record)
	if err != nil {
		return reconcile.Result{}, err
	}
	if isHeld {
		c.clear(name)
		return reconcile.Result{}, nil
	}
	if isKept(record) {
		return c.collect(ctx, record)
	}
	sawDeletion := c.sawDeletion(record)
	if !sawDeletion {
		if remaining := c.graceLeft(record); remaining > 0 {
			return reconcile.Result{RequeueAfter: remaining}, nil
		}
	}
	isHeld, err = c.holds(ctx, c.Live, record)
	if err != nil {
		return reconcile.Result{}, err
	}
	if isHeld { // the cache is behind and may never show a holder that is deleted in between, or a restore brought the holder back
		return reconcile.Result{RequeueAfter: c.Grace}, nil
	}
	if record.IsStamped() && !sawDeletion { // made for a holder that existed, and may be written into it yet
		if err := c.Allocator.Fence(ctx, record); err != nil {
			return reconcile.Result{}, err
		}
	}
	return c.collect(ctx, record)
}
