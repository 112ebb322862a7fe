package ipclaim

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func TestClaims(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*claims){
		"a claim is bound in two writes":                               boundInTwoWrites,
		"a claim that waits is bound when a block is released":         boundWhenReleased,
		"the oldest claim that waits is served first":                  oldestFirst,
		"a claim whose pool is missing is bound once that exists":      missingPool,
		"a claim whose class is missing is bound once that has a pool": missingClass,
		"a claim that names nothing has the default class written in":  defaultClass,
		"a claim that violates the policy states so and takes nothing": policyViolation,
		"a claim beyond the limit waits until its project holds less":  limitReached,
		"a retained block returns to the claim of its name":            retainedBlock,
		"a lost record is recorded again under its name":               lostRecord,
		"a claim that the cache trimmed is read whole to be written":   trimmedClaim,
		"a claim that was made again is served in place of the former": formerTrimmedClaim,
		"a record that was taken over gets the policy and the UID":     takenOver,
		"a claim whose block another has is never renumbered":          neverRenumbered,
		"a conflict is an event once it is written":                    conflictEvent,
		"events report that a claim waits and is bound, each once":     waitingEvents,
		"an event reports a claim that admission stored as waiting":    storedWaitingClaim,
		"a claim that waits lists its candidates, and is still":        candidates,
		"a conflict is reported by the claim that keeps its block":     conflictOfTwo,
		"a changed reclaim policy is written into the record":          changedPolicy,
		"a deleted claim is left to the collection of orphans":         deletedClaim,
		"a claim that is made again while it is bound":                 waitingReplaced,
		"a claim that is edited while it is bound":                     waitingEdited,
		"a claim that is restored while its record is checked":         boundReplaced,
		"a claim that waits, of which a call fails":                    waitingFails,
		"a claim that is restored, of which a call fails":              restoredFails,
		"a claim whose record is taken over, of which a call fails":    takenOverFails,
		"a claim that is granted, of which a call fails":               grantedFails,
		"a claim is enqueued when its record changes":                  changedRecords,
		"a claim is enqueued when the awaited object changes":          changedPools,
		"a claim is enqueued when it is shown and not up to date":      changedClaims,
		"the right to name a pool is asked for again":                  rightAskedAgain,
		"a right is for the pool that it was given for":                recreatedPool,
		"the encrypted creator of a claim is removed":                  formerRequester,
		"a claim that names the record of another is in conflict":      foreignRecord,
		"no event reports a claim that is gone":                        deletedDuringWrite,
		"a pass over a claim as it was before its write does nothing":  cacheBehind,
	} {
		t.Run(name, func(t *testing.T) { tell(newClaimStory(t, plane)) })
	}
}

func boundInTwoWrites(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj())
	e.Reconciled("a").Bound("10.0.0.0/28").Wrote("create IPAllocation", "patch IPClaim")
	e.Reconciled("a").Bound("10.0.0.0/28").Wrote()
	if spec := e.stored("a").Spec; spec.ReclaimPolicy != v1alpha1.ReclaimDelete || spec.IPFamily != v1alpha1.IPv4 || *spec.PrefixLength != 28 {
		e.t.Errorf("the spec is %+v, want it filled in", spec)
	}
}

func boundWhenReleased(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj(), claim("a").Pool("p").Length(32).Obj(), claim("b").Pool("p").Length(32).Obj())
	e.Reconciled("a").Bound("10.0.0.0/32")
	e.Reconciled("b").Waiting(v1alpha1.ReasonPoolExhausted)
	e.Reconciled("b").Waiting(v1alpha1.ReasonPoolExhausted).Wrote()
	e.Deleted(claim("a").Obj())
	e.Reconciled("b").Waiting(v1alpha1.ReasonPoolExhausted).Wrote() // a's record is still there
	e.Collected(story.Claim("a"))
	e.IsNotified("b")
	e.Reconciled("b").Bound("10.0.0.0/32")
}

