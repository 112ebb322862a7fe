package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

var (
	small    = netip.MustParsePrefix("10.0.0.0/24")
	withheld = netip.MustParsePrefix("10.0.0.32/28")
	key      = ipam.PoolNamed("p")
	home     = ipam.DomainNamed("default", ipam.IPv4)
)

func newLedger(seed uint64) *Ledger {
	l := New(Options{
		Clock: clocktesting.NewFakeClock(time.Unix(0, 0)), Silence: time.Minute,
		Random: rand.New(rand.NewPCG(seed, 0)),
	})
	l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Withheld: space.NewRanges(small, []space.Range{space.RangeOf(withheld)})})
	return l
}

// allocation returns an object as a watch delivers it.
func allocation(name, uid, version, block string) *v1alpha1.IPAllocation {
	return convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "ns", Name: name}, UID: uid, Version: version,
		Block: netip.MustParsePrefix(block), Pool: key, Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Holder: ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: name},
	})
}

// own returns the record of a root pool's own CIDR.
func poolRecord(pool ipam.PoolKey, cidr string) *v1alpha1.IPAllocation {
	return convert.Allocation(ipam.Record{
		Name: ipam.Name{Namespace: "system", Name: "ippool." + pool.Name}, UID: "uid-of-" + pool.Name, Version: "1",
		Block: netip.MustParsePrefix(cidr), Pool: home, Purpose: ipam.PurposePool, Reclaim: ipam.ReclaimDelete, State: ipam.StateBound,
		Holder: convert.HolderOfPool(pool),
	})
}

// listed returns a list of records, with the pool's own.
func recordList(records ...any) []any { return append(records, poolRecord(key, small.String())) }

func ask(name string) Ask {
	return Ask{Pool: key, Bits: 28, Record: ipam.Name{Namespace: "ns", Name: name}, Holder: ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: name}}
}

func mustHold(t *testing.T, l *Ledger, a Ask) *Hold {
	t.Helper()
	h, err := l.Hold(a)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestHoldBeforeFirstListFails(t *testing.T) {
	l := newLedger(1)
	if _, err := l.Hold(ask("a")); !errors.Is(err, ipam.ErrNotSynced) {
		t.Errorf("got %v, want ErrNotSynced", err)
	}
	must(t, feed{l}.Replace(recordList(), "1"))
	mustHold(t, l, ask("a"))
}

func TestTurnIsCheckedAgainstCurrentRoom(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "1"))
	block := netip.MustParsePrefix("10.0.0.0/28")
	first, newcomer := ask("a"), ask("b")
	h := mustHold(t, l, first)
	newcomer.Turn = turnFunc(func(r Room, _ netip.Prefix) (bool, netip.Prefix) {
		return !r.IsFree(block) && r.Has(25) && !r.Has(24), netip.Prefix{}
	})
	mustHold(t, l, newcomer).Drop()
	h.Drop() // the block for which a request waits
	if _, err := l.Hold(newcomer); !errors.Is(err, ErrOutOfTurn) {
		t.Errorf("a hold: got %v, want ErrOutOfTurn", err)
	}
	if _, err := l.Peek(newcomer); !errors.Is(err, ErrOutOfTurn) {
		t.Errorf("a look: got %v, want ErrOutOfTurn", err)
	}
	mustHold(t, l, first)
	newcomer.Bits = 24
	newcomer.Turn = turnFunc(func(Room, netip.Prefix) (bool, netip.Prefix) {
		t.Error("asked though there is no room")
		return false, netip.Prefix{}
	})
	if _, err := l.Hold(newcomer); errors.Is(err, ErrOutOfTurn) {
		t.Errorf("without room: got %v, want what there is room for", err)
	}
}

