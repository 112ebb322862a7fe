package ipaddressclaim

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func TestAddressClaims(t *testing.T) {
	plane := story.Start(t, cluster.Options{ClusterAPICRDs: true})
	for name, tell := range map[string]func(*addresses){
		"a claim is served in three writes":                                   servedInThreeWrites,
		"an address states its use and its holder":                            addressInFull,
		"a claim that admission missed gets the finalizer before an address":  missedClaim,
		"a claim of a class is served by one of its pools":                    claimOfClass,
		"a class that forbids single addresses states so and takes nothing":   classOfBlocks,
		"a claim of a pool that is missing is served once that exists":        missingPool,
		"a kind that our group lacks is reported in the claim":                unknownKind,
		"the status of a claim is an event once it is written":                eventOnceWritten,
		"a claim of another provider is left untouched":                       foreignClaim,
		"a claim waits for its Cluster":                                       waitsForCluster,
		"a claim that waits is served when an address is released":            servedWhenReleased,
		"a claim that asks for nothing valid any more loses its place":        invalidWaiter,
		"a deleted claim is released when its address is unused":              deletedClaim,
		"a sticky address that is not retained yet is awaited":                stickyAddressAwaited,
		"an address that exists is adopted":                                   adoptedAddress,
		"an address that was recorded twice has the record that is confirmed": recordedTwice,
		"an address that exists is bound to its record that is retained":      blockKeptForLaterClaim(ipam.StateRetained),
		"an address that exists is bound to its record that cools down":       blockKeptForLaterClaim(ipam.StateCooling),
		"an address that another has is never renumbered":                     neverRenumbered,
		"an address is recorded before its pool is known":                     addressBeforePool,
		"an address of a class is recorded in the pool that has it":           addressOfClass,
		"an address of another project's pool is not recorded":                addressOfForeignPool,
		"an address that is lost, of which a call fails":                      lostFails,
		"a claim that is halted, of which a call fails":                       haltedFails,
		"a claim beyond the limit waits until its project holds less":         limitReached,
		"a claim that was never served is released, of which a call fails":    unservedReleasedFails,
		"a lost address is made again, and a lost record too":                 lostAddress,
		"an address that the cache does not show is neither made nor moved":   unseenAddress,
		"a claim that is made again while it is served":                       servedReplaced,
		"a claim that is edited while it is served":                           servedEdited,
		"a claim that is replaced by its manifest while it is served":         servedByManifest,
		"a claim that is made again while it drops a former address":          formerReplaced,
		"a claim that is made again with its address while it is released":    releasedReplaced,
		"an address that is gone while its claim is released":                 releasedAddressGone,
		"a claim that admission missed, of which a call fails":                servedFails,
		"an address that is adopted, of which a call fails":                   adoptedFails,
		"an address whose record is kept, of which a call fails":              keptFails,
		"a former address is dropped before a claim is served":                formerDropped,
		"a former address that is dropped, of which a call fails":             formerFails,
		"a kind that our group lacks, of which a call fails":                  unknownFails,
		"a claim that is released, of which a call fails":                     releasedFails,
		"an address that its claim left behind, of which a call fails":        leftFails,
		"a claim that is granted, of which a call fails":                      grantedFails,
		"a call fails that judges a record or finds waiters":                  judgementFails,
		"a claim is enqueued when its record changes":                         changedRecords,
		"a claim is enqueued when the awaited object changes":                 changedPools,
		"a claim is enqueued when it is shown and not up to date":             changedClaims,
		"the right to name a pool is asked for again":                         rightAskedAgain,
		"the encrypted creator of a claim is removed":                         formerRequester,
		"an address that the cache does not show goes before its claim":       unseenWhileReleased,
		"an address goes after its claim, and no other does":                  orphanedAddresses,
		"an address that is not recorded yet is given to no in-cluster claim": unrecordedAddress,
		"an in-cluster claim's own address is not in its way":                 shownLate,
		"a claim of an in-cluster pool, of which a call fails":                inClusterFails,
		"a claim that the in-cluster provider serves":                         servedByProvider,
		"an address of another in-cluster pool is given to no claim":          unrecordedElsewhere,
	} {
		t.Run(name, func(t *testing.T) { tell(newAddressStory(t, plane)) })
	}
}

