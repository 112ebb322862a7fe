package ippool

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func TestInClusterPools(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*pools){
		"a pool of many blocks has several records":                         severalRecords,
		"a pool that the in-cluster provider serves":                        servedByProvider,
		"two pools that exchange all of their addresses":                    exchanged,
		"the record of another pool that has lost is left out":              lostRecordLeftOut,
		"a pool in another routing domain gives up the former one":          movedDomain,
		"a pool of several records that is edited, of which a call fails":   severalFails,
		"a pool of several records that is made again while it is edited":   severalReplaced,
		"a pool in another routing domain, of which a call fails":           movedFails,
		"a deleted pool, of which a call fails":                             deletedGlobalFails,
		"a pool that exchanges all of its addresses, of which a call fails": exchangedFails,
	} {
		t.Run(name, func(t *testing.T) { tell(newPoolStory(t, plane)) })
	}
}

// global returns a pool of the in-cluster provider's kind.
func global(name string, addresses ...string) *incluster.GlobalInClusterIPPool {
	obj := &incluster.GlobalInClusterIPPool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	obj.Spec.Addresses, obj.Spec.Prefix, obj.Spec.AllocateReservedIPAddresses = addresses, 16, true
	return obj
}

func globalKey(name string) ipam.PoolKey {
	return ipam.PoolOfKind(ipam.PoolKindGlobalInClusterIPPool, "", name)
}

func (e *pools) globals() reconcile.Reconciler {
	return reconcile.AsReconciler(e.K8s, poolReconciler[*incluster.GlobalInClusterIPPool]{e.controller})
}

// globalReady calls Reconcile for a pool, and expects that it is Ready, and what its own records have
// afterwards.
func (e *pools) globalReady(name string, want ...string) {
	e.t.Helper()
	e.World.Reconciled(e.globals(), global(name)).Ready()
	e.globalHas(name, want...)
}

// globalHas expects what the own records of a stored pool have: their routing domains and blocks. Those of
// an earlier pool of the name are collected.
func (e *pools) globalHas(name string, want ...string) {
	e.t.Helper()
	e.Seen()
	uid := string(story.Stored(e.World, global(name)).UID)
	var got []string
	for _, record := range e.RecordsOf(convert.HolderOfPool(globalKey(name))) {
		if record.State == ipam.StateBound && record.HolderUID == uid {
			got = append(got, fmt.Sprint(record.Pool.Name, record.Blocks()))
		}
	}
	expectSame(e.t, got, want)
}

// states expects a part of the message of a pool's condition.
func (e *pools) states(name, condition, part string) {
	e.t.Helper()
	obj := story.Stored(e.World, global(name))
	if c := meta.FindStatusCondition(obj.Status.Conditions, condition); c == nil || !strings.Contains(c.Message, part) {
		e.t.Fatalf("%s of %s is %+v, want %q", condition, name, c, part)
	}
}

func (e *pools) editedGlobal(name string, addresses ...string) {
	e.t.Helper()
	story.Edited(e.World, global(name), func(p *incluster.GlobalInClusterIPPool) { p.Spec.Addresses = addresses })
}

// odd returns n odd addresses of 10.m.0.0/24, in as many blocks.
func odd(m, n int) []string {
	addresses := make([]string, n)
	for i := range addresses {
		addresses[i] = fmt.Sprintf("10.%d.0.%d", m, 2*i+1)
	}
	return addresses
}

// recordOf returns the blocks of addresses, as globalHas does.
func recordOf(addresses ...string) string {
	return "default[" + strings.Join(addresses, "/32 ") + "/32]"
}

