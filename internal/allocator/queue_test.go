package allocator

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// TestWhatAWaiterWantsSaysTheLimitOfItsClass so that it is passed over while its project
// has as much as it may.
func TestWhatAWaiterWantsSaysTheLimitOfItsClass(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		s.pool.Classes = []string{"gold"}
		s.allocator.catalogue.SetPool(s.pool)
		s.allocator.catalogue.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Native: true, Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}, Limit: oneBlock}})
		request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: "x"}, Class: "gold", Length: 30}
		if got, want := s.allocator.wants(request).Account, (ipam.Account{Project: "ns", Class: "gold", ClassLimit: oneBlock}); got != want {
			t.Errorf("of a class with a limit: got %+v, want %+v", got, want)
		}
		request.Class, request.Pool = "", s.pool.Key
		if got, want := s.allocator.wants(request).Account, (ipam.Account{Project: "ns"}); got != want {
			t.Errorf("of a pool: got %+v, want %+v", got, want)
		}
	})
}

// TestAPoolIsReconciledWhenItsLineChanges: whose turn it is there may be another one's now.
func TestAPoolIsReconciledWhenItsLineChanges(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		a, request := s.allocator, ipam.Request{Pool: s.pool.Key, Length: 30}
		holder := HolderOfClaim(ipam.Name{Namespace: "ns", Name: "x"})
		woken(a)
		for _, c := range []struct {
			what  string
			do    func()
			woken bool
			line  int
		}{
			{"a claim joins", func() { s.waits("x", request) }, true, 1},
			{"it joins again", func() { s.waits("x", request) }, false, 1},
			{"it leaves", func() { a.Leave(holder) }, true, 0},
			{"it leaves again", func() { a.Leave(holder) }, false, 0},
			{"it comes back", func() { s.waits("x", request) }, true, 1},
			{"another operator is to serve it", func() { a.watched = "watched"; s.waits("x", request) }, true, 0},
		} {
			c.do()
			var want []ipam.PoolKey
			if c.woken {
				want = []ipam.PoolKey{s.pool.Key}
			}
			if got := woken(a); !slices.Equal(got, want) || a.queue.Len() != c.line {
				t.Errorf("%s: %v are enqueued, want %v; %d wait, want %d", c.what, got, want, a.queue.Len(), c.line)
			}
		}
	})
}

// TestWhatIsWaitedForIsResolvedWhenAllHasBeenSeen, and not before: it would have to be done
// again for every pool and class of the first lists.
func TestWhatIsWaitedForIsResolvedWhenAllHasBeenSeen(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		a := s.allocator
		s.pool.Lengths = ipam.Lengths{Max: 32}
		a.catalogue.SetProject("ns", "ns")
		a.catalogue.SetPool(s.pool)
		woken(a)
		provisional := func(name string) {
			request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: name}, Pool: s.pool.Key, Length: 30}
			a.waitProvisionally(Waiting{Holder: HolderOfClaim(request.Claim), Request: request})
		}
		stand := func() (names []string) {
			for _, name := range []string{"waits", "provisional", "waits-later", "provisional-later"} {
				if a.queue.Stands(HolderOfClaim(ipam.Name{Namespace: "ns", Name: name}), s.pool.Key) {
					names = append(names, name)
				}
			}
			return names
		}
		s.waits("waits", ipam.Request{Pool: s.pool.Key, Length: 30})
		provisional("provisional")
		if got := stand(); got != nil || len(woken(a)) > 0 {
			t.Errorf("before, %v are in line", got)
		}
		if err := a.Synced(); err != nil {
			t.Fatal(err)
		}
		if got := stand(); !slices.Equal(got, []string{"waits", "provisional"}) {
			t.Errorf("then %v are in line, want both", got)
		}
		if got := woken(a); !slices.Equal(got, []ipam.PoolKey{s.pool.Key}) {
			t.Errorf("then %v are enqueued, want the pool", got)
		}
		s.waits("waits-later", ipam.Request{Pool: s.pool.Key, Length: 30})
		provisional("provisional-later")
		if got := stand(); len(got) != 4 {
			t.Errorf("in the end %v are in line, want all", got)
		}
	})
}