// TestEveryFreedBlockIsNotified frees blocks in each possible way.
func TestEveryFreedBlockIsNotified(t *testing.T) {
	l := newLedger(1)
	var freed []string
	l.OnFree(func(pool ipam.PoolKey, block netip.Prefix) { freed = append(freed, pool.Name+" "+block.String()) })
	must(t, feed{l}.Replace(recordList(), "1"))
	for _, step := range []struct {
		what string
		do   func()
		want string
	}{
		{"a hold is dropped", func() { mustHold(t, l, ask("a")).Drop() }, "p 10.0.0.0/28"},
		{"a hold is given up, its record perhaps stored", func() { mustHold(t, l, ask("b")).Abandon() }, "p 10.0.0.0/28"},
		{"a hold becomes a record", func() {
			h := mustHold(t, l, ask("c"))
			must(t, feed{l}.Add(allocation("c", "1", "1", "10.0.0.0/28")))
			must(t, h.Confirm(t.Context(), "1"))
		}, ""},
		{"a pool's withheld space changes", func() { l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4}) }, "p 10.0.0.0/24"},
		{"a pool's strategy changes", func() {
			l.Describe(ipam.Pool{Key: key, Home: home, CIDR: small, Family: ipam.IPv4, Strategy: ipam.StrategyBestFit})
		}, ""},
		{"a record is deleted", func() { must(t, feed{l}.Delete(allocation("c", "1", "1", "10.0.0.0/28"))) }, "p 10.0.0.0/28"},
	} {
		freed = nil
		step.do()
		if got := fmt.Sprint(freed); got != fmt.Sprint(strings.FieldsFunc(step.want, func(r rune) bool { return r == ',' })) {
			t.Errorf("%s: notified of %s, want [%s]", step.what, got, step.want)
		}
	}
}

