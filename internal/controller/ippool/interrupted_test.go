package ippool

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// missedReplaced deletes a pool that admission missed and makes it again while its CIDR is
// recorded.
func missedReplaced(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Created(obj.DeepCopy())
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

// missedEdited adds the finalizer of another controller to such a pool.
func missedEdited(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Created(obj.DeepCopy())
		return e.interruption(obj.Name, func() { story.Finalized(e.World, obj) })
	})
}

// unprotectedEdited adds the finalizer of another controller to a pool whose own one is put back.
func unprotectedEdited(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Applied(obj)
		e.Reconciled(obj.Name).Ready()
		story.Edited(e.World, obj, func(p *v1alpha1.IPPool) { p.Finalizers = nil })
		return e.interruption(obj.Name, func() { story.Finalized(e.World, obj) })
	})
}

// deletedReplaced removes a pool, and makes it again, while its finalizer is removed.
func deletedReplaced(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Applied(obj.DeepCopy())
		e.Reconciled(obj.Name).Ready()
		e.Deleted(obj.DeepCopy())
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

// missedFails makes each call fail for a pool that admission missed.
func missedFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Created(obj)
		return e.interruption(obj.Name, nil)
	})
}

// admittedFails makes a call fail for a pool that admission recorded, of which the finalizer is
// removed.
func admittedFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Applied(obj)
		story.Edited(e.World, obj, func(p *v1alpha1.IPPool) { p.Finalizers = nil })
		i := e.interruption(obj.Name, nil)
		i.Check = func() {
			e.Reconciled(obj.Name).Ready()
			e.isProtected(obj.Name, true)
			if own := e.own(obj.Name); own.HolderUID != string(obj.UID) {
				e.t.Fatalf("its record is of the UID %q, want the pool's", own.HolderUID)
			}
		}
		return i
	})
}

// deletedFails makes each call fail for a pool that is deleted.
func deletedFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		obj := numberedPool(n)
		e.Applied(obj)
		e.Reconciled(obj.Name).Ready()
		e.Deleted(obj)
		i := e.interruption(obj.Name, nil)
		i.Check = func() { e.Gone(obj) }
		return i
	})
}

// interruption returns one of the passes over a pool, which is Ready in the end.
func (e *pools) interruption(name string, act func()) story.Interruption {
	by := reconcile.AsReconciler(e.K8s, poolReconciler[*v1alpha1.IPPool]{e.controller})
	return story.Interruption{By: by, Object: pool(name), Act: act, Check: func() { e.Reconciled(name).Ready() }}
}

// numberedPool returns a pool that overlaps no other one.
func numberedPool(n int) *v1alpha1.IPPool {
	return build.Pool(fmt.Sprintf("p%d", n)).CIDR(fmt.Sprintf("10.%d.0.0/16", n)).Obj()
}