func servedInThreeWrites(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2").Wrote("create IPAllocation", "create IPAddress", "patch IPAddressClaim/status").Saying("10.0.0.2/32 of pool hosts")
	e.Reconciled("a").Served("10.0.0.2").Wrote()
	if record := e.record("a"); record.Block != netip.MustParsePrefix("10.0.0.2/32") || record.HolderUID != string(e.stored("a").UID) {
		e.t.Errorf("the record is %+v, want 10.0.0.2/32 of the claim", record)
	}
}

func addressInFull(e *addresses) {
	pool, obj := hostPool().Obj(), claim("a").Pool("hosts").ClusterLabel("fleet").Obj()
	e.Applied(pool, obj)
	e.Created(newCluster("fleet", false))
	e.Reconciled("a").Served("10.0.0.2")
	address := story.Stored(e.World, address("a", ""))
	bits := int32(24)
	spec := ipamv1.IPAddressSpec{
		ClaimRef: ipamv1.IPAddressClaimReference{Name: "a"}, PoolRef: obj.Spec.PoolRef, Address: "10.0.0.2", Prefix: &bits, Gateway: "10.0.0.1",
	}
	labels := map[string]string{clusterv1.ClusterNameLabel: "fleet", v1alpha1.LabelPool: "hosts", v1alpha1.LabelPoolKind: "IPPool"}
	owners := []metav1.OwnerReference{
		{APIVersion: ipamv1.GroupVersion.String(), Kind: "IPAddressClaim", Name: "a", UID: obj.UID, Controller: new(true), BlockOwnerDeletion: new(true)},
		{APIVersion: v1alpha1.GroupVersion.String(), Kind: "IPPool", Name: "hosts", UID: pool.UID, Controller: new(false), BlockOwnerDeletion: new(true)},
	}
	if diff := cmp.Diff(spec, address.Spec) + cmp.Diff(labels, address.Labels) + cmp.Diff(owners, address.OwnerReferences) +
		cmp.Diff([]string{v1alpha1.FinalizerProtect}, address.Finalizers) +
		cmp.Diff(map[string]string{v1alpha1.AnnotationAllocation: e.record("a").Name.Name}, address.Annotations); diff != "" {
		e.t.Error(diff)
	}
}

func missedClaim(e *addresses) {
	e.Applied(hostPool().Obj())
	e.Created(build.AddressClaim(story.Team, "a").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2").Wrote("patch IPAddressClaim", "create IPAllocation", "create IPAddress", "patch IPAddressClaim/status")
}

func claimOfClass(e *addresses) {
	e.Applied(claim("a").Class("gold").Obj())
	e.Reconciled("a").NotReady(ipamv1.IPAddressClaimReadyPoolNotReadyReason)
	pool := hostPool().Classes("gold").Obj()
	e.Applied(build.Class("gold").Obj(), pool)
	e.Reconciled("a").Served("10.0.0.2")
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
	e.Deleted(claim("a").Obj())
	e.Reconciled("a").Wrote()
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
	e.Reconciled("a").Wrote("delete IPAddress")
}

func classOfBlocks(e *addresses) {
	e.Applied(build.Class("blocks").Lengths(24, 28).Obj(), build.Pool("p").CIDR("10.0.0.0/16").Classes("blocks").Obj(), claim("a").Class("blocks").Obj())
	e.Reconciled("a").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Wrote("patch IPAddressClaim/status")
	e.Reconciled("a").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Wrote().After(0)
}

func missingPool(e *addresses) {
	e.Applied(claim("a").Pool("hosts").Obj())
	e.Reconciled("a").NotReady(v1alpha1.ReasonPoolNotFound).After(0)
	e.Applied(hostPool().Obj())
	e.Reconciled("a").Served("10.0.0.2")
	if events := e.Events.Of(claim("a").Obj()); !slices.Equal(events, []string{"Warning PoolNotFound", "Normal " + v1alpha1.ReasonAddressAllocated}) {
		e.t.Errorf("the events are %q", events)
	}
}

func unknownKind(e *addresses) {
	e.Applied(claim("a").From(v1alpha1.GroupVersion.Group, "IPPol", "hosts").Obj())
	e.Reconciled("a").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).Saying(`"IPPol"`).Wrote("patch IPAddressClaim/status")
	e.Reconciled("a").Wrote()
}

