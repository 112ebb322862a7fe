// Package ippool reconciles pools of all kinds: it records the CIDR of a
// pool if admission could not, and counts the capacity of pools.
package ippool

import (
	"context"
	"errors"
	"slices"
	"strings"
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
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ippools;localippools,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ippools/status;localippools/status,verbs=patch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles pools. Only the leader runs it.
type Controller struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Queue     *queue.Queue
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	Tracer    trace.Tracer

	Client client.Client
	Asker  *authorize.Asker
	// Workers is the number of objects that are reconciled at a time: a call that is not answered
	// blocks one of them.
	Workers int
	// Throttle limits how often the counts of a pool are written.
	Throttle *kubeutil.Throttle
	Events   events.EventRecorder
	// InCluster has the pools of the in-cluster provider's kinds reconciled, too.
	InCluster bool
	// IsProviderRunning reports whether the in-cluster provider serves its pools; nil: it does not.
	IsProviderRunning func() bool
}

// SetupWithManager registers the controller, once for each kind. Its own status writes also enqueue
// a pool: if a pass worked from an older version than such a write, the next pass corrects it.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	err := errors.Join(setup[*v1alpha1.IPPool](mgr, c), setup[*v1alpha1.LocalIPPool](mgr, c))
	if c.InCluster {
		err = errors.Join(err, setup[*incluster.InClusterIPPool](mgr, c), setup[*incluster.GlobalInClusterIPPool](mgr, c))
	}
	return err
}

func setup[T v1alpha1.Pool](mgr manager.Manager, c *Controller) error {
	var zero T
	kind := ipam.PoolKind(zero.PoolKind())
	name := strings.ToLower(string(kind))
	backoff := kubeutil.NewBackoff(clock.RealClock{}, name, c.Metrics)
	return builder.ControllerManagedBy(mgr).
		Named(name).
		For(convert.NewPool(kind)).
		WatchesRawSource(c.changes(kind)).
		WatchesRawSource(c.records(kind)).
		WatchesRawSource(c.Queue.Turns(string(kind))).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(tracing.Passes(c.Tracer, name, reconcile.AsReconciler(c.Client, poolReconciler[T]{c}))))
}

// poolReconciler implements reconcile.ObjectReconciler for one kind of pool.
type poolReconciler[T v1alpha1.Pool] struct{ *Controller }

// Reconcile implements reconcile.ObjectReconciler.
func (r poolReconciler[T]) Reconcile(ctx context.Context, obj T) (reconcile.Result, error) {
	return r.reconcile(ctx, obj)
}

func (c *Controller) reconcile(ctx context.Context, obj v1alpha1.Pool) (reconcile.Result, error) {
	before := copyOf(obj)
	s := &scope{obj: obj}
	err := parkIfRefused(c.secureOrRelease(ctx, s))
	retry := c.applyResult(s, err)
	delay, err := c.writeStatus(ctx, before, obj)
	if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: shortestDelay(delay, s.grantRetry, s.retry)}, retry
}

// shortestDelay returns the shortest of the times that are set; 0 if none is.
func shortestDelay(delays ...time.Duration) time.Duration {
	positive := slices.DeleteFunc(delays, func(d time.Duration) bool { return d == 0 })
	if len(positive) == 0 {
		return 0
	}
	return slices.Min(positive)
}

// secureOrRelease records the pool's CIDR, or removes the finalizer of a pool that is being
// deleted.
func (c *Controller) secureOrRelease(ctx context.Context, s *scope) error {
	err := c.read(s)
	switch isInCluster := s.pool.Key.Kind.IsInCluster(); {
	case isInCluster && s.pool.Terminating && c.isServedByProvider(s):
		return nil
	case isInCluster && s.pool.Terminating: // the provider stores pools that cannot be read here
		return c.removeFinalizer(ctx, s)
	case err != nil:
		return err
	case s.pool.Terminating:
		return c.removeFinalizer(ctx, s)
	}
	return c.secure(ctx, s)
}

// scope holds the data of one pass over a pool.
type scope struct {
	obj v1alpha1.Pool
	// pool is set by read.
	pool ipam.Pool
	// part is what one own record holds of the pool, set by secure: the pool itself, unless it has several.
	part ipam.Pool
	// record is the own record of the part, set by secure.
	record ipam.Record
	// leftOut has the own records of other pools that have addresses of the pool, set by parts.
	leftOut []ipam.Record
	// open reports whether a pool that occupies its ranges can hand out blocks, set by secure: it also
	// can by a record from before an edit of them.
	open bool
	// grantRetry is the time until the right to use the parent is asked for again, set by requestGrant.
	grantRetry time.Duration
	// former is the number of own records from before an edit of the ranges that blocks of the pool
	// still need, set by secure.
	former int
	// retry is the time until the pool is tried again, set by secure if the pool has lost its turn.
	retry time.Duration
}

func copyOf(obj v1alpha1.Pool) v1alpha1.Pool { return obj.DeepCopyObject().(v1alpha1.Pool) }
