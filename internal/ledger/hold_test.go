package ledger

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestHoldSkipsBlocksWantedByOthers(t *testing.T) {
	for name, c := range map[string]struct {
		wanted []string
		blocks string // the blocks of the request
		got    string // none: out of turn
	}{
		"nothing":                          {nil, "", "10.0.0.0/28"},
		"the first":                        {[]string{"10.0.0.0/28"}, "", "10.0.0.16/28"},
		"a part of the first, and more":    {[]string{"10.0.0.4/30", "10.0.0.16/28"}, "", "10.0.0.48/28"}, // 32 is withheld
		"all":                              {[]string{"10.0.0.0/24"}, "", ""},
		"the very block that is asked for": {[]string{"10.0.0.0/28"}, "10.0.0.0/28", ""},
		"another than those asked for":     {[]string{"10.0.0.0/28"}, "10.0.0.16/28 10.0.0.64/28", "10.0.0.16/28"},
		"an additional block":              {[]string{"10.0.0.64/28"}, "10.0.0.16/28 10.0.0.64/28", ""},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListedLedger(t)
			newcomer := ask("a")
			if c.blocks != "" {
				blocks := prefixes(strings.Fields(c.blocks)...)
				newcomer.Block, newcomer.AdditionalBlocks = blocks[0], blocks[1:]
			}
			newcomer.Turn = func(_ Room, block netip.Prefix) (bool, netip.Prefix) {
				for _, w := range c.wanted {
					if w := netip.MustParsePrefix(w); w.Overlaps(block) {
						return false, w
					}
				}
				return true, netip.Prefix{}
			}
			if c.got == "" {
				if _, err := l.Hold(newcomer); !errors.Is(err, ErrOutOfTurn) {
					t.Errorf("got %v, want ErrOutOfTurn", err)
				}
				return
			}
			if h := mustHold(t, l, newcomer); h.Block.String() != c.got {
				t.Errorf("got %s, want %s", h.Block, c.got)
			}
		})
	}
}

// TestReplicasRarelyCollide plays replicas that fill one pool, each with several requests
// under way at a time that do not know of the others'. A record that gives way was written in vain.
func TestReplicasRarelyCollide(t *testing.T) {
	seeds := uint64(5)
	if testing.Short() {
		seeds = 2
	}
	for replicas := 2; replicas <= 3; replicas++ {
		for seed := range seeds {
			recorded, vain := simulateCrowd(t, replicas, seed)
			t.Logf("%d replicas, seed %d: %d of %d records written in vain", replicas, seed, vain, recorded)
			if vain*50 > recorded {
				t.Errorf("%d replicas, seed %d: %d of %d records written in vain, want one in fifty at most", replicas, seed, vain, recorded)
			}
		}
	}
}

// simulateCrowd lets replicas record blocks in rounds: all find, then all record, in the order of the
// requests, and all see the new records.
func simulateCrowd(t *testing.T, replicas int, seed uint64) (recorded, vain int) {
	const rounds, underWay = 150, 16
	crowded := make([]*Ledger, replicas)
	for i := range crowded {
		crowded[i] = newLedger(seed*10 + uint64(i))
		crowded[i].Describe(ipam.Pool{Key: key, Home: home, CIDR: netip.MustParsePrefix("10.0.0.0/12"), Family: ipam.IPv4})
		must(t, feed{crowded[i]}.Replace([]any{poolRecord(key, "10.0.0.0/12")}, "1"))
	}
	for round := range rounds {
		holds := make([][]*Hold, replicas)
		for i, l := range crowded {
			l.options.Clock.(*clocktesting.FakeClock).Step(30 * time.Millisecond)
			for n := range underWay {
				holds[i] = append(holds[i], mustHold(t, l, ask(fmt.Sprintf("r%d-%d-%d", i, round, n))))
			}
		}
		for n := range underWay {
			for i := range crowded {
				recorded++
				if !recordOne(t, crowded, holds[i][n]) {
					vain++
				}
			}
		}
	}
	return recorded, vain
}

