package allocator

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/test/build"
)

func namespaceNamed(name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// reader is an API server to read from live, which counts lists.
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

// versioned is a pool as it was at a revision.
func versioned(pool *v1alpha1.IPPool, version string) *v1alpha1.IPPool {
	pool = pool.DeepCopy()
	pool.ResourceVersion = version
	return pool
}

// TestAChildPoolThatIsGoneDoesNotRejoinTheLine has a live read of it arrive late: it was
// made before the pool was deleted, and is entered after.
func TestAChildPoolThatIsGoneDoesNotRejoinTheLine(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		a := s.allocator
		child := build.Pool("child").Child("p", 30).Obj()
		live := newReader(t, 0, versioned(child, "8"))
		a.takePool(versioned(child, "7"))
		if n := a.queue.Len(); n != 1 {
			t.Fatalf("%d wait, want the child", n)
		}
		a.losePool(versioned(child, "9"))
		for what, read := range map[string]func() error{
			"by its name": func() error { return a.Refresh(s.t.Context(), live, ipam.Request{Pool: ipam.PoolNamed("child")}) },
			"in a list":   func() error { return a.Refresh(s.t.Context(), live, ipam.Request{Class: "gold"}) },
		} {
			if err := read(); err != nil {
				t.Fatal(err)
			}
			if _, there := a.catalogue.Pool(ipam.PoolNamed("child")); there || a.queue.Len() != 0 {
				t.Errorf("read %s, the pool is known: %t, and %d wait", what, there, a.queue.Len())
			}
		}
		a.takePool(versioned(child, "12")) // made again
		if n := a.queue.Len(); n != 1 {
			t.Errorf("when it is made again %d wait, want it", n)
		}
	})
}

// TestALiveReadIsNeverOlderThanTheWatch for pools and classes, and says nothing where it
// is no news.
func TestALiveReadIsNeverOlderThanTheWatch(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		a := s.allocator
		at := func(version string, classes ...string) *v1alpha1.IPPool {
			return versioned(build.Pool("q").CIDR("10.1.0.0/24").Classes(classes...).Obj(), version)
		}
		a.takePool(at("10", "gold"))
		var told int
		a.catalogue.Listen(func(Entry) { told++ })
		for _, step := range []struct {
			version, class, want string
			told                 int
		}{{"9", "silver", "gold", 0}, {"10", "silver", "gold", 0}, {"11", "silver", "silver", 1}, {"11", "silver", "silver", 1}, {"x", "gold", "silver", 1}} {
			a.readPool(at(step.version, step.class))
			pool, _ := a.catalogue.Pool(ipam.PoolNamed("q"))
			if pool.Classes[0] != step.want || told != step.told {
				t.Errorf("read at %s: it backs %v, and %d changes were told, want %s and %d", step.version, pool.Classes, told, step.want, step.told)
			}
		}
		for a.wake.Len() > 0 {
			key, _ := a.wake.Get()
			a.wake.Done(key)
		}
		a.readPool(at("11", "silver"))
		a.readPool(at("12", "silver")) // its status alone
		if n := a.wake.Len(); n != 0 {
			t.Errorf("what changes nothing wakes %d pools", n)
		}
		class := build.Class("gold").Obj()
		class.ResourceVersion = "20"
		a.takeClass(class.DeepCopy())
		a.loseClass(class)
		a.readClass(class)
		if _, there := a.catalogue.Class("gold"); there {
			t.Error("a class that is gone is back by a late read")
		}
	})
}

// TestLiveListsAreSharedAndOneASecond has many requests at once, for several seconds, all
// of which name what is missing.
func TestLiveListsAreSharedAndOneASecond(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
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
				if err := s.allocator.Refresh(s.t.Context(), live, req); err != nil {
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

// TestAPoolThatTheWatchShowsAtOnceIsWaitedFor where all were listed a moment ago.
func TestAPoolThatTheWatchShowsAtOnceIsWaitedFor(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		live := newReader(t, 0)
		missing := ipam.Request{Class: "missing"}
		if err := s.allocator.Refresh(s.t.Context(), live, missing); err != nil {
			t.Fatal(err)
		}
		done := make(chan time.Duration)
		began := time.Now()
		go func() {
			_ = s.allocator.Refresh(s.t.Context(), live, missing)
			done <- time.Since(began)
		}()
		synctest.Wait()
		<-time.After(3 * time.Millisecond)
		s.allocator.takePool(versioned(build.Pool("q").CIDR("10.1.0.0/24").Classes("missing").Obj(), "5"))
		if took := <-done; took != 3*time.Millisecond {
			t.Errorf("it took %v, want no longer than the pool takes to be shown", took)
		}
	})
}
