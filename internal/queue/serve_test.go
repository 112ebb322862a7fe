package queue

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// TestConcurrentlyFreedBlockCausesNoOvertaking frees the block that the claim that waits
// for the whole pool lacks, before a newcomer is served its half: at the moment at which the
// newcomer's half is found, and just before.
func TestConcurrentlyFreedBlockCausesNoOvertaking(t *testing.T) {
	for name, c := range map[string]struct {
		waits bool
		want  bool
	}{
		"when a claim waits for it": {waits: true},
		"when no claim does":        {want: true},
	} {
		t.Run(name, func(t *testing.T) {
			runScene(t, Options{}, func(s *scene) {
				s.open()
				other := s.holds("other", 30)
				if c.waits {
					s.waits("first", ipam.Request{Pool: s.pool.Key, Length: 29})
				}
				ask := s.ask("newcomer", 30) // while only a half is free
				other.Drop()
				_, err := s.ledger.Hold(ask)
				if got := err == nil; got != c.want {
					t.Errorf("the newcomer holds a half: %t (%v), want %t", got, err, c.want)
				}
			})
		})
	}
}

func TestDroppedHoldIsOfferedToWaiters(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		other := s.holds("other", 29)
		served := s.served()
		s.waits("any", ipam.Request{Pool: s.pool.Key, Length: 30})
		s.waits("exact", ipam.Request{Pool: s.pool.Key, Length: 32, Block: netip.MustParsePrefix("10.0.0.7/32")})
		if got := served(); len(got) != 1 || got[0] != "exact" { // its block is taken: its status has to state that
			t.Fatalf("served were %v before there is room", got)
		}
		other.Drop()
		if got := served(); len(got) != 1 || got[0] != "exact" {
			t.Errorf("when the hold is dropped %v are served, want exact, which asked before the pool was open", got)
		}
		s.queue.Leave(claim("exact"))
		if got := served(); len(got) != 1 || got[0] != "any" {
			t.Errorf("when that has left %v are served, want any", got)
		}
	})
}

func TestUnrecordableWaiterDelaysNoOther(t *testing.T) {
	quota := apierrors.NewForbidden(schema.GroupResource{Resource: "ipallocations"}, "stuck", errors.New("exceeded quota"))
	var rows []messages.Row
	for name, c := range map[string]struct {
		err    error
		passes bool
	}{
		"a quota is exceeded":                 {err: quota},
		"its name is invalid":                 {err: apierrors.NewInvalid(schema.GroupKind{Kind: "IPAllocation"}, "stuck", nil)},
		"its namespace is gone":               {err: apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")},
		"a webhook of another operator fails": {err: apierrors.NewInternalError(errors.New("failed calling webhook")), passes: true},
		"the API server does not reply":       {err: context.DeadlineExceeded, passes: true},
		"it is not confirmed in time":         {err: ipam.ErrUnconfirmed, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			runScene(t, Options{}, func(s *scene) {
				s.open()
				other := s.holds("other", 29)
				served := s.served()
				s.waits("behind", ipam.Request{Pool: s.pool.Key, Length: 29})
				s.waits("a-stuck", ipam.Request{Pool: s.pool.Key, Length: 29})
				stuck := claim("a-stuck")
				other.Drop()
				attempts := 1
				if c.passes {
					attempts = 5
				}
				for range attempts {
					if got := served(); len(got) == 1 && got[0] == "behind" {
						t.Error("it loses its turn too early")
					}
					retry, err := s.queue.Yield(stuck, c.err)
					parked, isParked := errors.AsType[*ipam.ParkedError](err)
					if isParked != (isParked && errors.Is(parked.Cause, c.err)) || retry != 0 {
						t.Errorf("it is to be tried after %v, with %v, want with back-off", retry, err)
					}
					if isParked && !c.passes {
						rows = append(rows, messages.Row{Object: "IPClaim", On: "condition Ready", Answer: "False, " + parked.Reason, Message: parked.Message})
					}
				}
				if got := served(); len(got) != 1 || got[0] != "behind" {
					t.Fatalf("served are %v, want the one behind it", got)
				}
				if _, err := s.ledger.Hold(s.ask("newcomer", 29)); !errors.Is(err, ledger.ErrOutOfTurn) {
					t.Errorf("a newcomer overtakes the one behind it: %v", err)
				}
				if _, err := s.queue.Yield(stuck, &ipam.ExhaustedError{}); !isRefusal(err) {
					t.Errorf("when it fails for want of room it returns %v, want the status before", err)
				}
				if got := served(); len(got) > 0 && got[0] == "behind" {
					t.Errorf("when it wants room %v are served, want it", got)
				}
				s.queue.wake.Add(s.pool.Key)
				if got := served(); len(got) != 1 || got[0] != "a-stuck" {
					t.Errorf("when it wants room %v are served, want it", got)
				}
			})
		})
	}
	messages.Golden(t, rows)
}