func oldestFirst(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj(), claim("a").Pool("p").Length(32).Obj(), claim("older").Pool("p").Length(32).Obj())
	e.Reconciled("a").Bound("10.0.0.0/32")
	e.Reconciled("older").Waiting(v1alpha1.ReasonPoolExhausted)
	e.Applied(claim("younger").Pool("p").Length(32).Obj())
	e.Reconciled("younger").Waiting(v1alpha1.ReasonPoolExhausted)
	e.Deleted(claim("a").Obj())
	e.Collected(story.Claim("a"))
	e.IsNotified("older")
	e.Reconciled("younger").Waiting(v1alpha1.ReasonPoolExhausted)
	e.Reconciled("older").Bound("10.0.0.0/32")
	e.Deleted(claim("older").Obj())
	e.Collected(story.Claim("older"))
	e.IsNotified("younger")
	e.Reconciled("younger").Bound("10.0.0.0/32")
}

func missingPool(e *claims) {
	e.Applied(claim("a").Pool("p").Length(32).Obj())
	e.Reconciled("a").Waiting(v1alpha1.ReasonPoolNotFound).After(0)
	e.Applied(build.Pool("p").CIDR("10.0.0.0/32").Obj())
	e.Reconciled("a").Bound("10.0.0.0/32")
}

func missingClass(e *claims) {
	e.Applied(claim("a").Class("gold").Obj())
	e.Reconciled("a").Waiting(v1alpha1.ReasonClassNotFound).After(0)
	e.Applied(build.Class("gold").Length(30).Obj())
	e.Reconciled("a").Waiting(v1alpha1.ReasonNoPoolForClass).After(0)
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	e.Reconciled("a").Bound("10.0.0.0/30")
}

func defaultClass(e *claims) {
	e.Applied(claim("a").Length(30).Obj())
	e.Reconciled("a").Waiting(v1alpha1.ReasonNoDefaultClass)
	e.Applied(build.Class("gold").Default().Obj(), build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	if got := e.Reconciled("a").Bound("10.0.0.0/30").claim.Spec.ClassName; got != "gold" {
		e.t.Errorf("the class is %q, want gold", got)
	}
}

func policyViolation(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Lengths(26, 28).Obj(), claim("a").Pool("p").Length(30).Obj())
	e.Reconciled("a").Waiting(v1alpha1.ReasonPolicyViolation).After(0).Wrote("patch IPClaim")
	e.Reconciled("a").Waiting(v1alpha1.ReasonPolicyViolation).After(0).Wrote()
}

func limitReached(e *claims) {
	pool := build.Pool("p").CIDR("10.0.0.0/24").Limit(1)
	e.Applied(pool.Obj(), claim("a").Pool("p").Length(28).Obj(), claim("b").Pool("p").Length(28).Obj())
	e.Reconciled("a").Bound("10.0.0.0/28")
	e.Reconciled("b").Waiting(v1alpha1.ReasonLimitReached)
	e.Deleted(claim("a").Obj())
	e.Collected(story.Claim("a"))
	e.IsNotified("b")
	e.Reconciled("b").Bound("10.0.0.0/28")
}

func retainedBlock(e *claims) {
	retain := func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }
	allow := func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").With(allow).Obj(), claim("a").Pool("p").Length(30).With(retain).Obj(), claim("b").Pool("p").Length(30).Obj())
	e.Reconciled("a").Bound("10.0.0.0/30")
	e.Deleted(claim("a").Obj())
	e.Collected(story.Claim("a"))
	e.Reconciled("b").Bound("10.0.0.4/30")
	e.Applied(claim("a").Pool("p").Length(30).Obj())
	e.Reconciled("a").Bound("10.0.0.0/30").Wrote("patch IPAllocation", "patch IPClaim")
	if record := e.record("a"); record.State != ipam.StateBound || record.Reclaim != ipam.ReclaimDelete || !record.ReleaseAfter.IsZero() {
		e.t.Errorf("the record is %+v, want it bound, to be deleted, at no time by itself", record)
	}
}

