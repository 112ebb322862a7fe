package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

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
	if _, ok := e.by.pendingEvents.Load(waiting.UID); !ok {
		e.t.Error("no event is made of a claim that waits")
	}
	next.UID = "next"
	e.handler.Update(e.t.Context(), event.TypedUpdateEvent[*v1alpha1.IPClaim]{ObjectOld: waiting, ObjectNew: next}, q)
	e.by.pendingEvents.Range(func(uid, _ any) bool {
		e.t.Errorf("an event is made of the claim %s, which is gone", uid)
		return true
	})
}

// cacheBehind expects nothing of a pass over a claim in the version from which the last pass wrote.
func cacheBehind(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj())
	isNoted := func() bool {
		_, ok := e.by.superseded.Load(e.stored("a").UID)
		return ok
	}
	e.Meanwhile("patch IPClaim", func() {
		story.Edited(e.World, claim("a").Obj(), func(c *v1alpha1.IPClaim) { c.Labels = map[string]string{"edited": "true"} })
	})
	e.Retried("a")
	if isNoted() {
		e.t.Error("a version is noted from which no other was made")
	}
	former := e.stored("a")
	e.Reconciled("a").Bound("10.0.0.0/28")
	behind := reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
		return e.by.Reconcile(ctx, former.DeepCopy())
	})
	e.World.Reconciled(behind, claim("a").Obj()).Wrote().After(cacheTimeout)
	if isNoted() {
		e.t.Error("the next pass does nothing, too")
	}
	for name, show := range map[string]func(){
		"an update": func() {
			e.handler.Update(e.t.Context(), event.TypedUpdateEvent[*v1alpha1.IPClaim]{ObjectOld: former, ObjectNew: e.stored("a")}, nil)
		},
		"a deletion": func() {
			e.handler.Delete(e.t.Context(), event.TypedDeleteEvent[*v1alpha1.IPClaim]{Object: former}, nil)
		},
	} {
		e.by.superseded.Store(former.UID, former.ResourceVersion)
		if show(); isNoted() {
			e.t.Errorf("a version is noted after %s is shown", name)
		}
	}
}

// rightAskedAgain has claims name a pool of another project: of a service account without the right
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

// recreatedPool has claims that were granted a pool of which another one of the same name exists now.
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

// foreignPool returns a pool of another project, which claims can name with the right.
func foreignPool() *build.PoolBuilder {
	return build.Pool("p").CIDR("10.0.0.0/16").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "theirs" })
}

func waitingEvents(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Classes("gold").Obj(), claim("a").Pool("p").Length(32).Obj(), claim("b").Class("gold").Obj())
	e.Reconciled("b").Waiting(v1alpha1.ReasonClassNotFound)
	e.Applied(build.Class("gold").Length(32).Obj())
	e.Reconciled("a").Bound("10.0.0.0/32").HasEvents(0) // it has not waited
	e.Reconciled("b").Waiting(v1alpha1.ReasonPoolExhausted)
	e.Reconciled("b").Waiting(v1alpha1.ReasonPoolExhausted).HasEvents(0)
	e.Deleted(claim("a").Obj())
	e.Collected(story.Claim("a"))
	e.Reconciled("b").Bound("10.0.0.0/32")
	e.Reconciled("b").Bound("10.0.0.0/32").HasEvents(0)
	e.World.HasEvents(claim("b").Obj(), "Warning ClassNotFound", "Warning PoolExhausted", "Normal Bound")
}

