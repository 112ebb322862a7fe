package ledger

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"unsafe"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

var (
	// subnet is what the pool r of these tests occupies ranges of.
	subnet = netip.MustParsePrefix("10.9.0.0/24")
	ranges = ipam.PoolNamed("r")
)

func prefixes(texts ...string) []netip.Prefix {
	blocks := make([]netip.Prefix, len(texts))
	for i, text := range texts {
		blocks[i] = netip.MustParsePrefix(text)
	}
	return blocks
}

// rangesPool returns the pool r, which occupies some blocks of the subnet.
func rangesPool(uid string, blocks ...string) ipam.Pool {
	var occupied []space.Range
	for _, block := range prefixes(blocks...) {
		occupied = append(occupied, space.RangeOf(block))
	}
	return ipam.Pool{
		Key: ranges, Spec: ipam.Revision{UID: uid}, Home: home, CIDR: subnet, Family: ipam.IPv4,
		Occupied: space.NewRanges(subnet, occupied), Withheld: space.NewRanges(subnet, convert.Outside(subnet, occupied)),
	}
}

// ownRecord returns a record of what a pool holds in the routing domain, with the UID of the pool.
func ownRecord(pool ipam.PoolKey, name, poolUID string, blocks ...string) *v1alpha1.IPAllocation {
	all := prefixes(blocks...)
	return convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: name}, UID: "uid-of-" + name, Version: "1",
		Block: all[0], AdditionalBlocks: all[1:], Pool: home, Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Holder: convert.HolderOfPool(pool), HolderUID: poolUID,
	})
}

// inRanges returns the record of a claim's block of r.
func inRanges(name, block string) *v1alpha1.IPAllocation {
	o := allocation(name, "uid-of-"+name, "1", block)
	o.Spec.PoolRef = &v1alpha1.RecordPoolReference{Name: ranges.Name}
	return o
}

// inHome returns the record in another routing domain.
func inHome(o *v1alpha1.IPAllocation) *v1alpha1.IPAllocation {
	o.Spec.RoutingDomain = "lab"
	return o
}

func isFreeIn(l *Ledger, pool ipam.PoolKey, block string) (isFree bool) {
	l.Inspect(pool, func(r Room) { isFree = r.IsFree(netip.MustParsePrefix(block)) })
	return isFree
}

func TestEntryHasRoomForSharedFieldsOnly(t *testing.T) {
	if size := unsafe.Sizeof(entry{}); size > 224 { // the size class of Go's allocator
		t.Errorf("an entry takes %d bytes, want 224 at most", size)
	}
}

func TestAllBlocksOfRecordAreHeld(t *testing.T) {
	l := newListedLedger(t)
	blocks := []string{"10.9.0.10/31", "10.9.0.12/30", "10.9.0.16/28"}
	own := ownRecord(ranges, "a", "1", blocks...)
	show(t, l, own)
	for _, block := range blocks {
		inside := askInDomain("default", netip.PrefixFrom(netip.MustParsePrefix(block).Addr(), 32).String())
		_, err := l.Hold(inside)
		if taken, ok := errors.AsType[*ipam.TakenError](err); !ok || taken.Overlap.String() != block || taken.Holder.Name != "r" {
			t.Errorf("a part of %s: %v, want that pool r holds that block", block, err)
		}
		around := askInDomain("default", "10.9.0.0/24")
		around.Bits = 24
		if _, err := l.Hold(around); err == nil {
			t.Error("the subnet is handed out around the blocks")
		}
	}
	if few := l.FewRecords(home, 4); len(few) != 2 {
		t.Errorf("the routing domain has %v, want each record once", few)
	}
	if occupants, total := l.Occupants(home, 4); len(occupants) != 2 || total != 2 {
		t.Errorf("the occupants are %v of %d, want each record once", occupants, total)
	}
	between := mustHold(t, l, askInDomain("default", "10.9.0.32/27"))
	if record, _ := l.Record(ipam.Name{Namespace: "system", Name: "a"}); len(record.Blocks()) != 3 || record.Blocks()[2].String() != blocks[2] {
		t.Errorf("the view has %v, want all blocks", record.Blocks())
	}
	if got := l.Records(home); got != 2 {
		t.Errorf("%d records, want one with three blocks, and that of p", got)
	}
	if held := l.poolViews[home].usageByStanding[Bound]; held.Blocks != space.CountOf64(4) || held.Addresses != space.CountOf64(2+4+16+256) {
		t.Errorf("the usage is %v, want each block", held)
	}
	between.Drop()
	must(t, feed{l}.Delete(own))
	for _, block := range append(blocks, subnet.String()) {
		if !isFreeIn(l, home, block) {
			t.Errorf("%s is in use after the record is gone", block)
		}
	}
	if held := l.poolViews[home].usageByStanding[Bound]; held.Blocks != space.CountOf64(1) {
		t.Errorf("the usage is %v after the record is gone", held)
	}
}

