// Package within limits controllers to the objects of some namespaces, for an
// operator that was started with --namespace. What they learn from stays whole:
// blocks are in use wherever their holders are.
package within

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Namespaces are those whose objects a controller looks at. None: all of them.
type Namespaces []string

// Of is the namespaces that are named; empty names do not count.
func Of(names ...string) Namespaces {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
}

// Has reports whether a controller of these namespaces reconciles the objects of a
// namespace; those of none are reconciled by every controller.
func (n Namespaces) Has(namespace string) bool {
	return len(n) == 0 || namespace == "" || slices.Contains(n, namespace)
}

// Limit passes those requests on to a reconciler that are for objects of the
// namespaces, or of none.
func (n Namespaces) Limit(r reconcile.Reconciler) reconcile.Reconciler {
	if len(n) == 0 {
		return r
	}
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		if !n.Has(req.Namespace) {
			return reconcile.Result{}, nil
		}
		return r.Reconcile(ctx, req)
	})
}
