package ippool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// readyReason holds the reason why the pool's CIDR is not recorded. The zero value means that it is
// recorded.
type readyReason struct{ reason, message string }

// applyResult sets the status of a pool from the error of a pass. No other code decides the effect
// of an error on a pool. The returned error is for the work queue, which retries with back-off.
func (c *Controller) applyResult(s *scope, err error) error {
	current, retry := readyReasonOf(s, c.Catalog.Redact(s.obj.GetNamespace(), err))
	if retry != nil && current == (readyReason{}) {
		return retry
	}
	status := s.obj.PoolStatus()
	status.ObservedGeneration = s.obj.GetGeneration()
	status.IPFamily = v1alpha1.IPFamily(s.pool.Family)
	status.AllocatedCIDR = ""
	switch {
	case s.pool.Occupied != nil && (s.open || s.record.Block.IsValid()):
		status.AllocatedCIDR = s.pool.CIDR.String()
	case s.record.Block.IsValid():
		status.AllocatedCIDR = s.record.Block.String()
	}
	exhausted := c.count(s)
	c.conditions(s, current, exhausted)
	status.FirstReadyTime = firstReady(status)
	status.Phase = phase(s, current, exhausted)
	if pool, ok := s.obj.(incluster.Pool); ok {
		pool.TrimStatus()
	}
	return retry
}

func readyReasonOf(s *scope, err error) (readyReason, error) {
	cause, ok := errors.AsType[ipam.Unserved](err)
	if !ok {
		return readyReason{}, err
	}
	reason, message := cause.Condition(ipam.Wording{
		Policy: v1alpha1.ReasonInvalid, Exhausted: v1alpha1.ReasonPoolExhausted, Taken: v1alpha1.ReasonConflict, Limit: v1alpha1.ReasonLimitReached,
		IfExhausted: "release one, or ask for a smaller one; the pool is made as soon as there is room",
		IfTaken:     ifTaken(s),
	})
	var retry error
	if parked, ok := cause.(*ipam.ParkedError); ok {
		retry = kubeutil.Reported(parked.Cause)
	}
	return readyReason{reason, message}, retry
}

// ifTaken returns what to do about a block that another holder has.
func ifTaken(s *scope) string {
	switch {
	case s.open:
		return "leave it out of the ranges, or have it released; until then the pool hands out what it had before"
	case s.pool.Occupied != nil:
		return "leave it out of the ranges, or have it released; nothing is handed out before"
	}
	return "have one of the two released; nothing is handed out before"
}

// count writes the pool's capacity, and reports whether no address is left.
func (c *Controller) count(s *scope) bool {
	status := s.obj.PoolStatus()
	status.FormerGateways = c.formerGateways(s.pool.Key)
	capacity, ok := c.Ledger.Capacity(s.pool.Key)
	if c.isServedByProvider(s) {
		return ok && capacity.LargestFree == ipam.NoLength // the provider writes the counts
	}
	if !ok {
		status.Capacity, status.Allocations, status.UtilizationPercent, status.LargestFreePrefix = nil, 0, 0, ""
		return false
	}
	status.Capacity = convert.Capacity(capacity.Total, capacity.Allocated, capacity.Available, capacity.Withheld, capacity.OutOfRange)
	status.Allocations = int64(capacity.Records)
	status.UtilizationPercent = int32(capacity.Allocated.Percent(capacity.Allocated.Add(capacity.Available))) //nolint:gosec // 0 to 100
	status.LargestFreePrefix = ""
	if capacity.LargestFree != ipam.NoLength {
		status.LargestFreePrefix = fmt.Sprintf("/%d", capacity.LargestFree)
	}
	return capacity.LargestFree == ipam.NoLength
}

// mostFormerGateways is the largest number of former gateways in a status.
const mostFormerGateways = 16