// recordOne shows the record of a hold to all, and reports whether the block is its holder's. If
// not, the record is deleted.
func recordOne(t *testing.T, crowded []*Ledger, h *Hold) bool {
	name := h.entry.name
	obj := allocation(name, "uid-"+name, "1", h.Block.String())
	see := func(event func(feed, any) error) {
		for _, l := range slices.Backward(crowded) {
			must(t, event(feed{l}, obj))
		}
	}
	see(feed.Add)
	if err := h.Confirm(t.Context(), string(obj.UID)); err == nil {
		return true
	}
	obj.ResourceVersion = strconv.Itoa(2)
	see(feed.Delete)
	return false
}

// askInDomain returns a request for a block of a routing domain, as a root pool makes it for its CIDR.
func askInDomain(name, block string) Ask {
	return Ask{
		Pool: ipam.PoolKey{Kind: ipam.PoolKindRoutingDomain, Name: name, Family: ipam.IPv4}, Block: netip.MustParsePrefix(block), Bits: 24,
		Record: ipam.Name{Namespace: "system", Name: "ippool." + name}, Holder: ipam.Holder{Kind: "IPPool", Name: name},
	}
}

func TestUnusedRoutingDomainIsForgotten(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(nil, "1"))
	before := len(l.poolViews)
	expect := func(when string, more int) {
		t.Helper()
		if got := len(l.poolViews) - before; got != more {
			t.Errorf("%s there are %d routing domains, want %d", when, got, more)
		}
	}
	for i := range 100 {
		asked := askInDomain(fmt.Sprint("domain-", i), "10.1.0.0/24")
		if _, err := l.Peek(asked); err != nil {
			t.Fatal(err)
		}
		asked.InUse = true
		if _, err := l.Peek(asked); err != nil {
			t.Fatal(err)
		}
	}
	expect("after questions", 0)

	asked := askInDomain("domain", "10.1.0.0/24")
	hold := mustHold(t, l, asked)
	expect("while a block is held", 1)
	hold.Drop()
	expect("after the hold", 0)

	object := allocation("ippool.domain", "uid", "2", "10.1.0.0/24")
	object.Spec.PoolRef, object.Spec.RoutingDomain, object.Spec.Purpose = nil, "domain", v1alpha1.PurposePool
	must(t, feed{l}.Add(object))
	expect("while a pool is recorded", 1)
	if _, err := l.Hold(asked); err == nil {
		t.Error("its block is held twice")
	} else if _, ok := errors.AsType[*ipam.TakenError](err); !ok {
		t.Error(err)
	}
	frees := l.Frees([]ipam.PoolKey{asked.Pool})
	must(t, feed{l}.Delete(object))
	expect("when the record is gone", 0)
	if !l.AwaitRelease(t.Context(), []ipam.PoolKey{asked.Pool}, ipam.Holder{}, frees, 0) {
		t.Error("that its block was freed is forgotten with it")
	}
}

func TestAwaitedRoutingDomainIsKept(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(nil, "1"))
	keys := []ipam.PoolKey{askInDomain("domain", "10.1.0.0/24").Pool}
	hold := mustHold(t, l, askInDomain("domain", "10.1.0.0/24"))
	wake := make(chan struct{}, 1)
	l.subscribe(keys, wake)
	hold.Drop()
	select {
	case <-wake:
	default:
		t.Fatal("it is not notified that the block was freed")
	}
	if l.poolViews[keys[0]] == nil {
		t.Error("it is forgotten while it is awaited")
	}
	l.unsubscribe(keys, wake)
	if l.poolViews[keys[0]] != nil {
		t.Error("it is not forgotten afterwards")
	}
}

func TestCoolingBlockOfDeletedRecordIsNotPending(t *testing.T) {
	l := newLedger(1)
	must(t, feed{l}.Replace(nil, "1"))
	for state, want := range map[ipam.State]bool{ipam.StateBound: true, ipam.StateRetained: true, ipam.StateCooling: false} {
		object := allocation(string(state), "uid-"+string(state), "2", "10.0.0.64/28")
		must(t, feed{l}.Add(object))
		changed := allocation(string(state), "uid-"+string(state), "3", "10.0.0.64/28")
		changed.Spec.State = v1alpha1.AllocationState(state)
		changed.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		must(t, feed{l}.Update(changed))
		if got := l.IsLeaving(ipam.Name{Namespace: "ns", Name: string(state)}); got != want {
			t.Errorf("%s: on its way: %t, want %t", state, got, want)
		}
	}
}