func lostRecord(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.admitted("a", "10.0.0.16/28")
	story.Edited(e.World, claim("a").Obj(), func(c *v1alpha1.IPClaim) {
		c.Status.Network = &v1alpha1.ClaimNetwork{PrefixLength: 24, Gateway: "10.0.0.1"}
	})
	lost := e.record("a")
	e.Forced(convert.Allocation(lost))
	e.Reconciled("a").Bound("10.0.0.16/28").Wrote("create IPAllocation")
	if again := e.record("a"); again.Name != lost.Name || again.Block != lost.Block || again.HolderUID != string(e.stored("a").UID) || again.Gateway != netip.MustParseAddr("10.0.0.1") {
		e.t.Errorf("the record is %+v, want the block and the name of %+v, and the claim's UID and gateway", again, lost)
	}
}

// trimmedClaim lets the cache show only the part of a claim that it keeps, without the state of the
// pool and the status of other writers.
func trimmedClaim(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.admitted("a", "10.0.0.16/28")
	checked := metav1.Condition{Type: "example.com/Checked", Status: metav1.ConditionTrue, Reason: "Checked", LastTransitionTime: metav1.NewTime(e.Clock.Now())}
	story.Edited(e.World, claim("a").Obj(), func(c *v1alpha1.IPClaim) { c.Status.Conditions = append(c.Status.Conditions, checked) })
	e.Forced(convert.Allocation(e.record("a")))
	e.Recorded(story.Block("b", "p", "10.0.0.16/28"))
	trimming := interceptor.NewClient(e.K8s, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, obj, opts...)
			if claim, ok := obj.(*v1alpha1.IPClaim); ok && err == nil {
				Trim(claim)
			}
			return err
		},
	})
	e.controller = reconcile.AsReconciler(trimming, attachReplica(e.Replica, &Controller{Client: e.K8s, Live: e.K8s, Events: e.Events}))
	e.Retried("a").NotReady(v1alpha1.ReasonConflict)
	if conditions := e.stored("a").Status.Conditions; meta.FindStatusCondition(conditions, checked.Type) == nil {
		e.t.Errorf("the conditions are %+v, want that another's stays", conditions)
	}
	e.Collected(story.Claim("b"))
	e.Reconciled("a").Bound("10.0.0.16/28")
}

// formerTrimmedClaim lets the cache show a claim that was deleted and made again since.
func formerTrimmedClaim(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj())
	former := restoredClaim("a", "10.0.0.64/28")
	former.Status.Phase = v1alpha1.ClaimBound
	e.by.Live = broken(e.t)
	if _, err := e.by.Reconcile(e.t.Context(), former.DeepCopy()); !errors.Is(err, errBroken) {
		e.t.Errorf("the claim cannot be read: got %v", err)
	}
	e.by.Live = e.K8s
	if _, err := e.by.Reconcile(e.t.Context(), former); err != nil {
		e.t.Fatal(err)
	}
	if got := e.stored("a").Spec.CIDR; got != "10.0.0.0/28" {
		e.t.Errorf("the claim has %s, want a block that is not the former claim's", got)
	}
}

func neverRenumbered(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj())
	e.Reconciled("a").Bound("10.0.0.0/28")
	e.Applied(restoredClaim("b", "10.0.0.0/28"))
	e.Retried("b").Waiting(v1alpha1.ReasonConflict).Saying("10.0.0.0/28 of pool p, held by IPClaim team/a")
	if spec := e.stored("b").Spec; spec.CIDR != "10.0.0.0/28" || spec.AllocationName != "b-12345678" {
		e.t.Errorf("it was renumbered: %+v", spec)
	}
	if _, isNoted := e.by.superseded.Load(e.stored("b").UID); isNoted {
		e.t.Error("the next try would be skipped")
	}
	e.Deleted(claim("a").Obj())
	e.Collected(story.Claim("a"))
	e.Reconciled("b").Bound("10.0.0.0/28")
}

