package allocator

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/messages"
)

// openSecondPool opens a pool beside the parent and returns it.
func openSecondPool(a *Allocator, api *steady, t *testing.T) ipam.Pool {
	t.Helper()
	pool := ipam.Pool{Key: ipam.PoolNamed("second"), Home: parent().Home, CIDR: netip.MustParsePrefix("10.1.0.0/29"), Family: ipam.IPv4, Strategy: ipam.StrategyFirstFit}
	own := ownRecord(a, pool.Key, "10.1.0.0/29", ipam.StateBound)
	own.Pool = pool.Home
	api.stores(t, own)
	a.Ledger.Describe(pool)
	return pool
}

func TestPreviewMatchesAllocate(t *testing.T) {
	for name, c := range map[string]struct {
		order func(first, second ipam.Pool) Order
		want  string // of the error otherwise
		err   func(error) bool
	}{
		"of the first pool":                     {func(first, second ipam.Pool) Order { return orderFromPools(claimOrder("x", 30), first, second) }, "10.1.0.0/30", nil},
		"of the next one, as the first is full": {func(first, second ipam.Pool) Order { return orderFromPools(claimOrder("x", 28), first, second) }, "10.0.0.0/28", nil},
		"none has room":                         {func(first, _ ipam.Pool) Order { return orderFromPools(claimOrder("x", 28), first) }, "", isA[*ipam.ExhaustedError]},
		"of a pool that is not known": {func(first, second ipam.Pool) Order {
			return orderFromPools(claimOrder("x", 30), ipam.Pool{Key: ipam.PoolNamed("unknown")}, first, second)
		}, "", isA[*ledger.UnknownPoolError]},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			order := c.order(openSecondPool(a, api, t), parent())
			order.Record = ipam.Name{}
			before := api.server.list().ResourceVersion
			record, err := a.Preview(order)
			if c.err == nil && (err != nil || record.Block.String() != c.want || !strings.HasPrefix(record.Name.Name, "x-")) {
				t.Errorf("got %+v, %v; want %s", record, err, c.want)
			}
			if c.err != nil && !c.err(err) {
				t.Errorf("got %v", err)
			}
			if api.server.list().ResourceVersion != before || a.Ledger.Records(parent().Key) > 0 {
				t.Error("something was recorded")
			}
			if allocated, err := a.Allocate(t.Context(), order); c.err == nil && (err != nil || allocated.Block != record.Block) || c.err != nil && err == nil {
				t.Errorf("Allocate gives %+v, %v", allocated, err)
			}
		})
	}
}

// TestPreviewsHaveOtherBlocksWhileTheyAreHeld previews the members of a group.
func TestPreviewsHaveOtherBlocksWhileTheyAreHeld(t *testing.T) {
	runNamedOnReplica(t, "held", func(t *testing.T, a *Allocator, api *steady) {
		pool := openSecondPool(a, api, t) // of eight addresses
		preview := func(name, want string) (release func()) {
			t.Helper()
			record, release, err := a.PreviewHeld(orderFromPools(claimOrder(name, 30), pool))
			if got := record.Block.String(); err == nil && got != want || (err == nil) != (want != "") {
				t.Errorf("%s: got %s, %v; want %s", name, got, err, want)
			}
			return release
		}
		first := preview("x", "10.1.0.0/30")
		second := preview("y", "10.1.0.4/30")
		preview("z", "")()
		first()
		third := preview("z", "10.1.0.0/30")
		second()
		third()
		preview("x", "10.1.0.0/30")()
	})
}

func orderFromPools(order Order, pools ...ipam.Pool) Order {
	order.Pools = pools
	return order
}

