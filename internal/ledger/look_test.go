package ledger

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

var unknown = ipam.PoolNamed("unknown")

func recordOf(t *testing.T, obj *v1alpha1.IPAllocation) ipam.Record {
	t.Helper()
	record, unreadable := convert.Record(obj)
	if unreadable != nil {
		t.Fatal(unreadable)
	}
	return record
}

// TestCapacityIsOfRecordedBlocks holds blocks, as each try of a claim does whose record is refused.
func TestCapacityIsOfRecordedBlocks(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: netip.MustParsePrefix("10.0.0.0/28"), Family: ipam.IPv4})
	want := func(when string, available uint64, largest int) {
		t.Helper()
		capacity, _ := l.Capacity(key)
		counts := l.Counts()[0].Capacity
		if capacity.LargestFree != largest || capacity.Available != space.CountOf64(available) || counts.Available != capacity.Available {
			t.Errorf("%s: %s available, %s by the counts, the largest /%d: want %d and /%d", when, capacity.Available, counts.Available, capacity.LargestFree, available, largest)
		}
	}
	hold := mustHold(t, l, ask("a"))
	want("held", 16, 28)
	if _, err := l.Hold(ask("b")); err == nil {
		t.Error("a block that is held is held again")
	}
	show(t, l, allocation("a", "1", "1", hold.Block.String()))
	want("recorded, and held", 0, ipam.NoLength)
	hold.Drop()
	want("recorded", 0, ipam.NoLength)
	must(t, feed{l}.Delete(allocation("a", "1", "2", hold.Block.String())))
	halves := ask("c")
	halves.Bits, halves.AdditionalBlocks = 29, []netip.Prefix{netip.MustParsePrefix("10.0.0.8/29")}
	mustHold(t, l, halves)
	want("held as two blocks", 16, 28)
}

func TestCapacityIsKnownWhileBlockOfForgottenPoolIsHeld(t *testing.T) {
	l := newListedLedger(t)
	l.Describe(rangesPool("1", "10.9.0.0/29"))
	mustHold(t, l, ask("a"))
	l.Forget(key)
	if c, ok := l.Capacity(ranges); !ok || c.Total != space.CountOf64(8) {
		t.Errorf("got %+v, known: %t", c, ok)
	}
}

// TestCapacityCountsPoolContents stores blocks in withheld space too, whose addresses are counted twice,
// for each way in which the pool becomes known.
func TestCapacityCountsPoolContents(t *testing.T) {
	l := newLedger(1)
	check := func(when, want string, utilized float64) {
		t.Helper()
		c, ok := l.Capacity(key)
		got := fmt.Sprintf("total %s, allocated %s, available %s, withheld %s, out of range %s, records %d, largest /%d",
			c.Total, c.Allocated, c.Available, c.Withheld, c.OutOfRange, c.Records, c.LargestFree)
		if !ok || got != want || l.Utilized(key) != utilized {
			t.Errorf("%s: got %s (%t), utilized %v; want %s, %v", when, got, ok, l.Utilized(key), want, utilized)
		}
	}
	must(t, feed{l}.Replace(recordList(), "0"))
	check("empty", "total 256, allocated 0, available 240, withheld 16, out of range 0, records 0, largest /25", 16./256)
	within, straddling := allocation("a", "1", "1", "10.0.0.36/30"), allocation("b", "2", "1", "10.0.0.32/27")
	show(t, l, within, straddling)
	check("with records", "total 256, allocated 36, available 224, withheld 16, out of range 20, records 2, largest /25", 32./256)
	mustHold(t, l, ask("c"))
	check("with a hold", "total 256, allocated 36, available 224, withheld 16, out of range 20, records 2, largest /25", 48./256)
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
	check("with nothing withheld", "total 256, allocated 32, available 224, withheld 0, out of range 0, records 2, largest /25", 48./256)
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Withheld: space.NewRanges(small, []space.Range{space.RangeOf(withheld)})})
	check("as before", "total 256, allocated 36, available 224, withheld 16, out of range 20, records 2, largest /25", 48./256)
	must(t, feed{l}.Delete(straddling))
	check("with one gone", "total 256, allocated 4, available 240, withheld 16, out of range 4, records 1, largest /25", 32./256)
	l.Forget(key)
	if _, ok := l.Capacity(key); ok || l.Utilized(key) != 1 || l.Records(key) != 1 {
		t.Errorf("forgotten, it has a capacity (%t), or %d records", ok, l.Records(key))
	}
	if _, ok := l.Capacity(unknown); ok || l.Utilized(unknown) != 1 || l.Records(unknown) != 0 {
		t.Error("a pool that is not known has a capacity, or records")
	}
}

