package kubeutil

import (
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Handler is an informer's handler from two functions. An object that was replaced by
// another of its name, which an informer reports as an update, is lost and then taken. A
// deletion that the informer missed comes with the last state that it saw.
func Handler[T client.Object](take, lose func(T)) cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { take(obj.(T)) },
		UpdateFunc: func(before, obj any) {
			if Replaced(before.(T), obj.(T)) {
				lose(before.(T))
			}
			take(obj.(T))
		},
		DeleteFunc: func(obj any) {
			if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = missed.Obj
			}
			if gone, ok := obj.(T); ok {
				lose(gone)
			}
		},
	}
}
