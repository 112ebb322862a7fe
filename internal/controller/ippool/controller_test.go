package ippool

import (
	"slices"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func TestPools(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*pools){
		"a root pool that admission recorded becomes ready":                               admittedRoot,
		"a root pool that admission missed is recorded":                                   missedRoot,
		"a pool whose record is lost is recorded again":                                   lostRecord,
		"a finalizer that was removed by hand is put back":                                removedFinalizer,
		"a pool that overlaps another is in conflict until that is gone":                  overlap,
		"of two pools that are both recorded the later is in conflict":                    overlappingRecords,
		"a namespace's own pool overlaps no other namespace's":                            localPool,
		"a child is carved from its parent":                                               child,
		"a child whose parent is missing is carved once that is ready":                    missingParent,
		"a child waits for room in its parent":                                            fullParent,
		"counts are written at most once a second":                                        throttledCounts,
		"a paused pool hands out nothing and states so":                                   pausedPool,
		"a deleted pool stays until its last block is released":                           deletedPool,
		"a deleted pool stays while a block is in use, also where its own record is lost": deletedWithoutRecord,
		"events report each change of a pool once":                                        poolEvents,
		"a pool that is edited over blocks in use is drained":                             drainedPool,
		"a deleted pool is open again when a block is recorded before its end":            concurrentlyRecorded,
		"a pool that is made again while its CIDR is recorded":                            missedReplaced,
		"a pool that is edited while its CIDR is recorded":                                missedEdited,
		"a pool that is edited while its finalizer is put back":                           unprotectedEdited,
		"a deleted pool that is made again while it is released":                          deletedReplaced,
		"a pool that admission missed, of which a call fails":                             missedFails,
		"a pool without finalizer and UID in its record, of which a call fails":           admittedFails,
		"a deleted pool, of which a call fails":                                           deletedFails,
		"a pool whose right is unknown is tried again":                                    rightUnknown,
		"a granted pool, of which a call fails":                                           grantedFails,
		"a pool is enqueued when a record of it changes":                                  changedRecords,
		"a pool is enqueued when it changes or the one that it waits for":                 changedPools,
		"a mark that its writer has left is taken off":                                    leftoverMark,
		"what admission has left out is filled in":                                        partlyFilledPool,
		"a child whose ranges lie outside of its CIDR states so":                          rangesOutside,
		"a child whose record is lost comes before those that wait":                       lostChildRecord,
		"of two children that wait the older is first":                                    oldestChildFirst,
		"the right to use a parent is asked for again":                                    rightAskedAgain,
		"the encrypted creator of a pool is removed":                                      formerRequester,
		"a child beyond the limit of its project is tried again":                          limitedChild,
		"a pool that a policy refuses to change states so":                                refusedPool,
		"an unreadable pool states so":                                                    invalidPool,
		"the status counts the used and the free addresses":                               countedPool,
		"the status lists the first former gateways":                                      replacedGateways,
		"a pool of which all is withheld states so":                                       withheldPool,
		"a pool that has lost its block has none":                                         lostBlock,
		"the status of a former pool is replaced":                                         restoredChild,
		"two pools share a subnet":                                                        sharedSubnet,
		"a child has ranges of all of its parent":                                         childOfRanges,
		"a pool whose ranges grow":                                                        grownRanges,
		"a pool whose ranges shrink keeps what is in use":                                 shrunkRanges,
		"a pool whose ranges grow into those of another":                                  contestedRanges,
		"the record of an edit that has lost is given up":                                 leftoverEdit,
		"a pool whose ranges shrink and grow again":                                       regrownRanges,
		"a pool that is edited before its record has its UID":                             unstampedRanges,
		"a pool is deleted after an edit":                                                 deletedEdited,
		"a pool is forced away after an edit, and made again":                             remadeEdited,
		"a pool is forced away, and made again with other ranges":                         remadeOtherwise,
		"the record of an edit is lost while the former one is released":                  lostEdit,
		"a pool is made again while its ranges are edited":                                editedReplaced,
		"a pool whose ranges are edited, of which a call fails":                           editedFails,
		"pools that occupy their ranges while the feature is off":                         featureOff,
	} {
		t.Run(name, func(t *testing.T) { tell(newPoolStory(t, plane)) })
	}
}

func admittedRoot(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").In(v1alpha1.PoolReady, "10.0.0.0/24").Ready().Wrote("patch IPAllocation", "patch IPPool/status")
	if own := e.own("p"); own.HolderUID != string(e.stored("p").UID) {
		e.t.Errorf("its record is of the UID %q, want the pool's", own.HolderUID)
	}
	e.Passes(time.Hour)
	e.Reconciled("p").Ready().Wrote().After(0)
}