// servedByProvider expects that the counts and the finalizer of a pool are the provider's while it runs.
func servedByProvider(e *pools) {
	runs := true
	e.controller.IsProviderRunning = func() bool { return runs }
	e.Created(global("nodes", "10.0.0.0/31"))
	e.World.Reconciled(e.globals(), global("nodes")).NotReady(v1alpha1.ReasonProviderRunning)
	if status := story.Stored(e.World, global("nodes")).PoolStatus(); status.Capacity != nil || !meta.IsStatusConditionFalse(status.Conditions, v1alpha1.ConditionExhausted) {
		e.t.Errorf("its status is %+v", status)
	}
	e.inUse("nodes", "a", "10.0.0.0/31")
	e.World.Reconciled(e.globals(), global("nodes")).NotReady(v1alpha1.ReasonProviderRunning)
	if conditions := story.Stored(e.World, global("nodes")).PoolStatus().Conditions; !meta.IsStatusConditionTrue(conditions, v1alpha1.ConditionExhausted) {
		e.t.Errorf("without any address left, its conditions are %+v", conditions)
	}
	e.Collected(story.Claim("a"))
	e.Deleted(global("nodes"))
	e.World.Reconciled(e.globals(), global("nodes"))
	story.Stored(e.World, global("nodes")) // it is protected
	runs = false
	e.World.Reconciled(e.globals(), global("nodes"))
	e.Gone(global("nodes"))
}

func severalRecords(e *pools) {
	addresses := odd(0, 100)
	e.Created(global("nodes", addresses...))
	e.globalReady("nodes", recordOf(addresses[:64]...), recordOf(addresses[64:]...))
	e.editedGlobal("nodes", addresses[1:]...)
	e.globalReady("nodes", recordOf(addresses[1:65]...), recordOf(addresses[65:]...))
	e.Passes(time.Second)
	e.World.Reconciled(e.globals(), global("nodes")).Ready().After(0)
	e.World.Reconciled(e.globals(), global("nodes")).Ready().Wrote()
}

func exchanged(e *pools) {
	e.Created(global("a", "10.0.0.4/30"), global("b", "10.0.0.8/30"))
	e.globalReady("a", "default[10.0.0.4/30]")
	e.globalReady("b", "default[10.0.0.8/30]")
	e.editedGlobal("a", "10.0.0.8/30")
	e.editedGlobal("b", "10.0.0.4/30")
	e.World.Reconciled(e.globals(), global("a")).NotReady(v1alpha1.ReasonConflict).After(recheck)
	e.globalReady("b", "default[10.0.0.4/30]")
	e.globalReady("a", "default[10.0.0.8/30]")
}

func lostRecordLeftOut(e *pools) {
	own := func(name, block string) ipam.Record {
		r := story.Block("", "", block)
		r.Pool, r.Holder, r.Purpose = ipam.DomainNamed("default", ipam.IPv4), convert.HolderOfPool(ipam.PoolNamed(name)), ipam.PurposePool
		r.Name = convert.RecordOfPool(story.System, ipam.PoolNamed(name))
		return r
	}
	e.Recorded(own("first", "10.0.0.4/31"))
	e.Recorded(own("lost", "10.0.0.4/30"))
	e.Created(global("nodes", "10.0.0.0/28"))
	e.globalReady("nodes", "default[10.0.0.0/30 10.0.0.8/29]")
	e.states("nodes", v1alpha1.ConditionAllocated, "lost")
	e.Passes(time.Second)
	e.World.Reconciled(e.globals(), global("nodes")).Ready().After(recheck)
	e.Collected(convert.HolderOfPool(ipam.PoolNamed("lost")))
	e.globalReady("nodes", "default[10.0.0.0/30 10.0.0.6/31 10.0.0.8/29]")
	e.Recorded(own("lost", "10.0.0.8/30"))
	e.globalReady("nodes", "default[10.0.0.0/30 10.0.0.6/31 10.0.0.8/29]")
	e.editedGlobal("nodes", "10.0.0.0/29")
	e.globalReady("nodes", "default[10.0.0.0/30 10.0.0.6/31]")
	e.Recorded(own("third", "10.0.1.0/31"))
	vips := global("vips", "10.0.1.0/30")
	e.Created(vips)
	lost := own("", "10.0.1.0/30")
	lost.Name, lost.Holder, lost.HolderUID = convert.RecordOfPool(story.System, globalKey("vips")), convert.HolderOfPool(globalKey("vips")), string(vips.UID)
	e.Recorded(lost)
	e.globalReady("vips", "default[10.0.1.2/31]")
}

func (e *pools) moved(name, domain string) {
	e.t.Helper()
	story.Edited(e.World, global(name), func(p *incluster.GlobalInClusterIPPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, incluster.AnnotationRoutingDomain, domain)
	})
}