// formerGateways returns the former gateways that the status of the pool lists.
func (c *Controller) formerGateways(pool ipam.PoolKey) []string {
	var gateways []string
	for _, gateway := range c.Ledger.FormerGateways(pool) {
		if len(gateways) < mostFormerGateways {
			gateways = append(gateways, gateway.String())
		}
	}
	return gateways
}

func (c *Controller) conditions(s *scope, current readyReason, exhausted bool) {
	set := func(kind string, isTrue bool, reason, message string) {
		condition := metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason, Message: message, ObservedGeneration: s.obj.GetGeneration()}
		if isTrue {
			condition.Status = metav1.ConditionTrue
		}
		meta.SetStatusCondition(&s.obj.PoolStatus().Conditions, condition)
	}
	isRecorded := current == readyReason{}
	if isRecorded {
		set(v1alpha1.ConditionAllocated, true, v1alpha1.ReasonRecorded, recorded(s))
	} else {
		set(v1alpha1.ConditionAllocated, false, current.reason, current.message)
	}
	if exhausted {
		set(v1alpha1.ConditionExhausted, true, v1alpha1.ReasonPoolExhausted, "the pool has no address left: wait until a block is released, or add a pool")
	} else {
		set(v1alpha1.ConditionExhausted, false, v1alpha1.ReasonHasRoom, "")
	}
	c.setReady(s, current, exhausted, set)
}

// setReady sets the condition Ready.
func (c *Controller) setReady(s *scope, current readyReason, exhausted bool, set func(kind string, isTrue bool, reason, message string)) {
	isRecorded := current == readyReason{}
	switch {
	case s.pool.Terminating && current.reason == v1alpha1.ReasonRecordRefused:
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonTerminating, "the pool is being deleted, but "+current.message)
	case s.pool.Terminating:
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonTerminating, "the pool is being deleted: delete what holds its blocks, or wait until the last one is released")
	case !isRecorded && !s.open:
		set(v1alpha1.ConditionReady, false, current.reason, current.message)
	case s.pool.Paused:
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonPaused, pausedBy(s.obj))
	case c.isServedByProvider(s):
		set(v1alpha1.ConditionReady, false, v1alpha1.ReasonProviderRunning, "the in-cluster provider hands out the addresses of the pool, as it renews its lease: have it scaled down, and Cadastre does")
	case exhausted && s.pool.LargestBlock() == ipam.NoLength:
		set(v1alpha1.ConditionReady, true, v1alpha1.ReasonFull, "all addresses of the pool are withheld: change its ranges or reserved")
	case exhausted: // it is ready nevertheless: waiting claims get the released blocks
		set(v1alpha1.ConditionReady, true, v1alpha1.ReasonFull, "the pool is full: wait until a block is released, or add a pool")
	default:
		set(v1alpha1.ConditionReady, true, v1alpha1.ReasonReady, "the pool hands out blocks")
	}
}

// isServedByProvider reports whether the in-cluster provider runs, which serves the pool then.
func (c *Controller) isServedByProvider(s *scope) bool {
	return s.pool.Key.Kind.IsInCluster() && c.IsProviderRunning != nil && c.IsProviderRunning()
}

// recorded returns what is recorded for a pool.
func recorded(s *scope) string {
	switch {
	case s.former > 0:
		return "the pool's ranges are recorded; what it had before stays recorded too, until the blocks outside the ranges are released"
	case len(s.leftOut) > 0:
		return "the pool's addresses are recorded but for those of " + ipam.FormatList(s.leftOut, 3, nameOfHolder, ", ") + ": leave them out, or have them released"
	case s.pool.Occupied != nil:
		return "the pool's ranges are recorded"
	}
	return "the pool's CIDR is recorded"
}

func nameOfHolder(record ipam.Record) string { return record.Holder.String() }

// firstReady returns the time when a pool first handed out blocks.
func firstReady(status *v1alpha1.PoolStatus) *metav1.Time {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
	if status.FirstReadyTime != nil || ready.Status != metav1.ConditionTrue {
		return status.FirstReadyTime
	}
	return ready.LastTransitionTime.DeepCopy()
}

