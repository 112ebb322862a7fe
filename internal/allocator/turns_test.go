package allocator

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/test/build"
)

// open has the scene's pool recorded, so that it hands out blocks, and known with the
// project of the claims' namespace.
func (s *scene) open() {
	s.t.Helper()
	s.begun()
	a := s.allocator
	s.pool.Home, s.pool.Lengths = ipam.DomainNamed("default", ipam.IPv4), ipam.Lengths{Min: 29, Max: 32}
	a.catalogue.SetProject("ns", "ns")
	a.catalogue.SetPool(s.pool)
	if err := a.Synced(); err != nil {
		s.t.Fatal(err)
	}
}

// holds holds a block of the scene's pool as another request would.
func (s *scene) holds(name string, bits int) *ledger.Hold {
	s.t.Helper()
	hold, err := s.allocator.ledger.Hold(ledger.Ask{Pool: s.pool.Key, Bits: bits, Record: ipam.Name{Namespace: "ns", Name: name}})
	if err != nil {
		s.t.Fatal(err)
	}
	return hold
}

func (s *scene) waits(name string, r ipam.Request) {
	r.Claim = ipam.Name{Namespace: "ns", Name: name}
	s.allocator.Wait(Waiting{Holder: HolderOfClaim(r.Claim), Request: r})
}

// served notes whose turn it is, as Wake says, until the test ends.
func (s *scene) served() func() []string {
	turns := make(chan string, 100)
	s.allocator.OnTurn("IPClaim", func(h ipam.Holder) { turns <- h.Name })
	go s.allocator.Wake(s.t.Context())
	return func() []string {
		synctest.Wait()
		var names []string
		for len(turns) > 0 {
			names = append(names, <-turns)
		}
		return names
	}
}

// TestNobodyIsOvertakenThroughABlockThatIsFreedMeanwhile has the block freed that is
// missing to the claim that waits for the whole pool, before a newcomer is served its
// half: at the very moment at which the newcomer's half is found, and just before.
func TestNobodyIsOvertakenThroughABlockThatIsFreedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		waits bool
		want  bool
	}{
		"when somebody waits for it": {waits: true},
		"when nobody does":           {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.open()
				other := s.holds("other", 30)
				if c.waits {
					s.waits("first", ipam.Request{Pool: s.pool.Key, Length: 29})
				}
				ask := s.allocator.ask(s.order("newcomer", 30), s.pool) // when there is a half alone
				other.Drop()
				_, err := s.allocator.ledger.Hold(ask)
				if got := err == nil; got != c.want {
					t.Errorf("the newcomer holds a half: %t (%v), want %t", got, err, c.want)
				}
			})
		})
	}
}

// TestAHoldThatIsDroppedIsOfferedToWhoWaits: its block is free again, and no event of
// the watch says so.
func TestAHoldThatIsDroppedIsOfferedToWhoWaits(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		other := s.holds("other", 29)
		served := s.served()
		s.waits("any", ipam.Request{Pool: s.pool.Key, Length: 30})
		s.waits("exact", ipam.Request{Pool: s.pool.Key, Length: 32, Block: netip.MustParsePrefix("10.0.0.7/32")})
		if got := served(); len(got) != 1 || got[0] != "exact" { // its block is taken: it is to say so
			t.Fatalf("served were %v before there is room", got)
		}
		other.Drop()
		if got := served(); len(got) != 1 || got[0] != "exact" {
			t.Errorf("when the hold is dropped %v are served, want exact, which asked before the pool was open", got)
		}
		s.allocator.Leave(HolderOfClaim(ipam.Name{Namespace: "ns", Name: "exact"}))
		if got := served(); len(got) != 1 || got[0] != "any" {
			t.Errorf("when that has left %v are served, want any", got)
		}
	})
}

