// Package ipclaim reconciles IPClaims. Admission binds them and writes their status when they are
// created; the controller binds the claims that wait, restores records that were lost, and
// reports conflicts.
package ipclaim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
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

// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipclaims,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=ipam.cadastre.dev,resources=ipallocations,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups=events.k8s.io,resources=events,verbs=create;patch

// Controller reconciles IPClaims. Only the leader runs it.
type Controller struct {
	Ledger    *ledger.Ledger
	Catalog   *inventory.Catalog
	Queue     *queue.Queue
	Allocator *allocator.Allocator
	Metrics   *metrics.Instruments
	Tracer    trace.Tracer

	Client client.Client
	// Live reads without a cache.
	Live    client.Reader
	Asker   *authorize.Asker
	Workers int
	Within  kubeutil.Namespaces
	Events  events.EventRecorder

	// pendingEvents has the UIDs of the claims that were stored as waiting, and of which no event was
	// made yet.
	pendingEvents sync.Map
	// superseded has the version of a claim that this controller has read and changed, by its UID, until the
	// cache shows another one.
	superseded sync.Map
}

// cacheTimeout is the time within which the cache shows a write of this controller.
const cacheTimeout = time.Second

// SetupWithManager registers the controller. It receives its own writes too: another pass follows a
// pass that worked from an older version.
func (c *Controller) SetupWithManager(mgr manager.Manager) error {
	backoff := kubeutil.NewBackoff(clock.RealClock{}, "ipclaim", c.Metrics)
	return builder.ControllerManagedBy(mgr).
		Named("ipclaim").
		WatchesRawSource(backoff).
		WatchesRawSource(kubeutil.OrderedSources(c.records(), source.Kind(mgr.GetCache(), &v1alpha1.IPClaim{}, c.claims()))).
		WatchesRawSource(c.changes()).
		WatchesRawSource(c.Queue.Turns(kind)).
		WithOptions(controller.Options{MaxConcurrentReconciles: c.Workers, RateLimiter: backoff.Limiter()}).
		Complete(c.Within.Limit(backoff.Passes(tracing.Passes(c.Tracer, "ipclaim", reconcile.AsReconciler(c.Client, c)))))
}

// Reconcile implements reconcile.ObjectReconciler. Nearly all claims are Bound since they were
// created, and need no work.
func (c *Controller) Reconcile(ctx context.Context, claim *v1alpha1.IPClaim) (reconcile.Result, error) {
	if version, ok := c.superseded.LoadAndDelete(claim.UID); ok && version == claim.ResourceVersion {
		return reconcile.Result{RequeueAfter: cacheTimeout}, nil
	}
	if c.isUpToDate(claim) {
		return reconcile.Result{}, nil
	}
	if isTrimmed(claim) {
		if err := c.Live.Get(ctx, client.ObjectKeyFromObject(claim), claim); err != nil {
			return reconcile.Result{}, kubeutil.IgnoreNotFound(err)
		}
	}
	if !claim.DeletionTimestamp.IsZero() {
		return reconcile.Result{}, nil // its record is collected when it is gone
	}
	before := claim.DeepCopy()
	s := &scope{claim: claim}
	err := c.bindOrVerify(ctx, s)
	outcome, retry := c.outcome(s, c.Catalog.Redact(claim.Namespace, err))
	claim.Status = outcome.Status(claim.Status)
	isWritten, err := c.write(ctx, before, claim)
	if err != nil {
		return reconcile.Result{}, err
	}
	c.recordChange(ctx, before, claim, isWritten)
	if retry != nil {
		c.superseded.Delete(claim.UID) // a pass that is skipped would count as a success
		return reconcile.Result{}, retry
	}
	return reconcile.Result{RequeueAfter: cmp.Or(s.grantRetry, s.retry)}, nil
}

// bindOrVerify ensures that the claim's block is held.
func (c *Controller) bindOrVerify(ctx context.Context, s *scope) error {
	if err := readRequest(s); err != nil {
		return err
	}
	if s.claim.Spec.AllocationName != "" {
		return c.verify(ctx, s)
	}
	if err := c.requestGrant(ctx, s); err != nil {
		return err
	}
	err := c.bind(ctx, s)
	s.retry, err = c.Queue.Yield(convert.HolderOfClaim(s.request.Claim), err)
	return err
}

