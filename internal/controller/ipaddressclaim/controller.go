// Package ipaddressclaim serves Cluster API's IPAddressClaims that name a pool or a class of
// Cadastre, by the IPAM contract v1beta2 of Cluster API 1.14
// (docs/book/src/developer/providers/contracts/ipam.md there). Claims of other providers are left
// untouched.
//
// IPAllocations record the held addresses, as for every holder; an IPAddress shows one. An
// IPAddress that exists already, after a move or a restore or because a user made it, is adopted:
// its block is recorded, and never renumbered.
package ipaddressclaim

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/status,verbs=patch
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddressclaims/finalizers,verbs=update
// +kubebuilder:rbac:groups=ipam.cluster.x-k8s.io,resources=ipaddresses,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ippools/finalizers;localippools/finalizers,verbs=update
// +kubebuilder:rbac:groups=cluster.x-k8s.io,resources=clusters,verbs=get;list;watch
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles IPAddressClaims, and the IPAddresses of their names. Only
// the leader runs it.
type Controller struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Queue     *queue.Queue
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	Tracer    trace.Tracer

	Client client.Client
	// Live reads without a cache.
	Live  client.Reader
	Asker *authorize.Asker
	// Targets has the references that are served.
	Targets convert.Targets
	// IsProviderRunning reports whether the in-cluster provider serves its pools; nil: it does not.
	IsProviderRunning func() bool
	// Orphans collects the records whose claims are gone.
	Orphans Orphans
	Workers int
	Within  kubeutil.Namespaces
	// WatchFilter is the required value of Cluster API's label for filters; empty:
	// any, or none.
	WatchFilter string
	Clock       clock.PassiveClock
	Events      events.EventRecorder

	// expectations holds the changes that the caches do not show yet.
	expectations expectations
}

// SetupWithManager registers the controller. The API server must serve Cluster API's kinds.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	c.Orphans.Judge(kind, holds)
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "ipaddressclaim", c.Metrics)
	return builder.ControllerManagedBy(mgr).
		Named("ipaddressclaim").
		WatchesRawSource(kubeutil.OrderedSources(
			c.records(),
			source.Kind[client.Object](mgr.GetCache(), &ipamv1.IPAddress{}, c.addresses()),
			source.Kind[client.Object](mgr.GetCache(), &ipamv1.IPAddressClaim{}, c.claims()),
		)).
		Watches(&clusterv1.Cluster{}, handler.EnqueueRequestsFromMapFunc(claimsOf(c.Client)), builder.WithPredicates(pauseChanged())).
		WatchesRawSource(c.changes()).
		WatchesRawSource(c.Queue.Turns(kind)).
		WatchesRawSource(backoff).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(c.Within.Limit(backoff.Passes(tracing.Passes(c.Tracer, "ipaddressclaim", c))))
}

// Reconcile implements reconcile.Reconciler. The request names a claim.
func (c *Controller) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	lastRemoval := c.expectations.claims.last(ipam.Name(req.NamespacedName)) // before the cache is read, which ends it
	c.expectations.unretained.Delete(ipam.Name(req.NamespacedName))
	s, err := readScope(ctx, c.Client, req.NamespacedName, c.Targets)
	if err != nil {
		return reconcile.Result{}, err
	}
	if s.claim != nil && !c.serves(s.claim) {
		return reconcile.Result{}, nil
	}
	if !s.mayWait() { // if it can wait, that is decided when it is not served
		c.Queue.Leave(s.holder())
	}
	delay := c.addressDelay(s)
	c.forgetShownDeletion(s, delay)
	switch {
	case s.claim == nil:
		return c.reconcileAddress(ctx, s, delay)
	case s.isOfUnknownKind(s.claim.Spec.PoolRef) && s.claim.DeletionTimestamp.IsZero():
		return reconcile.Result{}, c.refuse(ctx, s)
	case s.isActive():
		result, err := requeueIfNotSeen(c.serve(ctx, s))
		if err == nil && result.IsZero() {
			result.RequeueAfter = cmp.Or(s.grantRetry, s.retry)
		}
		return result, err
	case !s.isOurs(s.claim.Spec.PoolRef):
		return reconcile.Result{}, nil
	case lastRemoval.isOf(s.claim, c.Clock.Now()):
		return reconcile.Result{RequeueAfter: cacheTimeout}, nil
	}
	return requeueIfNotSeen(c.reportRefusal(ctx, s, c.release(ctx, s)))
}

