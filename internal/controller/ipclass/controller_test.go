package ipclass

import (
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/story"
)

func TestClasses(t *testing.T) {
	plane := story.Start(t, cluster.Options{})
	for name, tell := range map[string]func(*classes){
		"a class without pool states so until one backs it":     withoutPool,
		"a class adds up the pools that hand out its family":    sumOfPools,
		"a pool that is deleted backs no class any more":        deletedPool,
		"a status is not written where nothing has changed":     unchangedClass,
		"counts are written at most once a second":              throttledCounts,
		"the younger of two defaults states that it is none":    twoDefaults,
		"a replaced default names its successor":                replacedDefault,
		"a class states the demand that its provisioner serves": demandOfClass,
		"a class that is deleted is left alone":                 deletedClass,
		"a class that is made again while it is counted":        recreatedClass,
		"a class of which a call fails":                         countFails,
		"a class is enqueued when it or a pool of it changes":   changedPools,
		"a class is enqueued when a record of it changes":       changedRecords,
	} {
		t.Run(name, func(t *testing.T) { tell(newClassStory(t, plane)) })
	}
}

func withoutPool(e *classes) {
	e.Applied(build.Class("gold").Obj())
	e.Reconciled("gold").Counts(0, "0", "0").Ready().Reason(v1alpha1.ReasonNoPools)
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	e.Reconciled("gold").Counts(1, "256", "256").Ready().Reason(v1alpha1.ReasonReady)
}

func sumOfPools(e *classes) {
	e.Applied(
		build.Class("gold").Obj(),
		build.Pool("a").CIDR("10.0.0.0/24").Classes("gold").Obj(),
		build.Pool("b").CIDR("10.0.1.0/24").Classes("gold", "silver").Obj(),
		build.Pool("of-another").CIDR("10.0.2.0/24").Classes("silver").Obj(),
		build.Pool("of-ipv6").CIDR("2001:db8::/64").Classes("gold").Obj(),
	)
	e.Created(build.Pool("not-recorded").CIDR("10.0.3.0/24").Classes("gold").Obj())
	e.Applied(build.Pool("somebodys").CIDR("10.0.4.0/24").Classes("gold").In(story.Team))
	e.Recorded(story.Block("c", "a", "10.0.0.0/25"))
	pass := e.Reconciled("gold").Counts(2, "512", "384")
	pass.Ready()
	want := v1alpha1.Capacity{Total: "512", Allocated: "128", Available: "384", Withheld: "0", OutOfRange: "0"}
	if got := pass.class.Status; *got.Capacity != want || got.ObservedGeneration != pass.class.Generation {
		e.t.Errorf("the status is %+v of generation %d, want %+v of %d", got.Capacity, got.ObservedGeneration, want, pass.class.Generation)
	}
	story.Edited(e.World, build.Pool("a").Obj(), func(p *v1alpha1.IPPool) { p.Spec.Reserved = []string{"10.0.0.0/26", "10.0.0.128/26"} })
	e.Passes(time.Second)
	want = v1alpha1.Capacity{Total: "512", Allocated: "128", Available: "320", Withheld: "128", OutOfRange: "64"}
	if got := e.Reconciled("gold").class.Status.Capacity; *got != want {
		e.t.Errorf("the status counts %+v, want %+v", got, want)
	}
}