func phase(s *scope, current readyReason, exhausted bool) v1alpha1.PoolPhase {
	switch {
	case s.pool.Terminating:
		return v1alpha1.PoolTerminating
	case current != readyReason{} && !s.open:
		return v1alpha1.PoolPending
	case s.pool.Paused:
		return v1alpha1.PoolPaused
	case exhausted:
		return v1alpha1.PoolExhausted
	default:
		return v1alpha1.PoolReady
	}
}

// pausedBy returns a message that names the annotations that pause a pool.
func pausedBy(obj v1alpha1.Pool) string {
	var names []string
	for _, name := range []string{v1alpha1.AnnotationPaused, v1alpha1.AnnotationClusterAPIPaused} {
		if _, ok := obj.GetAnnotations()[name]; ok {
			names = append(names, name)
		}
	}
	if len(names) == 1 {
		return "the annotation " + names[0] + " pauses the pool, whatever its value: remove it to hand out blocks again"
	}
	return "the annotations " + strings.Join(names, " and ") + " pause the pool, whatever their values: remove them to hand out blocks again"
}

// writeStatus writes the status if it changed, or returns the time after which to write it. The
// counts of a pool in use change all the time, and its own writes enqueue the pool, so that one
// write would follow the other.
func (c *Controller) writeStatus(ctx context.Context, before, obj v1alpha1.Pool) (time.Duration, error) {
	if equality.Semantic.DeepEqual(before.PoolStatus(), obj.PoolStatus()) {
		return 0, nil
	}
	if delay := c.Throttle.Take(convert.KeyOf(obj).String()); delay > 0 && equality.Semantic.DeepEqual(withoutCounts(*before.PoolStatus()), withoutCounts(*obj.PoolStatus())) {
		return delay, nil
	}
	base := copyOf(obj)
	*base.PoolStatus() = *before.PoolStatus()
	err := c.Client.Status().Patch(ctx, obj, client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		logPhase(ctx, before, obj)
		c.recordEvents(before, obj)
	}
	if err != nil {
		return 0, kubeutil.IgnoreNotFound(fmt.Errorf("writing status: %w", err))
	}
	return 0, nil
}

// logPhase logs a change of a pool's phase or reason. It logs a conflict at the default level.
func logPhase(ctx context.Context, before, obj v1alpha1.Pool) {
	previous, current := before.PoolStatus(), obj.PoolStatus()
	reason := func(s *v1alpha1.PoolStatus) string {
		if ready := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); ready != nil {
			return ready.Reason
		}
		return ""
	}
	if previous.Phase == current.Phase && reason(previous) == reason(current) {
		return
	}
	level := 1
	if reason(current) == v1alpha1.ReasonConflict {
		level = 0
	}
	log.FromContext(ctx).V(level).Info("The status of a pool changed",
		"pool", convert.KeyOf(obj).String(), "block", current.AllocatedCIDR, "phase", current.Phase, "reason", reason(current))
}

// withoutCounts returns a status without its counts.
func withoutCounts(s v1alpha1.PoolStatus) v1alpha1.PoolStatus {
	s.Capacity, s.Allocations, s.UtilizationPercent, s.LargestFreePrefix = nil, 0, 0, ""
	return s
}

// records returns a source that enqueues a pool when its own record changes, and, throttled, when a
// record in the pool changes: the status of the pool counts all changes until then.
func (c *Controller) records(kind ipam.PoolKind) source.Source {
	return kubeutil.Listener(c.Ledger.Listen, func(q kubeutil.Queue, change ledger.Change) {
		if holder := change.Record.Holder; holder.Kind == string(kind) {
			q.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
		}
		if pool := change.Pool; pool.Kind == kind && change.Kind != ledger.Changed {
			q.AddAfter(kubeutil.RequestFor(pool.Namespace, pool.Name), c.Throttle.Delay(pool.String()))
		}
	})
}

