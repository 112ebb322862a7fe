package queue

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

func TestQueueChangeReconcilesPool(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		request := ipam.Request{Pool: s.pool.Key, Length: 30}
		holder := claim("x")
		s.woken()
		for _, c := range []struct {
			what  string
			do    func()
			woken bool
			line  int
		}{
			{"a claim joins", func() { s.waits("x", request) }, true, 1},
			{"it joins again", func() { s.waits("x", request) }, false, 1},
			{"it leaves", func() { s.queue.Leave(holder) }, true, 0},
			{"it leaves again", func() { s.queue.Leave(holder) }, false, 0},
			{"it returns", func() { s.waits("x", request) }, true, 1},
			{"another operator is to serve it", func() { s.queue.watchNamespace = "watched"; s.waits("x", request) }, true, 0},
		} {
			c.do()
			var want []ipam.PoolKey
			if c.woken {
				want = []ipam.PoolKey{s.pool.Key}
			}
			if got := s.woken(); !slices.Equal(got, want) || s.queue.Len() != c.line {
				t.Errorf("%s: %v are enqueued, want %v; %d wait, want %d", c.what, got, want, s.queue.Len(), c.line)
			}
		}
	})
}

// TestWantsAreResolvedAfterFullSync expects no earlier resolution: it would be
// repeated for every pool and class of the first lists.
func TestWantsAreResolvedAfterFullSync(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.pool.Lengths = ipam.Lengths{Max: 32}
		s.catalog.SetProject("ns", "ns")
		s.catalog.SetPool(s.pool)
		s.woken()
		provisional := func(name string) {
			request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: name}, Pool: s.pool.Key, Length: 30}
			s.queue.WaitProvisionally(Waiter{Holder: convert.HolderOfClaim(request.Claim), Request: request})
		}
		stand := func() (names []string) {
			for _, name := range []string{"waits", "provisional", "waits-later", "provisional-later"} {
				if s.isQueued(name) {
					names = append(names, name)
				}
			}
			return names
		}
		s.waits("waits", ipam.Request{Pool: s.pool.Key, Length: 30})
		provisional("provisional")
		if got := stand(); got != nil || len(s.woken()) > 0 {
			t.Errorf("before, %v are queued", got)
		}
		if err := s.queue.Synced(); err != nil {
			t.Fatal(err)
		}
		if got := stand(); !slices.Equal(got, []string{"waits", "provisional"}) {
			t.Errorf("then %v are queued, want both", got)
		}
		if got := s.woken(); !slices.Equal(got, []ipam.PoolKey{s.pool.Key}) {
			t.Errorf("then %v are enqueued, want the pool", got)
		}
		s.waits("waits-later", ipam.Request{Pool: s.pool.Key, Length: 30})
		provisional("provisional-later")
		if got := stand(); len(got) != 4 {
			t.Errorf("in the end %v are queued, want all", got)
		}
	})
}

// TestCatalogChangeReconcilesPools expects the pool that changes, those of a
// class that changes, and those for which a claim waits that did not before.
func TestCatalogChangeReconcilesPools(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		pool, other := s.pool, s.pool
		other.Key, other.Labels = ipam.PoolNamed("other"), nil
		red := map[string]string{"of": "red"}
		pool.Labels, pool.Classes = red, []string{"gold"}
		s.catalog.SetPool(pool)
		s.waits("x", ipam.Request{Selects: func(l map[string]string) bool { return l["of"] == "red" }, Selector: "of=red", Length: 30})
		class := func(name string) inventory.ClassEntry {
			return inventory.ClassEntry{Class: ipam.Class{Name: name, Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}}}
		}
		s.woken()
		for _, c := range []struct {
			what string
			do   func()
			want []ipam.PoolKey
		}{
			{"a pool without waiters comes", func() { s.catalog.SetPool(other) }, []ipam.PoolKey{other.Key}},
			{"it is selected", func() { other.Labels = red; s.catalog.SetPool(other) }, []ipam.PoolKey{other.Key, pool.Key}},
			{"it changes in something else", func() { other.Paused = true; s.catalog.SetPool(other) }, []ipam.PoolKey{other.Key}},
			{"the class comes that the first backs", func() { s.catalog.SetClass(class("gold")) }, []ipam.PoolKey{pool.Key}},
			{"a class comes that none backs", func() { s.catalog.SetClass(class("silver")) }, nil},
			{"the namespace moves to another project", func() { s.catalog.SetProject("ns", "blue") }, []ipam.PoolKey{other.Key, pool.Key}},
			{"another namespace does", func() { s.catalog.SetProject("ns-2", "blue") }, nil},
		} {
			c.do()
			if got := s.woken(); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v are enqueued, want %v", c.what, got, c.want)
			}
		}
	})
}