func missedRoot(e *pools) {
	e.Created(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").In(v1alpha1.PoolReady, "10.0.0.0/24").Ready().Wrote("create IPAllocation", "patch IPPool", "patch IPPool/status")
	e.isProtected("p", true)
	e.Reconciled("p").Ready().Wrote()
}

func lostRecord(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	e.Forced(convert.Allocation(e.own("p")))
	e.Reconciled("p").In(v1alpha1.PoolReady, "10.0.0.0/24").Ready().Wrote("create IPAllocation")
}

func removedFinalizer(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	story.Edited(e.World, pool("p"), func(p *v1alpha1.IPPool) { p.Finalizers = nil })
	e.Reconciled("p").Ready()
	e.isProtected("p", true)
}

func overlap(e *pools) {
	e.Created(build.Pool("large").CIDR("10.0.0.0/8").Obj(), build.Pool("small").CIDR("10.1.0.0/16").Obj())
	e.Reconciled("large").Ready()
	e.Reconciled("small").In(v1alpha1.PoolPending, "").NotReady(v1alpha1.ReasonConflict).Saying("10.0.0.0/8 of routing domain default, held by IPPool large")
	e.Deleted(pool("large"))
	e.Reconciled("large")
	e.Gone(pool("large"))
	e.Reconciled("small").NotReady(v1alpha1.ReasonConflict) // the record exists until it is collected
	e.Collected(holder("large"))
	e.Reconciled("small").In(v1alpha1.PoolReady, "10.1.0.0/16").Ready()
}

func overlappingRecords(e *pools) {
	e.Applied(build.Pool("large").CIDR("10.0.0.0/8").Obj(), build.Pool("small").CIDR("10.1.0.0/16").Obj())
	e.Reconciled("large").Ready()
	e.Reconciled("small").In(v1alpha1.PoolPending, "10.1.0.0/16").NotReady(v1alpha1.ReasonConflict).Wrote("patch IPPool/status")
	e.Forced(pool("large"))
	e.Collected(holder("large"))
	e.Reconciled("small").In(v1alpha1.PoolReady, "10.1.0.0/16").Ready()
}

func localPool(e *pools) {
	e.Created(build.Pool("p").CIDR("10.0.0.0/8").Obj(), build.Pool("p").CIDR("10.0.0.0/8").In(story.Team))
	e.Reconciled("p").Ready()
	local := build.Pool("p").In(story.Team)
	e.World.Reconciled(reconcile.AsReconciler(e.K8s, poolReconciler[*v1alpha1.LocalIPPool]{e.controller}), local).Ready()
	if got := local.Status.AllocatedCIDR; got != "10.0.0.0/8" {
		e.t.Errorf("it has %q, want 10.0.0.0/8", got)
	}
}

func child(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Created(build.Pool("first").Child("parent", 26).Obj(), build.Pool("second").Child("parent", 26).Obj())
	e.Reconciled("first").In(v1alpha1.PoolReady, "10.0.0.0/26").Ready()
	e.Reconciled("second").In(v1alpha1.PoolReady, "10.0.0.64/26").Ready()
	if spec := e.stored("second").Spec; spec.CIDR != "10.0.0.64/26" || spec.IPFamily != v1alpha1.IPv4 {
		e.t.Errorf("its spec states %q, %q, want 10.0.0.64/26, IPv4", spec.CIDR, spec.IPFamily)
	}
}

func missingParent(e *pools) {
	e.Created(build.Pool("child").Child("parent", 26).Obj())
	e.Reconciled("child").In(v1alpha1.PoolPending, "").NotReady(v1alpha1.ReasonParentNotReady)
	e.Created(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("child").NotReady(v1alpha1.ReasonParentNotReady)
	e.Reconciled("parent").Ready()
	e.Reconciled("child").In(v1alpha1.PoolReady, "10.0.0.0/26").Ready()
}

func fullParent(e *pools) {
	e.Applied(build.Pool("parent").CIDR("10.0.0.0/24").Obj())
	e.Recorded(story.Block("a", "parent", "10.0.0.0/25"))
	e.Recorded(story.Block("b", "parent", "10.0.0.128/25"))
	e.Created(build.Pool("child").Child("parent", 26).Obj())
	e.Reconciled("child").In(v1alpha1.PoolPending, "").NotReady(v1alpha1.ReasonPoolExhausted)
	e.Reconciled("child").NotReady(v1alpha1.ReasonPoolExhausted).Wrote()
	e.Collected(story.Claim("b"))
	e.Reconciled("child").In(v1alpha1.PoolReady, "10.0.0.128/26").Ready()
}

func throttledCounts(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Free("256").After(0)
	e.Recorded(story.Block("a", "p", "10.0.0.0/25"))
	e.Reconciled("p").Free("256").Wrote().After(time.Second)
	e.Passes(999 * time.Millisecond)
	e.Recorded(story.Block("b", "p", "10.0.0.128/26"))
	e.Reconciled("p").Free("256").Wrote().After(time.Millisecond)
	e.Passes(time.Millisecond)
	e.Reconciled("p").Free("64").Wrote("patch IPPool/status").After(0)
	e.Recorded(story.Block("c", "p", "10.0.0.192/26"))
	e.Reconciled("p").In(v1alpha1.PoolExhausted, "10.0.0.0/24").Free("0").Wrote("patch IPPool/status") // written at once: that it is full is more than a count
}

func pausedPool(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	story.Edited(e.World, pool("p"), func(p *v1alpha1.IPPool) {
		p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""}
	})
	e.Reconciled("p").In(v1alpha1.PoolPaused, "10.0.0.0/24").NotReady(v1alpha1.ReasonPaused)
	if first := e.stored("p").Status.FirstReadyTime; first != nil {
		e.t.Errorf("it has handed out nothing, and was ready at %s", first)
	}
	story.Edited(e.World, pool("p"), func(p *v1alpha1.IPPool) { p.Annotations = nil })
	e.Reconciled("p").In(v1alpha1.PoolReady, "10.0.0.0/24").Ready()
	if e.stored("p").Status.FirstReadyTime == nil {
		e.t.Error("its status lacks the time at which it was ready first")
	}
}

func deletedPool(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	e.Recorded(story.Block("a", "p", "10.0.0.0/28"))
	e.Deleted(pool("p"))
	e.Reconciled("p").In(v1alpha1.PoolTerminating, "10.0.0.0/24").NotReady(v1alpha1.ReasonTerminating).Wrote("patch IPPool/status")
	e.isProtected("p", true)
	e.Collected(story.Claim("a"))
	e.Reconciled("p")
	e.Gone(pool("p"))
	if own := e.own("p"); own.State != ipam.StateReleasing {
		e.t.Errorf("its record is %s, want Releasing: no block of it may be confirmed", own.State)
	}
}

func deletedWithoutRecord(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Recorded(story.Block("a", "p", "10.0.0.0/28"))
	e.Forced(convert.Allocation(e.own("p")))
	e.Deleted(pool("p"))
	e.Reconciled("p").NotReady(v1alpha1.ReasonTerminating)
	e.isProtected("p", true)
	e.Collected(story.Claim("a"))
	e.Reconciled("p")
	e.Gone(pool("p"))
}

func concurrentlyRecorded(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	e.Deleted(pool("p"))
	e.Meanwhile("patch IPAllocation", func() { e.Recorded(story.Block("a", "p", "10.0.0.0/28")) })
	e.Reconciled("p").NotReady(v1alpha1.ReasonTerminating).
		Wrote("create IPAllocation", "patch IPAllocation", "patch IPAllocation", "patch IPPool/status")
	e.isProtected("p", true)
	if own := e.own("p"); own.State != ipam.StateBound {
		e.t.Errorf("its record is %s, want Bound: the block is in use", own.State)
	}
	e.Collected(story.Claim("a"))
	e.Reconciled("p")
	e.Gone(pool("p"))
}

func poolEvents(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Reconciled("p").Ready()
	e.Reconciled("p").Ready().HasEvents(0)
	e.Recorded(story.Block("a", "p", "10.0.0.0/25"))
	e.Passes(time.Second)
	e.Reconciled("p").Free("128").HasEvents(0)
	e.Recorded(story.Block("b", "p", "10.0.0.128/25"))
	e.Reconciled("p").In(v1alpha1.PoolExhausted, "10.0.0.0/24")
	e.Collected(story.Claim("b"))
	e.Reconciled("p").Ready()
	story.Edited(e.World, pool("p"), func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
	e.Reconciled("p").NotReady(v1alpha1.ReasonPaused)
	e.Deleted(pool("p"))
	e.Reconciled("p").NotReady(v1alpha1.ReasonTerminating)
	e.Reconciled("p").NotReady(v1alpha1.ReasonTerminating).HasEvents(0)
	e.Collected(story.Claim("a"))
	e.Reconciled("p").HasEvents(0)
	e.World.HasEvents(pool("p"), "Normal Ready", "Warning Full", "Normal Ready", "Warning Paused", "Warning DeletionBlocked")
}

func drainedPool(e *pools) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Obj())
	e.Recorded(story.Block("a", "p", "10.0.0.0/28"))
	e.Reconciled("p").Ready()
	story.Edited(e.World, pool("p"), func(p *v1alpha1.IPPool) { p.Spec.Reserved = []string{"10.0.0.0/28"} })
	e.Passes(time.Second)
	e.Reconciled("p").Ready().HasEvents(1)
	e.Collected(story.Claim("a"))
	e.Passes(time.Second)
	e.Reconciled("p").Ready().HasEvents(1)
	e.World.HasEvents(pool("p"), "Normal Ready", "Normal Draining", "Normal Drained")
}

