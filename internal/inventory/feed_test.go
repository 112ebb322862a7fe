package inventory

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestOpenSinceIsFirstReadyTime(t *testing.T) {
	first, since := metav1.NewTime(time.Date(2029, 1, 1, 0, 0, 0, 0, time.UTC)), metav1.NewTime(time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC))
	a := newUnsyncedCatalog()
	for name, c := range map[string]struct {
		first      *metav1.Time
		conditions []metav1.Condition
		want       time.Time
	}{
		"no condition is set": {nil, nil, time.Time{}},
		"it is not ready":     {nil, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: since}}, time.Time{}},
		"it is ready":         {nil, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since}}, since.Time},
		"it was ready":        {&first, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: since}}, first.Time},
		"it is ready again":   {&first, []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: since}}, first.Time},
	} {
		pool := build.Pool("p").CIDR("10.0.0.0/24").Obj()
		pool.Status.FirstReadyTime, pool.Status.Conditions = c.first, c.conditions
		a.recordPool(pool)
		if got, _ := a.Pool(ipam.PoolNamed("p")); !got.OpenSince.Equal(c.want) {
			t.Errorf("%s: since %v, want %v", name, got.OpenSince, c.want)
		}
	}
}

func TestUnreadableClassIsRemoved(t *testing.T) {
	a := newUnsyncedCatalog()
	class := build.Class("gold").Length(28).Obj()
	class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
	a.onClassUpdate(class)
	if got, ok := a.Class("gold"); !ok || !got.Default || got.Length != 28 {
		t.Errorf("got %+v, %t; want it, as the default", got, ok)
	}
	class = class.DeepCopy()
	class.Annotations[v1alpha1.AnnotationDefaultClass] = "false"
	a.onClassUpdate(class)
	if got, _ := a.Class("gold"); got.Default {
		t.Error("it is the default still")
	}
	class = class.DeepCopy()
	class.Spec.DefaultPrefixLength = new(int32(200))
	a.onClassUpdate(class)
	if got, ok := a.Class("gold"); ok {
		t.Errorf("got %+v, which cannot be read", got)
	}
}

// entries is the largest number of ranges in a pool, and of reserved ones.
const entries = 1024

// largestPool returns a pool of ::/0 that states as much as it can: ranges at random places, and a
// reserved one inside each of them.
func largestPool(random *rand.Rand, n int) *v1alpha1.IPPool {
	ends := make([]netip.Addr, 4*entries)
	for i := range ends {
		var bytes [16]byte
		for j := range bytes {
			bytes[j] = byte(random.Uint32())
		}
		ends[i] = netip.AddrFrom16(bytes)
	}
	slices.SortFunc(ends, netip.Addr.Compare)
	pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("p%d", n), UID: types.UID(fmt.Sprint(n)), Generation: 1}}
	pool.Spec.CIDR = "::/0"
	for four := range slices.Chunk(ends, 4) {
		pool.Spec.Ranges = append(pool.Spec.Ranges, four[0].String()+"-"+four[3].String())
		pool.Spec.Reserved = append(pool.Spec.Reserved, four[1].String()+"-"+four[2].String())
	}
	return pool
}

func newUnsyncedCatalog() *Catalog {
	return New(Options{Ledger: ledger.New(ledger.Options{Clock: clocktesting.NewFakeClock(metav1.Now().Time)})})
}

// heapInUse collects twice: the second collection frees the objects in a sync.Pool.
func heapInUse() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestLargestPoolTakes64KiB takes the median, as other code can allocate while it
// measures.
func TestLargestPoolTakes64KiB(t *testing.T) {
	const most = 64 << 10
	var sizes []int64
	for range 3 {
		sizes = append(sizes, sizeOfPool(t))
	}
	slices.Sort(sizes)
	t.Logf("a pool takes %v bytes", sizes)
	if got := sizes[len(sizes)/2]; got > most {
		t.Errorf("a pool takes %d bytes in ledger and catalog, want %d at most", got, most)
	}
}

// sizeOfPool returns the bytes that each of 100 pools takes that state all they can.
func sizeOfPool(t *testing.T) int64 {
	t.Helper()
	const pools = 100
	random, a := rand.New(rand.NewPCG(1, 2)), newUnsyncedCatalog()
	a.onPoolUpdate(largestPool(random, pools))
	before := heapInUse()
	for n := range pools {
		a.onPoolUpdate(largestPool(random, n))
	}
	each := (heapInUse() - before) / pools
	if c, ok := a.ledger.Capacity(ipam.PoolNamed("p0")); !ok || c.Withheld.IsZero() || c.Available.IsZero() {
		t.Fatalf("the pool is not there: %+v", c)
	}
	runtime.KeepAlive(a)
	return each
}

func TestPoolEventWithUnchangedSpecCostsNothing(t *testing.T) {
	const most = 4 << 10 // bytes
	a, pool := newUnsyncedCatalog(), largestPool(rand.New(rand.NewPCG(1, 2)), 0)
	a.onPoolUpdate(pool)
	pool.ResourceVersion, pool.Status.Allocations = "2", 7
	result := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			a.onPoolUpdate(pool)
		}
	})
	t.Logf("%v, %d bytes", result, result.AllocedBytesPerOp())
	if got := result.AllocedBytesPerOp(); got > most {
		t.Errorf("an event allocates %d bytes, want %d at most", got, most)
	}
}

func TestPoolUpdateIsApplied(t *testing.T) {
	for name, edit := range map[string]func(*v1alpha1.IPPool){
		"a new spec":       func(p *v1alpha1.IPPool) { p.Generation, p.Spec.Reserved = 2, p.Spec.Reserved[:1] },
		"another pool":     func(p *v1alpha1.IPPool) { p.UID, p.Spec.Reserved = "other", p.Spec.Reserved[:1] },
		"a label":          func(p *v1alpha1.IPPool) { p.Labels = map[string]string{"zone": "a"} },
		"that it pauses":   func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} },
		"that it is going": func(p *v1alpha1.IPPool) { p.DeletionTimestamp = new(metav1.Now()) },
	} {
		t.Run(name, func(t *testing.T) {
			a, pool := newUnsyncedCatalog(), largestPool(rand.New(rand.NewPCG(1, 2)), 0)
			a.onPoolUpdate(pool)
			edited := pool.DeepCopy()
			edit(edited)
			a.onPoolUpdate(edited)
			fresh := newUnsyncedCatalog()
			fresh.onPoolUpdate(edited)
			got, _ := a.Pool(ipam.PoolNamed("p0"))
			want, _ := fresh.Pool(ipam.PoolNamed("p0"))
			if fmt.Sprintf("%+v", got) == "" || !got.Withheld.Equal(want.Withheld) {
				t.Error("the withheld ranges are not those of the pool")
			}
			got.Withheld, want.Withheld = nil, nil
			if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
				t.Errorf("got:  %s\nwant: %s", g, w)
			}
		})
	}
}

// TestRequestWaitsForOwnRecordOfReadyPool covers a watch of records that is behind that of pools.
func TestRequestWaitsForOwnRecordOfReadyPool(t *testing.T) {
	const late = 300 * time.Millisecond
	pool := func(name, cidr string, edit func(*v1alpha1.IPPool)) *v1alpha1.IPPool {
		obj := build.Versioned(build.Pool(name).CIDR(cidr).Classes("gold").Label("zone", "a").Obj(), "5")
		obj.UID, obj.Status.FirstReadyTime = types.UID("uid-of-"+name), new(metav1.Unix(1, 0))
		edit(obj)
		return obj
	}
	ready := pool("p", "10.0.0.0/24", func(*v1alpha1.IPPool) {})
	fresh := pool("p", "10.0.0.0/24", func(p *v1alpha1.IPPool) { p.Status.FirstReadyTime = nil })
	pending := pool("z", "10.1.0.0/24", func(p *v1alpha1.IPPool) { p.Status.FirstReadyTime = nil })
	paused := pool("z", "10.1.0.0/24", func(p *v1alpha1.IPPool) {
		metav1.SetMetaDataAnnotation(&p.ObjectMeta, v1alpha1.AnnotationPaused, "true")
	})
	small := pool("a", "10.2.0.0/28", func(*v1alpha1.IPPool) {})
	other := pool("z", "10.1.0.0/24", func(*v1alpha1.IPPool) {})
	rival := pool("a", "10.0.0.0/24", func(*v1alpha1.IPPool) {})

	claim := ipam.Name{Namespace: "team", Name: "c"}
	byPool := ipam.Request{Claim: claim, Pool: ipam.PoolNamed("p"), Length: 26}
	byClass := ipam.Request{Claim: claim, Class: "gold", Length: 26}
	selects := ipam.Request{Claim: claim, Selects: func(labels map[string]string) bool { return labels["zone"] == "a" }, Length: 26}
	for name, c := range map[string]struct {
		request  ipam.Request // a child of the pool p without a claim
		pools    []*v1alpha1.IPPool
		recorded []*v1alpha1.IPPool
		shown    time.Duration // p
		waits    time.Duration
		isOpen   bool
	}{
		"pool":                          {byPool, []*v1alpha1.IPPool{ready}, nil, late, late, true},
		"class":                         {byClass, []*v1alpha1.IPPool{ready, pending}, nil, late, late, true},
		"selector":                      {selects, []*v1alpha1.IPPool{ready}, nil, late, late, true},
		"parent":                        {ipam.Request{}, []*v1alpha1.IPPool{ready}, nil, late, late, true},
		"beside one never shown":        {byClass, []*v1alpha1.IPPool{ready, other}, nil, late, late, true},
		"beside a paused pool":          {byClass, []*v1alpha1.IPPool{ready, paused}, []*v1alpha1.IPPool{paused}, late, late, true},
		"beside a pool too small":       {selects, []*v1alpha1.IPPool{ready, small}, []*v1alpha1.IPPool{small}, late, late, true},
		"never shown":                   {byPool, []*v1alpha1.IPPool{ready}, nil, time.Hour, recordDelay, false},
		"shown in the meantime":         {byPool, []*v1alpha1.IPPool{ready}, nil, 0, 0, true},
		"in conflict":                   {byPool, []*v1alpha1.IPPool{ready, rival}, []*v1alpha1.IPPool{rival, ready}, time.Hour, 0, false},
		"never ready":                   {byPool, []*v1alpha1.IPPool{fresh}, nil, late, 0, false},
		"no pool of the class is ready": {byClass, []*v1alpha1.IPPool{fresh, pending}, nil, late, 0, false},
		"no such pool":                  {byPool, nil, nil, late, 0, false},
		"no such class":                 {ipam.Request{Claim: claim, Class: "none"}, []*v1alpha1.IPPool{ready}, nil, late, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, catalog *Catalog) {
				catalog.SetProject("team", "team")
				catalog.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}}})
				for _, p := range c.pools {
					catalog.onPoolUpdate(p)
				}
				show := func(p *v1alpha1.IPPool) {
					catalog.ledger.PutRecord(ipam.Record{
						Name: ipam.Name{Namespace: "system", Name: "ippool." + p.Name}, UID: "record-of-" + p.Name, Version: "6", Block: netip.MustParsePrefix(p.Spec.CIDR),
						Pool:    ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: "default", Family: ipam.IPv4},
						Purpose: ipam.PurposePool, State: ipam.StateBound, Holder: convert.HolderOfPool(ipam.PoolNamed(p.Name)),
					})
				}
				for _, p := range c.recorded {
					show(p)
				}
				_, err := catalog.Resolve(c.request)
				if c.request.Claim == (ipam.Name{}) {
					_, err = catalog.ResolvePool(ipam.Pool{Key: ipam.PoolNamed("child"), Home: byPool.Pool, Length: 26})
				}
				if _, ok := errors.AsType[*ipam.MissingError](err); !ok {
					t.Fatalf("it is resolved, or fails: %v", err)
				}
				began := time.Now()
				if c.shown == 0 {
					show(ready)
				} else {
					defer time.AfterFunc(c.shown, func() { show(ready) }).Stop()
				}
				isOpen := catalog.AwaitRecords(t.Context(), err)
				if waited := time.Since(began); waited != c.waits || isOpen != c.isOpen {
					t.Errorf("after %v a pool is open: %t; want %v, %t", waited, isOpen, c.waits, c.isOpen)
				}
			})
		})
	}
}