func TestWaitersAreServedAfterFullSync(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		s.waits("x", ipam.Request{Pool: s.pool.Key, Length: 30})
		all := true
		s.queue.AddSource(func() bool { return all })
		for _, all = range []bool{false, true} {
			if got := s.queue.dueHolders(s.pool.Key); len(got) == 1 != all {
				t.Errorf("all has been seen: %t, and %v are served", all, got)
			}
		}
		if got := s.queue.dueHolders(ipam.PoolNamed("missing")); got != nil {
			t.Errorf("of a pool that is not there %v are served", got)
		}
	})
}

func TestWaiterParkedForLimitResumesWhenUsageDrops(t *testing.T) {
	first, other, third := ipam.PoolNamed("p"), ipam.PoolNamed("other"), ipam.PoolNamed("third")
	ofPool, ofClass := ipam.Awaited{Project: "red", Pool: first}, ipam.Awaited{Project: "red", Class: "gold"}
	for name, c := range map[string]struct {
		project, class string
		limit          ipam.Limit
		awaits         ipam.Awaited
		resumed        bool
		// woken reports whether the other awaited pool of the class is enqueued.
		woken bool
	}{
		"of the pool":                     {"red", "", oneBlockLimit(), ofPool, true, false},
		"of the pool, by another project": {"blue", "", oneBlockLimit(), ofPool, false, false},
		"of the pool, without project":    {"", "", oneBlockLimit(), ipam.Awaited{Pool: first}, false, false},
		"of the class":                    {"red", "gold", oneBlockLimit(), ofClass, true, true},
		"of the class, without project":   {"", "gold", oneBlockLimit(), ipam.Awaited{Class: "gold"}, false, false},
		"of another class":                {"red", "silver", oneBlockLimit(), ofClass, false, false},
		"of the class, without limit":     {"red", "gold", ipam.Limit{}, ofClass, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			runScene(t, Options{}, func(s *scene) {
				s.catalog.SetProject("ns", "red")
				s.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Limit: c.limit}})
				for _, key := range []ipam.PoolKey{first, other, third} {
					pool := s.pool
					pool.Key, pool.Classes, pool.Lengths = key, []string{"gold"}, ipam.Lengths{Max: 32}
					s.catalog.SetPool(pool)
				}
				if err := s.queue.Synced(); err != nil {
					t.Fatal(err)
				}
				wait := func(name string, pool ipam.PoolKey) ipam.Holder {
					request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: name}, Pool: pool, Length: 30}
					s.queue.Wait(Waiter{Holder: convert.HolderOfClaim(request.Claim), Request: request})
					return convert.HolderOfClaim(request.Claim)
				}
				parked := wait("parked", first)
				wait("other", other)
				record := s.stores(ipam.Record{
					Name: ipam.Name{Namespace: "ns", Name: "x"}, Block: netip.MustParsePrefix("10.0.0.0/30"), Pool: first, Holder: claim("x"), Purpose: ipam.PurposeClaim,
					Project: c.project, Class: c.class,
				})
				s.queue.Park(parked, &ipam.ParkedError{Awaits: c.awaits})
				s.woken()
				s.records.Delete(record)
				synctest.Wait()
				if got := s.isQueued("parked"); got != c.resumed {
					t.Errorf("it is queued again: %t, want %t", got, c.resumed)
				}
				want := []ipam.PoolKey{first}
				if c.woken {
					want = []ipam.PoolKey{other, first}
				}
				if got := s.woken(); !slices.Equal(got, want) {
					t.Errorf("%v are enqueued, want %v", got, want)
				}
			})
		})
	}
}