func TestRoom(t *testing.T) {
	l := newLedger(1)
	block := netip.MustParsePrefix
	must(t, feed{l}.Replace(recordList(allocation("a", "1", "1", "10.0.0.128/25"), allocation("b", "2", "1", "10.0.0.64/26")), "0"))
	seen := allocation("c", "3", "1", "10.9.0.0/28")
	seen.Spec.PoolRef.Name = "seen" // a pool that itself has not been seen
	must(t, feed{l}.Add(seen))
	for name, tc := range map[string]struct {
		pool   ipam.PoolKey
		length int
		block  netip.Prefix
		want   bool
	}{
		"less than the largest": {key, 28, netip.Prefix{}, true},
		"the largest":           {key, 27, netip.Prefix{}, true},
		"more than the largest": {key, 26, netip.Prefix{}, false},
		"a block":               {key, 28, block("10.0.0.0/27"), true},
		"a block in use":        {key, 28, block("10.0.0.128/28"), false},
		"a pool not seen":       {ipam.PoolNamed("seen"), 32, netip.Prefix{}, false},
		"an unknown pool":       {unknown, 32, netip.Prefix{}, false},
	} {
		if got := l.HasRoom(tc.pool, tc.length, tc.block); got != tc.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
	must(t, feed{l}.Add(allocation("d", "4", "1", "10.0.0.0/26")))
	if l.HasRoom(key, 32, netip.Prefix{}) {
		t.Error("a full pool has room")
	}
	called := false
	l.Inspect(ipam.PoolNamed("seen"), func(Room) { called = true })
	l.Inspect(unknown, func(Room) { called = true })
	if called {
		t.Error("a pool that is not known is inspected")
	}
}

func TestRoomWithinLimits(t *testing.T) {
	two := ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(2)}}
	l := newListedLedger(t, setRecordProject("red", allocation("a", "1", "1", "10.0.0.0/28")))
	allows := func(account ipam.Account) (allowed bool) {
		l.Inspect(key, func(r Room) { allowed = r.Allows(account, 28) })
		return allowed
	}
	classed := ipam.Account{Project: "red", Class: "c", ClassLimit: two}
	check := func(when string, want ...bool) {
		t.Helper()
		got := []bool{allows(ipam.Account{}), allows(ipam.Account{Project: "red"}), allows(ipam.Account{Project: "blue"}), allows(classed)}
		if !slices.Equal(got, want) {
			t.Errorf("%s: none, red, blue, and red by a class are allowed more: %v; want %v", when, got, want)
		}
	}
	check("without limits", true, true, true, true)
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Limit: two})
	check("with one", true, true, true, true)
	by := setRecordProject("red", allocation("b", "2", "1", "10.0.0.16/28"))
	by.Spec.ClassName = "c"
	must(t, feed{l}.Add(by))
	check("when the pool's is reached", true, false, true, false)
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4})
	check("without that of the pool", true, true, true, true)
	by = setRecordProject("red", allocation("c", "3", "1", "10.0.0.32/28"))
	by.Spec.ClassName = "c"
	must(t, feed{l}.Add(by))
	check("when that of the class is reached", true, true, true, false)
	a := ask("d")
	a.Project, a.Class, a.ClassLimit = "red", "c", two
	_, err := l.Hold(a)
	if limit, ok := errors.AsType[*ipam.LimitError](err); !ok || limit.Awaits != (ipam.Awaited{Project: "red", Class: "c"}) {
		t.Errorf("a request gets %+v, want that it awaits the class", err)
	}
}

