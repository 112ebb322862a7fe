// Package ipclass writes into the status of IPClasses the number of pools that back them and their
// free capacity.
package ipclass

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclasses/status,verbs=patch

// Controller reconciles IPClasses. Only the leader runs it.
type Controller struct {
	// Ledger is the view of all allocations.
	Ledger *ledger.Ledger
	// Catalog holds the pools, classes, namespaces and Clusters.
	Catalog *inventory.Catalog
	// Metrics counts passes.
	Metrics *metrics.Instruments
	// Tracer starts the spans; nil: no spans.
	Tracer trace.Tracer
	// Client writes, and reads from the cache.
	Client client.Client
	// Workers is the number of objects that are reconciled at a time: a call that is not answered
	// blocks one of them.
	Workers int
	// Throttle limits how often the counts of a class are written.
	Throttle *kubeutil.Throttle
}

// SetupWithManager registers the controller.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "ipclass", c.Metrics)
	return builder.ControllerManagedBy(mgr).
		Named("ipclass").
		For(&v1alpha1.IPClass{}).
		WatchesRawSource(c.changes()).
		WatchesRawSource(c.records()).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(backoff.Passes(tracing.Passes(c.Tracer, "ipclass", reconcile.AsReconciler(c.Client, c))))
}

// Reconcile implements reconcile.ObjectReconciler.
func (c *Controller) Reconcile(ctx context.Context, class *v1alpha1.IPClass) (reconcile.Result, error) {
	if !class.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil
	}
	before := class.DeepCopy()
	c.count(class)
	c.condition(class)
	if equality.Semantic.DeepEqual(before.Status, class.Status) {
		return reconcile.Result{}, nil
	}
	if delay := c.Throttle.Take(class.Name); delay > 0 && equality.Semantic.DeepEqual(withoutCounts(before.Status), withoutCounts(class.Status)) {
		return reconcile.Result{RequeueAfter: delay}, nil // its own writes enqueue it: one write would follow the other
	}
	if err := c.Client.Status().Patch(ctx, class, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, kubeutil.IgnoreNotFound(fmt.Errorf("writing status: %w", err))
	}
	return reconcile.Result{}, nil
}

// withoutCounts returns a status without its counts.
func withoutCounts(s v1alpha1.IPClassStatus) v1alpha1.IPClassStatus {
	s.Capacity = nil
	return s
}