// scope holds the data of one pass over a claim.
type scope struct {
	claim *v1alpha1.IPClaim
	// request is set by read.
	request ipam.Request
	// record is the record of the held block, set by bind or verify.
	record ipam.Record
	// conflict names the other record on the claim's block, set by verify.
	conflict string
	// grantRetry is the time until the right to use the pool is asked for again, set by requestGrant.
	grantRetry time.Duration
	// retry is the time until the claim is tried again, set by hold if the claim has lost its turn.
	retry time.Duration
}

const kind = "IPClaim"

// errNotSeen means that the record exists, but is not in the view yet. The claim is reconciled
// again when the record appears there.
var errNotSeen = errors.New("the allocation is not in the view yet")

func (c *Controller) order(s *scope, resolution inventory.Resolution) allocator.Order {
	order := allocator.Order{
		Resolution:  resolution,
		Holder:      convert.HolderOfClaim(s.request.Claim),
		RequestedBy: s.request.RequestedBy,
	}
	order.SetHolder(s.claim)
	order.Waiting = queue.Waiter{Since: s.claim.CreationTimestamp.Time, Holder: order.Holder, Request: s.request}
	return order
}

// isUpToDate reports whether a pass over the claim would change nothing: it is Bound, its record is
// seen and has the same block, and no other record has that block. It costs O(1).
func (c *Controller) isUpToDate(claim *v1alpha1.IPClaim) bool {
	if claim.Spec.AllocationName == "" || !isReady(claim) {
		return false
	}
	record, ok := c.Ledger.Record(ipam.Name{Namespace: claim.Namespace, Name: claim.Spec.AllocationName})
	return ok && isRecordOf(claim, record) && c.Allocator.CheckConfirmed(record) == nil && c.Ledger.Conflict(record) == nil
}

// isRecordOf reports whether the record belongs to the claim and agrees with it: whether verify
// would find nothing to do.
func isRecordOf(claim *v1alpha1.IPClaim, record ipam.Record) bool {
	policy := ipam.Reclaim(claim.Spec.ReclaimPolicy)
	return record.Holder == convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name}) &&
		record.MayBeOf(string(claim.UID)) &&
		record.State == ipam.StateBound && !record.Terminating &&
		record.Block.String() == claim.Spec.CIDR &&
		(policy == "" || policy == record.Reclaim) &&
		(!record.Adopted || record.IsStamped())
}

// outcome returns the outcome of a pass for the status of the claim. The error is for the work
// queue, which retries with back-off. A claim that waits is not tried again, but notified when it
// is its turn. A claim whose block another holder has is tried again: it has no turn, because it
// must get that block and no other.
func (c *Controller) outcome(s *scope, err error) (convert.ClaimOutcome, error) {
	if err == nil {
		pool, _ := c.Catalog.Pool(s.record.Pool)
		outcome := convert.ClaimBound(s.record, pool)
		outcome.Conflict = s.conflict
		return outcome, nil
	}
	if errors.Is(err, errNotSeen) || kubeutil.IsNamespaceTerminating(err) {
		return convert.ClaimOutcome{}, nil
	}
	outcome := convert.ClaimWaits(err)
	if parked, ok := errors.AsType[*ipam.ParkedError](err); ok {
		return outcome, kubeutil.Reported(parked.Cause)
	}
	_, isTaken := errors.AsType[*ipam.TakenError](err)
	switch {
	case outcome.Phase == "":
		return outcome, err
	case isTaken && s.claim.Spec.AllocationName != "":
		return outcome, kubeutil.Reported(err)
	}
	return outcome, nil
}

// write writes the changes of spec and status in one patch, if the claim is still as it was read,
// or as requestGrant has written it. After a conflict a record that was made is found again, or
// collected.
func (c *Controller) write(ctx context.Context, before, claim *v1alpha1.IPClaim) (isWritten bool, err error) {
	if equality.Semantic.DeepEqual(before.Spec, claim.Spec) && equality.Semantic.DeepEqual(before.Status, claim.Status) {
		return false, nil
	}
	base := claim.DeepCopy() // in the version in which the right to use the pool may have been written
	base.Spec, base.Status = before.Spec, before.Status
	patch := client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	c.superseded.Store(claim.UID, before.ResourceVersion) // before the cache can show the result
	err = c.Client.Patch(ctx, claim, authorize.WithoutRequester(claim, patch))
	if err != nil {
		c.superseded.Delete(claim.UID)
		return false, kubeutil.IgnoreNotFound(fmt.Errorf("writing the claim: %w", err))
	}
	return true, nil
}
