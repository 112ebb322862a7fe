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

// checkRecordConfirmed reports whether the view shows the record and it is confirmed.
func checkRecordConfirmed(t *testing.T, l *Ledger, obj *v1alpha1.IPAllocation) error {
	t.Helper()
	return l.CheckConfirmed(recordOf(t, obj))
}

func TestBlockIsConfirmedWhenPoolReopens(t *testing.T) {
	mine, pools := allocation("a", "1", "5", "10.0.0.0/28"), poolRecord(key, small.String())
	other := poolRecord(ipam.PoolNamed("other"), "10.0.0.0/16")
	for name, c := range map[string]struct {
		closed []event
		opened event
	}{
		"the mark is taken off":               {[]event{adds(pools), updates(markForRelease(pools, "2"))}, updates(versioned(pools, "6"))},
		"the rival of the own record is gone": {[]event{adds(other), adds(pools)}, deletes(other)},
		"the own record comes":                {nil, adds(pools)},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			play(t, l, lists("0"))
			play(t, l, c.closed...)
			play(t, l, adds(mine))
			if err := checkRecordConfirmed(t, l, mine); !errors.Is(err, ErrPoolClosed) {
				t.Fatalf("while it is closed: %v", err)
			}
			notified := 0
			l.Follow(func(c Change) {
				if c.Record.Name.Name == "a" && c.Kind == Changed {
					notified++
				}
			})
			play(t, l, c.opened)
			if err := checkRecordConfirmed(t, l, mine); err != nil || notified != 1 {
				t.Errorf("when it is open: %v, notified %d times, want once", err, notified)
			}
			if n := len(l.poolViews[key].unconfirmedEntries); n != 0 {
				t.Errorf("%d records are kept as not confirmed", n)
			}
		})
	}
}

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

func TestDeletedRecordIsNotConfirmedLater(t *testing.T) {
	l := newLedger(1)
	mine := allocation("a", "1", "5", "10.0.0.0/28")
	must(t, feed{l}.Replace([]any{mine}, "0"))
	must(t, feed{l}.Delete(mine))
	if n := len(l.poolViews[key].unconfirmedEntries); n != 0 {
		t.Errorf("%d records are kept as not confirmed", n)
	}
}

func TestRecreatedPoolWithNewCIDRHasNewBlocks(t *testing.T) {
	l := newListedLedger(t)
	pool := l.poolViews[key].pool
	pool.CIDR = netip.MustParsePrefix("10.5.0.0/24")
	l.Describe(pool)
	if h := mustHold(t, l, ask("a")); h.Block.String() != "10.5.0.0/28" {
		t.Errorf("held %s", h.Block)
	}
}

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
		if relists := l.Stats().Relists; relists != 0 {
			t.Errorf("the watch ended %d times before its time", relists)
		}
		time.Sleep(2 * time.Nanosecond) //nolint:forbidigo // of the time in the bubble
		must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28")), "2"))
		if err := <-outcome; err != nil {
			t.Error(err)
		}
		l.watchStart = time.Now()
		l.relistSince(time.Now().Add(-1)) // it began after that
		if relists := l.Stats().Relists; relists != 1 || ended != 1 {
			t.Errorf("the watch ended %d times, counted as %d", ended, relists)
		}
	})
}

func TestHoldCountsUntilRecordCounts(t *testing.T) {
	l := newListedLedger(t)
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

func TestOccupantsAreBounded(t *testing.T) {
	l := newListedLedger(t, allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/28"), allocation("c", "3", "3", "10.0.0.0/28"))
	for most, want := range map[int]int{1: 1, 2: 2, 3: 3, 4: 3} {
		if first, all := l.Occupants(key, most); len(first) != want || all != 3 {
			t.Errorf("of at most %d: %d of %d", most, len(first), all)
		}
	}
}

func TestWaiterIsNotifiedOnlyWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		mine := allocation("a", "1", "1", "10.0.0.0/28")
		must(t, feed{l}.Replace(recordList(mine), "0"))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			l.Await(t.Context(), []ipam.PoolKey{key}, func() bool {
				occupants, _ := l.Occupants(key, 1)
				return occupants[0].Claimed
			})
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