// TestWhoCannotBeRecordedStallsNobody has the API server refuse the record of the claim
// that comes first, again and again.
func TestWhoCannotBeRecordedStallsNobody(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "ipallocations"}, "stuck", errors.New("exceeded quota"))
	for name, c := range map[string]struct {
		err    error
		passes bool
	}{
		"a quota is exceeded":           {err: quota},
		"its name is invalid":           {err: apierrors.NewInvalid(schema.GroupKind{Kind: "IPAllocation"}, "stuck", nil)},
		"its namespace is gone":         {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")},
		"somebody's webhook fails":      {err: apierrors.NewInternalError(errors.New("failed calling webhook")), passes: true},
		"the API server does not reply": {err: context.DeadlineExceeded, passes: true},
		"it is not confirmed in time":   {err: ipam.ErrUnconfirmed, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			inScene(t, func(s *scene) {
				s.open()
				other := s.holds("other", 29)
				served := s.served()
				s.waits("behind", ipam.Request{Pool: s.pool.Key, Length: 29})
				s.waits("a-stuck", ipam.Request{Pool: s.pool.Key, Length: 29})
				stuck := HolderOfClaim(ipam.Name{Namespace: "ns", Name: "a-stuck"})
				other.Drop()
				attempts := 1
				if c.passes {
					attempts = 5
				}
				for range attempts {
					if got := served(); len(got) == 1 && got[0] == "behind" {
						t.Error("it loses its turn too early")
					}
					retry, err := s.allocator.Yield(stuck, c.err)
					if _, parked := errors.AsType[*ipam.ParkedError](err); parked != (retry > 0) {
						t.Errorf("it is to be tried after %v, with %v", retry, err)
					}
				}
				if got := served(); len(got) != 1 || got[0] != "behind" {
					t.Fatalf("served are %v, want the one behind it", got)
				}
				if _, err := s.allocator.ledger.Hold(s.allocator.ask(s.order("newcomer", 29), s.pool)); !errors.Is(err, ledger.ErrOutOfTurn) {
					t.Errorf("a newcomer overtakes the one behind it: %v", err)
				}
				if _, err := s.allocator.Yield(stuck, &ipam.ExhaustedError{}); !isRefusal(err) {
					t.Errorf("when it fails for want of room it says %v, want what it said before", err)
				}
				if got := served(); len(got) > 0 && got[0] == "behind" {
					t.Errorf("when it wants room %v are served, want it", got)
				}
				s.allocator.wake.Add(s.pool.Key)
				if got := served(); len(got) != 1 || got[0] != "a-stuck" {
					t.Errorf("when it wants room %v are served, want it", got)
				}
			})
		})
	}
}

func isRefusal(err error) bool {
	parked, ok := errors.AsType[*ipam.ParkedError](err)
	return ok && parked.Reason == v1alpha1.ReasonRecordRefused
}

// TestWhatNoControllerServesIsNotInLine: with --namespace, claims of other namespaces
// are another operator's to serve.
func TestWhatNoControllerServesIsNotInLine(t *testing.T) {
	inScene(t, func(s *scene) {
		s.allocator.watched = "watched"
		s.open()
		s.waits("outside", ipam.Request{Pool: s.pool.Key, Length: 29})
		if n := s.allocator.queue.Len(); n != 0 {
			t.Errorf("%d are in line", n)
		}
		s.allocator.Wait(Waiting{Holder: HolderOfPool(ipam.LocalPoolNamed("ns", "child"))})
		if n := s.allocator.queue.Len(); n != 1 {
			t.Errorf("%d are in line, want the child pool, which is served whatever its namespace", n)
		}
	})
}