func TestUnreadableRecordHoldsAllItsBlocks(t *testing.T) {
	l := newListedLedger(t)
	bad := ownRecord(ranges, "a", "1", "10.9.0.0/30", "10.9.0.8/30", "10.9.0.16/30")
	bad.Spec.AdditionalCIDRs[0] = "somewhere"
	if err := (feed{l}).Add(bad); err == nil {
		t.Fatal("it can be read")
	}
	check := func(when string, want bool) {
		t.Helper()
		for _, block := range []string{"10.9.0.0/30", "10.9.0.16/30"} {
			if isFreeIn(l, home, block) != want {
				t.Errorf("%s it is %t that %s is free", when, !want, block)
			}
		}
	}
	check("as long as it cannot be read", false)
	_ = feed{l}.Delete(bad)
	check("when it is gone", true)
}

func TestOwnRecordsOfOneStoredPoolAreNoRivals(t *testing.T) {
	for name, c := range map[string]struct {
		second  *v1alpha1.IPAllocation
		isRival bool
	}{
		"of the same UID":                   {ownRecord(ranges, "b", "1", "10.9.0.0/29"), false},
		"of another UID":                    {ownRecord(ranges, "b", "2", "10.9.0.0/29"), true},
		"without UID":                       {ownRecord(ranges, "b", "", "10.9.0.0/29"), true},
		"of another pool with the same UID": {ownRecord(ipam.PoolNamed("q"), "b", "1", "10.9.0.0/29"), true},
		"in an additional block":            {ownRecord(ipam.PoolNamed("q"), "b", "9", "10.9.0.64/29", "10.9.0.10/31"), true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListedLedger(t)
			show(t, l, ownRecord(ranges, "a", "1", "10.9.0.0/30", "10.9.0.8/29"), c.second)
			taken, isTaken := errors.AsType[*ipam.TakenError](l.CheckConfirmed(recordOf(t, c.second)))
			if isTaken != c.isRival {
				t.Errorf("it is %t that it has lost, want %t", isTaken, c.isRival)
			}
			if isTaken && !taken.Block.Overlaps(taken.Overlap) {
				t.Errorf("%v, want blocks that overlap", taken)
			}
		})
	}
	unnamed := newListedLedger(t)
	show(t, unnamed, ownRecord(ranges, "a", "", "10.9.0.0/30"), ownRecord(ranges, "b", "", "10.9.0.0/29"))
	twice := askInDomain("default", "10.9.0.0/29")
	twice.Holder = convert.HolderOfPool(ranges)
	if _, err := unnamed.Hold(twice); err == nil {
		t.Error("a second create of the name holds space")
	}
	if _, isTaken := errors.AsType[*ipam.TakenError](unnamed.CheckConfirmed(recordOf(t, ownRecord(ranges, "b", "", "10.9.0.0/29")))); !isTaken {
		t.Error("two creates of one name both get space")
	}
}