// storedWaitingClaim stores a claim whose status admission has written, so that the controller has
// nothing to write.
func storedWaitingClaim(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj(), claim("a").Pool("p").Length(32).Obj())
	e.Reconciled("a").Bound("10.0.0.0/32")
	e.Applied(claim("b").Pool("p").Length(32).Obj())
	e.Reconciled("b").Waiting(v1alpha1.ReasonPoolExhausted)
	before := e.Events.Of(claim("b").Obj())
	is := func(initial bool) {
		e.handler.Create(e.t.Context(), event.TypedCreateEvent[*v1alpha1.IPClaim]{Object: e.stored("b"), IsInInitialList: initial}, e.queue)
	}
	is(true) // by a leader that has just started
	e.Reconciled("b").Wrote().HasEvents(0)
	is(false)
	e.Reconciled("b").Wrote().HasEvents(1)
	e.Reconciled("b").Wrote().HasEvents(0)
	e.World.HasEvents(claim("b").Obj(), append(before, "Warning PoolExhausted")...)
	is(false)
	e.handler.Delete(e.t.Context(), event.TypedDeleteEvent[*v1alpha1.IPClaim]{Object: e.stored("b")}, e.queue)
	e.Reconciled("b").Wrote().HasEvents(0)
}

func candidates(e *claims) {
	paused := build.Pool("paused").CIDR("10.0.2.0/24").Classes("gold").Obj()
	paused.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""}
	e.Applied(
		build.Pool("own").CIDR("10.9.0.0/24").Lengths(24, 28).Classes("gold").In(story.Team), paused,
		build.Class("gold").LocalPools().Length(30).With(func(s *v1alpha1.IPClassSpec) { s.PoolSelection = v1alpha1.SelectMostUtilized }).Obj(),
		build.Pool("b").CIDR("10.0.1.0/29").Classes("gold").Obj(), build.Pool("a").CIDR("10.0.0.0/30").Classes("gold").Obj(),
		build.Pool("theirs").CIDR("10.0.3.0/24").Classes("gold").With(func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "secret" }).Obj(),
	)
	e.Recorded(story.Block("x", "a", "10.0.0.0/32"))
	e.Recorded(story.Block("y", "b", "10.0.1.0/30"))
	e.Recorded(story.Block("z", "b", "10.0.1.4/32"))
	e.Applied(claim("c").Class("gold").Obj())
	waits := e.Reconciled("c").Waiting(v1alpha1.ReasonPoolExhausted)
	waits.Candidates("IPPool a: NoFreeBlock", "IPPool b: NoFreeBlock", "LocalIPPool own: LengthNotAllowed", "IPPool paused: Paused")
	e.Recorded(story.Block("v", "a", "10.0.0.1/32")) // a is the most utilized now
	e.Recorded(story.Block("w", "a", "10.0.0.2/31"))
	e.Reconciled("c").Wrote()
	e.Collected(story.Claim("y"))
	e.Reconciled("c").Bound("10.0.1.0/30").Candidates()
}

// Candidates expects the claim to list these pools, each with its reason.
func (p *pass) Candidates(want ...string) *pass {
	p.t.Helper()
	var got []string
	for _, c := range p.claim.Status.Candidates {
		got = append(got, fmt.Sprintf("%s %s: %s", c.PoolRef.Kind, c.PoolRef.Name, c.Reason))
		if c.Message == "" || c.Available != "" || c.LargestFreePrefix != "" {
			p.t.Errorf("the candidate is stored as %+v, want it with a message and without what changes by itself", c)
		}
	}
	if !slices.Equal(got, want) {
		p.t.Fatalf("%s lists %q, want %q", p.claim.Name, got, want)
	}
	return p
}

// TestClaimInTerminatingNamespaceIsNotRetried expects no log entry either.
func TestClaimInTerminatingNamespaceIsNotRetried(t *testing.T) {
	ending := apierrors.NewForbidden(schema.GroupResource{Resource: "ipallocations"}, "a", errors.New("the namespace is being terminated"))
	ending.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause, Field: "metadata.namespace"}}
	s := &scope{claim: &v1alpha1.IPClaim{}}
	outcome, retry := (&Controller{}).outcome(s, fmt.Errorf("binding: %w", ending))
	if retry != nil || outcome.Phase != "" {
		t.Errorf("got %v and %+v, want neither another try nor an outcome", retry, outcome)
	}
}
