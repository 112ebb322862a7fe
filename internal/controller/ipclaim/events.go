package ipclaim

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	look := func(claim *v1alpha1.IPClaim, q kubeutil.Queue) {
		if !c.upToDate(claim) {
			q.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(claim)})
		}
	}
	return handler.TypedFuncs[*v1alpha1.IPClaim, reconcile.Request]{
		CreateFunc: func(_ context.Context, e event.TypedCreateEvent[*v1alpha1.IPClaim], q kubeutil.Queue) {
			if !e.IsInInitialList && c.Within.Has(e.Object.Namespace) { // a former leader has made an event of the others
				c.untold.note(e.Object)
			}
			look(e.Object, q)
		},
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.IPClaim], q kubeutil.Queue) {
			if e.ObjectOld.UID != e.ObjectNew.UID {
				c.untold.take(e.ObjectOld.UID)
			}
			look(e.ObjectNew, q)
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.IPClaim], _ kubeutil.Queue) {
			c.untold.take(e.Object.UID)
		},
	}
}

// records returns a source that enqueues a claim whenever its record changes. A record that exists
// already, in the view or yet to be listed, is reconciled with its claim, which is notified later.
func (c *Controller) records() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Ledger.Follow(func(change ledger.Change) {
			if change.Record.Holder.Kind == kind && !change.Initial {
				q.Add(kubeutil.RequestFor(change.Record.Holder.Namespace, change.Record.Holder.Name))
			}
		})
	})
}

// changes returns a source that enqueues the claims that wait for a class that changed, or, by its
// name or its labels, for a pool that changed. Claims that wait for a pool of a class are woken in
// turn.
func (c *Controller) changes() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Catalogue.Listen(func(e inventory.Change) {
			c.Queue.EnqueueWaiting(q, kind, e)
		})
	})
}

// notify logs a change of the status that was written, and makes an event of it. It also does so,
// once, for a claim that admission stored as waiting.
func (c *Controller) notify(ctx context.Context, before, claim *v1alpha1.IPClaim, written bool) {
	was, now := readyOf(before), readyOf(claim)
	changed := now != nil && (was == nil || was.Reason != now.Reason)
	if changed && !written {
		return // there is a newer version of the claim
	}
	if changed {
		logStatus(ctx, claim, now)
	}
	if untold := c.untold.take(claim.UID); changed || untold {
		c.recordEvent(claim, was, now)
	}
}

// recordEvent makes an event of the condition Ready; but not of a claim that is bound without
// having waited: the answer to its create call reports the same, and an event would be one more
// write for every claim.
func (c *Controller) recordEvent(claim *v1alpha1.IPClaim, was, now *metav1.Condition) {
	switch {
	case now == nil, was == nil && now.Status == metav1.ConditionTrue:
	case now.Status == metav1.ConditionTrue:
		c.Events.Eventf(claim, nil, corev1.EventTypeNormal, now.Reason, "Allocate", "%s", now.Message)
	default:
		c.Events.Eventf(claim, nil, corev1.EventTypeWarning, now.Reason, "Allocate", "%s", now.Message)
	}
}

func logStatus(ctx context.Context, claim *v1alpha1.IPClaim, now *metav1.Condition) {
	values := []any{
		"claim", convert.HolderOfClaim(ipam.Name{Namespace: claim.Namespace, Name: claim.Name}).String(),
		"phase", claim.Status.Phase, "block", claim.Status.AllocatedCIDR, "reason", now.Reason,
	}
	if now.Reason == v1alpha1.ReasonConflict {
		log.FromContext(ctx).Info("A claim is in conflict", append(values, "message", now.Message)...)
		return
	}
	log.FromContext(ctx).V(1).Info("The status of a claim changed", values...)
}

func readyOf(claim *v1alpha1.IPClaim) *metav1.Condition {
	return meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady)
}

// untold holds a set of claims. The zero value is empty. It can be used concurrently.
type untold struct {
	mu   sync.Mutex
	uids map[types.UID]struct{}
}

// note adds a claim that is stored as waiting.
func (u *untold) note(claim *v1alpha1.IPClaim) {
	if phase := claim.Status.Phase; phase != v1alpha1.ClaimPending && phase != v1alpha1.ClaimExhausted {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.uids == nil {
		u.uids = map[types.UID]struct{}{}
	}
	u.uids[claim.UID] = struct{}{}
}

// take removes a claim, and reports whether it was in the set.
func (u *untold) take(uid types.UID) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, was := u.uids[uid]
	delete(u.uids, uid)
	return was
}