func deletedPool(e *classes) {
	e.Applied(build.Class("gold").Obj(), build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	e.Reconciled("gold").Ready()
	e.Deleted(build.Pool("p").Obj())
	e.Reconciled("gold").Counts(0, "0", "0").Ready().Reason(v1alpha1.ReasonNoPools)
}

func unchangedClass(e *classes) {
	e.Applied(build.Class("gold").Obj(), build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	e.Reconciled("gold").Ready().Wrote("patch IPClass/status")
	e.Passes(time.Hour)
	e.Reconciled("gold").Ready().Wrote().After(0)
}

func throttledCounts(e *classes) {
	e.Applied(build.Class("gold").Obj(), build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	e.Reconciled("gold").Counts(1, "256", "256")
	e.Passes(900 * time.Millisecond)
	e.Recorded(story.Block("c", "p", "10.0.0.0/25"))
	e.Reconciled("gold").Counts(1, "256", "256").Wrote().After(100 * time.Millisecond)
	e.Passes(100 * time.Millisecond)
	e.Reconciled("gold").Counts(1, "256", "128").Wrote("patch IPClass/status").After(0)
	e.Deleted(build.Pool("p").Obj())
	e.Reconciled("gold").Ready().Reason(v1alpha1.ReasonNoPools).Wrote("patch IPClass/status") // written at once: no pool is left, which is more than a count
}

func twoDefaults(e *classes) {
	e.Applied(
		build.Class("a").Default().Obj(), build.Class("b").Default().Obj(), build.Class("six").V6().Default().Obj(),
		build.Pool("four").CIDR("10.0.0.0/24").Classes("a", "b").Obj(), build.Pool("six").CIDR("2001:db8::/64").Classes("six").Obj(),
	)
	e.Reconciled("a").Ready()
	e.Reconciled("b").NotReady(v1alpha1.ReasonNotDefault).Saying(`the IPClass "a" is older`)
	e.Reconciled("six").Ready() // of another family
	e.Deleted(build.Class("a").Obj())
	e.Reconciled("b").Ready()
}

func replacedDefault(e *classes) {
	younger := build.Class("b").Default().Obj()
	younger.Annotations[v1alpha1.AnnotationReplacesDefault] = "a"
	e.Applied(build.Class("a").Default().Obj(), younger, build.Pool("four").CIDR("10.0.0.0/24").Classes("a", "b").Obj())
	e.Reconciled("a").NotReady(v1alpha1.ReasonNotDefault).Saying(`the IPClass "b" replaces this one`)
	e.Reconciled("b").Ready()
}

func demandOfClass(e *classes) {
	provisioned := func(s *v1alpha1.IPClassSpec) { s.Provisioner = "example.com/ipam" }
	e.Applied(build.Class("gold").With(provisioned).Obj(), build.Class("silver").Obj())
	wait := func(claim, class string, length int) {
		name := ipam.Name{Namespace: story.Team, Name: claim}
		e.Replica.Queue.Wait(queue.Waiter{Holder: convert.HolderOfClaim(name), Request: ipam.Request{Claim: name, Class: class, Length: length}})
	}
	isListed := false
	e.Replica.Queue.AddSource(func() bool { return isListed })
	q := e.Started(e.by.demand())
	wait("a", "gold", 28)
	e.Reconciled("gold").Demands().After(time.Second) // not all claims have been seen
	isListed = true
	if err := e.Replica.Queue.Synced(); err != nil {
		e.t.Fatal(err)
	}
	q.Enqueued("gold")
	e.Passes(time.Second)
	e.Reconciled("gold").Demands(v1alpha1.ClassDemand{PrefixLength: 28, Claims: 1}).Ready().Reason(v1alpha1.ReasonNoPools).Saying("example.com/ipam")
	wait("b", "gold", 28)
	wait("c", "gold", 26)
	wait("d", "silver", 26)
	q.Enqueued("gold", "gold after 1s")
	e.Passes(900 * time.Millisecond)
	e.Reconciled("gold").Demands(v1alpha1.ClassDemand{PrefixLength: 28, Claims: 1}).Wrote().After(100 * time.Millisecond)
	e.Passes(100 * time.Millisecond)
	e.Reconciled("gold").Demands(v1alpha1.ClassDemand{PrefixLength: 26, Claims: 1}, v1alpha1.ClassDemand{PrefixLength: 28, Claims: 2}).Wrote("patch IPClass/status")
	e.Reconciled("silver").Demands()
}

func deletedClass(e *classes) {
	class := build.Class("gold").Obj()
	class.Finalizers = []string{"example.com/in-use"}
	e.Applied(class)
	e.Deleted(class)
	e.Reconciled("gold").Wrote()
}

func recreatedClass(e *classes) {
	e.Applied(build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj())
	e.Interrupted(func(n int) story.Interruption {
		class := build.Class(fmt.Sprintf("gold%d", n)).Obj()
		e.Applied(class.DeepCopy())
		return story.Interruption{By: e.controller, Object: class.DeepCopy(), Act: func() { e.Replaced(class) }, Check: func() {
			e.Reconciled(class.Name).Counts(0, "0", "0").Ready().Wrote()
		}}
	})
}

func countFails(e *classes) {
	e.Failing(func(n int) story.Interruption {
		class := build.Class(fmt.Sprintf("gold%d", n)).Obj()
		e.Applied(class, build.Pool(fmt.Sprintf("p%d", n)).CIDR(fmt.Sprintf("10.0.%d.0/24", n)).Classes(class.Name).Obj())
		return story.Interruption{By: e.controller, Object: class, Check: func() {
			e.Reconciled(class.Name).Counts(1, "256", "256").Ready().Wrote()
		}}
	})
}

// classes holds the verbs for classes.
type classes struct {
	*story.World
	t          *testing.T
	by         *Controller
	controller reconcile.Reconciler
}

func newClassStory(t *testing.T, plane *story.Plane) *classes {
	t.Helper()
	e := &classes{World: plane.Begin(t), t: t}
	e.by = attachReplica(e.Replica, &Controller{Client: e.K8s, Throttle: kubeutil.NewThrottle(time.Second, e.Clock)})
	e.controller = reconcile.AsReconciler(e.K8s, e.by)
	return e
}

// Reconciled calls Reconcile for a class.
func (e *classes) Reconciled(name string) *pass {
	e.t.Helper()
	obj := build.Class(name).Obj()
	return &pass{e.World.Reconciled(e.controller, obj), e.t, obj}
}

// pass holds the effects of one pass over a class.
type pass struct {
	*story.Pass
	t     *testing.T
	class *v1alpha1.IPClass
}

// Counts expects the number of pools that back the class, and the total and free addresses of these
// pools.
func (p *pass) Counts(pools int32, total, available string) *pass {
	p.t.Helper()
	status := p.class.Status
	if status.Capacity == nil || status.Pools != pools || status.Capacity.Total != total || status.Capacity.Available != available {
		p.t.Fatalf("the status counts %d pools and %+v, want %d pools, %s addresses, %s available", status.Pools, status.Capacity, pools, total, available)
	}
	return p
}

// Demands expects the demand in the status.
func (p *pass) Demands(want ...v1alpha1.ClassDemand) *pass {
	p.t.Helper()
	if got := p.class.Status.Demand; !slices.Equal(got, want) {
		p.t.Fatalf("the demand is %v, want %v", got, want)
	}
	return p
}

// changedPools expects that the classes of a cluster-scoped pool are enqueued when it changes.
func changedPools(e *classes) {
	q := e.Started(e.by.changes())
	e.Applied(build.Class("gold").Default().Obj(), build.Class("silver").Obj())
	q.Enqueued("gold", "silver")
	pool := build.Pool("p").CIDR("10.0.0.0/24").Classes("gold").Obj()
	e.Created(pool)
	q.Enqueued("gold")
	story.Edited(e.World, pool, func(p *v1alpha1.IPPool) { p.Spec.ClassNames = []string{"silver"} })
	q.Enqueued("gold", "silver")
	e.Created(build.Pool("p").CIDR("10.0.1.0/24").Classes("gold").In(story.Team))
	q.Enqueued()
}

// changedRecords expects that the classes of a pool are enqueued when a block of it is added or
// removed, and when its own record is, but not more often than they are counted.
func changedRecords(e *classes) {
	e.Created(build.Pool("p").CIDR("10.0.0.0/24").Classes("gold", "silver").Obj(), build.Pool("p").CIDR("10.0.1.0/24").Classes("gold").In(story.Team))
	q := e.Started(e.by.records())
	record := convert.Allocation(story.Block("a", "p", "10.0.0.0/28"))
	e.Created(record)
	q.Enqueued("gold", "silver")
	story.Edited(e.World, record, func(r *v1alpha1.IPAllocation) { r.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain })
	q.Enqueued()
	e.Forced(record)
	q.Enqueued("gold after 1s", "silver after 1s")
	local := story.Block("b", "p", "10.0.1.0/28")
	local.Pool = ipam.PoolKey{Kind: ipam.PoolKindLocalIPPool, Namespace: story.Team, Name: "p"}
	e.Recorded(local)
	q.Enqueued()
	e.Passes(2 * time.Second)
	own := story.Block("p", "above", "10.0.0.0/24")
	own.Name, own.Holder, own.Purpose = ipam.Name{Namespace: story.System, Name: "ippool.p"}, convert.HolderOfPool(ipam.PoolNamed("p")), ipam.PurposePool
	e.Recorded(own)
	q.Enqueued("gold", "silver")
}

// TestClassConditionStatesRemedy covers each of its reasons.
func TestClassConditionStatesRemedy(t *testing.T) {
	r := replica.New(replica.Options{})
	c := attachReplica(r, &Controller{})
	c.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "first", Family: ipam.IPv4}, Default: true, Created: time.Unix(1, 0)})
	var rows []messages.Row
	for _, test := range []struct {
		reason, value string
		edit          func(*v1alpha1.IPClass)
	}{
		{v1alpha1.ReasonNoPools, "example.com/ipam", func(class *v1alpha1.IPClass) { class.Status.Pools, class.Spec.Provisioner = 0, "example.com/ipam" }},
		{v1alpha1.ReasonNotDefault, `"first"`, func(class *v1alpha1.IPClass) {
			class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
		}},
		{v1alpha1.ReasonNotDefault, `"next"`, func(class *v1alpha1.IPClass) {
			class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
			c.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "next", Family: ipam.IPv4}, Default: true, Replaces: "gold"})
		}},
		{v1alpha1.ReasonNoPools, "", func(class *v1alpha1.IPClass) { class.Status.Pools = 0 }},
		{v1alpha1.ReasonReady, "", func(*v1alpha1.IPClass) {}},
	} {
		class := &v1alpha1.IPClass{ObjectMeta: metav1.ObjectMeta{Name: "gold"}, Spec: v1alpha1.IPClassSpec{IPFamily: v1alpha1.IPv4}}
		class.Status.Pools = 1
		test.edit(class)
		read, _ := convert.Class(class)
		c.condition(class, read)
		ready := class.Status.Conditions[0]
		if ready.Reason != test.reason {
			t.Errorf("got reason %s, want %s", ready.Reason, test.reason)
		}
		rows = append(rows, messages.Row{Object: "IPClass", On: "condition Ready", Answer: string(ready.Status) + ", " + ready.Reason, Value: test.value, Message: ready.Message})
	}
	messages.Golden(t, rows)
}

// attachReplica sets the parts of a replica in a controller.
func attachReplica(r replica.Replica, c *Controller) *Controller {
	c.Ledger, c.Catalog, c.Queue, c.Metrics = r.Ledger, r.Catalog, r.Queue, r.Metrics
	return c
}

func TestDemandIsClearedWithoutProvisioner(t *testing.T) {
	class := &v1alpha1.IPClass{}
	class.Status.Demand = []v1alpha1.ClassDemand{{PrefixLength: 28, Claims: 1}}
	if result := (&Controller{}).countDemand(class, ipam.Class{}); class.Status.Demand != nil || result.RequeueAfter > 0 {
		t.Errorf("the demand is %v, and it is counted again after %s", class.Status.Demand, result.RequeueAfter)
	}
}