// inUse records an address of a pool.
func (e *pools) inUse(pool, name, address string) {
	e.t.Helper()
	record := story.Block(name, "", address)
	record.Pool = globalKey(pool)
	e.Recorded(record)
}

func movedDomain(e *pools) {
	e.Created(global("nodes", "10.0.0.4/30"))
	e.globalReady("nodes", "default[10.0.0.4/30]")
	for range 2 { // the names of the records differ
		e.moved("nodes", "lab")
		e.globalReady("nodes", "lab[10.0.0.4/30]")
		e.moved("nodes", "default")
		e.globalReady("nodes", "default[10.0.0.4/30]")
	}
	e.inUse("nodes", "a", "10.0.0.4/32")
	e.moved("nodes", "lab")
	e.globalReady("nodes", "default[10.0.0.4/30]", "lab[10.0.0.4/30]")
	e.Collected(story.Claim("a"))
	e.globalReady("nodes", "lab[10.0.0.4/30]")
}

// numberedGlobal returns a pool of two records, that is then edited.
func (e *pools) numberedGlobal(n int) *incluster.GlobalInClusterIPPool {
	name, addresses := fmt.Sprintf("g%d", n), odd(n, 80)
	obj := global(name, addresses...)
	e.Created(obj.DeepCopy())
	e.globalReady(name, recordOf(addresses[:64]...), recordOf(addresses[64:]...))
	e.inUse(name, name+"-kept", addresses[70]+"/32")
	e.editedGlobal(name, addresses[1:]...)
	return obj
}

// globalInterruption returns one of the passes over a pool, which has the records in the end.
func (e *pools) globalInterruption(name string, act func(), want ...string) story.Interruption {
	return story.Interruption{By: e.globals(), Object: global(name), Act: act, Check: func() { e.globalReady(name, want...) }}
}

func severalFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		obj, addresses := e.numberedGlobal(n), odd(n, 80)
		return e.globalInterruption(obj.Name, nil, recordOf(addresses[1:65]...), recordOf(addresses[65:]...))
	})
}

func severalReplaced(e *pools) {
	e.Interrupted(func(n int) story.Interruption {
		obj, addresses := e.numberedGlobal(n), odd(n, 80)
		return e.globalInterruption(obj.Name, func() { e.Replaced(obj) }, recordOf(addresses[:64]...), recordOf(addresses[64:]...))
	})
}

// deletedGlobalFails makes each call fail for a pool that is deleted.
func deletedGlobalFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		name, addresses := fmt.Sprintf("d%d", n), fmt.Sprintf("10.%d.0.4/30", n)
		e.Created(global(name, addresses))
		e.globalReady(name, "default["+addresses+"]")
		e.Deleted(global(name))
		i := e.globalInterruption(name, nil)
		i.Check = func() { e.Gone(global(name)) }
		return i
	})
}

func movedFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		name, addresses := fmt.Sprintf("m%d", n), fmt.Sprintf("10.%d.0.4/30", n)
		e.Created(global(name, addresses))
		e.globalReady(name, "default["+addresses+"]")
		e.moved(name, "lab")
		return e.globalInterruption(name, nil, "lab["+addresses+"]")
	})
}

func exchangedFails(e *pools) {
	e.Failing(func(n int) story.Interruption {
		name, other := fmt.Sprintf("x%d", n), fmt.Sprintf("y%d", n)
		e.Created(global(name, fmt.Sprintf("10.%d.0.4/30", n)), global(other, fmt.Sprintf("10.%d.0.8/30", n)))
		e.globalReady(name, fmt.Sprintf("default[10.%d.0.4/30]", n))
		e.globalReady(other, fmt.Sprintf("default[10.%d.0.8/30]", n))
		e.editedGlobal(name, fmt.Sprintf("10.%d.0.8/30", n))
		i := e.globalInterruption(name, nil)
		i.Check = func() {
			e.globalHas(name)
			e.editedGlobal(other, fmt.Sprintf("10.%d.0.4/30", n))
			e.globalReady(other, fmt.Sprintf("default[10.%d.0.4/30]", n))
			e.globalReady(name, fmt.Sprintf("default[10.%d.0.8/30]", n))
		}
		return i
	})
}
