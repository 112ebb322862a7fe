package ipaddressclaim

import (
	"fmt"
	"slices"

	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// servedReplaced deletes a claim and makes it again while it is served.
func servedReplaced(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := e.numbered(n)
		return e.interruption(obj.Name, func() { e.Replaced(obj) })
	})
}

// servedEdited adds the finalizer of another controller to a claim while it is served.
func servedEdited(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := e.numbered(n)
		return e.interruption(obj.Name, func() { story.Finalized(e.World, obj) })
	})
}

// servedByManifest replaces a claim by the manifest that it was made of, which names no finalizer,
// while it is served.
func servedByManifest(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := e.numbered(n)
		i := e.interruption(obj.Name, func() {
			story.Edited(e.World, obj, func(c *ipamv1.IPAddressClaim) { c.Finalizers, c.Labels, c.Annotations = nil, nil, nil })
			e.Keeps(obj)
		})
		i.Check = func() {
			e.Reconciled(obj.Name).Ready().Wrote()
			if has := e.stored(obj.Name).Finalizers; !slices.Equal(has, []string{v1alpha1.FinalizerRelease}) {
				e.t.Fatalf("it has the finalizers %q, want ours", has)
			}
			e.record(obj.Name)
		}
		return i
	})
}

// formerReplaced deletes a claim that drops the IPAddress of an earlier one, and makes it again for
// the pool of that IPAddress: the next claim of the name.
func formerReplaced(e *addresses) {
	e.Applied(hostPool().Obj(), build.Pool("others").CIDR("10.0.1.0/24").Obj())
	e.Interrupted(func(n int) story.Interruption {
		former := address(fmt.Sprintf("a%02d", n), "10.0.1.7")
		former.Spec.PoolRef, former.Finalizers = claim("").Pool("others").Obj().Spec.PoolRef, []string{v1alpha1.FinalizerProtect}
		e.Created(former.DeepCopy())
		obj := e.numbered(n)
		return e.interruption(obj.Name, func() {
			e.Forced(former.DeepCopy())
			e.Replaced(claim(obj.Name).Pool("others").Obj())
			former.Spec.Address = fmt.Sprintf("10.0.1.%d", 100+n)
			e.Replaced(former)
		})
	})
}

// releasedReplaced removes a claim that is released, with its IPAddress, and lets another leader
// make both again, for the next claim of the name.
func releasedReplaced(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := e.numbered(n)
		e.Reconciled(obj.Name).Ready()
		made := story.Stored(e.World, address(obj.Name, ""))
		e.Deleted(obj.DeepCopy())
		return e.interruption(obj.Name, func() {
			e.Forced(address(obj.Name, ""))
			e.Replaced(obj)
			e.Replaced(address(obj.Name, made.Spec.Address))
		})
	})
}

// releasedAddressGone removes by force the IPAddress of a claim that is released.
func releasedAddressGone(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Ready()
	e.Deleted(claim("a").Obj())
	e.Meanwhile("delete IPAddress", func() { e.Forced(address("a", "")) })
	e.Reconciled("a")
	e.Gone(claim("a").Obj())
	e.Interrupted(func(n int) story.Interruption {
		obj := e.numbered(n)
		e.Reconciled(obj.Name).Ready()
		e.Deleted(obj.DeepCopy())
		i := e.interruption(obj.Name, func() { e.Forced(address(obj.Name, "")) })
		i.Check = func() {
			e.Gone(obj)
			e.Gone(address(obj.Name, ""))
		}
		return i
	})
}

// servedFails makes each call fail for a claim that admission missed.
func servedFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Failing(func(n int) story.Interruption {
		name := fmt.Sprintf("a%02d", n)
		e.Created(build.AddressClaim(story.Team, name).Pool("hosts").Obj())
		return e.interruption(name, nil)
	})
}

// adoptedFails makes each call fail for a claim whose IPAddress exists already.
func adoptedFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Failing(func(n int) story.Interruption {
		name := fmt.Sprintf("a%02d", n)
		restored := address(name, fmt.Sprintf("10.0.0.%d", 10+n))
		restored.Annotations = map[string]string{v1alpha1.AnnotationAllocation: name + "-12345678"}
		e.Created(restored, build.AddressClaim(story.Team, name).Pool("hosts").Obj())
		return e.interruption(name, nil)
	})
}

// keptFails makes each call fail for a claim whose IPAddress exists, while its record is kept
// without holder.
func keptFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Failing(func(n int) story.Interruption {
		name := fmt.Sprintf("a%02d", n)
		addr := fmt.Sprintf("10.0.0.%d", 10+n)
		e.kept(name, addr, ipam.StateRetained)
		e.Created(address(name, addr))
		e.numbered(n)
		return e.interruption(name, nil)
	})
}

