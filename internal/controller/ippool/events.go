package ippool

import (
	"cmp"
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// records returns a source that enqueues a pool when its own record changes, and, throttled, when a
// record in the pool changes: the status of the pool counts all changes until then.
func (c *Controller) records(kind ipam.PoolKind) source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Ledger.Listen(func(change ledger.Change) {
			if holder := change.Record.Holder; holder.Kind == string(kind) {
				q.Add(kubeutil.RequestFor(holder.Namespace, holder.Name))
			}
			if pool := change.Pool; pool.Kind == kind && change.Kind != ledger.Changed {
				q.AddAfter(kubeutil.RequestFor(pool.Namespace, pool.Name), c.Throttle.Delay(pool.String()))
			}
		})
	})
}

// changes returns a source that enqueues a pool that changed, and the pools that wait for it as
// their parent.
func (c *Controller) changes(kind ipam.PoolKind) source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Catalog.Listen(func(e inventory.Change) {
			if e.Pool.Kind == kind {
				q.Add(kubeutil.RequestFor(e.Pool.Namespace, e.Pool.Name))
			}
			c.Queue.EnqueueWaiting(q, string(kind), e)
		})
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
