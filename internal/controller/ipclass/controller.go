// Package ipclass writes into the status of IPClasses the number of pools that back them, their free
// capacity, and the demand that provisioners serve.
package ipclass

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclasses,verbs=get;list;watch
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclasses/status,verbs=patch

// Controller reconciles IPClasses. Only the leader runs it.
type Controller struct {
	Ledger  *ledger.Ledger
	Catalog *inventory.Catalog
	Queue   *queue.Queue
	Metrics *metrics.Instruments
	Tracer  trace.Tracer

	Client client.Client
	// Workers is the number of objects that are reconciled at a time: a call that is not answered
	// blocks one of them.
	Workers int
	// Throttle limits how often the counts and the demand of a class are written.
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
		WatchesRawSource(c.demand()).
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
	read, _ := convert.Class(class)
	c.count(class, read)
	result := c.countDemand(class, read)
	c.condition(class, read)
	if equality.Semantic.DeepEqual(before.Status, class.Status) {
		return result, nil
	}
	if delay := c.Throttle.Take(class.Name); delay > 0 && equality.Semantic.DeepEqual(withoutCounts(before.Status), withoutCounts(class.Status)) {
		return reconcile.Result{RequeueAfter: delay}, nil // its own writes enqueue it: one write would follow the other
	}
	if err := c.Client.Status().Patch(ctx, class, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return reconcile.Result{}, kubeutil.IgnoreNotFound(fmt.Errorf("writing status: %w", err))
	}
	return result, nil
}

// withoutCounts returns a status without its counts and its demand.
func withoutCounts(s v1alpha1.IPClassStatus) v1alpha1.IPClassStatus {
	s.Capacity, s.Demand = nil, nil
	return s
}

// count adds up the cluster-scoped pools that back the class. It does not count pools that cannot
// hand out blocks at the moment. Nor does it count LocalIPPools: every user can read a class, but a
// LocalIPPool concerns its own namespace only, and no other namespace can use its capacity.
func (c *Controller) count(class *v1alpha1.IPClass, read ipam.Class) {
	var total, allocated, available, withheld, outOfRange space.Count
	ready := int32(0)
	backing, _ := c.Catalog.PoolsOf("", read)
	for _, pool := range backing {
		if c.Catalog.PoolReady(pool) != nil {
			continue
		}
		capacity, ok := c.Ledger.Capacity(pool.Key)
		if !ok {
			continue
		}
		ready++
		total, allocated = total.Add(capacity.Total), allocated.Add(capacity.Allocated)
		available, withheld = available.Add(capacity.Available), withheld.Add(capacity.Withheld)
		outOfRange = outOfRange.Add(capacity.OutOfRange)
	}
	class.Status.ObservedGeneration = class.Generation
	class.Status.Pools = ready
	class.Status.Capacity = convert.Capacity(total, allocated, available, withheld, outOfRange)
}

// countDemand counts the claims that wait for a pool of a class that has a provisioner. The demand stays
// as it is until all of them have been seen, for which it asks for another pass.
func (c *Controller) countDemand(class *v1alpha1.IPClass, read ipam.Class) reconcile.Result {
	if read.Provisioner == "" {
		class.Status.Demand = nil
		return reconcile.Result{}
	}
	if c.Queue.Synced() != nil {
		return reconcile.Result{RequeueAfter: time.Second}
	}
	class.Status.Demand = nil
	demand := c.Queue.Demand(read)
	for _, length := range slices.Sorted(maps.Keys(demand)) {
		class.Status.Demand = append(class.Status.Demand, v1alpha1.ClassDemand{
			PrefixLength: int32(length),                             //nolint:gosec // 0 to 128
			Claims:       int32(min(demand[length], math.MaxInt32)), //nolint:gosec // bounded, and not negative
		})
	}
	return reconcile.Result{}
}

// condition sets the condition Ready. It is False only if the class itself must be changed. A class
// that no pool backs is Ready: its pools may come after it, and Flux applies nothing else before
// all classes of a repository are Ready.
func (c *Controller) condition(class *v1alpha1.IPClass, read ipam.Class) {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: class.Generation,
	}
	family := ipam.Family(class.Spec.IPFamily)
	defaultClass, _ := c.Catalog.DefaultClass(family, func(inventory.ClassEntry) bool { return true })
	switch {
	case inventory.IsDefault(class) && defaultClass.Name != "" && defaultClass.Name != class.Name:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, v1alpha1.ReasonNotDefault, notDefault(defaultClass, class)
	case class.Status.Pools == 0 && read.Provisioner != "":
		ready.Reason, ready.Message = v1alpha1.ReasonNoPools, fmt.Sprintf("no IPPool that is ready backs this class, and claims wait until its provisioner, %s, has made one: make sure that it runs", read.Provisioner)
	case class.Status.Pools == 0:
		ready.Reason, ready.Message = v1alpha1.ReasonNoPools, "no IPPool that is ready backs this class, and claims wait for one: add it to the classNames of a pool"
	default:
		ready.Reason, ready.Message = v1alpha1.ReasonReady, "claims of this class are served"
	}
	meta.SetStatusCondition(&class.Status.Conditions, ready)
}

// notDefault returns a message that gives the reason why another class is the default of the
// family.
func notDefault(first inventory.ClassEntry, class *v1alpha1.IPClass) string {
	if first.Replaces == class.Name {
		return fmt.Sprintf("the IPClass %q replaces this one as the default class for %s: remove the annotation %s here", first.Name, class.Spec.IPFamily, v1alpha1.AnnotationDefaultClass)
	}
	return fmt.Sprintf("the IPClass %q is older and the default class for %s: remove the annotation of one of them", first.Name, class.Spec.IPFamily)
}

// changes returns a source that enqueues the classes that changed, and the classes of a pool that
// changed. Only cluster-scoped pools are counted.
func (c *Controller) changes() source.Source {
	return kubeutil.Listener(c.Catalog.Listen, func(q kubeutil.Queue, e inventory.Change) {
		if e.Pool.Namespace != "" {
			return
		}
		for _, class := range e.Classes {
			q.Add(kubeutil.RequestFor("", class))
		}
	})
}

// records returns a source that enqueues the classes of a pool, throttled, when anything in the
// pool changes: a pass counts all changes until then.
func (c *Controller) records() source.Source {
	return kubeutil.Listener(c.Ledger.Listen, func(q kubeutil.Queue, change ledger.Change) {
		if change.Kind == ledger.Changed {
			return
		}
		c.enqueue(q, change.Pool)
		if change.Record.Purpose == ipam.PurposePool { // that pool may be ready now
			c.enqueue(q, convert.PoolOf(change.Record.Holder))
		}
	})
}

// demand returns a source that enqueues a class that has a provisioner, throttled, when its waiting
// claims change.
func (c *Controller) demand() source.Source {
	return kubeutil.Listener(c.Queue.ListenDemand, func(q kubeutil.Queue, class string) {
		q.AddAfter(kubeutil.RequestFor("", class), c.Throttle.Delay(class))
	})
}

func (c *Controller) enqueue(q kubeutil.Queue, key ipam.PoolKey) {
	if key.Kind != ipam.PoolKindIPPool {
		return
	}
	pool, _ := c.Catalog.Pool(key)
	for _, class := range pool.Classes {
		q.AddAfter(kubeutil.RequestFor("", class), c.Throttle.Delay(class))
	}
}