func eventOnceWritten(e *addresses) {
	e.Applied(claim("a").From(v1alpha1.GroupVersion.Group, "IPPol", "hosts").Obj())
	e.Meanwhile("patch IPAddressClaim/status", func() {
		story.Edited(e.World, claim("a").Obj(), func(c *ipamv1.IPAddressClaim) { c.Labels = map[string]string{"newer": "version"} })
	})
	e.Retried("a").HasEvents(0)
	e.Reconciled("a").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).HasEvents(1)
	e.Reconciled("a").HasEvents(0)
}

func foreignClaim(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").From("ipam.example.com", "IPPool", "hosts").Obj())
	e.Reconciled("a").Wrote()
	e.Deleted(claim("a").Obj())
	e.Reconciled("a").Wrote()
}

func waitsForCluster(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Cluster("fleet").Obj())
	e.Reconciled("a").NotReady(v1alpha1.ReasonClusterNotFound)
	e.Created(newCluster("fleet", true))
	e.Reconciled("a").NotReady(clusterv1.PausedReason)
	e.pause(false)
	e.Reconciled("a").Served("10.0.0.2")
	e.pause(true)
	e.Reconciled("a").Served("10.0.0.2").Wrote() // it keeps what it has
	e.Deleted(claim("a").Obj())
	e.Reconciled("a").Wrote()
	e.pause(false)
	e.Reconciled("a").Wrote("delete IPAddress")
}

func servedWhenReleased(e *addresses) {
	e.Applied(build.Pool("p").CIDR("10.0.0.1/32").Obj(), claim("a").Pool("p").Obj(), claim("b").Pool("p").Obj(), claim("c").Pool("p").Obj())
	e.Reconciled("a").Served("10.0.0.1")
	e.Reconciled("b").NotReady(ipamv1.IPAddressClaimReadyPoolExhaustedReason).After(0)
	e.Deleted(claim("a").Obj())
	e.Reconciled("a").Wrote("delete IPAddress")
	e.Reconciled("a").Wrote("patch IPAddress", "patch IPAddressClaim")
	e.Gone(claim("a").Obj())
	e.Reconciled("b").NotReady(ipamv1.IPAddressClaimReadyPoolExhaustedReason).Wrote() // its record is still there
	e.Collected(holderNamed(story.Team, "a"))
	e.Reconciled("c").NotReady(ipamv1.IPAddressClaimReadyPoolExhaustedReason) // it is the turn of b
	e.Reconciled("b").Served("10.0.0.1")
}

