package build

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Before returns a client that calls do before each call, which has no effect and fails if do does.
func Before(to client.WithWatch, do func() error) client.WithWatch {
	guarded := func(call func() error) error {
		if err := do(); err != nil {
			return err
		}
		return call()
	}
	return interceptor.NewClient(to, interceptor.Funcs{
		Get: func(ctx context.Context, to client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return guarded(func() error { return to.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, to client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return guarded(func() error { return to.List(ctx, list, opts...) })
		},
		Create: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return guarded(func() error { return to.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, to client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return guarded(func() error { return to.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, to client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return guarded(func() error { return to.Apply(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, to client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return guarded(func() error { return to.Delete(ctx, obj, opts...) })
		},
	})
}
