package ledger

import (
	"net/netip"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestOffsetAddrStaysWithinFamily(t *testing.T) {
	for _, c := range []struct {
		block string
		n     uint64
		want  string
	}{
		{"10.0.0.0/28", 3, "10.0.0.48"},
		{"255.255.255.224/28", 1, "255.255.255.240"},
		{"255.255.255.240/28", 1, "255.255.255.240"},
		{"2001:db8::/64", 1 << 12, "2001:db8:0:1000::"},
	} {
		if got := offsetAddr(netip.MustParsePrefix(c.block), c.n); got.String() != c.want {
			t.Errorf("%d ahead of %s: got %s, want %s", c.n, c.block, got, c.want)
		}
	}
}

// TestLostRaceSpreadsNextBlocks lets another replica be faster, after which blocks are
// taken one after the other from a random one on, for a while.
func TestLostRaceSpreadsNextBlocks(t *testing.T) {
	all := netip.MustParsePrefix("10.0.0.0/8")
	elsewhere := map[netip.Prefix]bool{}
	for seed := range uint64(20) {
		l := newLedger(seed)
		l.Describe(ipam.Pool{Key: key, Home: home, CIDR: all, Family: ipam.IPv4})
		must(t, feed{l}.Replace([]any{poolRecord(key, all.String())}, "0"))
		first := mustHold(t, l, ask("a")).Block
		b := l.poolViews[key]
		b.startSpreading(l.options.Clock.Now())
		from := mustHold(t, l, ask("b")).Block
		next := mustHold(t, l, ask("c")).Block
		if next.Addr() != offsetAddr(from, 1) || first.Addr() != all.Addr() {
			t.Fatalf("seed %d: %s, %s, and %s were taken", seed, first, from, next)
		}
		elsewhere[from] = true
		if most := offsetAddr(netip.MustParsePrefix("10.0.0.16/28"), 1<<spreadBits); !from.Addr().Less(most) || b.draws != 1 {
			t.Errorf("seed %d: the first jump of %d goes to %s, beyond %s", seed, b.draws, from, most)
		}
		l.options.Clock.(*clocktesting.FakeClock).Step(spreadFor + 1)
		if again := mustHold(t, l, ask("d")).Block; again.Addr() != offsetAddr(first, 1) || b.draws != 0 {
			t.Errorf("seed %d: later %s was taken, with %d draws", seed, again, b.draws)
		}
	}
	if len(elsewhere) < 15 {
		t.Errorf("%d replicas went to %d places", 20, len(elsewhere))
	}
}

// TestPendingReleaseIsCounted moves a record in and out of its release, again and again.
func TestPendingReleaseIsCounted(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.16/28")), "0"))
	name := ipam.Name{Namespace: "ns", Name: "a"}
	check := func(when string, leaving int) {
		t.Helper()
		if b := l.poolViews[key]; b.leavingCount != leaving || l.IsLeaving(name) != (leaving > 0) {
			t.Errorf("%s: %d are about to be released, this one: %t; want %d", when, b.leavingCount, l.IsLeaving(name), leaving)
		}
	}
	check("at first", 0)
	for range 2 {
		l.SetClaimed(name, false)
		check("when its claim is gone", 1)
	}
	for range 2 {
		l.SetClaimed(name, true)
		check("when it is claimed", 0)
	}
	going := allocation("a", "1", "2", "10.0.0.0/28")
	going.DeletionTimestamp = new(metav1.Now())
	must(t, feed{l}.Update(going))
	check("when it is being deleted", 1)
	kept := allocation("a", "1", "3", "10.0.0.0/28")
	kept.Spec.State = v1alpha1.AllocationRetained
	must(t, feed{l}.Update(kept))
	check("when it is retained", 0)
	l.SetClaimed(name, false)
	check("when its claim is gone again", 1)
	must(t, feed{l}.Delete(kept))
	check("when it is gone", 0)
	if l.IsLeaving(ipam.Name{Namespace: "ns", Name: "none"}) {
		t.Error("a record that is not there is about to be released")
	}
}

// TestClaimSeenBeforeItsRecordIsCounted covers the two watches, which are independent.
func TestClaimSeenBeforeItsRecordIsCounted(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	name := ipam.Name{Namespace: "ns", Name: "a"}
	unclaimed := func(when string, want string) {
		t.Helper()
		if got := l.Unclaimed("ns", key); got.String() != want {
			t.Errorf("%s: %s are unclaimed, want %s", when, got, want)
		}
	}
	l.SetClaimed(name, true)
	must(t, feed{l}.Add(allocation("a", "1", "1", "10.0.0.0/28")))
	unclaimed("claimed before it came", "0")
	must(t, feed{l}.Delete(allocation("a", "1", "1", "10.0.0.0/28")))
	must(t, feed{l}.Add(allocation("a", "2", "1", "10.0.0.0/28")))
	unclaimed("made again", "0")
	l.SetClaimed(name, false)
	unclaimed("when the claim is gone", "1")
	must(t, feed{l}.Update(allocation("a", "2", "2", "10.0.0.0/28")))
	unclaimed("in a new version", "1")
	must(t, feed{l}.Delete(allocation("a", "2", "2", "10.0.0.0/28")))
	unclaimed("gone", "0")
	l.SetClaimed(name, true)
	l.SetClaimed(name, false)
	must(t, feed{l}.Add(allocation("a", "3", "1", "10.0.0.0/28")))
	unclaimed("claimed and not before it came", "1")
	if len(l.claimedNames) > 0 {
		t.Errorf("%v are remembered", l.claimedNames)
	}
}

// TestRecordWithOtherBlockDoesNotConfirmHold covers two replicas that make the record of one
// name: one has made it with its own block.
func TestRecordWithOtherBlockDoesNotConfirmHold(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	h := mustHold(t, l, ask("a"))
	must(t, feed{l}.Add(allocation("a", "1", "1", "10.0.0.64/28")))
	if err := h.Confirm(t.Context(), "1"); err == nil {
		t.Error("it is confirmed")
	}
}

// TestForgottenPoolKeepsOnlyItsRecords forgets pools with and without records.
func TestForgottenPoolKeepsOnlyItsRecords(t *testing.T) {
	l := newLedger(1)
	empty := ipam.PoolNamed("empty")
	l.Describe(ipam.Pool{Key: empty, Home: home, CIDR: netip.MustParsePrefix("10.9.0.0/16"), Family: ipam.IPv4})
	must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28")), "0"))
	for _, pool := range []ipam.PoolKey{empty, key, unknown} {
		l.Forget(pool)
	}
	if l.poolViews[empty] != nil || l.Records(key) != 1 {
		t.Errorf("of pools, %d are kept, with %d records", len(l.poolViews), l.Records(key))
	}
	if _, err := l.Hold(ask("b")); err == nil {
		t.Error("a block of a pool that is forgotten is handed out")
	}
}

// TestListenersAreNotifiedOfConflictsInTime lets a conflict last for long enough.
func TestListenersAreNotifiedOfConflictsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger(1)
		must(t, feed{l}.Replace(recordList(), "0"))
		must(t, feed{l}.Add(allocation("a", "1", "1", "10.0.0.0/28")))
		must(t, feed{l}.Add(allocation("b", "2", "2", "10.0.0.0/30")))
		notified := 0
		l.Follow(func(Change) { notified++ })
		go l.NotifyConflicts(t.Context())
		for range 2 {
			synctest.Wait()
			l.options.Clock.(*clocktesting.FakeClock).Step(conflictAfter)
			synctest.Wait()
			if notified != 2 {
				t.Errorf("it was notified of %d, want of both, once", notified)
			}
		}
	})
}