func limitReached(e *addresses) {
	e.Applied(hostPool().Limit(1).Obj(), claim("a").Pool("hosts").Obj(), claim("b").Pool("hosts").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	e.Reconciled("b").NotReady(v1alpha1.ReasonLimitReached)
	e.Reconciled("b").NotReady(v1alpha1.ReasonLimitReached).Wrote()
	e.Deleted(claim("a").Obj())
	e.Reconciled("a")
	e.Reconciled("a")
	e.Collected(holderNamed(story.Team, "a"))
	e.Reconciled("b").Served("10.0.0.2")
}

func invalidWaiter(e *addresses) {
	e.Applied(build.Pool("p").CIDR("10.0.0.1/32").Obj(), claim("a").Pool("p").Obj(), claim("b").Pool("p").Obj())
	e.Reconciled("a").Served("10.0.0.1")
	e.Reconciled("b").NotReady(ipamv1.IPAddressClaimReadyPoolExhaustedReason)
	if !e.Queue.Has(holderNamed(story.Team, "b")) {
		e.t.Error("it is not in the queue")
	}
	story.Edited(e.World, claim("b").Obj(), func(c *ipamv1.IPAddressClaim) {
		c.Annotations = map[string]string{v1alpha1.AnnotationAddress: "nonsense"}
	})
	for n := range 2 { // the second pass makes no write that would reconcile it again
		e.Reconciled("b").NotReady(ipamv1.IPAddressClaimReadyAllocationFailedReason).HasEvents(1 - n)
		if e.Queue.Has(holderNamed(story.Team, "b")) {
			e.t.Error("it is in the queue, and others wait for it")
		}
	}
	story.Edited(e.World, claim("b").Obj(), func(c *ipamv1.IPAddressClaim) { c.Annotations[v1alpha1.AnnotationAddress] = "other" })
	e.Reconciled("b").Saying("other").HasEvents(0)
}

func deletedClaim(e *addresses) {
	e.Applied(hostPool().Obj(), claim("a").Pool("hosts").Finalizer("example.com/machine").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	e.Deleted(claim("a").Obj())
	e.Reconciled("a").Wrote()
	story.Edited(e.World, claim("a").Obj(), func(c *ipamv1.IPAddressClaim) { c.Finalizers = []string{v1alpha1.FinalizerRelease} })
	story.Edited(e.World, address("a", ""), func(a *ipamv1.IPAddress) { a.Finalizers = append(a.Finalizers, "example.com/dns") })
	e.Reconciled("a").Wrote("delete IPAddress")
	e.Reconciled("a").Wrote("patch IPAddress")
	e.Reconciled("a").Wrote() // a finalizer of another controller keeps the IPAddress
	story.Edited(e.World, address("a", ""), func(a *ipamv1.IPAddress) { a.Finalizers = nil })
	e.Gone(address("a", ""))
	e.Reconciled("a").Wrote("patch IPAddressClaim")
	e.Gone(claim("a").Obj())
	e.record("a") // is left to the collection of orphans
}

func stickyAddressAwaited(e *addresses) {
	sticky := func(name string) *build.AddressClaimBuilder {
		return claim(name).Pool("hosts").Annotation(v1alpha1.AnnotationSticky, "k")
	}
	e.Applied(hostPool().With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj(), sticky("a").Obj())
	e.Reconciled("a").Served("10.0.0.2")
	release := func(name string) {
		e.t.Helper()
		e.Deleted(claim(name).Obj())
		for range 3 { // its IPAddress is deleted, then gone, and then the claim
			e.Reconciled(name)
		}
		e.Gone(claim(name).Obj())
	}
	release("a")
	e.Applied(sticky("b").Obj(), sticky("c").Obj(), sticky("other").Annotation(v1alpha1.AnnotationSticky, "other").Obj())
	e.Reconciled("other").Served("10.0.0.3")
	if _, waits := e.controller.expectations.unretained.Load(ipam.Name{Namespace: story.Team, Name: "other"}); waits {
		e.t.Error("a claim that is served is noted as one that waits")
	}
	q := e.Started(e.controller.records())
	for range 9 { // it is neither refused nor put into the queue
		e.Reconciled("b").Wrote().HasEvents(0).After(cacheTimeout)
	}
	e.Collected(holderNamed(story.Team, "a"))
	q.Enqueued("team/a", "team/b")
	e.Reconciled("b").Served("10.0.0.2")
	e.Reconciled("c").Served("10.0.0.4") // while b stays

	e.Applied(sticky("d").Obj())
	release("b")
	e.Reconciled("d").Wrote().After(cacheTimeout)
	e.Passes(time.Minute) // it cannot be retained
	e.Reconciled("d").Served("10.0.0.5")
}

// addresses holds the verbs for claims of addresses.
type addresses struct {
	*story.World
	t          *testing.T
	controller *Controller
}

func newAddressStory(t *testing.T, plane *story.Plane) *addresses {
	t.Helper()
	e := &addresses{World: plane.Begin(t), t: t}
	e.controller = attachReplica(e.Replica, &Controller{Client: e.K8s, Live: e.K8s, Asker: e.Asker(), Orphans: noted{}, Clock: e.Clock, Events: e.Events})
	return e
}

// Reconciled calls Reconcile for a claim, or for the IPAddress of its name.
func (e *addresses) Reconciled(name string) *pass {
	e.t.Helper()
	obj := claim(name).Obj()
	return &pass{e.World.Reconciled(e.controller, obj), e, obj}
}

// Retried calls Reconcile for a claim, and expects a retry.
func (e *addresses) Retried(name string) *pass {
	e.t.Helper()
	obj := claim(name).Obj()
	return &pass{e.World.Retried(e.controller, obj), e, obj}
}

func (e *addresses) stored(name string) *ipamv1.IPAddressClaim {
	e.t.Helper()
	return story.Stored(e.World, claim(name).Obj())
}

// record returns the only record of a claim.
func (e *addresses) record(name string) ipam.Record {
	e.t.Helper()
	records := e.RecordsOf(holderNamed(story.Team, name))
	if len(records) != 1 {
		e.t.Fatalf("%d addresses are recorded for %s, want 1", len(records), name)
	}
	return records[0]
}

// kept makes the record of an address of an earlier claim of the name, in a state in which it is
// kept without holder.
func (e *addresses) kept(name, addr string, state ipam.State) ipam.Record {
	e.t.Helper()
	kept := ipam.Record{
		Name: ipam.Name{Namespace: story.Team, Name: name + "-12345678"}, Block: netip.MustParsePrefix(addr + "/32"), Pool: ipam.PoolNamed("hosts"),
		Holder: holderNamed(story.Team, name), HolderUID: "former", Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete,
		State: state, ReleaseAfter: e.Clock.Now().Add(time.Hour), Project: story.Team,
	}
	e.Recorded(kept)
	return kept
}

// pause pauses the Cluster, or resumes it.
func (e *addresses) pause(paused bool) {
	e.t.Helper()
	story.Edited(e.World, newCluster("fleet", false), func(c *clusterv1.Cluster) { c.Spec.Paused = &paused })
}

// hostPool returns a pool of host addresses, of which the first is the gateway's.
func hostPool() *build.PoolBuilder {
	return build.Pool("hosts").CIDR("10.0.0.0/24").Network(24, "10.0.0.1")
}

// claim returns a claim with the finalizer that admission adds.
func claim(name string) *build.AddressClaimBuilder {
	return build.AddressClaim(story.Team, name).Finalizer(v1alpha1.FinalizerRelease)
}

// address returns an IPAddress as a user makes it.
func address(name, addr string) *ipamv1.IPAddress {
	bits := int32(24)
	return &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: story.Team, Name: name},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: name}, PoolRef: claim(name).Pool("hosts").Obj().Spec.PoolRef, Address: addr, Prefix: &bits,
		},
	}
}