func TestRecordsInBlocksAreListedOnceEach(t *testing.T) {
	l := newListedLedger(t, allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.64/28"))
	hold := mustHold(t, l, ask("held"))
	blocks := append(prefixes("10.0.0.0/29", "10.0.0.8/29", "10.0.0.64/26"), hold.Block)
	for limit, want := range map[int]string{1: "a", 2: "a b", 9: "a b"} {
		var names []string
		for _, r := range l.RecordsIn(key, blocks, limit) {
			names = append(names, r.Name.Name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("up to %d: got %s, want %s", limit, got, want)
		}
	}
}

func TestFewRecordsReturnsRecordsOfSmallPool(t *testing.T) {
	l := newListedLedger(t, allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.0/28"), allocation("c", "3", "1", "10.0.0.16/28"))
	mustHold(t, l, ask("d"))
	if few := l.FewRecords(key, 3); len(few) != 3 {
		t.Errorf("got %v, want three records", few)
	}
	if few := slices.Concat(l.FewRecords(key, 2), l.FewRecords(unknown, 2)); few != nil {
		t.Errorf("got %v of too many, or of no pool", few)
	}
}

func TestOccupantsKeepPoolInUse(t *testing.T) {
	l := newLedger(1)
	retained, sticky := allocation("b", "2", "1", "10.0.0.16/28"), allocation("c", "3", "1", "10.0.0.48/28")
	retained.Spec.ReclaimPolicy = v1alpha1.ReclaimRetain
	sticky.Spec.StickyKey = "k"
	bound := allocation("e", "5", "1", "10.0.0.128/28")
	child := poolRecord(ipam.PoolNamed("q"), "10.0.0.64/28")
	child.Spec.PoolRef = bound.Spec.PoolRef
	bound.Spec.ClaimRef.UID = "9"
	must(t, feed{l}.Replace(recordList(terminating(allocation("a", "1", "1", "10.0.0.0/28"), "1"), terminating(retained, "1"), terminating(sticky, "1"), child, bound), "0"))
	must(t, feed{l}.Add(allocation("d", "4", "1", "10.0.0.80/28")))
	mustHold(t, l, ask("h"))
	check := func(most int, want string, wantAll int) {
		t.Helper()
		occupants, all := l.Occupants(key, most)
		var got []string
		for _, o := range occupants {
			got = append(got, fmt.Sprint(o.Record.Holder.Name, " ", o.Claimed))
		}
		if text := strings.Join(got, ", "); text != want || all != wantAll {
			t.Errorf("the first %d of %d are %s; want %s, of %d", most, all, text, want, wantAll)
		}
	}
	check(64, "b false, c false, q true, d false, e true", 5)
	check(3, "b false, c false, q true", 3)
	check(0, "", 3)
	l.SetClaimed(ipam.Name{Namespace: "ns", Name: "d"}, true)
	check(64, "b false, c false, q true, d true, e true", 5)
	if occupants, all := l.Occupants(unknown, 64); occupants != nil || all != 0 {
		t.Errorf("a pool that is not known has %d occupants", all)
	}
}

func TestPoolState(t *testing.T) {
	l := newLedger(1)
	pool := ipam.Pool{Key: key, Home: home, CIDR: small}
	if state := l.State(pool); state.Record.UID != "" || state.Open {
		t.Errorf("without a record it is %+v", state)
	}
	must(t, feed{l}.Replace(recordList(), "0"))
	if state := l.State(pool); state.Record.UID != "uid-of-p" || !state.Open || state.Rival != nil {
		t.Errorf("with its record it is %+v", state)
	}
	must(t, feed{l}.Add(poolRecord(ipam.PoolNamed("q"), "10.0.0.0/16")))
	if state := l.State(pool); !state.Open || state.Rival != nil {
		t.Errorf("with a rival that came later it is %+v", state)
	}
	other := ipam.Pool{Key: ipam.PoolNamed("q"), Home: home, CIDR: netip.MustParsePrefix("10.0.0.0/16")}
	if state := l.State(other); state.Open || state.Rival == nil || state.Rival.UID != "uid-of-p" {
		t.Errorf("that rival is %+v", state)
	}
	for name, changed := range map[string]ipam.Pool{
		"another CIDR":           {Key: key, Home: home, CIDR: netip.MustParsePrefix("10.0.0.0/25")},
		"another routing domain": {Key: key, Home: ipam.DomainNamed("lab", ipam.IPv4), CIDR: small},
	} {
		if state := l.State(changed); state.Record.UID != "" {
			t.Errorf("with %s it is %+v", name, state)
		}
	}
}

func TestUnreadableRecordIsCounted(t *testing.T) {
	l := newLedger(1)
	bad := allocation("a", "1", "1", "10.0.0.0/28")
	bad.Spec.CIDR = "10.0.0.0/99"
	must(t, feed{l}.Replace(recordList(bad, allocation("b", "2", "1", "10.0.0.16/28")), "0"))
	for n, err := range []error{feed{l}.Add(bad), feed{l}.Update(bad), feed{l}.Delete(bad)} {
		if err == nil || !strings.Contains(err.Error(), "reading IPAllocation ns/a") {
			t.Errorf("call %d: got %v", n, err)
		}
	}
	if unread := l.Stats().Unreadable; unread != 4 || l.Records(key) != 1 {
		t.Errorf("%d were not read, and there are %d records; want 4, 1", unread, l.Records(key))
	}
	if err := l.CheckConfirmed(ipam.Record{UID: "1"}); !errors.Is(err, ipam.ErrUnconfirmed) {
		t.Errorf("what cannot be read is confirmed: %v", err)
	}
}

func TestRecordsAreFoundByHolderAndKey(t *testing.T) {
	l := newLedger(1)
	sticky := func(name, uid, version, block, stickyKey string) *v1alpha1.IPAllocation {
		o := allocation(name, uid, version, block)
		o.Spec.ClaimRef.Name, o.Spec.StickyKey = "holder", stickyKey
		return o
	}
	first, second := sticky("a", "1", "1", "10.0.0.0/28", "k"), sticky("b", "2", "1", "10.0.0.16/28", "k")
	must(t, feed{l}.Replace(recordList(), "0"))
	show(t, l, first, second)
	check := func(when, held, kept, kind string) {
		t.Helper()
		names := func(records []ipam.Record) string {
			var all []string
			for _, r := range records {
				all = append(all, r.Name.Name)
			}
			return strings.Join(all, " ")
		}
		ofKind := l.RecordsOfKind("IPClaim")
		slices.SortFunc(ofKind, func(a, b ipam.Record) int { return strings.Compare(a.Name.Name, b.Name.Name) })
		got := []string{names(l.HeldBy(recordOf(t, first).Holder)), names(l.StickyRecords(ipam.Name{Namespace: "ns", Name: "k"})), names(ofKind)}
		if want := []string{held, kept, kind}; !slices.Equal(got, want) {
			t.Errorf("%s: by holder, key and kind got %q, want %q", when, got, want)
		}
	}
	check("as they came", "a b", "a b", "a b")
	must(t, feed{l}.Update(sticky("a", "1", "2", "10.0.0.0/28", "other")))
	check("when one has another key", "b a", "b", "a b")
	must(t, feed{l}.Delete(second))
	check("when one is gone", "a", "", "a")
	if l.bySticky.heads[l.bySticky.hash(ipam.Name{Namespace: "ns", Name: "k"})] != nil || len(l.bySticky.heads) != 1 || len(l.byHolder.heads) != 2 {
		t.Errorf("%d keys and %d holders are kept", len(l.bySticky.heads), len(l.byHolder.heads))
	}
}

// TestAbandonedRecordIsExpectedForLimitedTime covers a record whose creation failed: it can turn up as
// long as a call to an API server can take, and is forgotten then.
func TestAbandonedRecordIsExpectedForLimitedTime(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration
		want  []string
	}{"in time": {abandonedTTL, []string{"1"}}, "too late": {abandonedTTL + time.Second, nil}} {
		l := newListedLedger(t)
		var abandoned []string
		l.Follow(func(c Change) {
			if c.Kind == Abandoned {
				abandoned = append(abandoned, c.Record.UID)
			}
		})
		mustHold(t, l, ask("a")).Abandon()
		l.options.Clock.(*clocktesting.FakeClock).Step(tc.after)
		mustHold(t, l, ask("b")).Abandon()
		for _, version := range []string{"1", "2"} {
			must(t, feed{l}.Update(allocation("a", "1", version, "10.0.0.0/28")))
		}
		if !slices.Equal(abandoned, tc.want) {
			t.Errorf("%s: abandoned are %v, want %v", name, abandoned, tc.want)
		}
	}
	l := newListedLedger(t)
	var abandoned []string
	h := mustHold(t, l, ask("a"))
	must(t, feed{l}.Add(allocation("a", "1", "1", "10.0.0.0/28")))
	l.Follow(func(c Change) { abandoned = append(abandoned, fmt.Sprintf("%t %s", c.Kind == Abandoned, c.Record.UID)) })
	if h.Abandon(); !slices.Equal(abandoned, []string{"true 1"}) {
		t.Errorf("of a record that was shown before, it was notified: %v", abandoned)
	}
}

func TestHoldOfUnavailableBlockFails(t *testing.T) {
	l := newLedger(1)
	seen := allocation("c", "3", "1", "10.9.0.0/28")
	seen.Spec.PoolRef.Name = "seen"
	must(t, feed{l}.Replace(recordList(seen), "0"))
	for name, tc := range map[string]struct {
		edit func(*Ask)
		want string
	}{
		"of an unknown pool":         {func(a *Ask) { a.Pool = unknown }, "pool unknown is not known"},
		"of a pool not seen":         {func(a *Ask) { a.Pool = ipam.PoolNamed("seen") }, "pool seen is not known"},
		"that is withheld":           {func(a *Ask) { a.Block = withheld }, "10.0.0.32/28 is not handed out by pool p"},
		"that is larger than a pool": {func(a *Ask) { a.Bits = 16 }, "no free /16 in pool p: the largest free block is a /25"},
	} {
		a := ask("a")
		tc.edit(&a)
		if _, err := l.Peek(a); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("a block %s: got %v, want %s", name, err, tc.want)
		}
	}
}

func TestRandomStrategyReachesEveryFreeBlock(t *testing.T) {
	l := newLedger(7)
	must(t, feed{l}.Replace(recordList(), "0"))
	drawn := map[netip.Prefix]int{}
	for range 600 {
		a := ask("a")
		a.Strategy = ipam.StrategyRandom
		h := mustHold(t, l, a)
		drawn[h.Block]++
		h.Drop()
	}
	if len(drawn) != 15 || drawn[withheld] > 0 {
		t.Errorf("drawn were %v, want all except the withheld ones", drawn)
	}
}