func conflictEvent(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj(), restoredClaim("b", "10.0.0.0/28"))
	e.Reconciled("a").Bound("10.0.0.0/28")
	e.Meanwhile("patch IPClaim", func() {
		story.Edited(e.World, claim("b").Obj(), func(c *v1alpha1.IPClaim) { c.Labels = map[string]string{"newer": "version"} })
	})
	e.Retried("b").HasEvents(0)
	e.Retried("b").Waiting(v1alpha1.ReasonConflict).HasEvents(1)
	e.Retried("b").Waiting(v1alpha1.ReasonConflict).Wrote().HasEvents(0)
}

// foreignRecord lets claims name records of other claims, of other blocks, or of an earlier claim
// of the name, by any writer.
func foreignRecord(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/16").Obj())
	for i, change := range []func(*ipam.Record){
		func(r *ipam.Record) { r.Holder.Name = "another" },
		func(r *ipam.Record) { r.Block = netip.MustParsePrefix("10.0.1.0/28") },
		func(r *ipam.Record) { r.HolderUID = "former" },
	} {
		name := fmt.Sprintf("a%d", i)
		record := story.Block(name, "p", "10.0.0.0/28")
		change(&record)
		e.Recorded(record)
		e.Applied(restoredClaim(name, "10.0.0.0/28"))
		e.Retried(name).Waiting(v1alpha1.ReasonConflict)
		e.Forced(convert.Allocation(record))
	}
}

func deletedDuringWrite(e *claims) {
	e.Applied(claim("a").Pool("p").Length(28).Obj())
	e.Meanwhile("patch IPClaim", func() { e.Forced(claim("a").Obj()) })
	e.Reconciled("a").HasEvents(0)
}

func conflictOfTwo(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.admitted("a", "10.0.0.0/28")
	e.Reconciled("a").Bound("10.0.0.0/28").Wrote()
	rival := story.Block("b", "p", "10.0.0.0/26")
	e.Recorded(rival)
	e.Reconciled("a").Bound("10.0.0.0/28").Wrote() // until it gives way

	e = newClaimStory(e.t, e.plane) // another process lists both: their age is unknown
	e.Reconciled("a").Holding("10.0.0.0/28").NotReady(v1alpha1.ReasonConflict).Wrote("patch IPClaim").Saying("10.0.0.0/26 of pool p, held by IPClaim team/b")
	e.Forced(convert.Allocation(rival))
	e.Reconciled("a").Bound("10.0.0.0/28")
}

func changedPolicy(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Obj())
	e.Reconciled("a").Bound("10.0.0.0/28")
	story.Edited(e.World, claim("a").Obj(), func(c *v1alpha1.IPClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	e.Reconciled("a").Bound("10.0.0.0/28").Wrote("patch IPAllocation")
	if got := e.record("a").Reclaim; got != ipam.ReclaimRetain {
		e.t.Errorf("the record's policy is %s, want Retain", got)
	}
}

func deletedClaim(e *claims) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj(), claim("a").Pool("p").Length(28).Finalizer("example.com/in-use").Obj(), claim("b").Pool("p").Length(28).Finalizer("example.com/in-use").Obj())
	e.Reconciled("a").Bound("10.0.0.0/28")
	e.Deleted(claim("a").Obj())
	e.Deleted(claim("b").Obj())
	e.Reconciled("a").Wrote()
	e.Reconciled("b").Wrote() // a record that is about to go is not bound
	e.Forced(claim("a").Obj())
	e.Reconciled("a").Wrote()
	e.record("a")
}

