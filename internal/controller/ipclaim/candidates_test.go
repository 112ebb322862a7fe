package ipclaim

import (
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

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

// storedAsWaiting stores a claim whose status admission has written, so that the controller has
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
