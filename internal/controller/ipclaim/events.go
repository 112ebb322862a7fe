package ipclaim

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

// claims has claims reconciled that are new or have changed, and are not up to date, and
// notes those that are new and wait.
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

// records enqueues a claim whenever its record changes. What is recorded
// already, in the view or to be listed yet, is reconciled with its claim, which is
// notified later.
func (c *Controller) records() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Ledger.Follow(func(change ledger.Change) {
			if change.Record.Holder.Kind == kind && !change.Initial {
				q.Add(kubeutil.RequestFor(change.Record.Holder.Namespace, change.Record.Holder.Name))
			}
		})
	})
}

// changes enqueues the claims that wait for a class which changed, or for
// a pool which changed, by its name or its labels. Those that wait for a pool of
// a class are woken in turn.
func (c *Controller) changes() source.Source {
	return kubeutil.Subscription(func(_ context.Context, q kubeutil.Queue) (stop func()) {
		return c.Catalogue.Listen(func(e inventory.Change) {
			c.EnqueueWaiting(q, kind, e)
		})
	})
}
