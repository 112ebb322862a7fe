package ledger

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// confirmed reports whether the view shows the record and it is confirmed.
func checkRecordConfirmed(t *testing.T, l *Ledger, obj *v1alpha1.IPAllocation) error {
	t.Helper()
	return l.CheckConfirmed(recordOf(t, obj))
}

// TestBlockIsConfirmedWhenPoolReopens covers a block that was recorded while its pool was
// closed.
func TestBlockIsConfirmedWhenPoolReopens(t *testing.T) {
	mine, pools := allocation("a", "1", "5", "10.0.0.0/28"), poolRecord(key, small.String())
	unmarked := pools.DeepCopy()
	unmarked.ResourceVersion = "6"
	other := poolRecord(ipam.PoolNamed("other"), "10.0.0.0/16")
	for name, c := range map[string]struct{ closed, opened func(feed) error }{
		"the mark is taken off": {
			func(f feed) error { return errors.Join(f.Add(pools), f.Update(markForRelease(pools, "2"))) },
			func(f feed) error { return f.Update(unmarked) },
		},
		"the rival of the own record is gone": {
			func(f feed) error { return errors.Join(f.Add(other), f.Add(pools)) },
			func(f feed) error { return f.Delete(other) },
		},
		"the own record comes": {func(feed) error { return nil }, func(f feed) error { return f.Add(pools) }},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			f := feed{l}
			must(t, f.Replace(nil, "0"))
			must(t, c.closed(f))
			must(t, f.Add(mine))
			if err := checkRecordConfirmed(t, l, mine); !errors.Is(err, ErrPoolClosed) {
				t.Fatalf("while it is closed: %v", err)
			}
			notified := 0
			l.Follow(func(c Change) {
				if c.Record.Name.Name == "a" && c.Kind == Changed {
					notified++
				}
			})
			must(t, c.opened(f))
			if err := checkRecordConfirmed(t, l, mine); err != nil || notified != 1 {
				t.Errorf("when it is open: %v, notified %d times, want once", err, notified)
			}
			if n := len(l.poolViews[key].unconfirmedEntries); n != 0 {
				t.Errorf("%d records are kept as not confirmed", n)
			}
		})
	}
}

// TestBlockOfPoolWithoutSpecIsConfirmed covers a pool whose spec is not known: its own record
// states its block.
func TestBlockOfPoolWithoutSpecIsConfirmed(t *testing.T) {
	l := newLedger(1)
	other := ipam.PoolNamed("other")
	mine := allocation("a", "1", "5", "10.1.0.0/28")
	mine.Spec.PoolRef.Name = other.Name
	must(t, feed{l}.Replace([]any{poolRecord(other, "10.1.0.0/24"), mine}, "0"))
	if err := checkRecordConfirmed(t, l, mine); err != nil {
		t.Error(err)
	}
}

// TestDeletedRecordIsNotConfirmedLater expects that a record is forgotten that was not
// confirmed, and is gone.
func TestDeletedRecordIsNotConfirmedLater(t *testing.T) {
	l := newLedger(1)
	mine := allocation("a", "1", "5", "10.0.0.0/28")
	must(t, feed{l}.Replace([]any{mine}, "0"))
	must(t, feed{l}.Delete(mine))
	if n := len(l.poolViews[key].unconfirmedEntries); n != 0 {
		t.Errorf("%d records are kept as not confirmed", n)
	}
}

// TestRecreatedPoolWithNewCIDRHasNewBlocks covers a pool that is made again with another CIDR.
func TestRecreatedPoolWithNewCIDRHasNewBlocks(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	pool := l.poolViews[key].pool
	pool.CIDR = netip.MustParsePrefix("10.5.0.0/24")
	l.Describe(pool)
	if h := mustHold(t, l, ask("a")); h.Block.String() != "10.5.0.0/28" {
		t.Errorf("held %s", h.Block)
	}
}