// isA reports whether an error is of the type.
func isA[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

// TestLostRaceGetsNextBlockUnderAnotherName expects a record of another name: the deletion
// of the record that gives way cannot meet the new one.
func TestLostRaceGetsNextBlockUnderAnotherName(t *testing.T) {
	runScene(t, func(s *scene) {
		s.list()
		s.recorded(s.order("rival", 30), "10.0.0.0/30") // not shown yet
		time.AfterFunc(time.Millisecond, func() { close(s.events) })
		record, err := s.allocator.Allocate(s.t.Context(), s.order("x", 30))
		if err != nil || record.Block.String() != "10.0.0.4/30" {
			t.Fatalf("got %+v, %v; want the other half", record, err)
		}
		if lost := sumCounter(s.allocator, metrics.LostRaces); lost != 1 {
			t.Errorf("%g lost races were counted, want 1", lost)
		}
		synctest.Wait()
		names := map[string]bool{}
		for _, event := range s.server.log {
			if obj := event.Object.(*v1alpha1.IPAllocation); event.Type == watch.Added && obj.Spec.ClaimRef.Name == "x" {
				names[obj.Name] = true
			}
		}
		if len(names) != 2 {
			t.Errorf("the records of both attempts were named %v", names)
		}
		if stored := s.server.records(); len(stored) != 2 {
			t.Errorf("stored are %d records, want the rival's and the new one", len(stored))
		}
	})
}

func TestLedgerRequestDerivesFromPoolClassAndOrder(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		a.UnclaimedLimit = 5
		a.Catalog.SetProject("ns", "red")
		a.Catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "gold", Limit: oneBlock}})
		order := claimOrder("x", 28)
		for _, c := range []struct {
			what   string
			change func()
			ask    func() ledger.Ask
			want   func(ledger.Ask) bool
		}{
			{"the pool's strategy", func() {}, func() ledger.Ask { return a.ask(order, parent()) }, func(k ledger.Ask) bool {
				return k.Strategy == ipam.StrategyFirstFit && k.ClassLimit == ipam.Limit{} && k.Project == "red" && k.UnclaimedLimit == 5
			}},
			{"the order's own", func() { order.Terms.Strategy = ipam.StrategyBestFit }, func() ledger.Ask { return a.ask(order, parent()) }, func(k ledger.Ask) bool { return k.Strategy == ipam.StrategyBestFit }},
			{"a class", func() { order.Terms.Class = "gold" }, func() ledger.Ask { return a.ask(order, parent()) }, func(k ledger.Ask) bool { return k.Class == "gold" && k.ClassLimit == oneBlock }},
			{"the block that a claim has", func() {}, func() ledger.Ask { return a.askInUse(order, parent().Key) }, func(k ledger.Ask) bool {
				return k.InUse && k.Unlimited && k.ClassLimit == ipam.Limit{} && k.Class == "gold"
			}},
			{"the address that an IPAddress has", func() { order.Holder.Kind = convert.AddressClaimKind }, func() ledger.Ask { return a.askInUse(order, parent().Key) }, func(k ledger.Ask) bool {
				return k.InUse && !k.Unlimited && k.ClassLimit == oneBlock
			}},
			{"a claim that exists", func() { order.existsAs("uid") }, func() ledger.Ask { return a.ask(order, parent()) }, func(k ledger.Ask) bool { return k.UnclaimedLimit == 0 }},
			{"a pool of the cluster", func() { order.Holder = convert.HolderOfPool(ipam.PoolNamed("p")); order.existsAs("") }, func() ledger.Ask { return a.ask(order, parent()) }, func(k ledger.Ask) bool {
				return k.UnclaimedLimit == 0 && k.Project == ""
			}},
		} {
			c.change()
			if got := c.ask(); !c.want(got) {
				t.Errorf("%s: %+v", c.what, got)
			}
		}
	})
}

func TestFailedCreateFreesBlock(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/28")
	for name, fail := range map[string]func(*Allocator, *steady) error{
		"it was refused": func(_ *Allocator, api *steady) error {
			api.fails = apierrors.NewForbidden(resource, "x", errors.New("exceeded quota"))
			return api.fails
		},
		"there is a crowd": func(a *Allocator, _ *steady) error {
			_ = a.attempts.Acquire(context.Background(), MaxConcurrentAttempts)
			return ipam.ErrCrowded
		},
	} {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			want := fail(a, api)
			if _, err := a.Allocate(t.Context(), claimOrder("x", 28)); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
			if !a.Ledger.HasRoom(parent().Key, 28, block) {
				t.Error("its block is not free again")
			}
		})
	}
}