// reconcileAddress reconciles an IPAddress without claim, if there is one.
func (c *Controller) reconcileAddress(ctx context.Context, s *scope, delay time.Duration) (reconcile.Result, error) {
	switch {
	case s.address == nil || !s.isOurs(s.address.Spec.PoolRef):
		return reconcile.Result{RequeueAfter: delay}, nil
	case !s.address.DeletionTimestamp.IsZero():
		return requeueIfNotSeen(c.unprotect(ctx, s))
	default: // a user made it before the claim, or is moving both
		return requeueIfNotSeen(c.retry(s, c.keepAddress(ctx, s)))
	}
}

// addressDelay returns the time within which an IPAddress without claim that this process created can
// still appear; 0 if there is none.
func (c *Controller) addressDelay(s *scope) time.Duration {
	if s.claim != nil || s.address != nil {
		return 0
	}
	return c.expectations.addressDelay(s.name, c.Clock.Now())
}

// forgetShownDeletion forgets that the deletion of a claim was seen if there is another claim of its name, or
// neither a claim nor an IPAddress. A pass that began before the deletion was seen may still have
// that same claim.
func (c *Controller) forgetShownDeletion(s *scope, delay time.Duration) {
	uid, ok := c.expectations.deletedClaim(s.name)
	switch {
	case !ok, s.claim != nil && string(s.claim.UID) == uid:
	case s.claim != nil, s.address == nil && delay == 0:
		c.expectations.deletedClaims.CompareAndDelete(s.name, uid) // unless another deletion was seen since
	}
}

func (c *Controller) serves(claim *ipamv1.IPAddressClaim) bool {
	return isServed(claim, c.Within, c.WatchFilter)
}

// requeueIfNotSeen requeues a claim if an object of it has not been seen yet: if this process, or the leader
// before it, made the object, its appearance does not enqueue the claim.
func requeueIfNotSeen(err error) (reconcile.Result, error) {
	if errors.Is(err, errNotSeen) {
		return reconcile.Result{RequeueAfter: cacheTimeout}, nil
	}
	return reconcile.Result{}, err
}

// providerRetry is the time after which a claim is tried again that the in-cluster provider is to serve.
const providerRetry = 5 * time.Second

// serve ensures that the claim has its address, and writes the result into its status.
func (c *Controller) serve(ctx context.Context, s *scope) error {
	recordErr := c.recordExisting(ctx, s)
	if isInCluster(s.claim.Spec.PoolRef) && c.IsProviderRunning != nil && c.IsProviderRunning() {
		if s.address == nil {
			s.retry = providerRetry // its pool may not be known yet
		}
		return c.retry(s, recordErr)
	}
	if halt := c.haltOf(s); halt != nil {
		return errors.Join(c.reportHalt(ctx, s, halt), c.retry(s, recordErr))
	}
	before := s.claim.DeepCopy()
	err := recordErr
	switch {
	case s.hasFormerAddress():
		err = c.dropFormerAddress(ctx, s)
	case err == nil:
		err = c.serveClaim(ctx, s)
	}
	retry := c.applyResult(s, err)
	if err := c.writeStatusAndEvent(ctx, before, s.claim); err != nil {
		return err
	}
	return retry
}

// serveClaim gives the claim an address, or repairs its present one.
func (c *Controller) serveClaim(ctx context.Context, s *scope) error {
	if s.address != nil {
		if err := c.protectClaim(ctx, s); err != nil {
			return err
		}
		return c.repair(ctx, s)
	}
	if err := c.bindAndYield(ctx, s); err != nil {
		return err
	}
	return c.createAddress(ctx, s)
}