func TestConfirm(t *testing.T) {
	for name, c := range map[string]struct {
		events func(f feed) error
		want   error
	}{
		"a record that nothing overlaps is ours": {
			func(f feed) error { return f.Add(allocation("a", "1", "1", "10.0.0.0/28")) }, nil,
		},
		"one that was recorded after another is not": {
			func(f feed) error {
				return errors.Join(f.Add(allocation("b", "2", "1", "10.0.0.0/30")), f.Add(allocation("a", "1", "2", "10.0.0.0/28")))
			}, ErrLost,
		},
		"one that was recorded before another is": {
			func(f feed) error {
				return errors.Join(f.Add(allocation("a", "1", "1", "10.0.0.0/28")), f.Add(allocation("b", "2", "2", "10.0.0.0/25")))
			}, nil,
		},
		"another that was gone before does not count": {
			func(f feed) error {
				other := allocation("b", "2", "1", "10.0.0.0/30")
				return errors.Join(f.Add(other), f.Delete(other), f.Add(allocation("a", "1", "3", "10.0.0.0/28")))
			}, nil,
		},
		"a list has no order: with a rival it is not": {
			func(f feed) error {
				return f.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "2", "10.0.0.0/30")), "2")
			}, ErrLost,
		},
		"without a rival it is": {
			func(f feed) error { return f.Replace(recordList(allocation("a", "1", "1", "10.0.0.0/28")), "2") }, nil,
		},
		"one that is gone again is not": {
			func(f feed) error {
				mine := allocation("a", "1", "1", "10.0.0.0/28")
				return errors.Join(f.Add(mine), f.Delete(mine))
			}, ErrLost,
		},
		"one of our name with another UID is not": {
			func(f feed) error { return f.Add(allocation("a", "9", "1", "10.0.0.0/28")) }, ErrLost,
		},
		"a rival that is being deleted still counts": {
			func(f feed) error {
				other := allocation("b", "2", "1", "10.0.0.0/30")
				now := metav1.Now()
				other.DeletionTimestamp = &now
				return errors.Join(f.Add(other), f.Add(allocation("a", "1", "2", "10.0.0.0/28")))
			}, ErrLost,
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(1)
			must(t, feed{l}.Replace(recordList(), "0"))
			h := mustHold(t, l, ask("a"))
			must(t, c.events(feed{l}))
			if err := h.Confirm(t.Context(), "1"); !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// TestConfirmAfterFormerRecordOfSameName uses the name of a claim's record again after the first gave
// way, whose events can still be under way.
func TestConfirmAfterFormerRecordOfSameName(t *testing.T) {
	l := newLedger(1)
	former := allocation("a", "1", "1", "10.0.0.128/28")
	must(t, feed{l}.Replace(recordList(former), "1"))
	h := mustHold(t, l, ask("a"))
	going := allocation("a", "1", "2", "10.0.0.128/28")
	now := metav1.Now()
	going.DeletionTimestamp = &now
	must(t, feed{l}.Update(going))
	must(t, feed{l}.Delete(going))
	must(t, feed{l}.Add(allocation("a", "2", "4", h.Block.String())))
	if err := h.Confirm(t.Context(), "2"); err != nil {
		t.Errorf("got %v, want that it is ours", err)
	}
}

func TestUnconfirmedHoldIsDropped(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	h := mustHold(t, l, ask("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := h.Confirm(ctx, "1"); !errors.Is(err, ipam.ErrUnconfirmed) {
		t.Errorf("got %v, want ErrUnconfirmed", err)
	}
	if again := mustHold(t, l, ask("b")); again.Block != h.Block {
		t.Errorf("%s is not free again: got %s", h.Block, again.Block)
	}
}

func TestAbandonedRecordIsReportedOnArrival(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	var abandoned []string
	l.Listen(func(c Change) {
		if c.Kind == Abandoned {
			abandoned = append(abandoned, c.Record.UID)
		}
	})
	mustHold(t, l, ask("late")).Abandon()
	must(t, feed{l}.Add(allocation("late", "7", "1", "10.0.0.0/28")))
	if fmt.Sprint(abandoned) != "[7]" {
		t.Errorf("notified of %v, want [7]", abandoned)
	}
}

func TestOnlyFirstListIsInitial(t *testing.T) {
	l := newLedger(1)
	var initial []string
	l.Follow(func(c Change) {
		if c.Initial {
			initial = append(initial, c.Record.UID)
		}
	})
	a, b, c := allocation("a", "1", "1", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.16/28"), allocation("c", "3", "1", "10.0.0.32/28")
	must(t, feed{l}.Replace(recordList(a), "1"))
	must(t, feed{l}.Add(b))
	must(t, feed{l}.Replace(recordList(a, b, c), "2"))
	if fmt.Sprint(initial) != "[1 uid-of-p]" {
		t.Errorf("notified that %v existed before, want [1 uid-of-p]", initial)
	}
}

func TestStoppedListenerIsNotNotified(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(), "0"))
	var notifications []string
	note := func(who string) func(Change) {
		return func(c Change) { notifications = append(notifications, who+" of "+c.Record.UID) }
	}
	stops := []func(){l.Follow(note("a")), l.Listen(note("b"))}
	l.Follow(note("c"))
	for _, stop := range stops {
		notifications = nil
		stop()
		must(t, feed{l}.Add(allocation("x", "1", "1", "10.0.0.0/28")))
		must(t, feed{l}.Delete(allocation("x", "1", "1", "10.0.0.0/28")))
	}
	if fmt.Sprint(notifications) != "[c of 1 c of 1]" {
		t.Errorf("when a and b have stopped: notified %v, want c of both changes", notifications)
	}
}

func TestUnboundRecordsAreBounded(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(recordList(allocation("x", "1", "1", "10.0.0.0/28"), allocation("y", "2", "1", "10.0.0.16/28")), "1"))
	bounded := ask("a")
	bounded.UnclaimedLimit = 2
	if _, err := l.Hold(bounded); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("got %v, want ErrTooManyUnclaimed", err)
	}
	l.SetClaimed(ipam.Name{Namespace: "ns", Name: "x"}, true)
	mustHold(t, l, bounded).Drop()
	l.SetClaimed(ipam.Name{Namespace: "ns", Name: "x"}, false)
	if _, err := l.Hold(bounded); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("got %v, want ErrTooManyUnclaimed", err)
	}
}