func TestRecordOfFailedCreateIsDeletedOnArrival(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.fails = errCut
		order := claimOrder("x", 28)
		if _, err := a.Allocate(t.Context(), order); !errors.Is(err, errCut) || errors.Is(err, ipam.ErrUnconfirmed) {
			t.Errorf("got %v, want %v", err, errCut)
		}
		late := api.stores(t, order.recordOf(parent(), netip.MustParsePrefix("10.0.0.0/28")))
		if api.stored(late.Name) != nil {
			t.Error("it still exists")
		}
	})
}

// TestRecordOfIPAddressStaysAlthoughItsCreateFailed expects that the record of a failed attempt stays when
// it turns up: the IPAddress is admitted in any case, and relies on it.
func TestRecordOfIPAddressStaysAlthoughItsCreateFailed(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.fails = errCut
		order := claimOrder("x", 28)
		order.Terms.Block = netip.MustParsePrefix("10.0.0.0/28")
		if _, err := a.RecordExisting(t.Context(), order, parent().Key); !errors.Is(err, errCut) {
			t.Errorf("got %v, want %v", err, errCut)
		}
		late := api.stores(t, order.recordOf(parent(), order.Terms.Block))
		if api.stored(late.Name) == nil {
			t.Error("it is gone")
		}
	})
	runNamedScene(t, "unconfirmed", func(t *testing.T, s *scene) {
		s.list()
		order := s.order("x", 30)
		order.Terms.Block = netip.MustParsePrefix("10.0.0.0/30")
		if _, err := s.allocator.RecordExisting(s.t.Context(), order, s.pool.Key); !errors.Is(err, ipam.ErrUnconfirmed) {
			t.Errorf("got %v, want %v", err, ipam.ErrUnconfirmed)
		}
		synctest.Wait()
		if stored := s.server.records(); len(stored) != 1 || !stored[0].DeletionTimestamp.IsZero() {
			t.Errorf("stored are %d records, want that it stays", len(stored))
		}
		close(s.events)
	})
}

// TestUnconfirmedRecordIsAbandonedUnlessNameIsFixed expects the record to be given up, unless its name is its
// holder's: the next attempt finds it.
func TestUnconfirmedRecordIsAbandonedUnlessNameIsFixed(t *testing.T) {
	for name, uid := range map[string]string{"of an attempt": "", "of a claim that exists": "uid"} {
		runNamedScene(t, name, func(t *testing.T, s *scene) {
			s.list()
			order := s.order("x", 30)
			if uid != "" {
				order = s.bound("x", uid, 30)
			}
			began := time.Now()
			if _, err := s.allocator.Allocate(s.t.Context(), order); !errors.Is(err, ipam.ErrUnconfirmed) {
				t.Errorf("got %v, want %v", err, ipam.ErrUnconfirmed)
			}
			if took := time.Since(began); took != confirmTimeout {
				t.Errorf("it took %v, want %v", took, confirmTimeout)
			}
			synctest.Wait()
			stored := slices.DeleteFunc(s.server.records(), func(o v1alpha1.IPAllocation) bool { return !o.DeletionTimestamp.IsZero() })
			if there := len(stored) == 1; there != (uid != "") {
				t.Errorf("%d records stay", len(stored))
			}
			close(s.events)
		})
	}
}

// TestLostRaceReleasesRecordAtOnce expects the release at once: the name of the record
// is needed again.
func TestLostRaceReleasesRecordAtOnce(t *testing.T) {
	runScene(t, func(s *scene) {
		s.list()
		s.recorded(s.order("rival", 29), "10.0.0.0/29") // all of the pool, and not shown yet
		time.AfterFunc(time.Millisecond, func() { close(s.events) })
		order := s.bound("x", "uid", 30)
		order.Terms.OnExhaustion = ipam.OnExhaustionReject
		if _, err := s.allocator.Allocate(s.t.Context(), order); !ipam.IsNoRoom(err) {
			t.Errorf("got %v, want that there is no room", err)
		}
		if stored := s.server.records(); len(stored) != 1 {
			t.Errorf("stored are %d records, want the rival's", len(stored))
		}
	})
}

