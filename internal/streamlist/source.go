// Package streamlist reads lists of custom resources while the API server writes them.
//
// client-go reads such a list as a whole before it decodes it, or has it sent as the
// events of a watch (KEP-3157), each of which it decodes in several passes. Where
// there are a hundred thousand objects, and nobody is served before all are there,
// both take several times as long.
package streamlist

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// object is a T as the API server knows it.
type object[T any] interface {
	*T
	client.Object
}

// Source lists and watches objects: it is listed before it is watched.
type Source struct{ *cache.ListWatch }

// IsWatchListSemanticsUnSupported is how client-go asks whether it may have the list
// sent as events.
func (Source) IsWatchListSemanticsUnSupported() bool { return true }

// New lists and watches the objects of T's kind in all namespaces, unfiltered, which
// the scheme is to know. What is listed is transformed at once, so that less of it is
// kept than the API server sends; events of the watch are not.
func New[T any, P object[T]](cfg *rest.Config, over *http.Client, scheme *runtime.Scheme, resource string, transform cache.TransformFunc) (Source, error) {
	kind, err := apiutil.GVKForObject(P(new(T)), scheme)
	if err != nil {
		return Source{}, err
	}
	from, err := apiutil.RESTClientForGVK(kind, true, false, cfg, serializer.NewCodecFactory(scheme), over)
	if err != nil {
		return Source{}, err
	}
	ask := func(options metav1.ListOptions) *rest.Request {
		return from.Get().Resource(resource).
			SpecificallyVersionedParams(&options, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
	}
	return Source{&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			body, err := ask(options).SetHeader("Accept", runtime.ContentTypeJSON).Stream(ctx)
			if err != nil {
				return nil, err
			}
			defer func() { _ = body.Close() }()
			list, err := read[T, P](body, transform)
			if err != nil {
				return nil, fmt.Errorf("reading a list of %s: %w", resource, err)
			}
			return list, nil
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.Watch = true
			return ask(options).Watch(ctx)
		},
	}}, nil
}
