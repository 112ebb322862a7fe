package certs

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// newClientRefusing returns a client that fails to patch objects of a type while refusing is true.
func newClientRefusing[T client.Object](err error, refusing *bool) client.WithWatch {
	return interceptor.NewClient(admin, interceptor.Funcs{
		Patch: func(ctx context.Context, to client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if _, is := o.(T); is && *refusing {
				return err
			}
			return to.Patch(ctx, o, p, opts...)
		},
	})
}

var _ = DescribeTable("A pass fails if a call to the API server fails, and the next ones reach the end",
	func(ctx SpecContext, start func(*world, client.WithWatch) (reconcile.Reconciler, *keeper), atLeast int) {
		for call := 1; ; call++ {
			By(fmt.Sprintf("failing call %d", call))
			calls := 0
			through := build.Before(admin, func() error {
				if calls++; calls == call {
					return apierrors.NewServiceUnavailable(fmt.Sprint("call ", call))
				}
				return nil
			})
			replica, k := start(newWorld(ctx).installed(ctx), through)
			var errs []error
			for range 10 {
				if _, err := replica.Reconcile(ctx, reconcile.Request{}); err != nil {
					errs = append(errs, err)
				}
				if k.trouble.Load() == nil {
					break
				}
			}
			Expect(k.check()).To(Succeed())
			if calls < call {
				Expect(errs).To(BeEmpty())
				Expect(call).To(BeNumerically(">", atLeast))
				return
			}
			Expect(errs).To(ConsistOf(MatchError(ContainSubstring("call %d", call))))
		}
	},
	Entry("of the certificate", func(w *world, through client.WithWatch) (reconcile.Reconciler, *keeper) {
		c := w.replica(through)
		c.reader = through
		return c, &c.keeper
	}, 10),
	Entry("of the paths", func(w *world, through client.WithWatch) (reconcile.Reconciler, *keeper) {
		p := w.keeper(through)
		return p, &p.keeper
	}, 10),
)