func TestOwnRecordsOfOneStoredPoolAreNoConflict(t *testing.T) {
	l := newListedLedger(t)
	lost, edited := ownRecord(ranges, "a", "1", "10.9.0.0/30"), ownRecord(ranges, "b", "1", "10.9.0.2/31")
	show(t, l, ownRecord(ipam.PoolNamed("q"), "q", "9", "10.9.0.0/31"), lost, edited)
	l.options.Clock.(*clocktesting.FakeClock).Step(conflictAfter)
	if err := l.Conflict(recordOf(t, lost)); err == nil || err.Holder.Name != "q" {
		t.Errorf("the record that overlaps another pool's: %v", err)
	}
	if err := l.Conflict(recordOf(t, edited)); err != nil {
		t.Errorf("the record that overlaps only its own pool's: %v", err)
	}
}

func TestBlockIsConfirmedOnlyInsideOpenRecord(t *testing.T) {
	first, edited := ownRecord(ranges, "a", "1", "10.9.0.0/30"), ownRecord(ranges, "b", "1", "10.9.0.0/29")
	claim := inRanges("c", "10.9.0.4/30")
	check := func(l *Ledger, when string, want error) {
		t.Helper()
		if got := l.CheckConfirmed(recordOf(t, claim)); !errors.Is(got, want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	l := newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	show(t, l, first, claim)
	check(l, "outside of what the pool holds", ErrPoolClosed)
	show(t, l, edited)
	check(l, "inside of what an edit has added", nil)

	l = newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	play(t, l, adds(first), adds(edited), updates(markForRelease(edited, "2")), adds(claim))
	check(l, "inside of a record that is being released", ErrPoolClosed)

	l = newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	show(t, l, ownRecord(ipam.PoolNamed("q"), "q", "2", "10.9.0.7/32"), first, edited, claim)
	check(l, "inside of a record that has lost", ErrPoolClosed)

	l = newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/28"))
	beside := ownRecord(ranges, "b", "1", "10.9.0.8/29", "10.9.0.4/31")
	show(t, l, ownRecord(ranges, "a", "1", "10.9.0.0/30", "10.9.0.6/31"), claim)
	check(l, "in part inside of what the pool holds", ErrPoolClosed)
	show(t, l, beside)
	check(l, "inside of two records together", nil)
	must(t, feed{l}.Update(markForRelease(beside, "2")))
	if !l.IsNeeded(recordOf(t, beside), ranges, false) {
		t.Error("one of two records that cover a block together is not needed")
	}

	l = newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	show(t, l, ownRecord(ranges, "a", "0", "10.9.0.0/28"), claim)
	check(l, "inside of other ranges of an earlier pool", ErrPoolClosed)
}

// TestSpaceIsHandedOutOnceItIsRecorded grows and shrinks the ranges of a pool.
func TestSpaceIsHandedOutOnceItIsRecorded(t *testing.T) {
	l := newListedLedger(t)
	check := func(when string, total, available int, free ...string) {
		t.Helper()
		capacity, _ := l.Capacity(ranges)
		if capacity.Total != space.CountOf64(uint64(total)) || capacity.Available != space.CountOf64(uint64(available)) {
			t.Errorf("%s %s of %s addresses are available, want %d of %d", when, capacity.Available, capacity.Total, available, total)
		}
		if capacity.Total != capacity.Allocated.Add(capacity.Available).Add(capacity.Withheld).Sub(capacity.OutOfRange) {
			t.Errorf("%s the counts %+v do not add up", when, capacity)
		}
		for _, block := range []string{"10.9.0.0/30", "10.9.0.4/30", "10.9.0.8/30"} {
			want := len(free) > 0 && free[0] == block
			if want {
				free = free[1:]
			}
			if got := isFreeIn(l, ranges, block); got != want {
				t.Errorf("%s it is %t that %s is free, want %t", when, got, block, want)
			}
		}
	}
	l.Describe(rangesPool("1", "10.9.0.0/30", "10.9.0.8/30"))
	check("without record", 8, 0)
	first := ownRecord(ranges, "a", "1", "10.9.0.0/30", "10.9.0.8/30")
	show(t, l, first)
	check("recorded", 8, 8, "10.9.0.0/30", "10.9.0.8/30")
	if used := l.Utilized(ranges); used != 0 {
		t.Errorf("%v of an empty pool is used", used)
	}
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	check("when the edit is not recorded", 8, 4, "10.9.0.0/30")
	edited := ownRecord(ranges, "b", "1", "10.9.0.0/29")
	show(t, l, edited, inRanges("c", "10.9.0.4/31"))
	check("when it is", 8, 6, "10.9.0.0/30")
	must(t, feed{l}.Update(markForRelease(edited, "2")))
	check("when that is being released", 8, 4, "10.9.0.0/30")
	must(t, feed{l}.Delete(edited))
	check("when that is gone", 8, 4, "10.9.0.0/30")
	must(t, feed{l}.Delete(first))
	check("when nothing is recorded", 8, 0)
}

func TestSpaceIsNotHandedOutOnceStoreIsBackWithRivalOfItsRecord(t *testing.T) {
	l := newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	own, rival := ownRecord(ranges, "a", "1", "10.9.0.0/29"), ownRecord(ipam.PoolNamed("q"), "q", "9", "10.9.0.4/30")
	show(t, l, own)
	if !isFreeIn(l, ranges, "10.9.0.0/30") {
		t.Fatal("space that is recorded is not free")
	}
	l.onRollback("7", "6")
	must(t, feed{l}.Replace(recordList(own, rival), "9"))
	if isFreeIn(l, ranges, "10.9.0.0/30") {
		t.Error("space is free whose record has a rival")
	}
}

func TestOwnRecordIsNeededForWhatNoOtherCovers(t *testing.T) {
	first, edited := ownRecord(ranges, "a", "1", "10.9.0.0/29"), ownRecord(ranges, "b", "1", "10.9.0.0/30")
	kept, removed := inRanges("kept", "10.9.0.0/31"), inRanges("removed", "10.9.0.4/31")
	for name, c := range map[string]struct {
		shown []*v1alpha1.IPAllocation
		want  ReleaseVerdict
	}{
		"there is nothing else":                   {nil, Unused},
		"nothing is in use":                       {[]*v1alpha1.IPAllocation{edited}, Unused},
		"only what remains is in use":             {[]*v1alpha1.IPAllocation{edited, kept}, Unused},
		"what was removed is in use":              {[]*v1alpha1.IPAllocation{edited, kept, removed}, InUse},
		"the other is being released, too":        {[]*v1alpha1.IPAllocation{markForRelease(edited, "1"), kept}, InUse},
		"there is no other":                       {[]*v1alpha1.IPAllocation{kept}, InUse},
		"the other is of an earlier pool":         {[]*v1alpha1.IPAllocation{ownRecord(ranges, "b", "0", "10.9.0.0/30"), kept}, InUse},
		"a block in use lies in neither of them":  {[]*v1alpha1.IPAllocation{edited, inRanges("outside", "10.9.0.128/31")}, Unused},
		"there is no other, and one lies outside": {[]*v1alpha1.IPAllocation{inRanges("outside", "10.9.0.128/31")}, InUse},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListedLedger(t)
			l.Describe(rangesPool("1", "10.9.0.0/30"))
			show(t, l, append([]*v1alpha1.IPAllocation{first}, c.shown...)...)
			if got := l.IsNeeded(recordOf(t, first), ranges, false); got != (c.want == InUse) {
				t.Errorf("it is %t that the record is needed", got)
			}
			marked := markForRelease(first, "2")
			must(t, feed{l}.Update(marked))
			if got := l.Release(recordOf(t, marked), "1", ranges, false); got != c.want {
				t.Errorf("the verdict is %d, want %d", got, c.want)
			}
		})
	}
}