// TestClosedPoolAllocatesNothing expects that the pool hands out nothing. The error states that to a claim; a
// child pool gets the error that its parent is not ready.
func TestClosedPoolAllocatesNothing(t *testing.T) {
	var rows []messages.Row
	for name, c := range twoHolders() {
		runNamedOnReplica(t, name, func(t *testing.T, a *Allocator, api *steady) {
			own := api.server.list().Items[0]
			record, _ := convert.Record(&own)
			must(t, a.ApplyTransition(t.Context(), record, ipam.Transition{State: ipam.StateReleasing}))
			synctest.Wait()
			order := claimOrder("x", 28)
			order.Holder = c.holder
			_, err := a.Allocate(t.Context(), order)
			missing, ok := errors.AsType[*ipam.MissingError](err)
			if !ok || missing.Reason != c.reason || missing.Message != "pool parent is being released, or its CIDR is not recorded: wait until it is ready, or use another pool" {
				t.Errorf("got %v, want reason %s", err, c.reason)
			}
			rows = append(rows, messages.Row{Object: map[bool]string{true: "IPPool", false: "IPClaim"}[c.holder.IsPool()], On: "condition Ready", Answer: "False, " + c.reason, Value: "parent", Message: err.Error()})
			synctest.Wait()
			if n := len(api.server.records()); n != 0 {
				t.Errorf("%d records stay", n)
			}
			order.Terms.Block = netip.MustParsePrefix("10.0.0.0/28")
			entered, err := a.RecordExisting(t.Context(), order, parent().Key)
			if !errors.As(err, &missing) || entered.UID == "" || api.stored(entered.Name) == nil {
				t.Errorf("a block in use: got %+v, %v; want it recorded in any case", entered, err)
			}
		})
	}
	messages.Golden(t, rows)
}

// TestLaterRecordExceedingLimitIsRejected expects the later record to give way, with an error that names
// the limit.
func TestLaterRecordExceedingLimitIsRejected(t *testing.T) {
	runScene(t, func(s *scene) {
		s.pool.Limit = oneBlock
		s.allocator.Ledger.Describe(s.pool)
		s.allocator.Catalog.SetProject("ns", "red")
		s.list()
		first := s.order("first", 30)
		record := first.recordOf(s.pool, netip.MustParsePrefix("10.0.0.4/30"))
		record.Project = "red"
		s.creates(t, record) // which is not shown yet
		time.AfterFunc(time.Millisecond, func() { close(s.events) })
		_, err := s.allocator.Allocate(s.t.Context(), s.order("x", 30))
		if _, ok := errors.AsType[*ipam.LimitError](err); !ok {
			t.Errorf("got %v, want that the limit is reached", err)
		}
		synctest.Wait()
		if stored := s.server.records(); len(stored) != 1 || stored[0].Spec.ClaimRef.Name != "first" {
			t.Errorf("stored are %d records, want the first alone", len(stored))
		}
	})
}

func TestExpiredAttemptIsUnconfirmed(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := unconfirmedIfDone(over, errCut); !errors.Is(err, ipam.ErrUnconfirmed) || !errors.Is(err, errCut) {
		t.Errorf("when the time is over: %v", err)
	}
	if err := unconfirmedIfDone(t.Context(), errCut); !errors.Is(err, errCut) || errors.Is(err, ipam.ErrUnconfirmed) {
		t.Errorf("before: %v", err)
	}
}

