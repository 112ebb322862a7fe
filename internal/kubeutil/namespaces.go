package kubeutil

import (
	"context"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Namespaces are those whose objects a controller reconciles; an empty list is all of
// them. It is for an operator that was started with --namespace. What the caches hold is
// not limited: a block is in use wherever its holder is.
type Namespaces []string

// NamespacesOf returns the namespaces that are named. Empty names do not count.
func NamespacesOf(names ...string) Namespaces {
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool { return name == "" })
}

// Has reports whether objects of the namespace are reconciled. Objects without a
// namespace always are.
func (n Namespaces) Has(namespace string) bool {
	return len(n) == 0 || namespace == "" || slices.Contains(n, namespace)
}

// Limit returns a reconciler that passes requests on to r where Has reports true of
// their namespace, and drops the others.
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
