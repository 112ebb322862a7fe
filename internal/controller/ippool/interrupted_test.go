package ippool

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/framework/build"
	"github.com/cadastre-dev/cadastre/test/framework/story"
)

// missedReplaced has a pool that admission missed deleted and made again while its CIDR is
// recorded.
func missedReplaced(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numbered(n)
		e.Created(obj.DeepCopy())
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

// missedEdited has the finalizer of another controller put on such a pool.
func missedEdited(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numbered(n)
		e.Created(obj.DeepCopy())
		return e.interruption(obj.Name, func() { story.Finalized(e.World, obj) })
	})
}

// deletedReplaced has a pool go, and made again, while its finalizer is removed.
func deletedReplaced(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numbered(n)
		e.Applied(obj.DeepCopy())
		e.Reconciled(obj.Name).Ready()
		e.Deleted(obj.DeepCopy())
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

// interruption is one of the passes over a pool, which is Ready in the end.
func (e *pools) interruption(name string, act func()) story.Interruption {
	by := reconcile.AsReconciler(e.K8s, of[*v1alpha1.IPPool]{e.controller})
	return story.Interruption{By: by, Object: pool(name), Act: act, Check: func() { e.Reconciled(name).Ready() }}
}

// numbered is a pool that overlaps no other one.
func numbered(n int) *v1alpha1.IPPool {
	return build.Pool(fmt.Sprintf("p%d", n)).CIDR(fmt.Sprintf("10.%d.0.0/16", n)).Obj()
}
