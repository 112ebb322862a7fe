package ledger

import (
	"errors"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

// markForRelease returns a pool's own record that is being released.
func markForRelease(o *v1alpha1.IPAllocation, version string) *v1alpha1.IPAllocation {
	m := o.DeepCopy()
	m.Spec.State, m.ResourceVersion = v1alpha1.AllocationReleasing, version
	return m
}

func TestChildPoolNeedsParentRecord(t *testing.T) {
	l := newListedLedger(t)
	child := convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "ippool.child"}, UID: "1", Version: "1", Pool: key, Purpose: ipam.PurposePool,
		Block: small.Masked(), State: ipam.StateBound, Holder: convert.HolderOfPool(ipam.PoolNamed("child")),
	})
	child.Spec.CIDR = "10.0.0.0/28"
	play(t, l, updates(markForRelease(poolRecord(key, small.String()), "2")), adds(child))
	record, _ := convert.Record(child)
	if err := l.CheckConfirmed(record); !errors.Is(err, ErrPoolClosed) {
		t.Errorf("got %v, want ErrPoolClosed", err)
	}
}

func TestFirstOfOverlappingRecordsStaysConfirmed(t *testing.T) {
	first, second := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30")
	parse := func(o *v1alpha1.IPAllocation) ipam.Record { r, _ := convert.Record(o); return r }
	isTaken := func(err error) bool { _, ok := errors.AsType[*ipam.TakenError](err); return ok }
	l := newListedLedger(t)
	show(t, l, first, second)
	if err := l.CheckConfirmed(parse(first)); err != nil {
		t.Errorf("the first: %v, want that it is confirmed", err)
	}
	if err := l.CheckConfirmed(parse(second)); !isTaken(err) {
		t.Errorf("the second: %v, want that the block is taken", err)
	}
	must(t, feed{l}.Replace(recordList(first, second), "3"))
	if err := l.CheckConfirmed(parse(first)); err != nil {
		t.Errorf("the first, after a list: %v, want that it is confirmed still", err)
	}
	var changed []string
	l.Follow(func(c Change) { changed = append(changed, c.Record.Name.Name) })
	must(t, feed{l}.Delete(first))
	if err := l.CheckConfirmed(parse(second)); err != nil {
		t.Errorf("the second, when the first is gone: %v, want that it is confirmed", err)
	}
	if len(changed) != 2 || changed[1] != "b" {
		t.Errorf("listeners were notified of %v, want the deletion of a and the confirmation of b", changed)
	}
	fresh := newLedger(1)
	must(t, feed{fresh}.Replace(recordList(first, second), "3"))
	if !isTaken(fresh.CheckConfirmed(parse(first))) || !isTaken(fresh.CheckConfirmed(parse(second))) {
		t.Error("a list does not show which was first: want that neither is confirmed")
	}
}

func TestMarkedEmptyPoolRecordCanBeReleased(t *testing.T) {
	l := newLedger(1)
	pools, block := poolRecord(key, small.String()), allocation("a", "1", "2", "10.0.0.0/28")
	record, _ := convert.Record(markForRelease(pools, "2"))
	check := func(when string, want ReleaseVerdict) {
		t.Helper()
		if got := l.Release(record, "1", key, false); got != want {
			t.Errorf("%s: got %d, want %d", when, got, want)
		}
	}
	must(t, feed{l}.Replace(recordList(block), "0"))
	check("before the mark is seen", NotShown)
	must(t, feed{l}.Update(markForRelease(pools, "2")))
	check("with a block", InUse)
	must(t, feed{l}.Delete(block))
	check("without", Unused)
	must(t, feed{l}.Update(markForRelease(pools, "3")))
	check("when another process marked it again", Overtaken)
	must(t, feed{l}.Delete(pools))
	check("when it is gone, or the view is older", Overtaken)
}

func TestLaterRecordExceedsLimit(t *testing.T) {
	l := newLedger(1)
	pool := ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Limit: ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(2)}}}
	l.Describe(pool)
	must(t, feed{l}.Replace(recordList(setRecordProject("red", allocation("x", "9", "1", "10.0.0.16/28"))), "0"))
	askIn := func(project string, a Ask) Ask { a.Project = project; return a }
	h := mustHold(t, l, askIn("red", ask("a")))
	if _, err := l.Hold(askIn("red", ask("b"))); !isLimit(err) {
		t.Errorf("a second request of this replica: %v, want a LimitError", err)
	}
	mustHold(t, l, askIn("blue", ask("c"))).Drop()
	theirs := allocation("theirs", "2", "2", "10.0.0.128/28")
	theirs.Spec.Project = "red"
	must(t, feed{l}.Add(theirs)) // another replica was faster
	mine := allocation("a", "1", "3", h.Block.String())
	mine.Spec.Project = "red"
	must(t, feed{l}.Add(mine))
	if err := h.Confirm(t.Context(), "1"); !isLimit(err) {
		t.Errorf("recorded after another replica's: %v, want a LimitError", err)
	}
	play(t, l, deletes(mine), deletes(theirs))
	h = mustHold(t, l, askIn("red", ask("a")))
	mine = allocation("a", "3", "4", h.Block.String())
	mine.Spec.Project = "red"
	must(t, feed{l}.Add(mine))
	must(t, feed{l}.Add(theirs)) // it will give way
	if err := h.Confirm(t.Context(), "3"); err != nil {
		t.Errorf("recorded before another replica's: %v, want that it is confirmed", err)
	}
	if got := l.recorded[account{project: "red", pool: key}]; got.Blocks != space.CountOf64(3) || got.Addresses != space.CountOf64(48) {
		t.Errorf("red has %v, want 3 blocks of 48 addresses", got)
	}
}