// changes returns a source that enqueues a pool that changed, and the pools that wait for it as
// their parent.
func (c *Controller) changes(kind ipam.PoolKind) source.Source {
	return kubeutil.Listener(c.Catalog.Listen, func(q kubeutil.Queue, e inventory.Change) {
		if e.Pool.Kind == kind {
			q.Add(kubeutil.RequestFor(e.Pool.Namespace, e.Pool.Name))
		}
		c.Queue.EnqueueWaiting(q, string(kind), e)
	})
}

// poolEvent holds the content of an event.
type poolEvent struct{ kind, reason, action, note string }

// recordEvents makes an event of each difference between the former status and the present one.
func (c *Controller) recordEvents(before, obj v1alpha1.Pool) {
	for _, h := range eventsOf(obj, *before.PoolStatus(), *obj.PoolStatus()) {
		c.Events.Eventf(obj, nil, h.kind, h.reason, h.action, "%s", h.note)
	}
}

// eventsOf returns the events of a pool between two states of its status.
func eventsOf(obj v1alpha1.Pool, before, after v1alpha1.PoolStatus) []poolEvent {
	var events []poolEvent
	previous, current := readyOf(before), readyOf(after)
	switch {
	case current == nil || previous != nil && previous.Reason == current.Reason:
	case current.Reason == v1alpha1.ReasonTerminating:
		if after.Allocations > 0 {
			events = append(events, poolEvent{corev1.EventTypeWarning, v1alpha1.EventDeletionBlocked, "Delete", fmt.Sprintf("%s is in use by %s: it is deleted as soon as the last is released", convert.KeyOf(obj), ipam.FormatCount(after.Allocations, "allocation"))})
		}
	default:
		events = append(events, poolEvent{typeOf(*current), current.Reason, "Provide", noteOf(obj, *current)})
	}
	switch previousCount, currentCount := outOfRange(before), outOfRange(after); {
	case previousCount == "0" && currentCount != "0":
		events = append(events, poolEvent{corev1.EventTypeNormal, v1alpha1.EventDraining, "Provide", fmt.Sprintf("blocks of %s that its ranges or reserved exclude are in use, with %s: they are kept until they are released, and not handed out again", convert.KeyOf(obj), addresses(currentCount))})
	case previousCount != "0" && currentCount == "0":
		events = append(events, poolEvent{corev1.EventTypeNormal, v1alpha1.EventDrained, "Provide", fmt.Sprintf("all blocks of %s that its ranges or reserved exclude are released", convert.KeyOf(obj))})
	}
	return events
}

func readyOf(s v1alpha1.PoolStatus) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady)
}

// typeOf returns the type of an event: Normal if the pool hands out blocks, and Warning otherwise.
func typeOf(ready metav1.Condition) string {
	if ready.Status == metav1.ConditionTrue && ready.Reason != v1alpha1.ReasonFull {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// noteOf returns the note of an event: the message of the condition. Events of cluster-scoped pools
// are in the namespace default, where users without the right to read pools can read events.
// Therefore the event of a conflict does not name the other holder; only the condition does.
func noteOf(obj v1alpha1.Pool, ready metav1.Condition) string {
	if ready.Reason == v1alpha1.ReasonConflict && obj.GetNamespace() == "" {
		return fmt.Sprintf("the CIDR of %s conflicts with another allocation: have one of the two released; the condition Ready names it", convert.KeyOf(obj))
	}
	return ready.Message
}

// outOfRange returns the number of drained addresses of the pool, "0" if it is not known.
func outOfRange(s v1alpha1.PoolStatus) string {
	if s.Capacity == nil {
		return "0"
	}
	return cmp.Or(s.Capacity.OutOfRange, "0")
}

func addresses(n string) string {
	if n == "1" {
		return "1 address"
	}
	return n + " addresses"
}