// TestWhatAWaiterWantsFollowsTheCatalogue has everything that a claim waits for come,
// change and go, and asks in which lines it stands.
func TestWhatAWaiterWantsFollowsTheCatalogue(t *testing.T) {
	inScene(t, func(s *scene) {
		s.begun()
		a := s.allocator
		if err := a.Synced(); err != nil {
			t.Fatal(err)
		}
		s.waits("default", ipam.Request{Length: 30})
		s.waits("class", ipam.Request{Class: "gold", Length: ipam.NoLength})
		s.waits("selector", ipam.Request{Selects: func(l map[string]string) bool { return l["of"] == "red" }, Selector: "of=red", Length: 30})
		s.waits("exact", ipam.Request{Class: "gold", Length: ipam.NoLength, Block: netip.MustParsePrefix("10.0.0.8/32")})
		pool := s.pool
		pool.Lengths = ipam.Lengths{Max: 32}
		gold := ClassEntry{Class: ipam.Class{Name: "gold", Native: true, Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}, Length: 30}}
		for _, step := range []struct {
			what string
			do   func()
			want int // who stands in the pool's line
		}{
			{"their namespace is not known", func() { pool.Labels = map[string]string{"of": "red"}; a.catalogue.SetPool(pool) }, 0},
			{"it is", func() { a.takeNamespace(namespaceNamed("ns")) }, 1},
			{"the class is there", func() { a.catalogue.SetClass(gold) }, 1},
			{"the pool backs it", func() { pool.Classes = []string{"gold"}; a.catalogue.SetPool(pool) }, 2},
			{"the class is the default", func() { gold.Default = true; a.catalogue.SetClass(gold) }, 3},
			{"the pool is larger", func() { pool.CIDR = netip.MustParsePrefix("10.0.0.0/28"); a.catalogue.SetPool(pool) }, 4},
			{"the pool has another label", func() { pool.Labels = nil; a.catalogue.SetPool(pool) }, 3},
			{"the class allows no /30", func() { gold.Lengths.Min = 31; a.catalogue.SetClass(gold) }, 1},
			{"the class goes", func() { a.catalogue.DropClass("gold") }, 0},
			{"it comes again", func() { gold.Lengths.Min = 0; a.catalogue.SetClass(gold) }, 3},
			{"the pool is the platform's alone", func() { pool.Visibility = ipam.VisibilityPlatform; a.catalogue.SetPool(pool) }, 0},
			{"the pool is the project's", func() { pool.Visibility, pool.Project = ipam.VisibilityConsumer, "blue"; a.catalogue.SetPool(pool) }, 0},
			{"to which the namespace comes", func() { a.catalogue.SetProject("ns", "blue") }, 3},
			{"the namespace goes", func() { a.loseNamespace(namespaceNamed("ns")) }, 0},
		} {
			step.do()
			got := 0
			for _, name := range []string{"default", "class", "selector", "exact"} {
				if a.queue.Stands(HolderOfClaim(ipam.Name{Namespace: "ns", Name: name}), pool.Key) {
					got++
				}
			}
			if got != step.want {
				t.Errorf("%s: %d are in line, want %d", step.what, got, step.want)
			}
		}
	})
}

// TestWhoIsAlikeIsResolvedOnce counts what is resolved of many that wait.
func TestWhoIsAlikeIsResolvedOnce(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		known := map[shape]queue.Wants{}
		all := func(map[string]string) bool { return true }
		for _, c := range []struct {
			name          string
			request       ipam.Request
			length, known int
		}{
			{"a", ipam.Request{Pool: s.pool.Key, Length: 30}, 30, 1},
			{"b", ipam.Request{Pool: s.pool.Key, Length: 30}, 30, 1},
			{"c", ipam.Request{Pool: s.pool.Key, Length: 31}, 31, 2},
			{"d", ipam.Request{Pool: ipam.PoolNamed("missing"), Length: 30}, 0, 3},
			{"e", ipam.Request{Selects: all, Selector: "all", Length: 30}, 30, 4},
			{"f", ipam.Request{Selects: all, Selector: "all", Length: 30}, 30, 4},
			{"g", ipam.Request{Selects: all, Length: 30}, 30, 4},
			{"h", ipam.Request{Pool: s.pool.Key, Block: netip.MustParsePrefix("10.0.0.1/32"), Length: ipam.NoLength}, 32, 4},
			{"i", ipam.Request{Pool: s.pool.Key, Block: netip.MustParsePrefix("10.1.0.1/32"), Length: ipam.NoLength}, 0, 4},
		} {
			c.request.Claim = ipam.Name{Namespace: "ns", Name: c.name}
			if got := s.allocator.wantsOf(c.request, known); got.Length != c.length || len(got.Pools) != min(c.length, 1) || len(known) != c.known {
				t.Errorf("%s: wants %+v with %d known, want /%d with %d", c.name, got, len(known), c.length, c.known)
			}
		}
	})
}

// TestAChildAsLargeAsItsParentIsNotInLine: it is against policy, and nobody waits behind
// it when the parent is empty.
func TestAChildAsLargeAsItsParentIsNotInLine(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		for length, want := range map[int]int{29: 0, 30: 1} {
			got := s.allocator.wants(AskParent(ipam.Pool{Key: ipam.PoolNamed("child"), Home: s.pool.Key, Length: length}))
			if len(got.Pools) != want {
				t.Errorf("a child of /%d waits for %v, want %d pools", length, got.Pools, want)
			}
		}
	})
}