func TestConfirm(t *testing.T) {
	mine, part := allocation("a", "1", "2", "10.0.0.0/28"), allocation("b", "2", "1", "10.0.0.0/30")
	pools, other := poolRecord(key, small.String()), poolRecord(ipam.PoolNamed("other"), "10.0.0.0/16")
	marked := markForRelease(pools, "2")
	for name, c := range map[string]struct {
		want   error
		events []event
	}{
		"a record that nothing overlaps is ours":      {nil, []event{adds(mine)}},
		"one that was recorded after another is not":  {ErrLost, []event{adds(part), adds(mine)}},
		"one that was recorded before another is":     {nil, []event{adds(mine), adds(allocation("b", "2", "3", "10.0.0.0/25"))}},
		"another that was gone before does not count": {nil, []event{adds(part), deletes(part), adds(mine)}},
		"a list has no order: with a rival it is not": {ErrLost, []event{lists("2", mine, part, pools)}},
		"without a rival it is":                       {nil, []event{lists("2", mine, pools)}},
		"one that is gone again is not":               {ErrLost, []event{adds(mine), deletes(mine)}},
		"one of our name with another block is not":   {ErrLost, []event{adds(allocation("a", "1", "1", "10.0.0.64/28"))}},
		"one of our name with another UID is not":     {ErrLost, []event{adds(allocation("a", "9", "1", "10.0.0.0/28"))}},
		"a rival that is being deleted still counts":  {ErrLost, []event{adds(terminating(part, "1")), adds(mine)}},

		"the pool's record is gone":                                   {ErrPoolClosed, []event{deletes(pools), adds(mine)}},
		"the pool's record is being released":                         {ErrPoolClosed, []event{updates(marked), adds(mine)}},
		"it was to be released, and is not any more":                  {nil, []event{updates(marked), updates(versioned(pools, "3")), adds(mine)}},
		"it is being deleted":                                         {ErrPoolClosed, []event{updates(terminating(pools, "2")), adds(mine)}},
		"it is of another block than the pool has":                    {ErrPoolClosed, []event{deletes(pools), adds(poolRecord(key, "10.0.1.0/24")), adds(mine)}},
		"another pool's overlaps it, and was recorded first":          {ErrPoolClosed, []event{deletes(pools), adds(other), adds(pools), adds(mine)}},
		"another pool's overlaps it, and was recorded later":          {nil, []event{adds(other), adds(mine)}},
		"a list shows another pool's that overlaps it, without order": {ErrPoolClosed, []event{deletes(pools), lists("9", mine, other, pools)}},
		"a list shows it marked":                                      {ErrPoolClosed, []event{lists("9", mine, marked)}},
	} {
		t.Run(name, func(t *testing.T) {
			l := newListedLedger(t)
			h := mustHold(t, l, ask("a"))
			play(t, l, c.events...)
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
	going := terminating(former, "2")
	play(t, l, updates(going), deletes(going), adds(allocation("a", "2", "4", h.Block.String())))
	if err := h.Confirm(t.Context(), "2"); err != nil {
		t.Errorf("got %v, want that it is ours", err)
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
	l := newListedLedger(t)
	block := netip.MustParsePrefix("10.0.0.0/28")
	first, newcomer := ask("a"), ask("b")
	h := mustHold(t, l, first)
	newcomer.Turn = func(r Room, _ netip.Prefix) (bool, netip.Prefix) {
		return !r.IsFree(block) && r.Has(25) && !r.Has(24), netip.Prefix{}
	}
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
	newcomer.Turn = func(Room, netip.Prefix) (bool, netip.Prefix) {
		t.Error("asked though there is no room")
		return false, netip.Prefix{}
	}
	if _, err := l.Hold(newcomer); errors.Is(err, ErrOutOfTurn) {
		t.Errorf("without room: got %v, want what there is room for", err)
	}
}

func TestUnconfirmedHoldIsDropped(t *testing.T) {
	l := newListedLedger(t)
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