func TestLocalPoolRecordsAreBoundedByOwnNamespace(t *testing.T) {
	l := newLedger(1)
	record := ipam.Record{
		Name: ipam.Name{Namespace: "operator", Name: "localippool.ns.p"}, UID: "1", Version: "1", Pool: key, Purpose: ipam.PurposePool,
		Block: netip.MustParsePrefix("10.0.0.0/28"), State: ipam.StateBound, Holder: ipam.Holder{Kind: "LocalIPPool", Namespace: "ns", Name: "p"},
	}
	must(t, feed{l}.Replace(recordList(convert.Allocation(record)), "1"))
	bounded := ask("a")
	bounded.UnclaimedLimit, bounded.Holder.Namespace = 1, "ns"
	if _, err := l.Hold(bounded); !errors.Is(err, ipam.ErrTooManyUnclaimed) {
		t.Errorf("got %v, want ErrTooManyUnclaimed", err)
	}
	elsewhere := bounded
	elsewhere.Holder.Namespace = "operator"
	mustHold(t, l, elsewhere).Drop()
	record.HolderUID, record.Version = "2", "2" // the pool exists
	must(t, feed{l}.Update(convert.Allocation(record)))
	mustHold(t, l, bounded).Drop()
}

// TestViewAgainstTwin plays random events, holds and lists, overlapping ones too, and compares the
// ledger's counts with an array of addresses.
func TestViewAgainstTwin(t *testing.T) {
	for seed := range uint64(40) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := &world{ledger: newLedger(seed), random: random, objects: map[string]*v1alpha1.IPAllocation{}, holds: map[string]*Hold{}}
		must(t, feed{w.ledger}.Replace(recordList(), "0"))
		for step := range 400 {
			w.act(t, step)
			if got, want := counts(w.ledger), twin(w.objects, w.holds); got != want {
				t.Fatalf("seed %d, step %d: got %s, want %s", seed, step, got, want)
			}
		}
	}
}

// world holds a ledger, and the events that it has received.
type world struct {
	ledger  *Ledger
	random  *rand.Rand
	objects map[string]*v1alpha1.IPAllocation
	holds   map[string]*Hold
}

func (w *world) act(t *testing.T, step int) {
	t.Helper()
	l, random, objects, holds := w.ledger, w.random, w.objects, w.holds
	name := strconv.Itoa(random.IntN(30))
	switch random.IntN(10) {
	case 0, 1, 2, 3: // a record of the operator or of others, which can overlap
		bits := 26 + random.IntN(7)
		block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), bits).Masked()
		obj := allocation(name, fmt.Sprintf("%s-%d", name, step), strconv.Itoa(step), block.String())
		obj.Spec.Gateway = fmt.Sprintf("10.0.0.%d", random.IntN(256)) // only an address has one
		objects[name] = obj
		must(t, feed{l}.Add(obj))
	case 4, 5, 6:
		if obj := objects[name]; obj != nil {
			delete(objects, name)
			must(t, feed{l}.Delete(obj))
		}
	case 7:
		h, err := l.Hold(ask("h" + name))
		switch {
		case holds[name] != nil && !errors.Is(err, ipam.ErrUnconfirmed):
			t.Fatalf("a second hold for one name: %v", err)
		case err == nil:
			holds[name] = h
		}
	case 8:
		if h := holds[name]; h != nil {
			h.Drop()
			h.Drop() // twice does no harm
			delete(holds, name)
		}
	case 9:
		var list []any
		for other, obj := range objects {
			if random.IntN(8) == 0 {
				delete(objects, other)
				continue
			}
			list = append(list, obj)
		}
		must(t, feed{l}.Replace(recordList(list...), strconv.Itoa(step)))
	}
}

func counts(l *Ledger) string {
	c, _ := l.Capacity(key)
	return fmt.Sprintf("%s free, %d records", c.Available, c.Records)
}

func twin(objects map[string]*v1alpha1.IPAllocation, holds map[string]*Hold) string {
	var used [256]bool
	use := func(block netip.Prefix) {
		for i := range 256 {
			if block.Contains(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})) {
				used[i] = true
			}
		}
	}
	use(withheld)
	for _, obj := range objects {
		block := netip.MustParsePrefix(obj.Spec.CIDR)
		use(block)
		if gateway, err := netip.ParseAddr(obj.Spec.Gateway); err == nil && block.IsSingleIP() {
			use(netip.PrefixFrom(gateway, 32))
		}
	}
	for _, h := range holds {
		use(h.Block)
	}
	free := 0
	for _, u := range used {
		if !u {
			free++
		}
	}
	return fmt.Sprintf("%d free, %d records", free, len(objects))
}
