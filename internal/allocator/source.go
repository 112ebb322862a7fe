package allocator

import (
	"context"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Records lists and watches the IPAllocations of all namespaces, unfiltered, as
// the ledger needs them. The scheme is to know them.
func Records(cfg *rest.Config, over *http.Client, scheme *runtime.Scheme) (cache.ListerWatcher, error) {
	kind := v1alpha1.GroupVersion.WithKind("IPAllocation")
	from, err := apiutil.RESTClientForGVK(kind, true, false, cfg, serializer.NewCodecFactory(scheme), over)
	if err != nil {
		return nil, err
	}
	ask := func(options metav1.ListOptions) *rest.Request {
		return from.Get().Resource("ipallocations").
			SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	}
	return listed{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			body, err := ask(options).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { _ = body.Close() }()
			return readList(body)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return ask(options).Watch(ctx)
		},
	}}, nil
}

// listed is listed before it is watched. Otherwise client-go has the API server send
// what there is as events of the watch (KEP-3157), which saves memory, but takes more
// than twice as long, and nobody is served before all records are there.
type listed struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks.
func (listed) IsWatchListSemanticsUnSupported() bool { return true }
