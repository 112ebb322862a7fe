// Package replaced tells apart what an informer tells as one: when it lists anew,
// and an object has been deleted and made again under its name meanwhile, it says
// that the object has changed. What went with the first is lost by that; only the
// UID shows it.
package replaced

import (
	"context"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// By says whether the second is another object of the first one's name.
func By(before, after client.Object) bool { return before.GetUID() != after.GetUID() }

// Apart has the handler told of a deletion, and of what is new then, instead of a
// change from one object into another.
func Apart(h handler.Funcs) handler.EventHandler {
	told := h
	told.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q queue) {
		if !By(e.ObjectOld, e.ObjectNew) {
			h.Update(ctx, e, q)
			return
		}
		h.Delete(ctx, event.DeleteEvent{Object: e.ObjectOld}, q)
		h.Create(ctx, event.CreateEvent{Object: e.ObjectNew}, q)
	}
	return told
}