func TestReachedLimitParksWithStableStatus(t *testing.T) {
	limit := &ipam.LimitError{
		Subject: "pool p", Project: "red", Unit: "block", Most: space.CountOf64(3), Held: space.CountOf64(3),
		Awaits: ipam.Awaited{Project: "red", Pool: ipam.PoolNamed("p")},
	}
	view := ledger.New(ledger.Options{})
	q, holder := New(Options{Ledger: view, Catalog: inventory.New(inventory.Options{Ledger: view})}), claim("x")
	retry, err := q.Yield(holder, limit)
	parked, ok := errors.AsType[*ipam.ParkedError](err)
	if !ok || parked.Reason != v1alpha1.ReasonLimitReached || parked.Message != limit.Stable() || parked.Awaits != limit.Awaits || retry <= 0 {
		t.Errorf("got %#v, to be tried again after %v", err, retry)
	}
	policy := &ipam.PolicyError{Field: "spec.prefixLength"}
	for _, want := range []error{nil, &ipam.MissingError{}, policy} {
		if retry, err := q.Yield(holder, want); err != want || retry != 0 { //nolint:errorlint // the same error
			t.Errorf("got %v, to be tried again after %v; want %v", err, retry, want)
		}
	}
	if _, err := q.Yield(holder, ipam.ErrUnconfirmed); !errors.Is(err, ipam.ErrUnconfirmed) {
		t.Errorf("of what passes by itself: got %v, want the same", err)
	}
	if IsRefused(ipam.ErrUnconfirmed) || !IsRefused(apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")) {
		t.Error("what passes by itself counts as refused, or what does not as passing")
	}
}

func oneBlockLimit() ipam.Limit {
	return ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(1)}}
}

func TestUnreadablePoolAllocatesNothing(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		key := ipam.PoolNamed("child")
		child := build.Versioned(build.Pool("child").Child("p", 30).Obj(), "7")
		broken := build.Versioned(build.Pool("child").Child("p", 30).CIDR("10.0.0.300/30").Obj(), "8")
		broken.Generation = 2
		for _, step := range []struct {
			what    string
			do      func()
			there   bool
			waiting int
		}{
			{"a child waits", func() { s.pools.Add(child) }, true, 1},
			{"it cannot be read", func() { s.pools.Add(broken) }, false, 0},
			{"it can", func() { s.pools.Add(build.Versioned(child, "9")) }, true, 1},
			{"it is gone", func() { s.pools.Delete(build.Versioned(child, "9")) }, false, 0},
			{"it is made again", func() { s.pools.Add(build.Versioned(child, "10")) }, true, 1},
			{"it is being deleted", func() { p := build.Versioned(child, "11"); p.DeletionTimestamp = new(metav1.Now()); s.pools.Add(p) }, true, 0},
		} {
			step.do()
			if _, there := s.catalog.Pool(key); there != step.there || s.queue.Len() != step.waiting {
				t.Errorf("%s: it is known: %t, and %d wait; want %t, %d", step.what, there, s.queue.Len(), step.there, step.waiting)
			}
		}
		open := build.Versioned(build.Pool("open").CIDR("10.2.0.0/24").Obj(), "12")
		s.pools.Add(open)
		if _, ok := s.ledger.Capacity(ipam.PoolNamed("open")); !ok {
			t.Error("the ledger does not know a pool that can be read")
		}
		s.pools.Delete(open)
		if _, ok := s.ledger.Capacity(ipam.PoolNamed("open")); ok {
			t.Error("the ledger knows a pool that is gone")
		}
	})
}

func TestChildPoolWithoutCIDRWaitsForParent(t *testing.T) {
	for name, c := range map[string]struct {
		pool      *v1alpha1.IPPool
		allocated string
		want      bool
	}{
		"a root":                                 {build.Pool("p").CIDR("10.0.0.0/24").Obj(), "", false},
		"a child without a CIDR":                 {build.Pool("p").Child("q", 24).Obj(), "", true},
		"a child that has its CIDR":              {build.Pool("p").Child("q", 24).CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", false},
		"a child made again with it":             {build.Pool("p").Child("q", 24).CIDR("10.0.0.0/24").Obj(), "", true},
		"a root of which nothing is written yet": {build.Pool("p").CIDR("10.0.0.0/24").Obj(), "10.0.0.0/24", false},
	} {
		c.pool.Status.AllocatedCIDR = c.allocated
		pool, errs := convert.Pool(c.pool)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		if got := awaitsParent(c.pool, pool); got != c.want {
			t.Errorf("%s: %t, want %t", name, got, c.want)
		}
	}
}