// TestConflictLastsUntilLastRivalIsGone covers a record that overlaps several: it is in
// conflict as long as one of them exists.
func TestConflictLastsUntilLastRivalIsGone(t *testing.T) {
	l := newLedger(1)
	large, first, second := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30"), allocation("c", "3", "3", "10.0.0.4/30")
	must(t, feed{l}.Replace(recordList(first, second), "0"))
	must(t, feed{l}.Add(large))
	l.options.Clock.(*clocktesting.FakeClock).Step(conflictAfter)
	for _, gone := range []*v1alpha1.IPAllocation{first, second} {
		if l.Conflict(recordOf(t, large)) == nil {
			t.Errorf("not in conflict before %s is gone", gone.Name)
		}
		must(t, feed{l}.Delete(gone))
	}
	if taken := l.Conflict(recordOf(t, large)); taken != nil || len(l.poolViews[key].contestedEntries) != 0 {
		t.Errorf("at last: %v, contested %v", taken, l.poolViews[key].contestedEntries)
	}
}

// TestListenersAreNotifiedOfNewVersions expects a notification of a new version of a record, but
// not of one that is shown again.
func TestListenersAreNotifiedOfNewVersions(t *testing.T) {
	l := newLedger(1)
	mine := allocation("a", "1", "1", "10.0.0.0/28")
	must(t, feed{l}.Replace(recordList(mine), "0"))
	var addedNames, changedVersions []string
	l.Listen(func(c Change) {
		if c.Kind == Added {
			addedNames = append(addedNames, c.Record.Name.Name)
		} else {
			changedVersions = append(changedVersions, c.Record.Version)
		}
	})
	if len(addedNames) != 2 {
		t.Errorf("notified of %v, want both that exist", addedNames)
	}
	newer := mine.DeepCopy()
	newer.ResourceVersion = "2"
	must(t, errors.Join(feed{l}.Update(mine), feed{l}.Update(newer), feed{l}.Update(newer)))
	if len(changedVersions) != 1 || changedVersions[0] != "2" {
		t.Errorf("notified of versions %v, want 2", changedVersions)
	}
}

// TestNewRecordOfClaimedNameIsUnclaimed expects that a record is unclaimed that is made under the name of an
// earlier one, which a claim had.
func TestNewRecordOfClaimedNameIsUnclaimed(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	name := ipam.Name{Namespace: "ns", Name: "a"}
	l.SetClaimed(name, true) // the claim is shown before the record
	first := allocation("a", "1", "1", "10.0.0.0/28")
	must(t, feed{l}.Add(first))
	l.SetClaimed(name, false)
	must(t, feed{l}.Delete(first))
	must(t, feed{l}.Add(allocation("a", "2", "2", "10.0.0.0/28")))
	if n := l.Unclaimed("ns", key); n.String() != "1" {
		t.Errorf("%s unclaimed blocks, want 1", n)
	}
}

// TestBlockInUseIsTaken expects that a request for a block in use is refused with the name of the
// other holder.
func TestBlockInUseIsTaken(t *testing.T) {
	l := newLedger(1)
	mine := allocation("a", "1", "1", "10.0.0.0/28")
	must(t, feed{l}.Replace(recordList(mine), "0"))
	again := ask("b")
	again.Block, again.InUse = netip.MustParsePrefix("10.0.0.0/30"), true
	_, err := l.Hold(again)
	taken, ok := errors.AsType[*ipam.TakenError](err)
	if want := (ipam.TakenError{Block: again.Block, Pool: key, Holder: ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: "a"}, Overlap: netip.MustParsePrefix("10.0.0.0/28")}); !ok || *taken != want {
		t.Errorf("got %v, want %v", err, &want)
	}
	again.Block = netip.MustParsePrefix("10.0.0.32/30") // withheld, but not in the way of another
	mustHold(t, l, again)
}