// pools holds the verbs for pools.
type pools struct {
	*story.World
	t          *testing.T
	controller *Controller
}

func newPoolStory(t *testing.T, plane *story.Plane) *pools {
	t.Helper()
	e := &pools{World: plane.Begin(t), t: t}
	e.controller = attachReplica(e.Replica, &Controller{
		Client: e.K8s, Asker: e.Asker(), Throttle: kubeutil.NewThrottle(countEvery, e.Clock), Events: e.Events,
	})
	return e
}

// countEvery is the shortest interval between two writes of the counts of a pool.
const countEvery = time.Second

// Retried calls Reconcile for an IPPool, and expects a retry.
func (e *pools) Retried(name string) *pass {
	e.t.Helper()
	obj := pool(name)
	return &pass{e.World.Retried(reconcile.AsReconciler(e.K8s, poolReconciler[*v1alpha1.IPPool]{e.controller}), obj), e.t, obj}
}

// Reconciled calls Reconcile for an IPPool.
func (e *pools) Reconciled(name string) *pass {
	e.t.Helper()
	obj := pool(name)
	return &pass{e.World.Reconciled(reconcile.AsReconciler(e.K8s, poolReconciler[*v1alpha1.IPPool]{e.controller}), obj), e.t, obj}
}

func (e *pools) stored(name string) *v1alpha1.IPPool {
	e.t.Helper()
	return story.Stored(e.World, pool(name))
}