// TestWhoAwaitsALimitIsServedWhenItIsKept: an error may say itself that a claim loses its
// turn, and until when.
func TestWhoAwaitsALimitIsServedWhenItIsKept(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		served := s.served()
		s.waits("a", ipam.Request{Pool: s.pool.Key, Length: 30})
		s.waits("b", ipam.Request{Pool: s.pool.Key, Length: 30})
		served()
		limit := ipam.Awaited{Project: "ns", Pool: s.pool.Key}
		reached := &ipam.ParkedError{Reason: "LimitReached", Message: "the limit is reached", Awaits: limit}
		retry, err := s.allocator.Yield(HolderOfClaim(ipam.Name{Namespace: "ns", Name: "a"}), reached)
		if !errors.Is(err, reached) || retry <= 0 {
			t.Errorf("got %v, to be tried again after %v", err, retry)
		}
		if got := served(); len(got) != 1 || got[0] != "b" {
			t.Errorf("served are %v, want the one behind it", got)
		}
		s.allocator.Resume(ipam.Awaited{Project: "other", Pool: s.pool.Key})
		s.allocator.Resume(limit)
		if got := served(); len(got) != 1 || got[0] != "a" {
			t.Errorf("when the limit is kept %v are served, want a", got)
		}
	})
}

// TestWhoIsBeyondTheBoundSaysSo until it moves up.
func TestWhoIsBeyondTheBoundSaysSo(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		s.allocator.queue = queue.New(1)
		served := s.served()
		holder := func(name string) ipam.Holder { return HolderOfClaim(ipam.Name{Namespace: "ns", Name: name}) }
		s.waits("a", ipam.Request{Pool: ipam.PoolNamed("missing"), Length: 30})
		if err := s.allocator.MayWait("ns"); err == nil || err.Error() != "namespace ns has reached its limit of 1 waiting claims: delete some, or wait until they are bound" {
			t.Errorf("another may wait: %v", err)
		}
		s.waits("b", ipam.Request{Pool: s.pool.Key, Length: 30})
		if got := served(); len(got) != 0 {
			t.Errorf("served are %v, want none", got)
		}
		retry, err := s.allocator.Yield(holder("b"), &ipam.ExhaustedError{})
		if parked, ok := errors.AsType[*ipam.ParkedError](err); !ok || parked.Reason != "TooManyWaiting" || retry != 0 {
			t.Errorf("it says %v, and is tried again after %v", err, retry)
		}
		s.allocator.Leave(holder("a"))
		if got := served(); len(got) != 1 || got[0] != "b" {
			t.Errorf("when the other has left %v are served, want b", got)
		}
		if _, err := s.allocator.Yield(holder("b"), &ipam.ExhaustedError{}); !noRoom(err) {
			t.Errorf("in line it says %v", err)
		}
	})
}

// TestWhoeverComesToLeadServesThoseWhoWait has a replica that does not lead follow what
// happens: pools do not pile up there, and once it leads it serves who waits.
func TestWhoeverComesToLeadServesThoseWhoWait(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		go s.allocator.Wake(s.t.Context())
		other := s.holds("other", 29)
		s.waits("first", ipam.Request{Pool: s.pool.Key, Length: 30})
		other.Drop()
		for n := range 100 {
			s.allocator.takePool(versioned(build.Pool(fmt.Sprint("passing-", n)).CIDR("10.9.0.0/24").Obj(), "1"))
		}
		synctest.Wait()
		if n := s.allocator.wake.Len(); n > 0 {
			t.Errorf("%d pools pile up", n)
		}
		var served []string
		s.allocator.OnTurn("IPClaim", func(h ipam.Holder) { served = append(served, h.Name) })
		synctest.Wait()
		if !slices.Equal(served, []string{"first"}) {
			t.Errorf("%v are served, want the one who waits", served)
		}
	})
}

func TestWhoStopsServingIsNotCalledAnyMore(t *testing.T) {
	inScene(t, func(s *scene) {
		s.open()
		var served []string
		serve := func(who string) func(ipam.Holder) {
			return func(h ipam.Holder) { served = append(served, who+" serves "+h.Name) }
		}
		stop := s.allocator.OnTurn("IPClaim", serve("a"))
		s.allocator.serve(ipam.Holder{Kind: "IPClaim", Name: "x"})
		stopB := s.allocator.OnTurn("IPClaim", serve("b"))
		stop() // late: b serves by now
		s.allocator.serve(ipam.Holder{Kind: "IPClaim", Name: "y"})
		stopB()
		s.allocator.serve(ipam.Holder{Kind: "IPClaim", Name: "z"})
		if want := []string{"a serves x", "b serves y"}; !slices.Equal(served, want) {
			t.Errorf("got %q, want %q", served, want)
		}
	})
}
