package kubeutil

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Replaced reports whether after is another object than before, of the same name.
func Replaced(before, after client.Object) bool { return before.GetUID() != after.GetUID() }

// SplitReplacements returns a handler that is notified of a deletion and a creation
// where an informer reports both as one update. An informer does that when it lists
// again, and an object has been deleted and another created under its name meanwhile.
func SplitReplacements(h handler.Funcs) handler.EventHandler {
	split := h
	split.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q Queue) {
		if !Replaced(e.ObjectOld, e.ObjectNew) {
			h.Update(ctx, e, q)
			return
		}
		h.Delete(ctx, event.DeleteEvent{Object: e.ObjectOld}, q)
		h.Create(ctx, event.CreateEvent{Object: e.ObjectNew}, q)
	}
	return split
}
