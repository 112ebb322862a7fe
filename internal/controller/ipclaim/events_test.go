package ipclaim

import (
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

// changedRecords expects that a claim is enqueued with its record, but not when that is listed.
func changedRecords(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	before := convert.Allocation(story.Block("a", "p", "10.0.0.0/28"))
	e.Created(before)
	q := e.Started(e.by.records())
	q.Enqueued()
	story.Edited(e.World, before, func(r *v1alpha1.IPAllocation) { r.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	q.Enqueued("team/a")
	e.Recorded(story.Block("b", "p", "10.0.0.16/28"))
	e.Forced(before)
	q.Enqueued("team/a", "team/b")
	e.Applied(build.Pool("q").CIDR("10.0.1.0/24").Obj())
	q.Enqueued()
}

// changedPools expects that a claim is enqueued that waits for a change.
func changedPools(e *claims) {
	q := e.Started(e.by.changes())
	e.Applied(claim("a").Pool("p").Length(28).Obj())
	e.Reconciled("a").Waiting(v1alpha1.ReasonPoolNotFound)
	q.Enqueued()
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	q.Enqueued("team/a")
	e.Applied(build.Pool("q").CIDR("10.0.1.0/24").Obj())
	q.Enqueued()
}

// changedClaims expects that a claim is enqueued when it is shown, unless it is up to date. An
// informer can report as a change that the claim is another one than before.
func changedClaims(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj(), claim("b").Pool("p").Length(28).Obj())
	e.Reconciled("a").Bound("10.0.0.0/28")
	q := e.Started(e.by.changes())
	q.Enqueued()
	for _, test := range []struct {
		name string
		want []string
	}{{"a", nil}, {"b", []string{"team/b"}}} {
		obj := e.stored(test.name)
		e.handler.Create(e.t.Context(), event.TypedCreateEvent[*v1alpha1.IPClaim]{Object: obj}, q)
		q.Enqueued(test.want...)
		e.handler.Update(e.t.Context(), event.TypedUpdateEvent[*v1alpha1.IPClaim]{ObjectOld: obj, ObjectNew: obj}, q)
		q.Enqueued(test.want...)
	}
	waiting := e.stored("b")
	waiting.Status.Phase = v1alpha1.ClaimPending
	e.handler.Create(e.t.Context(), event.TypedCreateEvent[*v1alpha1.IPClaim]{Object: waiting}, q)
	next := waiting.DeepCopy()
	e.handler.Update(e.t.Context(), event.TypedUpdateEvent[*v1alpha1.IPClaim]{ObjectOld: waiting, ObjectNew: next}, q)
	if len(e.by.pendingEvents.uids) != 1 {
		e.t.Errorf("%d claims wait without an event, want 1", len(e.by.pendingEvents.uids))
	}
	next.UID = "next"
	e.handler.Update(e.t.Context(), event.TypedUpdateEvent[*v1alpha1.IPClaim]{ObjectOld: waiting, ObjectNew: next}, q)
	if len(e.by.pendingEvents.uids) != 0 {
		e.t.Errorf("%d claims that are gone wait without an event", len(e.by.pendingEvents.uids))
	}
}

// askedAgain has claims name a pool of another project: of a service account without the right
// to, of one with the right, of another user, and of an unknown user. Only those of service accounts
// are asked about again.
func rightAskedAgain(e *claims) {
	e.Applied(foreignPool().Obj())
	denied, granted, user := claim("denied").Pool("p").Length(28).Obj(), claim("granted").Pool("p").Length(28).Obj(), claim("user").Pool("p").Length(28).Obj()
	e.RequestedBy(denied, story.Deployer)
	e.RequestedBy(granted, story.Entitled)
	e.RequestedBy(user, "admin")
	e.Created(denied, granted, claim("unknown").Pool("p").Length(28).Obj(), user)
	if again := e.Reconciled("denied").Waiting(v1alpha1.ReasonPoolNotFound).RequeueAfter(); again <= 0 {
		e.t.Errorf("it is asked for again after %s", again)
	}
	e.Reconciled("unknown").Waiting(v1alpha1.ReasonPoolNotFound).After(0)
	e.Reconciled("user").Waiting(v1alpha1.ReasonPoolNotFound).After(0)
	e.Reconciled("granted").Bound("10.0.0.0/28")
	pool, _ := e.Catalog.Pool(ipam.PoolNamed("p"))
	if got, want := e.stored("granted").Annotations[v1alpha1.AnnotationUseGranted], "p/"+pool.Spec.UID; got != want {
		e.t.Errorf("the right is noted as %q, want %q", got, want)
	}
}

// remadePool has claims that were granted a pool of which another one of the same name exists now.
func recreatedPool(e *claims) {
	e.Applied(foreignPool().Obj())
	former, again, early := claim("former").Pool("p").Length(28).Obj(), claim("again").Pool("p").Length(28).Obj(), claim("early").Pool("p").Length(28).Obj()
	former.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "p/former"}
	again.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "p/former", v1alpha1.AnnotationRequestedBy: story.Entitled}
	early.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "p"} // before the pool existed
	e.Created(again, early, former)
	e.Reconciled("former").Waiting(v1alpha1.ReasonPoolNotFound).After(0)
	e.Reconciled("again").Bound("10.0.0.0/28")
	e.Reconciled("early").Bound("10.0.0.16/28")
}

// formerRequester has a claim bound whose creator a former version has encrypted.
func formerRequester(e *claims) {
	obj := claim("a").Pool("p").Length(28).Obj()
	obj.Annotations = map[string]string{v1alpha1.AnnotationRequester: "v1.x.y"}
	e.Created(obj)
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	e.Reconciled("a").Bound("10.0.0.0/28")
	if _, has := e.stored("a").Annotations[v1alpha1.AnnotationRequester]; has {
		e.t.Error("the encrypted creator is still there")
	}
}

// theirs returns a pool of another project, which claims can name with the right.
func foreignPool() *build.PoolBuilder {
	return build.Pool("p").CIDR("10.0.0.0/16").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "theirs" })
}
