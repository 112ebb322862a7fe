package allocator

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Records lists and watches the IPAllocations of all namespaces, unfiltered, as
// the ledger needs them.
func Records(from client.WithWatch) cache.ListerWatcher {
	return listed{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			list := &v1alpha1.IPAllocationList{}
			return list, from.List(ctx, list, &client.ListOptions{Raw: &options})
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return from.Watch(ctx, &v1alpha1.IPAllocationList{}, &client.ListOptions{Raw: &options})
		},
	}}
}

// listed is listed before it is watched. Otherwise client-go has the API server send
// what there is as events of the watch (KEP-3157), which saves memory, but takes more
// than twice as long, and nobody is served before all records are there.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }
