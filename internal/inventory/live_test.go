package inventory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// reader implements an API server that is read live, and counts lists.
type reader struct {
	client.Reader
	mu          sync.Mutex
	lists       int
	now, atOnce int
	each        time.Duration
}

func newReader(t *testing.T, each time.Duration, objects ...client.Object) *reader {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &reader{each: each}
	r.Reader = fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			r.mu.Lock()
			r.lists++
			r.now++
			r.atOnce = max(r.atOnce, r.now)
			r.mu.Unlock()
			<-time.After(r.each)
			r.mu.Lock()
			r.now--
			r.mu.Unlock()
			return c.List(ctx, list, opts...)
		},
	}).Build()
	return r
}

// TestLateReadDoesNotRestoreDeletedPool covers a read that was made before the pool was
// deleted, and is recorded after. The functions that follow the watch are not called for a read.
func TestLateReadDoesNotRestoreDeletedPool(t *testing.T) {
	runInBubble(t, func(t *testing.T, c *Catalog) {
		var followed []bool
		c.Follow(Follower{Pool: func(_ v1alpha1.Pool, exists bool) { followed = append(followed, exists) }})
		child := build.Pool("child").Child("p", 30).Obj()
		live := newReader(t, 0, build.Versioned(child, "8"))
		c.onPoolUpdate(build.Versioned(child, "7"))
		c.onPoolDelete(build.Versioned(child, "9"))
		for what, read := range map[string]func() error{
			"by its name": func() error { return c.Refresh(t.Context(), live, ipam.Request{Pool: ipam.PoolNamed("child")}) },
			"in a list":   func() error { return c.Refresh(t.Context(), live, ipam.Request{Class: "gold"}) },
		} {
			if err := read(); err != nil {
				t.Fatal(err)
			}
			if _, there := c.Pool(ipam.PoolNamed("child")); there {
				t.Errorf("read %s, the pool is known again", what)
			}
		}
		c.onPoolUpdate(build.Versioned(child, "12")) // made again
		if want := []bool{true, false, true}; !slices.Equal(followed, want) {
			t.Errorf("its follower was called with %v, want %v", followed, want)
		}
	})
}

// TestLiveReadIsNeverOlderThanWatch covers pools and classes. A read without news notifies of
// nothing.
func TestLiveReadIsNeverOlderThanWatch(t *testing.T) {
	runInBubble(t, func(t *testing.T, c *Catalog) {
		at := func(version string, classes ...string) *v1alpha1.IPPool {
			return build.Versioned(build.Pool("q").CIDR("10.1.0.0/24").Classes(classes...).Obj(), version)
		}
		c.onPoolUpdate(at("10", "gold"))
		var notifications int
		c.Listen(func(Change) { notifications++ })
		for _, step := range []struct {
			version, class, want string
			wantNotifications    int
		}{{"9", "silver", "gold", 0}, {"10", "silver", "gold", 0}, {"11", "silver", "silver", 1}, {"11", "silver", "silver", 1}, {"x", "gold", "silver", 1}} {
			c.recordLivePool(at(step.version, step.class))
			pool, _ := c.Pool(ipam.PoolNamed("q"))
			if pool.Classes[0] != step.want || notifications != step.wantNotifications {
				t.Errorf("read at %s: it backs %v, with %d notifications, want %s and %d", step.version, pool.Classes, notifications, step.want, step.wantNotifications)
			}
		}
		c.recordLivePool(at("11", "silver"))
		c.recordLivePool(at("12", "silver")) // its status alone
		if notifications != 1 {
			t.Errorf("%d notifications after a read without change, want 1", notifications)
		}
		class := build.Class("gold").Obj()
		class.ResourceVersion = "20"
		c.onClassUpdate(class.DeepCopy())
		c.onClassDelete(class)
		c.recordLiveClass(class)
		if _, there := c.Class("gold"); there {
			t.Error("a class that is gone is back by a late read")
		}
	})
}

// TestAwaitChangeReturnsAfterListeners covers the queue, which must hear of a pool before a create
// that waited for it looks for a block.
func TestAwaitChangeReturnsAfterListeners(t *testing.T) {
	runInBubble(t, func(t *testing.T, c *Catalog) {
		var returned atomic.Bool
		c.Listen(func(Change) {
			if synctest.Wait(); returned.Load() {
				t.Error("awaitChange returned before a listener was notified")
			}
		})
		c.SetProject("team-a", "red")
		go func() {
			c.awaitChange(t.Context())
			returned.Store(true)
		}()
		synctest.Wait()
		c.SetProject("team-a", "blue")
		if synctest.Wait(); returned.Load() {
			t.Error("awaitChange returned for a change of a namespace")
		}
		c.SetPool(ipam.Pool{Key: ipam.PoolNamed("p")})
		if synctest.Wait(); !returned.Load() {
			t.Error("awaitChange did not return for a new pool")
		}
		if n := len(c.listeners); n != 1 {
			t.Errorf("%d listeners are left, want the first alone", n)
		}
	})
}

// TestLiveListsAreSharedOncePerSecond sends many requests at once, for several seconds, all of
// which name a missing object.
func TestLiveListsAreSharedOncePerSecond(t *testing.T) {
	runInBubble(t, func(t *testing.T, c *Catalog) {
		live := newReader(t, 20*time.Millisecond)
		var all sync.WaitGroup
		began := time.Now()
		const requests, seconds = 100, 5
		for n := range requests * seconds {
			all.Go(func() {
				<-time.After(time.Duration(n) * time.Second / requests)
				before := time.Now()
				req := ipam.Request{Claim: ipam.Name{Namespace: fmt.Sprint("ns-", n%7), Name: "c"}}
				if n%2 == 0 {
					req.Class = "missing"
				}
				if err := c.Refresh(t.Context(), live, req); err != nil {
					t.Error(err)
				}
				if took := time.Since(before); took > 100*time.Millisecond {
					t.Errorf("it took %v", took)
				}
			})
		}
		all.Wait()
		if live.atOnce != 1 {
			t.Errorf("%d lists were made at once", live.atOnce)
		}
		if most := 3 * (int(time.Since(began)/time.Second) + 1); live.lists > most || live.lists < most/2 {
			t.Errorf("%d lists in %v, want at most %d, of three kinds", live.lists, time.Since(began), most)
		}
	})
}

func TestLiveListIsFreshForOneSecond(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	l := newLiveReads(clock)
	if l.isFresh() {
		t.Error("it is fresh before there is one")
	}
	l.lastList.Store(new(clock.Now()))
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {listInterval - 1, true}, {listInterval, false}, {2 * listInterval, false}} {
		clock.SetTime(time.Unix(1, 0).Add(step.after))
		if got := l.isFresh(); got != step.want {
			t.Errorf("after %v it is fresh: %t, want %t", step.after, got, step.want)
		}
	}
}

// TestRequestWaitsForPoolOnItsWay covers a pool that comes just after all were listed.
func TestRequestWaitsForPoolOnItsWay(t *testing.T) {
	runInBubble(t, func(t *testing.T, c *Catalog) {
		live := newReader(t, 0)
		missing := ipam.Request{Class: "missing"}
		if err := c.Refresh(t.Context(), live, missing); err != nil {
			t.Fatal(err)
		}
		done := make(chan time.Duration)
		began := time.Now()
		go func() {
			_ = c.Refresh(t.Context(), live, missing)
			done <- time.Since(began)
		}()
		synctest.Wait()
		<-time.After(3 * time.Millisecond)
		c.onPoolUpdate(build.Versioned(build.Pool("q").CIDR("10.1.0.0/24").Classes("missing").Obj(), "5"))
		if took := <-done; took != 3*time.Millisecond {
			t.Errorf("it took %v, want no longer than the pool takes to be shown", took)
		}
	})
}

// TestRememberedDeletionsAreBounded expects a bound: the first of them could appear again in a
// late read.
func TestRememberedDeletionsAreBounded(t *testing.T) {
	l := newLiveReads(nil)
	named := func(n int) *v1alpha1.IPPool { return build.Versioned(build.Pool(fmt.Sprint("p-", n)).Obj(), "5") }
	nothing := func() {}
	for n := range maxDeletedKeys {
		l.applyDeletion(named(n), nothing)
	}
	if len(l.versions) != maxDeletedKeys || len(l.deletedKeys) != maxDeletedKeys {
		t.Fatalf("%d are remembered, in %d versions, want %d", len(l.deletedKeys), len(l.versions), maxDeletedKeys)
	}
	l.applyDeletion(named(maxDeletedKeys), nothing)
	_, first := l.versions[keyOf(named(0))]
	_, second := l.versions[keyOf(named(1))]
	if first || !second || len(l.versions) != maxDeletedKeys || len(l.deletedKeys) != maxDeletedKeys {
		t.Errorf("the first is remembered: %t, the second: %t; %d in all, in %d versions", first, second, len(l.deletedKeys), len(l.versions))
	}
}

// TestLiveReadIsComparedWithPreviousRead covers an object that the watch has not shown.
func TestLiveReadIsComparedWithPreviousRead(t *testing.T) {
	l, entered := newLiveReads(nil), 0
	for _, step := range []struct {
		version string
		want    int
	}{{"5", 1}, {"5", 1}, {"4", 1}, {"6", 2}} {
		l.applyRead(build.Versioned(build.Pool("p").Obj(), step.version), func() { entered++ })
		if entered != step.want {
			t.Errorf("read at %s: entered %d times, want %d", step.version, entered, step.want)
		}
	}
}

func TestMissingObjectIsReadLive(t *testing.T) {
	there := []client.Object{
		build.Pool("p").CIDR("10.1.0.0/24").Classes("gold").Obj(), build.Pool("own").CIDR("10.2.0.0/24").In("ns"),
		build.Class("gold").Length(28).Obj(), build.Class("lone").Length(28).Obj(),
	}
	claim := ipam.Name{Namespace: "ns", Name: "c"}
	for name, test := range map[string]struct {
		request ipam.Request
		fails   error
		lists   int
		pools   []string
		classes []string
	}{
		"a pool":                              {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("p")}, nil, 0, []string{"p"}, nil},
		"a pool of the namespace":             {ipam.Request{Claim: claim, Pool: ipam.LocalPoolNamed("ns", "own")}, nil, 0, []string{"own"}, nil},
		"a pool that is not there":            {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("none")}, nil, 0, nil, nil},
		"a class, and the pools that back it": {ipam.Request{Claim: claim, Class: "gold"}, nil, 3, []string{"own", "p"}, []string{"gold", "lone"}},
		"no class at all":                     {ipam.Request{Claim: claim}, nil, 3, []string{"own", "p"}, []string{"gold", "lone"}},
		"a pool that cannot be read":          {ipam.Request{Claim: claim, Pool: ipam.PoolNamed("p")}, errCut, 0, nil, nil},
		"a class that cannot be read":         {ipam.Request{Claim: claim, Class: "gold"}, errCut, 0, nil, nil},
		"a list that cannot be made":          {ipam.Request{Claim: claim}, errCut, 1, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, c *Catalog) {
				live := newReader(t, 0, there...)
				live.Reader = interceptor.NewClient(live.Reader.(client.WithWatch), interceptor.Funcs{
					Get: func(ctx context.Context, k client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						if test.fails != nil {
							return test.fails
						}
						return k.Get(ctx, key, obj, opts...)
					},
					List: func(ctx context.Context, k client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
						if err := k.List(ctx, list, opts...); err != nil || test.fails == nil {
							return err
						}
						return test.fails
					},
				})
				if err := c.Refresh(t.Context(), live, test.request); !errors.Is(err, test.fails) {
					t.Errorf("got %v, want %v", err, test.fails)
				}
				var pools, classes []string
				for _, key := range c.Pools() {
					pools = append(pools, key.Name)
				}
				for _, class := range []string{"gold", "lone"} {
					if _, ok := c.Class(class); ok {
						classes = append(classes, class)
					}
				}
				slices.Sort(pools)
				if live.lists != test.lists || !slices.Equal(pools, test.pools) || !slices.Equal(classes, test.classes) {
					t.Errorf("%d lists; pools %v, classes %v are known; want %d, %v, %v", live.lists, pools, classes, test.lists, test.pools, test.classes)
				}
				if err := c.Refresh(t.Context(), live, test.request); !errors.Is(err, test.fails) {
					t.Errorf("the next one: got %v, want %v", err, test.fails)
				}
			})
		})
	}
}

// TestClassOfReadyPoolIsReadAlone covers a new class, and a new version of a known one. If no pool of
// the class is known to have been ready, the pools are read too.
func TestClassOfReadyPoolIsReadAlone(t *testing.T) {
	former, present := build.Class("gold").Length(30).Obj(), build.Class("gold").Length(28).Obj()
	former.ResourceVersion, present.ResourceVersion = "1", "7"
	pool := build.Versioned(build.Pool("p").CIDR("10.1.0.0/24").Classes("gold").Obj(), "1")
	ready := build.Versioned(pool.DeepCopy(), "2")
	ready.Status.FirstReadyTime = new(metav1.Unix(1, 0))
	for name, c := range map[string]struct {
		class *v1alpha1.IPClass
		pool  *v1alpha1.IPPool
		lists int
	}{
		"an unknown class":      {nil, ready, 0},
		"a known class":         {former, ready, 0},
		"a pool without status": {former, pool, 3},
	} {
		t.Run(name, func(t *testing.T) {
			runInBubble(t, func(t *testing.T, catalog *Catalog) {
				catalog.onPoolUpdate(c.pool)
				if c.class != nil {
					catalog.onClassUpdate(c.class)
				}
				live := newReader(t, 0, present.DeepCopy(), ready.DeepCopy())
				if err := catalog.Refresh(t.Context(), live, ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: "c"}, Class: "gold"}); err != nil {
					t.Fatal(err)
				}
				if class, ok := catalog.Class("gold"); !ok || class.Length != 28 || class.Default || live.lists != c.lists {
					t.Errorf("after %d lists the class is %+v (%t), want /28 and no default after %d", live.lists, class, ok, c.lists)
				}
				if p, _ := catalog.Pool(ipam.PoolNamed("p")); hasNeverBeenReady(p) {
					t.Error("the pool is not known to have been ready")
				}
			})
		})
	}
}

// TestCanceledRequestDoesNotWaitForList expects that the list goes on for the other requests.
func TestCanceledRequestDoesNotWaitForList(t *testing.T) {
	runInBubble(t, func(t *testing.T, c *Catalog) {
		live := newReader(t, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := c.Refresh(ctx, live, ipam.Request{Class: "missing"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want that the time is over", err)
		}
		<-time.After(5 * time.Second)
	})
}

// runInBubble runs a test on an empty catalog, within a bubble that has its own time.
func runInBubble(t *testing.T, test func(*testing.T, *Catalog)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, New(Options{Ledger: emptyLedger()})) })
}

var errCut = errors.New("connection reset")
