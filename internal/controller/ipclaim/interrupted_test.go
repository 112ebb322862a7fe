package ipclaim

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// waitingReplaced deletes a waiting claim and makes it again while it is bound.
func waitingReplaced(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).Pool("p").Length(28).Obj()
		e.Applied(obj.DeepCopy())
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

// waitingEdited adds the finalizer of another controller to a claim while it is bound.
func waitingEdited(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).Pool("p").Length(28).Obj()
		e.Applied(obj.DeepCopy())
		return e.interruption(obj.Name, func() { story.Finalized(e.World, obj) })
	})
}

// boundReplaced deletes a bound claim and restores it from a backup, without an admission that
// would take its record over. The record is collected as the former claim's.
func boundReplaced(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Interrupted(func(n int) story.Interruption {
		name, cidr := fmt.Sprintf("a%02d", n), fmt.Sprintf("10.0.%d.0/28", n)
		obj := restoredClaim(name, cidr)
		e.Applied(obj.DeepCopy())
		record := story.Block(name, "p", cidr)
		record.HolderUID = string(e.stored(name).UID)
		e.Recorded(record)
		i := e.interruption(name, func() { e.Replaced(obj) })
		ready := i.Check
		i.Check = func() {
			e.Collected(record.Holder)
			ready()
			e.Consistent()
		}
		return i
	})
}

// waitingFails makes each call fail for a claim that waits.
func waitingFails(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Failing(func(n int) story.Interruption {
		name := fmt.Sprintf("a%02d", n)
		e.Applied(claim(name).Pool("p").Length(28).Obj())
		return e.interruption(name, nil)
	})
}

// restoredFails makes each call fail for a claim whose record is lost.
func restoredFails(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Failing(func(n int) story.Interruption {
		name := fmt.Sprintf("a%02d", n)
		e.Applied(restoredClaim(name, fmt.Sprintf("10.0.%d.0/28", n)))
		return e.interruption(name, nil)
	})
}

// grantedFails makes each call fail for a claim of a user who has the right to name its pool.
func grantedFails(e *claims) {
	e.Applied(foreignPool().Obj())
	e.Failing(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).Pool("p").Length(28).Obj()
		e.RequestedBy(obj, story.Entitled)
		e.Applied(obj)
		return e.interruption(obj.Name, nil)
	})
}

// takenOverFails makes each call fail for a claim whose record was taken over, and keeps another
// policy than the claim.
func takenOverFails(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Failing(func(n int) story.Interruption {
		name, cidr := fmt.Sprintf("a%02d", n), fmt.Sprintf("10.0.%d.0/28", n)
		record := story.Block(name, "p", cidr)
		record.Adopted, record.Reclaim = true, ipam.ReclaimRetain
		e.Recorded(record)
		obj := restoredClaim(name, cidr)
		obj.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
		e.Applied(obj)
		i := e.interruption(name, nil)
		ready := i.Check
		i.Check = func() {
			ready()
			if record := e.record(name); record.Reclaim != ipam.ReclaimDelete || record.HolderUID != string(obj.UID) {
				e.t.Fatalf("the record is %+v, want the claim's policy and UID", record)
			}
		}
		return i
	})
}

// takenOver has a claim served in one pass whose record was taken over, and keeps another policy.
func takenOver(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	record := story.Block("a", "p", "10.0.0.0/28")
	record.Adopted, record.Reclaim = true, ipam.ReclaimRetain
	e.Recorded(record)
	obj := restoredClaim("a", "10.0.0.0/28")
	obj.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete
	e.Applied(obj)
	e.Reconciled("a").Bound("10.0.0.0/28").Wrote("patch IPAllocation", "patch IPAllocation", "patch IPClaim")
}

// interruption returns one of the passes over a claim, which is Ready in the end.
func (e *claims) interruption(name string, act func()) story.Interruption {
	return story.Interruption{By: e.controller, Object: client.Object(claim(name).Obj()), Act: act, Check: func() {
		e.t.Helper()
		e.Reconciled(name).Ready()
		if claim := e.stored(name); claim.Status.Phase != v1alpha1.ClaimBound || claim.Spec.AllocationName == "" {
			e.t.Fatalf("the claim is %s with the record %q", claim.Status.Phase, claim.Spec.AllocationName)
		}
	}}
}