func TestListConfirmsPoolsBeforeBlocks(t *testing.T) {
	l := newLedger(1)
	var changedNames []string
	l.Follow(func(c Change) {
		if c.Kind == Changed {
			changedNames = append(changedNames, c.Record.Name.Name)
		}
	})
	must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28")), "1"))
	if len(changedNames) != 0 {
		t.Errorf("%v were confirmed in a second step, want none", changedNames)
	}
}

func TestRequestCountsOnceTowardLimit(t *testing.T) {
	l := newLedger(1)
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Limit: ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(2)}}})
	must(t, feed{l}.Replace(recordList(), "0"))
	reds := func(name string) Ask { a := ask(name); a.Project = "red"; return a }
	h := mustHold(t, l, reds("a"))
	must(t, feed{l}.Add(setRecordProject("red", allocation("a", "1", "1", h.Block.String()))))
	second := mustHold(t, l, reds("b")) // the first is recorded, and not confirmed yet
	second.Drop()
	mustHold(t, l, reds("c"))
	if _, err := l.Hold(reds("d")); !isLimit(err) {
		t.Errorf("got %v, want a LimitError", err)
	}
}

func TestRecordNamedByLiveClaimIsConfirmed(t *testing.T) {
	l := newLedger(1)
	first, second := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30")
	must(t, feed{l}.Replace(recordList(first, second), "3"))
	record, _ := convert.Record(first)
	if err := l.CheckConfirmed(record); err == nil {
		t.Error("it is confirmed before it is known that a claim names it")
	}
	l.SetClaimed(record.Name, true)
	if err := l.CheckConfirmed(record); err != nil {
		t.Errorf("got %v, want that it is confirmed", err)
	}
}

func TestBlocksAreConfirmedWhenPoolIsDescribed(t *testing.T) {
	l := New(Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Silence: time.Minute})
	l.Describe(ipam.Pool{Key: key, Home: ipam.DomainNamed("other", ipam.IPv4), CIDR: small, Family: ipam.IPv4})
	mine := allocation("a", "1", "2", "10.0.0.0/28")
	must(t, feed{l}.Replace(recordList(mine), "0"))
	record, _ := convert.Record(mine)
	if err := l.CheckConfirmed(record); !errors.Is(err, ErrPoolClosed) {
		t.Errorf("got %v, want ErrPoolClosed: the own record is in another routing domain", err)
	}
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
	if err := l.CheckConfirmed(record); err != nil {
		t.Errorf("got %v, want that it is confirmed", err)
	}
}

func TestClassLimitCoversAllPools(t *testing.T) {
	l := newLedger(1)
	elsewhere := allocation("x", "9", "1", "10.9.0.0/28")
	elsewhere.Spec.PoolRef.Name, elsewhere.Spec.ClassName, elsewhere.Spec.Project = "q", "c", "red"
	must(t, feed{l}.Replace(recordList(elsewhere), "0"))
	a := ask("a")
	a.Project, a.Class = "red", "c"
	a.ClassLimit = ipam.Limit{Addresses: ipam.Maximum{Set: true, Count: space.CountOf64(31)}}
	if _, err := l.Hold(a); !isLimit(err) {
		t.Errorf("got %v, want a LimitError", err)
	}
	a.ClassLimit.Addresses.Count = space.CountOf64(32)
	mustHold(t, l, a).Drop()
}

func TestUnclaimedRecordsAreBoundedToShareOfPool(t *testing.T) {
	l := newLedger(1) // 256 addresses, of which 16 are withheld: a share is 30 of them, or 4 blocks
	must(t, feed{l}.Replace(recordList(), "0"))
	single := func(name string) Ask {
		a := ask(name)
		a.Bits, a.UnclaimedLimit = 32, 1000
		return a
	}
	for n := range 30 {
		mustHold(t, l, single(string(rune('A'+n))))
	}
	_, err := l.Hold(single("one-more"))
	if !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Fatalf("the 31st: %v, want ErrTooManyUnclaimed", err)
	}
	if want := "namespace ns has reached its share of unclaimed allocations in pool p: wait until earlier creates finish"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	other := single("other")
	other.Holder.Namespace = "elsewhere"
	mustHold(t, l, other)
	large := New(Options{Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Silence: time.Minute})
	large.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
	must(t, feed{large}.Replace(recordList(), "0"))
	for n := range 4 {
		quarter := ask(string(rune('A' + n)))
		quarter.Bits, quarter.UnclaimedLimit = 27, 1000
		mustHold(t, large, quarter)
	}
	fifth := ask("fifth")
	fifth.Bits, fifth.UnclaimedLimit = 27, 1000
	if _, err := large.Hold(fifth); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("the fifth of eight blocks: %v, want ErrTooManyUnclaimed", err)
	}
}

// setRecordProject returns an object with a project.
func setRecordProject(project string, o *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
	o.Spec.Project = project
	return o
}

func isLimit(err error) bool {
	_, ok := errors.AsType[*ipam.LimitError](err)
	return ok
}
