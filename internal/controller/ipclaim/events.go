package ipclaim

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// claims returns a handler that enqueues claims that are new or have changed, and are not up to
// date. It notes the claims that are new and wait.
func (c *Controller) claims() handler.TypedEventHandler[*v1alpha1.IPClaim, reconcile.Request] {
	enqueueIfOutdated := func(claim *v1alpha1.IPClaim, q kubeutil.Queue) {
		if !c.isUpToDate(claim) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return handler.TypedFuncs[*v1alpha1.IPClaim, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.IPClaim], q kubeutil.Queue) {
			phase := e.Object.Status.Phase
			isWaiting := phase == v1alpha1.ClaimPending || phase == v1alpha1.ClaimExhausted
			if isWaiting && !e.IsInInitialList && c.Within.Has(e.Object.Namespace) { // a former leader has made an event of the others
				c.pendingEvents.Store(e.Object.UID, nil)
			}
			enqueueIfOutdated(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.IPClaim], q kubeutil.Queue) {
			c.superseded.Delete(e.ObjectOld.UID)
			if e.ObjectOld.UID != e.ObjectNew.UID {
				c.pendingEvents.Delete(e.ObjectOld.UID)
			}
			enqueueIfOutdated(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.IPClaim], _ kubeutil.Queue) {
			c.pendingEvents.Delete(e.Object.UID)
			c.superseded.Delete(e.Object.UID)
		},
	}
}

// records returns a source that enqueues a claim whenever its record changes. A record that exists
// already, in the view or yet to be listed, is reconciled with its claim, which is notified later.
func (c *Controller) records() source.Source {
	return kubeutil.Listener(c.Ledger.Follow, func(q kubeutil.Queue, change ledger.Change) {
		if change.Record.Holder.Kind == kind && !change.Initial {
			q.Add(kubeutil.RequestFor(change.Record.Holder.Namespace, change.Record.Holder.Name))
		}
	})
}

// changes returns a source that enqueues the claims that wait for a class that changed, or, by its
// name or its labels, for a pool that changed. Claims that wait for a pool of a class are woken in
// turn.
func (c *Controller) changes() source.Source {
	return kubeutil.Listener(c.Catalog.Listen, func(q kubeutil.Queue, e inventory.Change) { c.Queue.EnqueueWaiting(q, kind, e) })
}

// recordChange logs a change of the status that was written, and makes an event of it. It also does so,
// once, for a claim that admission stored as waiting.
func (c *Controller) recordChange(ctx context.Context, before, claim *v1alpha1.IPClaim, isWritten bool) {
	previous, current := readyOf(before), readyOf(claim)
	isChanged := current != nil && (previous == nil || previous.Reason != current.Reason)
	if isChanged && !isWritten {
		return // there is a newer version of the claim
	}
	if isChanged {
		logStatus(ctx, claim, current)
	}
	if _, isPending := c.pendingEvents.LoadAndDelete(claim.UID); isChanged || isPending {
		c.recordEvent(claim, previous, current)
	}
}

// recordEvent makes an event of the condition Ready; but not of a claim that is bound without
// having waited: the answer to its create call reports the same, and an event would be one more
// write for every claim.
func (c *Controller) recordEvent(claim *v1alpha1.IPClaim, previous, current *metav1.Condition) {
	switch {
	case current == nil, previous == nil && current.Status == metav1.ConditionTrue:
	case current.Status == metav1.ConditionTrue:
		c.Events.Eventf(claim, nil, corev1.EventTypeNormal, current.Reason, "Allocate", "%s", current.Message)
	default:
		c.Events.Eventf(claim, nil, corev1.EventTypeWarning, current.Reason, "Allocate", "%s", current.Message)
	}
}

func logStatus(ctx context.Context, claim *v1alpha1.IPClaim, current *metav1.Condition) {
	values := []any{
		"claim", convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name}).String(),
		"phase", claim.Status.Phase, "block", claim.Status.AllocatedCIDR, "reason", current.Reason,
	}
	if current.Reason == v1alpha1.ReasonConflict {
		log.FromContext(ctx).Info("A claim is in conflict", append(values, "message", current.Message)...)
		return
	}
	log.FromContext(ctx).V(1).Info("The status of a claim changed", values...)
}

func readyOf(claim *v1alpha1.IPClaim) *metav1.Condition {
	return meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
}