func isRefusal(err error) bool {
	parked, ok := errors.AsType[*ipam.ParkedError](err)
	return ok && parked.Reason == v1alpha1.ReasonRecordRefused
}

// TestUnservedClaimIsNotQueued covers --namespace: another operator serves the claims of
// other namespaces.
func TestUnservedClaimIsNotQueued(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.queue.watchNamespace = "watched"
		s.open()
		s.waits("outside", ipam.Request{Pool: s.pool.Key, Length: 29})
		if n := s.queue.Len(); n != 0 {
			t.Errorf("%d are queued", n)
		}
		s.queue.Wait(Waiter{Holder: convert.HolderOfPool(ipam.LocalPoolNamed("ns", "child"))})
		if n := s.queue.Len(); n != 1 {
			t.Errorf("%d are queued, want the child pool, which is served for any namespace", n)
		}
	})
}

func TestWaiterWantsFollowCatalog(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		if err := s.queue.Synced(); err != nil {
			t.Fatal(err)
		}
		s.waits("default", ipam.Request{Length: 30})
		s.waits("class", ipam.Request{Class: "gold", Length: ipam.NoLength})
		s.waits("selector", ipam.Request{Selects: func(l map[string]string) bool { return l["of"] == "red" }, Selector: "of=red", Length: 30})
		s.waits("exact", ipam.Request{Class: "gold", Length: ipam.NoLength, Block: netip.MustParsePrefix("10.0.0.8/32")})
		pool := s.pool
		pool.Lengths = ipam.Lengths{Max: 32}
		namespace := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "ns"}}
		gold := inventory.ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Lengths: ipam.Lengths{Max: 32}, Length: 30}}
		for _, step := range []struct {
			what string
			do   func()
			want int // the length of the pool's queue
		}{
			{"their namespace is not known", func() { pool.Labels = map[string]string{"of": "red"}; s.catalog.SetPool(pool) }, 0},
			{"it is", func() { s.namespaces.Add(namespace) }, 1},
			{"the class exists", func() { s.catalog.SetClass(gold) }, 1},
			{"the pool backs it", func() { pool.Classes = []string{"gold"}; s.catalog.SetPool(pool) }, 2},
			{"the class is the default", func() { gold.Default = true; s.catalog.SetClass(gold) }, 3},
			{"the pool is larger", func() { pool.CIDR = netip.MustParsePrefix("10.0.0.0/28"); s.catalog.SetPool(pool) }, 4},
			{"the pool has another label", func() { pool.Labels = nil; s.catalog.SetPool(pool) }, 3},
			{"the class allows no /30", func() { gold.Lengths.Min = 31; s.catalog.SetClass(gold) }, 1},
			{"the class goes", func() { s.catalog.DropClass("gold") }, 0},
			{"it comes again", func() { gold.Lengths.Min = 0; s.catalog.SetClass(gold) }, 3},
			{"the pool is the platform's alone", func() { pool.Visibility = ipam.VisibilityPlatform; s.catalog.SetPool(pool) }, 0},
			{"the pool is the project's", func() { pool.Visibility, pool.Project = ipam.VisibilityConsumer, "blue"; s.catalog.SetPool(pool) }, 0},
			{"to which the namespace comes", func() { s.catalog.SetProject("ns", "blue") }, 3},
			{"the namespace goes", func() { s.namespaces.Delete(namespace) }, 0},
		} {
			step.do()
			got := 0
			for _, name := range []string{"default", "class", "selector", "exact"} {
				if s.isQueued(name) {
					got++
				}
			}
			if got != step.want {
				t.Errorf("%s: %d are queued, want %d", step.what, got, step.want)
			}
		}
	})
}