// TestWhichPoolsAreReconciledWhenTheCatalogueChanges: the one that changes, those of a class
// that changes, and those that somebody waits for who did not before.
func TestWhichPoolsAreReconciledWhenTheCatalogueChanges(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		a, pool, other := s.allocator, s.pool, s.pool
		other.Key, other.Labels = ipam.PoolNamed("other"), nil
		red := map[string]string{"of": "red"}
		pool.Labels, pool.Classes = red, []string{"gold"}
		a.catalogue.SetPool(pool)
		s.waits("x", ipam.Request{Selects: func(l map[string]string) bool { return l["of"] == "red" }, Selector: "of=red", Length: 30})
		class := func(name string) ClassEntry {
			return ClassEntry{Class: ipam.Class{Name: name, Native: true, Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}}}
		}
		woken(a)
		for _, c := range []struct {
			what string
			do   func()
			want []ipam.PoolKey
		}{
			{"a pool that nobody waits for comes", func() { a.catalogue.SetPool(other) }, []ipam.PoolKey{other.Key}},
			{"it is selected", func() { other.Labels = red; a.catalogue.SetPool(other) }, []ipam.PoolKey{other.Key, pool.Key}},
			{"it changes in something else", func() { other.Paused = true; a.catalogue.SetPool(other) }, []ipam.PoolKey{other.Key}},
			{"the class comes that the first backs", func() { a.catalogue.SetClass(class("gold")) }, []ipam.PoolKey{pool.Key}},
			{"a class comes that none backs", func() { a.catalogue.SetClass(class("silver")) }, nil},
			{"the namespace comes to another project", func() { a.catalogue.SetProject("ns", "blue") }, []ipam.PoolKey{other.Key, pool.Key}},
			{"another namespace does", func() { a.catalogue.SetProject("ns-2", "blue") }, nil},
		} {
			c.do()
			if got := woken(a); !slices.Equal(got, c.want) {
				t.Errorf("%s: %v are enqueued, want %v", c.what, got, c.want)
			}
		}
	})
}

// TestNobodyIsServedBeforeAllHasBeenSeen, nor because of a pool that is not there.
func TestNobodyIsServedBeforeAllHasBeenSeen(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		s.waits("x", ipam.Request{Pool: s.pool.Key, Length: 30})
		all := true
		s.allocator.FedBy(func() bool { return all })
		for _, all = range []bool{false, true} {
			if got := s.allocator.due(s.pool.Key); len(got) == 1 != all {
				t.Errorf("all has been seen: %t, and %v are served", all, got)
			}
		}
		if got := s.allocator.due(ipam.PoolNamed("missing")); got != nil {
			t.Errorf("of a pool that is not there %v are served", got)
		}
	})
}