// TestOwnRecordInFormerHomeIsNeeded forces a pool away and makes it again in another routing domain.
func TestOwnRecordInFormerHomeIsNeeded(t *testing.T) {
	pool := rangesPool("2", "10.9.0.0/29")
	pool.Home.Name = "lab"
	l := newListedLedger(t)
	l.Describe(pool)
	former := ownRecord(ranges, "a", "1", "10.9.0.0/29")
	show(t, l, former, inHome(ownRecord(ranges, "b", "2", "10.9.0.0/29")), inRanges("kept", "10.9.0.0/31"))
	if !l.IsNeeded(recordOf(t, former), ranges, false) {
		t.Error("the record of the former home is not needed, and its blocks are in use")
	}
}

func TestPoolThatStaysKeepsOneOwnRecord(t *testing.T) {
	first, edited := ownRecord(ranges, "a", "1", "10.9.0.0/29"), ownRecord(ranges, "b", "1", "10.9.0.64/30")
	for name, c := range map[string]struct {
		shown []*v1alpha1.IPAllocation
		want  ReleaseVerdict
	}{
		"there is no other":                {nil, InUse},
		"there is another":                 {[]*v1alpha1.IPAllocation{edited}, Unused},
		"the other is being released, too": {[]*v1alpha1.IPAllocation{markForRelease(edited, "1")}, InUse},
		"the other is of an earlier pool":  {[]*v1alpha1.IPAllocation{ownRecord(ranges, "b", "0", "10.9.0.64/30")}, InUse},
		"the other has lost":               {[]*v1alpha1.IPAllocation{ownRecord(ipam.PoolNamed("q"), "q", "9", "10.9.0.64/30"), ownRecord(ranges, "b", "1", "10.9.0.64/29")}, InUse},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListedLedger(t)
			l.Describe(rangesPool("1", "10.9.0.64/30"))
			marked := markForRelease(first, "2")
			show(t, l, append([]*v1alpha1.IPAllocation{first}, c.shown...)...)
			must(t, feed{l}.Update(marked))
			if got := l.Release(recordOf(t, marked), "1", ranges, true); got != c.want {
				t.Errorf("the verdict is %d, want %d", got, c.want)
			}
		})
	}
	l := newListedLedger(t)
	check := func(when string, poolStays, want bool) {
		t.Helper()
		if got := l.IsNeeded(recordOf(t, first), ranges, poolStays); got != want {
			t.Errorf("%s, a record that the view does not show is needed: %v, for a pool that stays: %v", when, got, poolStays)
		}
	}
	check("without the pool", true, true)
	check("without the pool", false, false)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	check("without a claim", false, false)
	show(t, l, inRanges("c", "10.9.0.4/31"))
	check("beside a claim", false, true)
}