func TestWaiterParkedForLimitIsServedWhenUsageDrops(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		served := s.served()
		s.waits("a", ipam.Request{Pool: s.pool.Key, Length: 30})
		s.waits("b", ipam.Request{Pool: s.pool.Key, Length: 30})
		served()
		limit := ipam.Awaited{Project: "ns", Pool: s.pool.Key}
		reached := &ipam.ParkedError{Reason: "LimitReached", Message: "the limit is reached", Awaits: limit}
		retry, err := s.queue.Yield(claim("a"), reached)
		if !errors.Is(err, reached) || retry <= 0 {
			t.Errorf("got %v, to be tried again after %v", err, retry)
		}
		if got := served(); len(got) != 1 || got[0] != "b" {
			t.Errorf("served are %v, want the one behind it", got)
		}
		s.queue.Resume(ipam.Awaited{Project: "other", Pool: s.pool.Key})
		s.queue.Resume(limit)
		if got := served(); len(got) != 1 || got[0] != "a" {
			t.Errorf("when the limit is kept %v are served, want a", got)
		}
	})
}

func TestWaiterBeyondBoundStatesReason(t *testing.T) {
	var row messages.Row
	runScene(t, Options{Limit: 1}, func(s *scene) {
		s.open()
		served := s.served()
		s.waits("a", ipam.Request{Pool: ipam.PoolNamed("missing"), Length: 30})
		if err := s.queue.MayWait("ns", ipam.Request{}); err == nil || err.Error() != "namespace ns has reached its limit of 1 waiting claims: delete some, or wait until they are bound" {
			t.Errorf("another can wait: %v", err)
		}
		s.waits("b", ipam.Request{Pool: s.pool.Key, Length: 30})
		if got := served(); len(got) != 0 {
			t.Errorf("served are %v, want none", got)
		}
		retry, err := s.queue.Yield(claim("b"), &ipam.ExhaustedError{})
		parked, ok := errors.AsType[*ipam.ParkedError](err)
		if !ok || parked.Reason != "TooManyWaiting" || retry != 0 {
			t.Fatalf("it returns %v, and is tried again after %v", err, retry)
		}
		row = messages.Row{Object: "IPClaim", On: "condition Ready", Answer: "False, " + parked.Reason, Value: "ns", Message: parked.Message}
		s.queue.Leave(claim("a"))
		if got := served(); len(got) != 1 || got[0] != "b" {
			t.Errorf("when the other has left %v are served, want b", got)
		}
		if _, err := s.queue.Yield(claim("b"), &ipam.ExhaustedError{}); !ipam.IsNoRoom(err) {
			t.Errorf("queued it returns %v", err)
		}
	})
	messages.Golden(t, []messages.Row{row})
}