// isProtected expects that the pool has the operator's finalizer, or has not.
func (e *pools) isProtected(name string, want bool) {
	e.t.Helper()
	if got := slices.Contains(e.stored(name).Finalizers, v1alpha1.FinalizerPool); got != want {
		e.t.Fatalf("it has the finalizer: %t, want %t", got, want)
	}
}

// own returns the record of a pool's CIDR.
func (e *pools) own(name string) ipam.Record {
	e.t.Helper()
	records := e.RecordsOf(holder(name))
	if len(records) != 1 {
		e.t.Fatalf("%d records of the pool, want 1", len(records))
	}
	return records[0]
}

func pool(name string) *v1alpha1.IPPool { return build.Pool(name).Obj() }

func holder(name string) ipam.Holder { return convert.HolderOfPool(ipam.PoolNamed(name)) }

// pass holds the effects of one pass over a pool.
type pass struct {
	*story.Pass
	t    *testing.T
	pool *v1alpha1.IPPool
}

// In expects the pool's phase, and the CIDR that is recorded for it.
func (p *pass) In(phase v1alpha1.PoolPhase, cidr string) *pass {
	p.t.Helper()
	if got := p.pool.Status; got.Phase != phase || got.AllocatedCIDR != cidr {
		p.t.Fatalf("%s is %s with %q, want %s with %q", client.ObjectKeyFromObject(p.pool), got.Phase, got.AllocatedCIDR, phase, cidr)
	}
	return p
}

// Free expects the number of free addresses in the status.
func (p *pass) Free(addresses string) *pass {
	p.t.Helper()
	capacity := p.pool.Status.Capacity
	if capacity == nil || capacity.Available != addresses {
		p.t.Fatalf("the status counts %+v, want %s available", capacity, addresses)
	}
	return p
}

// attachReplica sets the parts of a replica in a controller.
func attachReplica(r replica.Replica, c *Controller) *Controller {
	c.Ledger, c.Catalog, c.Queue, c.Allocator, c.Metrics = r.Ledger, r.Catalog, r.Queue, r.Allocator, r.Metrics
	return c
}
