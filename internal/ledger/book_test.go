package ledger

import (
	"errors"
	"fmt"
	"iter"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
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

func TestPendingReleaseIsCounted(t *testing.T) {
	l := newListedLedger(t, allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.16/28"))
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

func TestListenersAreNotifiedOfConflictsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newListedLedger(t)
		show(t, l, allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30"))
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

func TestConflictNotifiesBothRecords(t *testing.T) {
	first, second, other := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30"), allocation("c", "3", "3", "10.0.0.16/30")
	l := newLedger(1)
	clock := l.options.Clock.(*clocktesting.FakeClock)
	must(t, feed{l}.Replace(recordList(), "0"))
	show(t, l, first, second, other)
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
	list, claimed := lists("0", recordList()...), []event{claims("a", true), claims("b", true)}
	firstList := lists("2", recordList(first, second)...)
	for name, events := range map[string][]event{
		"claims after records":       append([]event{list, adds(first), adds(second)}, claimed...),
		"claims before records":      {list, claimed[0], claimed[1], adds(first), adds(second)},
		"a first list":               append([]event{firstList}, claimed...),
		"a first list, after claims": {claimed[0], claimed[1], firstList},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			play(t, l, events...)
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

func TestNeverClaimedRecordIsKnown(t *testing.T) {
	made := allocation("a", "1", "1", "10.0.0.0/28")
	record := recordOf(t, made)
	known := func(l *Ledger) error { l.MarkClaimsKnown(); return nil }
	list := lists("1", recordList(made)...)
	for name, c := range map[string]struct {
		events []event
		want   bool
	}{
		"it was made, and no claim names it":       {[]event{known, adds(made)}, true},
		"a claim names it":                         {[]event{known, adds(made), claims("a", true)}, false},
		"a claim named it":                         {[]event{known, adds(made), claims("a", true), claims("a", false)}, false},
		"a claim named it before it was shown":     {[]event{known, claims("a", true), adds(made), claims("a", false)}, false},
		"it was made before all claims were known": {[]event{adds(made), known}, false},
		"it was made while the watch was cut":      {[]event{known, list}, false},
		"it was made before the watch was cut":     {[]event{known, adds(made), list}, true},
		"it is not there":                          {[]event{known}, false},
	} {
		l := newListedLedger(t)
		play(t, l, c.events...)
		if got := l.WasNeverClaimed(record); got != c.want {
			t.Errorf("%s: never claimed: %t, want %t", name, got, c.want)
		}
	}
}

// world holds a ledger, and all that it has seen, by the name of the record.
type world struct {
	ledger  *Ledger
	random  *rand.Rand
	objects map[ipam.Name]*v1alpha1.IPAllocation
	holds   map[ipam.Name]*Hold
	claimed map[ipam.Name]bool
}

// TestViewAgainstTwin plays random events, holds, claims and lists of three namespaces in two projects,
// overlapping records too, and compares the kept counts with those of a twin that looks at every
// record, hold and address.
func TestViewAgainstTwin(t *testing.T) {
	for seed := range uint64(60) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			w := &world{
				ledger: newLedger(seed), random: rand.New(rand.NewPCG(seed, 1)),
				objects: map[ipam.Name]*v1alpha1.IPAllocation{}, holds: map[ipam.Name]*Hold{}, claimed: map[ipam.Name]bool{},
			}
			must(t, feed{w.ledger}.Replace(recordList(), "0"))
			for step := range 400 {
				w.act(t, step)
				if got, want := counts(w.ledger), twin(maps.Values(w.objects), maps.Values(w.holds)); got != want {
					t.Fatalf("step %d: got %s, want %s", step, got, want)
				}
				if diff := cmp.Diff(w.usageByStanding(), w.ledger.Counts()[0].Held); diff != "" {
					t.Fatalf("step %d: (-want +got)\n%s", step, diff)
				}
				if got, want := w.ledger.unclaimed, w.unclaimed(); !maps.Equal(got, want) {
					t.Fatalf("step %d: unclaimed\ngot  %v\nwant %v", step, got, want)
				}
			}
			for name := range w.claimed {
				w.ledger.SetClaimed(name, false)
			}
			if len(w.ledger.claimedNames) > 0 {
				t.Errorf("%v are remembered when no claim names a record", w.ledger.claimedNames)
			}
		})
	}
}

func projectOf(namespace string) string {
	return map[string]string{"a": "red", "b": "red", "c": "blue"}[namespace]
}

func (w *world) act(t *testing.T, step int) {
	t.Helper()
	l, random := w.ledger, w.random
	name := ipam.Name{Namespace: string("abc"[random.IntN(3)]), Name: strconv.Itoa(random.IntN(8))}
	obj, hold := w.objects[name], w.holds[name]
	switch random.IntN(14) {
	case 0, 1, 2, 3: // a record of the operator, perhaps of a hold, or of others, which can overlap
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), 26+random.IntN(7)).Masked()
		if hold != nil && random.IntN(2) == 0 {
			block = hold.Block
		}
		obj = allocation(name.Name, fmt.Sprintf("%s-%d", name, step), strconv.Itoa(step), block.String())
		obj.Namespace, obj.Spec.Project = name.Namespace, projectOf(name.Namespace)
		obj.Spec.Gateway = fmt.Sprintf("10.0.0.%d", random.IntN(256)) // only an address has one
		w.objects[name] = obj
		must(t, feed{l}.Add(obj))
	case 4, 5, 6:
		if obj != nil {
			delete(w.objects, name)
			must(t, feed{l}.Delete(obj))
		}
	case 7, 8:
		a := ask(name.Name)
		a.Record, a.Holder.Namespace, a.Bits, a.Project = name, name.Namespace, 28+4*random.IntN(2), projectOf(name.Namespace)
		h, err := l.Hold(a)
		switch {
		case hold != nil && !errors.Is(err, ipam.ErrUnconfirmed):
			t.Fatalf("a second hold for one name: %v", err)
		case err == nil:
			w.holds[name] = h
		}
	case 9:
		if hold != nil {
			hold.Drop()
			hold.Drop() // twice does no harm
			delete(w.holds, name)
		}
	case 10, 11:
		w.claimed[name] = !w.claimed[name]
		l.SetClaimed(name, w.claimed[name])
	case 12:
		if obj != nil {
			changed := obj.DeepCopy()
			changed.ResourceVersion = "again-" + strconv.Itoa(step)
			states := []v1alpha1.AllocationState{v1alpha1.AllocationBound, v1alpha1.AllocationRetained, v1alpha1.AllocationCooling}
			changed.Spec.State = states[random.IntN(len(states))]
			w.objects[name] = changed
			must(t, feed{l}.Update(changed))
		}
	case 13:
		maps.DeleteFunc(w.objects, func(ipam.Name, *v1alpha1.IPAllocation) bool { return random.IntN(8) == 0 })
		var list []any
		for _, obj := range w.objects {
			list = append(list, obj)
		}
		must(t, feed{l}.Replace(recordList(list...), strconv.Itoa(step)))
	}
}

func (w *world) standing(name ipam.Name) Standing {
	switch w.objects[name].Spec.State {
	case v1alpha1.AllocationRetained:
		return Retained
	case v1alpha1.AllocationCooling:
		return Cooling
	}
	if w.claimed[name] {
		return Bound
	}
	return Unclaimed
}

func (w *world) usageByStanding() (usage [standings]ipam.Usage) {
	for name, obj := range w.objects {
		standing := w.standing(name)
		usage[standing] = usage[standing].Add(ipam.UsageOf(netip.MustParsePrefix(obj.Spec.CIDR)))
	}
	return usage
}

// unclaimed counts the unclaimed records, and the holds.
func (w *world) unclaimed() map[share]ipam.Usage {
	usage := map[share]ipam.Usage{}
	add := func(name ipam.Name, block netip.Prefix) {
		for _, pool := range []ipam.PoolKey{{}, key} {
			for _, s := range []share{{namespace: name.Namespace, pool: pool}, {project: projectOf(name.Namespace), pool: pool}} {
				usage[s] = usage[s].Add(ipam.UsageOf(block))
			}
		}
	}
	for name, obj := range w.objects {
		if w.standing(name) == Unclaimed {
			add(name, netip.MustParsePrefix(obj.Spec.CIDR))
		}
	}
	for name, h := range w.holds {
		add(name, h.Block)
	}
	return usage
}

// counts returns the addresses that are free, which Capacity must leave so, and those that are available, a hold's too.
func counts(l *Ledger) string {
	before := l.poolViews[key].space.Free()
	c, _ := l.Capacity(key)
	return fmt.Sprintf("%s free, %s available, %s free, %d records", before, c.Available, l.poolViews[key].space.Free(), c.Records)
}

func twin(objects iter.Seq[*v1alpha1.IPAllocation], holds iter.Seq[*Hold]) string {
	var used [256]bool
	use := func(block netip.Prefix) {
		for i := range 256 {
			if block.Contains(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) {
				used[i] = true
			}
		}
	}
	free := func() (count int) {
		for _, u := range used {
			if !u {
				count++
			}
		}
		return count
	}
	use(withheld)
	records := 0
	for obj := range objects {
		records++
		block := netip.MustParsePrefix(obj.Spec.CIDR)
		use(block)
		gateway, err := netip.ParseAddr(obj.Spec.Gateway)
		if err == nil && block.IsSingleIP() && obj.Spec.State == v1alpha1.AllocationBound {
			use(netip.PrefixFrom(gateway, 32))
		}
	}
	available := free()
	for h := range holds {
		use(h.Block)
	}
	return fmt.Sprintf("%[1]d free, %[2]d available, %[1]d free, %[3]d records", free(), available, records)
}