// formerDropped has a claim drop the IPAddress of an earlier one before it is served.
func formerDropped(e *addresses) {
	e.Applied(hostPool().Obj(), build.Pool("others").CIDR("10.0.1.0/24").Obj(), claim("a").Pool("hosts").Obj())
	former := address("a", "10.0.1.7")
	former.Spec.PoolRef, former.Finalizers = claim("").Pool("others").Obj().Spec.PoolRef, []string{v1alpha1.FinalizerProtect}
	e.Created(former)
	e.Reconciled("a").Wrote("delete IPAddress").After(cacheTimeout)
	e.Reconciled("a").Wrote("patch IPAddress").After(cacheTimeout)
	e.Reconciled("a").Served("10.0.0.2")
}

// formerFails makes each call fail for a claim that drops the IPAddress of an earlier one.
func formerFails(e *addresses) {
	e.Applied(hostPool().Obj(), build.Pool("others").CIDR("10.0.1.0/24").Obj())
	e.Failing(func(n int) story.Interruption {
		former := address(fmt.Sprintf("a%02d", n), "10.0.1.7")
		former.Spec.PoolRef, former.Finalizers = claim("").Pool("others").Obj().Spec.PoolRef, []string{v1alpha1.FinalizerProtect}
		e.Created(former)
		return e.interruption(e.numbered(n).Name, nil)
	})
}

// lostFails makes each call fail for a claim whose IPAddress is lost.
func lostFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Failing(func(n int) story.Interruption {
		obj := e.numbered(n)
		e.Reconciled(obj.Name).Ready()
		e.Forced(address(obj.Name, ""))
		return e.interruption(obj.Name, nil)
	})
}

// haltedFails makes each call fail for a claim whose Cluster is paused.
func haltedFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Created(newCluster("fleet", true))
	e.Failing(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).Pool("hosts").Cluster("fleet").Obj()
		e.Applied(obj)
		i := e.interruption(obj.Name, nil)
		i.Check = func() { e.Reconciled(obj.Name).NotReady(clusterv1.PausedReason).Wrote() }
		return i
	})
}

// unknownFails makes each call fail for a claim that names no kind of pool.
func unknownFails(e *addresses) {
	e.Failing(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).From(v1alpha1.GroupVersion.Group, "IPPol", "hosts").Obj()
		e.Applied(obj)
		i := e.interruption(obj.Name, nil)
		i.Check = func() { e.Reconciled(obj.Name).NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Wrote() }
		return i
	})
}

// releasedFails makes each call fail for a claim that is released.
func releasedFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Created(newCluster("fleet", false))
	e.Failing(func(n int) story.Interruption {
		obj := claim(fmt.Sprintf("a%02d", n)).Pool("hosts").Cluster("fleet").Obj()
		e.Applied(obj)
		e.Reconciled(obj.Name).Ready()
		e.Deleted(obj)
		return e.deletionInterruption(obj.Name)
	})
}

// unservedReleasedFails makes each call fail for a claim that is released and has no IPAddress.
func unservedReleasedFails(e *addresses) {
	e.Failing(func(n int) story.Interruption {
		obj := e.numbered(n)
		e.Deleted(obj)
		return e.deletionInterruption(obj.Name)
	})
}

// leftFails makes each call fail for an IPAddress that its claim has left behind.
func leftFails(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Failing(func(n int) story.Interruption {
		obj := e.numbered(n)
		e.Reconciled(obj.Name).Ready()
		e.controller.expectations.observeDeletedClaim(e.stored(obj.Name))
		e.Forced(obj)
		return e.deletionInterruption(obj.Name)
	})
}

// deletionInterruption returns one of the passes after which there is neither a claim nor its IPAddress.
func (e *addresses) deletionInterruption(name string) story.Interruption {
	i := e.interruption(name, nil)
	i.Check = func() {
		e.Gone(claim(name).Obj())
		e.Gone(address(name, ""))
	}
	return i
}

// numbered returns a stored claim of the pool of hosts.
func (e *addresses) numbered(n int) *ipamv1.IPAddressClaim {
	e.t.Helper()
	obj := claim(fmt.Sprintf("a%02d", n)).Pool("hosts").Obj()
	e.Applied(obj.DeepCopy())
	return obj
}

// interruption returns one of the passes over a claim, which is Ready in the end.
func (e *addresses) interruption(name string, act func()) story.Interruption {
	return story.Interruption{By: e.controller, Object: claim(name).Obj(), Act: act, Check: func() {
		e.t.Helper()
		e.Reconciled(name).Ready()
	}}
}