// claims holds the verbs for claims.
type claims struct {
	*story.World
	t          *testing.T
	plane      *story.Plane
	by         *Controller
	controller reconcile.Reconciler
	// handler is the controller's handler of the claims that its watch shows.
	handler handler.TypedEventHandler[*v1alpha1.IPClaim, reconcile.Request]
	// queue notifies the controller of a claim's turn.
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

func newClaimStory(t *testing.T, plane *story.Plane) *claims {
	t.Helper()
	e := &claims{World: plane.Begin(t), t: t, plane: plane}
	c := attachReplica(e.Replica, &Controller{Client: e.K8s, Live: e.K8s, Asker: e.Asker(), Events: e.Events})
	e.by, e.controller, e.handler = c, reconcile.AsReconciler(e.K8s, c), c.claims()
	e.queue = workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	t.Cleanup(e.queue.ShutDown)
	if err := c.Queue.Turns(kind).Start(t.Context(), e.queue); err != nil {
		t.Fatal(err)
	}
	return e
}

// IsNotified expects that the controller is notified that it is the claim's turn.
func (e *claims) IsNotified(name string) {
	e.t.Helper()
	late := time.AfterFunc(time.Minute, e.queue.ShutDown)
	defer late.Stop()
	for {
		request, ended := e.queue.Get()
		e.queue.Done(request)
		switch {
		case ended:
			e.t.Fatalf("it is never the turn of %s", name)
		case request.Name == name:
			return
		}
	}
}

// Reconciled calls Reconcile for a claim.
func (e *claims) Reconciled(name string) *pass {
	e.t.Helper()
	obj := claim(name).Obj()
	return &pass{e.World.Reconciled(e.controller, obj), e.t, obj}
}

// Retried calls Reconcile for a claim, and expects a retry.
func (e *claims) Retried(name string) *pass {
	e.t.Helper()
	obj := claim(name).Obj()
	return &pass{e.World.Retried(e.controller, obj), e.t, obj}
}

func (e *claims) stored(name string) *v1alpha1.IPClaim {
	e.t.Helper()
	return story.Stored(e.World, claim(name).Obj())
}

// record returns the only record of a claim.
func (e *claims) record(name string) ipam.Record {
	e.t.Helper()
	records := e.RecordsOf(story.Claim(name))
	if len(records) != 1 {
		e.t.Fatalf("%d blocks are recorded for %s, want 1", len(records), name)
	}
	return records[0]
}

// restoredClaim returns a claim that names its block and its record, and was saved without it.
func restoredClaim(name, cidr string) *v1alpha1.IPClaim {
	return claim(name).Pool("p").CIDR(cidr).With(func(s *v1alpha1.IPClaimSpec) { s.AllocationName = name + "-12345678" }).Obj()
}

// admitted stores a claim that was bound when it was created, with its record.
func (e *claims) admitted(name, cidr string) {
	e.t.Helper()
	record := story.Block(name, "p", cidr)
	obj := restoredClaim(name, cidr)
	obj.Status = convert.ClaimBound(record, ipam.Pool{}).Status(obj.Status)
	e.Recorded(record)
	e.Applied(obj)
}

func claim(name string) *build.ClaimBuilder { return build.Claim(story.Team, name) }

// pass holds the effects of one pass over a claim.
type pass struct {
	*story.Pass
	t     *testing.T
	claim *v1alpha1.IPClaim
}

// Bound expects the claim to have a block, without any fault.
func (p *pass) Bound(cidr string) *pass {
	p.t.Helper()
	p.Holding(cidr).Ready()
	return p
}

// Holding expects the claim to have a block, with any fault.
func (p *pass) Holding(cidr string) *pass {
	p.t.Helper()
	spec, status := p.claim.Spec, p.claim.Status
	if status.Phase != v1alpha1.ClaimBound || status.AllocatedCIDR != cidr || spec.CIDR != cidr || spec.AllocationName == "" {
		p.t.Fatalf("%s is %s with %q, asking for %q by %q; want it Bound with %s", p.claim.Name, status.Phase, status.AllocatedCIDR, spec.CIDR, spec.AllocationName, cidr)
	}
	return p
}

// Waiting expects the claim to have no block for a reason.
func (p *pass) Waiting(reason string) *pass {
	p.t.Helper()
	p.NotReady(reason)
	if status := p.claim.Status; status.Phase == v1alpha1.ClaimBound || status.AllocatedCIDR != "" {
		p.t.Fatalf("%s is %s with %q, want it without block", p.claim.Name, status.Phase, status.AllocatedCIDR)
	}
	return p
}

// attachReplica sets the parts of a replica in a controller.
func attachReplica(r replica.Replica, c *Controller) *Controller {
	c.Ledger, c.Catalog, c.Queue, c.Allocator, c.Metrics = r.Ledger, r.Catalog, r.Queue, r.Allocator, r.Metrics
	return c
}