// TestSilentWatchIsRestarted expects that a record that is acknowledged and not shown restarts the
// watch, once.
func TestSilentWatchIsRestarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := New(Options{Clock: clock.RealClock{}, Silence: time.Minute, Random: rand.New(rand.NewPCG(1, 0))})
		l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
		must(t, feed{l}.Replace(recordList(), "0"))
		ended := 0
		l.relist = func() { ended++ }
		h := mustHold(t, l, ask("a"))
		outcome := make(chan error)
		go func() { outcome <- h.Confirm(t.Context(), "1") }()
		synctest.Wait()
		time.Sleep(l.options.Silence - time.Nanosecond) //nolint:forbidigo // of the time in the bubble
		if relists, _ := l.Relists(); relists != 0 {
			t.Errorf("the watch ended %d times before its time", relists)
		}
		time.Sleep(2 * time.Nanosecond) //nolint:forbidigo // of the time in the bubble
		must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28")), "2"))
		if err := <-outcome; err != nil {
			t.Error(err)
		}
		l.watchStart = time.Now()
		l.relistSince(time.Now().Add(-1)) // it began after that
		if relists, _ := l.Relists(); relists != 1 || ended != 1 {
			t.Errorf("the watch ended %d times, counted as %d", ended, relists)
		}
	})
}

// TestHoldOfUnseenDeletedRecordIsLost covers a record whose creation is acknowledged.
func TestHoldOfUnseenDeletedRecordIsLost(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	h := mustHold(t, l, ask("a"))
	mine := allocation("a", "1", "1", h.Block.String())
	must(t, errors.Join(feed{l}.Add(mine), feed{l}.Delete(mine)))
	if err := h.Confirm(t.Context(), "1"); !errors.Is(err, ErrLost) {
		t.Errorf("got %v, want ErrLost", err)
	}
}

// TestHoldCountsUntilRecordCounts expects that a hold counts for its project until its record
// does, and that the two count once.
func TestHoldCountsUntilRecordCounts(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	one := account{project: "red", pool: key}
	held, another := ask("a"), ask("b")
	held.Project, another.Project = "red", "red"
	h, other := mustHold(t, l, held), mustHold(t, l, another)
	if n := l.held[one].Blocks.String(); n != "2" || len(l.recorded) != 0 {
		t.Errorf("held %s, recorded %v", n, l.recorded)
	}
	mine := allocation("a", "1", "1", h.Block.String())
	mine.Spec.Project = "red"
	must(t, feed{l}.Add(mine))
	for _, when := range []string{"recorded", "confirmed"} {
		if n := l.held[one].Blocks.String(); n != "1" || l.recorded[one].Blocks.String() != "1" {
			t.Errorf("when one is %s: held %s, recorded %v", when, n, l.recorded)
		}
		must(t, h.Confirm(t.Context(), "1"))
	}
	other.Drop()
	must(t, feed{l}.Delete(mine))
	if len(l.held) != 0 || len(l.recorded) != 0 || len(l.unclaimed) != 0 {
		t.Errorf("when it is gone: held %v, recorded %v, unclaimed %v", l.held, l.recorded, l.unclaimed)
	}
}

// TestOccupantsAreBounded expects at most the requested number of occupants, though several have
// one block.
func TestOccupantsAreBounded(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/28"), allocation("c", "3", "3", "10.0.0.0/28")), "0"))
	for most, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3} {
		if first, all := l.Occupants(key, most); len(first) != want || all != 3 {
			t.Errorf("of at most %d: %d of %d", most, len(first), all)
		}
	}
}

// TestWaiterIsNotifiedOnlyWhileWaiting expects that a waiter is notified of a claim that names
// a record, but not after its wait has ended.
func TestWaiterIsNotifiedOnlyWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		mine := allocation("a", "1", "1", "10.0.0.0/28")
		must(t, feed{l}.Replace(recordList(mine), "0"))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Await(t.Context(), []ipam.PoolKey{key}, func() bool { return l.Unclaimed("ns", key).IsZero() })
		}()
		synctest.Wait()
		if n := len(l.poolViews[key].waiters); n != 1 {
			t.Fatalf("%d wait", n)
		}
		l.SetClaimed(ipam.Name{Namespace: "ns", Name: "a"}, true)
		<-ended
		if n := len(l.poolViews[key].waiters); n != 0 {
			t.Errorf("%d are notified still", n)
		}
	})
}