// TestWaiterParkedForLimitKeepsPoolStatus expects the same status until the limit is not
// in its way, even if the room is used up before, which is no news.
func TestWaiterParkedForLimitKeepsPoolStatus(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		s.waits("a", ipam.Request{Pool: s.pool.Key, Length: 30})
		limit := &ipam.LimitError{Subject: "pool p", Project: "ns", Unit: "block"}
		pools := []ipam.PoolResult{{Pool: s.pool.Key, Err: limit}}
		_, err := s.queue.Yield(claim("a"), ipam.WithPools(limit, pools))
		if parked, ok := errors.AsType[*ipam.ParkedError](err); !ok || !slices.Equal(ipam.PoolsOf(err), pools) {
			t.Errorf("it returns %v of %v, want that it is parked, and %v", parked, ipam.PoolsOf(err), pools)
		}
		full := &ipam.ExhaustedError{Pools: []ipam.PoolKey{s.pool.Key}}
		_, err = s.queue.Yield(claim("a"), ipam.WithPools(full, []ipam.PoolResult{{Pool: s.pool.Key, Err: full}}))
		if !slices.Equal(ipam.PoolsOf(err), pools) {
			t.Errorf("without room it returns %v of %v, want %v", err, ipam.PoolsOf(err), pools)
		}
	})
}

// TestNewLeaderServesWaiters lets a replica that does not lead follow the events:
// pools do not pile up there, and once it leads it serves the waiters.
func TestNewLeaderServesWaiters(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		go s.queue.Run(s.t.Context())
		other := s.holds("other", 29)
		s.waits("first", ipam.Request{Pool: s.pool.Key, Length: 30})
		other.Drop()
		for n := range 100 {
			s.pools.Add(build.Pool(fmt.Sprint("passing-", n)).CIDR("10.9.0.0/24").Obj())
		}
		synctest.Wait()
		if n := s.queue.wake.Len(); n > 0 {
			t.Errorf("%d pools pile up", n)
		}
		var served []string
		s.queue.OnTurn("IPClaim", func(h ipam.Holder) { served = append(served, h.Name) })
		synctest.Wait()
		if !slices.Equal(served, []string{"first"}) {
			t.Errorf("%v are served, want the one that waits", served)
		}
	})
}

func TestStoppedTurnHandlerIsNotCalled(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		s.open()
		var served []string
		serve := func(who string) func(ipam.Holder) {
			return func(h ipam.Holder) { served = append(served, who+" serves "+h.Name) }
		}
		stop := s.queue.OnTurn("IPClaim", serve("a"))
		s.queue.notifyTurn(ipam.Holder{Kind: "IPClaim", Name: "x"})
		stopB := s.queue.OnTurn("IPClaim", serve("b"))
		stop() // late: b serves already
		s.queue.notifyTurn(ipam.Holder{Kind: "IPClaim", Name: "y"})
		stopB()
		s.queue.notifyTurn(ipam.Holder{Kind: "IPClaim", Name: "z"})
		if want := []string{"a serves x", "b serves y"}; !slices.Equal(served, want) {
			t.Errorf("got %q, want %q", served, want)
		}
	})
}

// TestSeenPoolRecordReconcilesPool expects it because the pool can be ready now; a
// record of a claim has no effect on that.
func TestSeenPoolRecordReconcilesPool(t *testing.T) {
	runScene(t, Options{}, func(s *scene) {
		if got := s.woken(); !slices.Equal(got, []ipam.PoolKey{s.pool.Key}) {
			t.Errorf("at first: %v, want the pool", got)
		}
		child := ipam.PoolNamed("child")
		own := s.stores(ipam.Record{
			Name: s.catalog.RecordOfPool(child), Block: netip.MustParsePrefix("10.0.0.4/30"), Pool: s.pool.Key,
			Holder: convert.HolderOfPool(child), Purpose: ipam.PurposePool,
		})
		s.stores(ipam.Record{
			Name: ipam.Name{Namespace: "ns", Name: "x"}, Block: netip.MustParsePrefix("10.0.0.0/32"), Pool: s.pool.Key, Holder: claim("x"), Purpose: ipam.PurposeClaim,
		})
		if got := s.woken(); !slices.Equal(got, []ipam.PoolKey{child}) {
			t.Errorf("when a child is recorded: %v, want the child", got)
		}
		own = own.DeepCopy()
		own.Spec.State = v1alpha1.AllocationReleasing
		s.records.Modify(own)
		synctest.Wait()
		if got := s.woken(); !slices.Contains(got, child) {
			t.Errorf("when its record changes: %v, want the child", got)
		}
	})
}