func TestPoolStateDistinguishesEditedRanges(t *testing.T) {
	pool := rangesPool("1", "10.9.0.0/30")
	first, edited := ownRecord(ranges, "a", "1", "10.9.0.0/29"), ownRecord(ranges, "c", "1", "10.9.0.0/30")
	l := newListedLedger(t)
	l.Describe(pool)
	check := func(when, record string, former []string, isRecorded, isOpen bool) {
		t.Helper()
		state := l.State(pool)
		var got []string
		for _, r := range state.Former {
			got = append(got, r.Name.Name)
		}
		if state.Record.Name.Name != record || !slices.Equal(got, former) || state.Recorded != isRecorded || state.Open != isOpen || l.IsOpen(pool) != isOpen {
			t.Errorf("%s the record is %q, the former ones are %v, recorded %t, open %t", when, state.Record.Name.Name, got, state.Recorded, state.Open)
		}
	}
	check("at first", "", nil, false, false)
	show(t, l, first)
	check("before the edit is recorded", "", []string{"a"}, false, true)
	show(t, l, edited)
	check("after that", "c", []string{"a"}, true, true)
	must(t, feed{l}.Update(markForRelease(edited, "2")))
	check("while that is marked", "c", []string{"a"}, false, true)
	must(t, feed{l}.Update(versioned(edited, "3")))
	show(t, l, ownRecord(ranges, "b", "1", "10.9.0.0/30"))
	check("with two of the same blocks", "b", []string{"c", "a"}, true, true)
	must(t, feed{l}.Delete(first))
	show(t, l, ownRecord(ranges, "d", "0", "10.9.0.64/30"))
	check("with one of an earlier pool", "b", []string{"c"}, true, true)
}
