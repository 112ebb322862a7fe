package ledger

import (
	"slices"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestConflictNotifiesBothRecords stores two records that overlap, and a third one that
// overlaps neither.
func TestConflictNotifiesBothRecords(t *testing.T) {
	first, second, other := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30"), allocation("c", "3", "3", "10.0.0.16/30")
	l := newLedger(1)
	clock := l.options.Clock.(*clocktesting.FakeClock)
	must(t, feed{l}.Replace(recordList(), "0"))
	must(t, feed{l}.Add(first))
	must(t, feed{l}.Add(second))
	must(t, feed{l}.Add(other))
	var notified []string
	l.Follow(func(c Change) { notified = append(notified, c.Record.Name.Name) })
	before := map[string]bool{}
	check := func(when string, want ...string) {
		t.Helper()
		notified = nil
		before = l.notifyConflicts(before)
		slices.Sort(notified)
		if !slices.Equal(notified, want) {
			t.Errorf("%s: notified of %v, want %v", when, notified, want)
		}
	}
	conflict := func(when, name, want string) {
		t.Helper()
		r, _ := convert.Record(map[string]*v1alpha1.IPAllocation{"a": first, "b": second, "c": other}[name])
		got := ""
		if taken := l.Conflict(r); taken != nil {
			got = taken.Overlap.String()
		}
		if got != want {
			t.Errorf("%s: %s is in conflict with %q, want %q", when, name, got, want)
		}
	}
	check("at once: the second can be about to give way")
	conflict("at once", "a", "")
	conflict("at once", "b", "")
	clock.Step(conflictAfter)
	check("when it lasts", "a", "b")
	check("once")
	conflict("when it lasts", "a", "10.0.0.0/30")
	conflict("when it lasts", "b", "10.0.0.0/28")
	conflict("when it lasts", "c", "")
	must(t, feed{l}.Delete(second))
	check("when one is gone", "a")
	conflict("when one is gone", "a", "")

	fresh := newLedger(1)
	must(t, feed{fresh}.Replace(recordList(first, second), "3"))
	if n := len(fresh.Conflicts()); n != 2 {
		t.Errorf("%d conflicts in a first list, want both at once: they may be old", n)
	}
}

// TestRecordsNamedByLiveClaimsCanConflict stores two records as admission makes them, without
// the UID of a claim: a claim that names each of them confirms both, and does not hide that they
// overlap.
func TestRecordsNamedByLiveClaimsCanConflict(t *testing.T) {
	first, second := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30")
	claimed := func(l *Ledger) {
		l.SetClaimed(ipam.Name{Namespace: "ns", Name: "a"}, true)
		l.SetClaimed(ipam.Name{Namespace: "ns", Name: "b"}, true)
	}
	for name, show := range map[string]func(*Ledger){
		"claims after records": func(l *Ledger) {
			must(t, feed{l}.Replace(recordList(), "0"))
			must(t, feed{l}.Add(first))
			must(t, feed{l}.Add(second))
			claimed(l)
		},
		"claims before records": func(l *Ledger) {
			must(t, feed{l}.Replace(recordList(), "0"))
			claimed(l)
			must(t, feed{l}.Add(first))
			must(t, feed{l}.Add(second))
		},
		"a first list": func(l *Ledger) {
			must(t, feed{l}.Replace(recordList(first, second), "2"))
			claimed(l)
		},
		"a first list, after claims": func(l *Ledger) {
			claimed(l)
			must(t, feed{l}.Replace(recordList(first, second), "2"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			show(l)
			l.options.Clock.(*clocktesting.FakeClock).Step(conflictAfter)
			if n := len(l.Conflicts()); n != 2 {
				t.Errorf("%d records are in conflict, want both", n)
			}
			must(t, feed{l}.Delete(first))
			if n := len(l.Conflicts()); n != 0 {
				t.Errorf("%d records are in conflict when one is gone", n)
			}
			if n := len(l.poolViews[key].contestedEntries); n != 0 {
				t.Errorf("%d contests are kept in mind", n)
			}
		})
	}
}

// TestNeverClaimedRecordIsKnown covers records whose claim this process would have seen.
func TestNeverClaimedRecordIsKnown(t *testing.T) {
	made := allocation("a", "1", "1", "10.0.0.0/28")
	name := ipam.Name{Namespace: "ns", Name: "a"}
	record, _ := convert.Record(made)
	for what, test := range map[string]struct {
		show func(*Ledger)
		want bool
	}{
		"it was made, and no claim names it": {func(l *Ledger) {
			l.MarkClaimsKnown()
			must(t, feed{l}.Add(made))
		}, true},
		"a claim names it": {func(l *Ledger) {
			l.MarkClaimsKnown()
			must(t, feed{l}.Add(made))
			l.SetClaimed(name, true)
		}, false},
		"a claim named it": {func(l *Ledger) {
			l.MarkClaimsKnown()
			must(t, feed{l}.Add(made))
			l.SetClaimed(name, true)
			l.SetClaimed(name, false)
		}, false},
		"a claim named it before it was shown": {func(l *Ledger) {
			l.MarkClaimsKnown()
			l.SetClaimed(name, true)
			must(t, feed{l}.Add(made))
			l.SetClaimed(name, false)
		}, false},
		"it was made before all claims were known": {func(l *Ledger) {
			must(t, feed{l}.Add(made))
			l.MarkClaimsKnown()
		}, false},
		"it was made while the watch was cut": {func(l *Ledger) {
			l.MarkClaimsKnown()
			must(t, feed{l}.Replace(recordList(made), "1"))
		}, false},
		"it was made before the watch was cut": {func(l *Ledger) {
			l.MarkClaimsKnown()
			must(t, feed{l}.Add(made))
			must(t, feed{l}.Replace(recordList(made), "1"))
		}, true},
		"it is not there": {func(l *Ledger) { l.MarkClaimsKnown() }, false},
	} {
		t.Run(what, func(t *testing.T) {
			l := newLedger(1)
			must(t, feed{l}.Replace(recordList(), "0"))
			test.show(l)
			if got := l.WasNeverClaimed(record); got != test.want {
				t.Errorf("never claimed: %t, want %t", got, test.want)
			}
		})
	}
}