func TestNameIsFixedForExistingHoldersAndPools(t *testing.T) {
	claim := claimOrder("x", 28)
	exists := claim
	exists.existsAs("uid")
	pool := Order{Holder: convert.HolderOfPool(ipam.PoolNamed("p")), Record: ipam.Name{Namespace: "system", Name: "ippool.p"}}
	pooled := pool
	pooled.existsAs("uid")
	address := Order{Holder: convert.HolderOfAddressClaim(ipam.Name{Namespace: "ns", Name: "node"})}
	address.Origin, address.Record = OriginAddress, convert.RecordOfHolder(address.Holder, "")
	for name, c := range map[string]struct {
		order Order
		fixed bool
	}{
		"a claim's that does not exist": {claim, false}, "one's that does": {exists, true},
		"a pool's that does not exist": {pool, true}, "one's that does already": {pooled, true},
		"an IPAddress's without claim": {address, true},
	} {
		if got := c.order.nameIsFixed(); got != c.fixed {
			t.Errorf("%s: fixed %t, want %t", name, got, c.fixed)
		}
		if got := c.order.nextRecordName() == c.order.Record; got != c.fixed {
			t.Errorf("%s: the next attempt has the same name: %t, want %t", name, got, c.fixed)
		}
	}
}

func TestErrorsOfSeveralPoolsAreCombined(t *testing.T) {
	pool := func(name string) ipam.Pool {
		return ipam.Pool{Key: ipam.PoolNamed(name), OnExhaustion: ipam.OnExhaustionReject}
	}
	full := func(largest int) error { return &ipam.ExhaustedError{Largest: largest} }
	taken, limit, other := &ipam.TakenError{}, &ipam.LimitError{Subject: "pool b"}, &ipam.LimitError{Subject: "pool c"}
	for name, c := range map[string]struct {
		says  []error
		takes []bool
		want  func(error) bool
	}{
		"nothing":                   {nil, nil, exhausted(0, ipam.NoLength, 0)},
		"one is full":               {[]error{full(ipam.NoLength)}, []bool{true}, exhausted(1, ipam.NoLength, 0)},
		"the largest that is left":  {[]error{full(26), full(25), full(27)}, []bool{true, true, true}, exhausted(3, 25, 0)},
		"one has some, one none":    {[]error{full(26), full(ipam.NoLength)}, []bool{true, true}, exhausted(2, 26, 0)},
		"one has none, one some":    {[]error{full(ipam.NoLength), full(26)}, []bool{true, true}, exhausted(2, 26, 0)},
		"it is the turn of others":  {[]error{ledger.ErrOutOfTurn}, []bool{true}, exhausted(1, ipam.NoLength, 0)},
		"the block is taken":        {[]error{taken, full(26)}, []bool{true, true}, func(err error) bool { return errors.Is(err, taken) }},
		"a limit is reached":        {[]error{limit}, []bool{true}, func(err error) bool { return errors.Is(err, limit) }},
		"two are":                   {[]error{limit, other}, []bool{true, true}, func(err error) bool { return errors.Is(err, other) }},
		"one is, and one is full":   {[]error{limit, full(26)}, []bool{true, true}, exhausted(1, 26, 1)},
		"the API server is not fit": {[]error{errCut}, []bool{false}, exhausted(0, ipam.NoLength, 0)},
	} {
		order := claimOrder("x", 24)
		order.Pools = []ipam.Pool{pool("a")}
		s := order.newShortage()
		for i, err := range c.says {
			if got := s.addResult(pool(string(rune('a'+i))), err); got != c.takes[i] {
				t.Errorf("%s: %v means that there is no room: %t, want %t", name, err, got, c.takes[i])
			}
		}
		if got := s.err(); !c.want(got) {
			t.Errorf("%s: got %#v", name, got)
		}
	}
}

// exhausted returns a check that so many pools are full, that their largest free block has the
// length, and that so many limits are reached.
func exhausted(pools, largest, limits int) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*ipam.ExhaustedError](err)
		return ok && len(e.Pools) == pools && e.Largest == largest && len(e.Limits) == limits && e.Bits == 24 && e.OnExhaustion == ipam.OnExhaustionReject
	}
}