// TestWhoIsParkedForALimitIsInLineAgainWhenItsProjectHoldsLess of the pool, or of the class,
// whose other pools are enqueued then too.
func TestWhoIsParkedForALimitIsInLineAgainWhenItsProjectHoldsLess(t *testing.T) {
	other, third := ipam.PoolNamed("other"), ipam.PoolNamed("third")
	ofPool, ofClass := ipam.Awaited{Project: "red", Pool: parent().Key}, ipam.Awaited{Project: "red", Class: "gold"}
	for name, c := range map[string]struct {
		project, class string
		limit          ipam.Limit
		awaits         ipam.Awaited
		resumed        bool
		// woken is whether the other pool of the class that somebody waits for is enqueued.
		woken bool
	}{
		"of the pool":                     {"red", "", oneBlock, ofPool, true, false},
		"of the pool, by another project": {"blue", "", oneBlock, ofPool, false, false},
		"of the pool, by nobody":          {"", "", oneBlock, ipam.Awaited{Pool: parent().Key}, false, false},
		"of the class":                    {"red", "gold", oneBlock, ofClass, true, true},
		"of the class, by nobody":         {"", "gold", oneBlock, ipam.Awaited{Class: "gold"}, false, false},
		"of another class":                {"red", "silver", oneBlock, ofClass, false, false},
		"of the class, without limit":     {"red", "gold", ipam.Limit{}, ofClass, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			onReplica(t, func(t *testing.T, a *Allocator, over *steady) {
				a.catalogue.SetProject("ns", "red")
				a.catalogue.SetClass(ClassEntry{Class: ipam.Class{Name: "gold", Native: true, Family: ipam.IPv4, Limit: c.limit}})
				for _, key := range []ipam.PoolKey{parent().Key, other, third} {
					pool := parent()
					pool.Key, pool.Classes, pool.Lengths = key, []string{"gold"}, ipam.Lengths{Max: 32}
					a.catalogue.SetPool(pool)
				}
				if err := a.Synced(); err != nil {
					t.Fatal(err)
				}
				wait := func(name string, pool ipam.PoolKey) ipam.Holder {
					request := ipam.Request{Claim: ipam.Name{Namespace: "ns", Name: name}, Pool: pool, Length: 28}
					a.Wait(Waiting{Holder: HolderOfClaim(request.Claim), Request: request})
					return HolderOfClaim(request.Claim)
				}
				parked := wait("parked", parent().Key)
				wait("other", other)
				record := heldBlock("x", "10.0.0.0/28")
				record.Project, record.Class = c.project, c.class
				record = over.stores(t, record)
				a.Park(parked, &ipam.ParkedError{Awaits: c.awaits})
				woken(a)
				if err := a.Release(t.Context(), record); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got := a.queue.Stands(parked, parent().Key); got != c.resumed {
					t.Errorf("it is in line again: %t, want %t", got, c.resumed)
				}
				want := []ipam.PoolKey{parent().Key}
				if c.woken {
					want = []ipam.PoolKey{other, parent().Key}
				}
				if got := woken(a); !slices.Equal(got, want) {
					t.Errorf("%v are enqueued, want %v", got, want)
				}
			})
		})
	}
}

// TestWhatALimitThatIsReachedTells: what its status says does not change with what others
// release, and it waits for just that limit.
func TestWhatALimitThatIsReachedTells(t *testing.T) {
	limit := &ipam.LimitError{
		Of: "pool p", Project: "red", Unit: "block", Most: space.CountOf64(3), Held: space.CountOf64(3),
		Awaits: ipam.Awaited{Project: "red", Pool: parent().Key},
	}
	a := unstarted()
	holder := HolderOfClaim(ipam.Name{Namespace: "ns", Name: "x"})
	retry, err := a.Yield(holder, limit)
	parked, ok := errors.AsType[*ipam.ParkedError](err)
	if !ok || parked.Reason != v1alpha1.ReasonLimitReached || parked.Message != limit.Stable() || parked.Awaits != limit.Awaits || retry <= 0 {
		t.Errorf("got %#v, to be tried again after %v", err, retry)
	}
	policy := &ipam.PolicyError{Field: "spec.prefixLength"}
	for _, want := range []error{nil, &ipam.MissingError{}, policy} {
		if retry, err := a.Yield(holder, want); err != want || retry != 0 { //nolint:errorlint // the very same
			t.Errorf("got %v, to be tried again after %v; want %v", err, retry, want)
		}
	}
	if _, err := a.Yield(holder, ipam.ErrUnconfirmed); !errors.Is(err, ipam.ErrUnconfirmed) {
		t.Errorf("of what passes by itself: got %v, want the same", err)
	}
	if IsRefused(ipam.ErrUnconfirmed) || !IsRefused(gone("namespaces")) {
		t.Error("what passes by itself counts as refused, or what does not as passing")
	}
}