func allocation(record ipam.Record) *v1alpha1.IPAllocation {
	return &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: record.Name.Namespace, Name: record.Name.Name}}
}

// newCluster returns a Cluster.
func newCluster(name string, paused bool) *clusterv1.Cluster {
	return &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: story.Team, Name: name}, Spec: clusterv1.ClusterSpec{Paused: &paused}}
}

// pass holds the effects of one pass over a claim.
type pass struct {
	*story.Pass
	e     *addresses
	claim *ipamv1.IPAddressClaim
}

// Served expects the claim to have an address, and to state so.
func (p *pass) Served(addr string) *pass {
	p.e.t.Helper()
	p.Ready()
	if got := p.claim.Status.AddressRef.Name; got != p.claim.Name {
		p.e.t.Fatalf("%s names the IPAddress %q, want its own", p.claim.Name, got)
	}
	if got := story.Stored(p.e.World, address(p.claim.Name, "")).Spec.Address; got != addr {
		p.e.t.Fatalf("%s has the address %s, want %s", p.claim.Name, got, addr)
	}
	return p
}

// attachReplica sets the parts of a replica in a controller.
func attachReplica(r replica.Replica, c *Controller) *Controller {
	c.Ledger, c.Catalog, c.Queue, c.Allocator, c.Metrics = r.Ledger, r.Catalog, r.Queue, r.Allocator, r.Metrics
	return c
}
