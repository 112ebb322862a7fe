package queue

import (
	"errors"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func names(all []Waiter) (names []string) {
	for _, w := range all {
		names = append(names, w.Holder.Name)
	}
	return names
}

func dueNames(q *poolQueues, r Room) (names []string) {
	for _, h := range q.DueHolders(pool, r) {
		names = append(names, h.Name)
	}
	return names
}

func holder(name string) ipam.Holder {
	return ipam.Holder{Kind: "IPClaim", Namespace: "red", Name: name}
}

func TestWaiterStaysUntilRemoved(t *testing.T) {
	q := newPoolQueues(0)
	other := ipam.PoolNamed("other")
	w, wants := newWaiter("a", 5, 24)
	if !q.Join(w, wants) || q.Join(w, wants) {
		t.Error("it is not new at first, or is new again")
	}
	q.Join(newWaiter("b", 1, 24))
	if got := names(q.AllWaiters()); !slices.Equal(got, []string{"b", "a"}) {
		t.Errorf("all are %v, want the oldest first", got)
	}
	waiting, ok := q.Waiter(w.Holder)
	if !ok || waiting.Holder != w.Holder || !q.Has(w.Holder) || q.Len() != 2 {
		t.Errorf("its place is %+v, %t, %t, of %d", waiting, ok, q.Has(w.Holder), q.Len())
	}
	if !q.IsQueued(w.Holder, pool.Key) || q.IsQueued(w.Holder, other) || q.IsQueued(holder("c"), pool.Key) {
		t.Error("it does not stand in its line, or stands in another")
	}
	if got := q.Pools(); !slices.Equal(got, []ipam.PoolKey{pool.Key}) {
		t.Errorf("a waiter is queued for %v", got)
	}
	if got := q.PoolsWithWaiters([]ipam.PoolKey{other, pool.Key}); !slices.Equal(got, []ipam.PoolKey{pool.Key}) {
		t.Errorf("of both a waiter is queued for %v", got)
	}
	result, ok := q.Remove(w.Holder)
	if !ok || !slices.Equal(result.Pools, wants.Pools) || result.MovedUp != nil {
		t.Errorf("it left: %+v, %t", result, ok)
	}
	if result, ok := q.Remove(w.Holder); ok || len(result.Pools) != 0 {
		t.Errorf("it left twice: %+v", result)
	}
	if _, ok := q.Waiter(w.Holder); ok || q.Has(w.Holder) || q.IsQueued(w.Holder, pool.Key) {
		t.Error("it still exists")
	}
	q.Remove(holder("b"))
	if len(q.targets)+len(q.byPool)+len(q.namespaces)+len(q.awaiting) != 0 || len(q.PoolsWithWaiters([]ipam.PoolKey{pool.Key})) != 0 {
		t.Errorf("something is kept of waiters that left: %v %v %v %v", q.targets, q.byPool, q.namespaces, q.awaiting)
	}
}

func TestWaiterIsInQueueOfItsWants(t *testing.T) {
	other := ipam.Pool{Key: ipam.PoolNamed("other")}
	for name, park := range map[string]bool{"queued": false, "parked": true} {
		t.Run(name, func(t *testing.T) {
			q := newPoolQueues(0)
			w, wants := newWaiter("a", 1, 24)
			q.Join(w, wants)
			if park {
				q.Park(w.Holder, ipam.Awaited{Project: "red"}, errors.New("refused"))
			}
			if q.Update(w.Holder, wants) {
				t.Error("the same is something else")
			}
			wants.Pools = []ipam.PoolKey{other.Key}
			if !q.Update(w.Holder, wants) || q.Update(holder("nobody"), wants) {
				t.Error("another request is the same, or a missing waiter is updated")
			}
			if due := q.DueHolders(pool, roomFor(0)); len(due) != 0 {
				t.Errorf("in the line of before: %v", due)
			}
			if due := q.DueHolders(other, roomFor(0)); len(due) != 1 {
				t.Errorf("in its line: %v", due)
			}
			q.Remove(w.Holder)
			if len(q.byPool)+len(q.awaiting) != 0 {
				t.Errorf("kept: %v, %v", q.byPool, q.awaiting)
			}
		})
	}
}

func TestPlentyServesOldestOfEachLengthFirst(t *testing.T) {
	q := newPoolQueues(0)
	for i, project := range []string{"red", "blue", "red", "green", "blue"} {
		w, wants := newWaiter(string(rune('a'+i)), int64(i), 24)
		wants.Account.Project = project
		q.Join(w, wants)
	}
	for range 10 { // in any order of maps
		if got := dueNames(q, roomFor(0)); !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
			t.Fatalf("due are %v", got)
		}
	}
	if !hasRoomFor(roomFor(0), 255, 8) || hasRoomFor(roomFor(0), 256, 8) {
		t.Error("all addresses are not room for 255 of a 256th, or are for 256 and more")
	}
}

func TestConflictedWaitersAreReportedInOrder(t *testing.T) {
	for range 10 { // in any order of maps
		q := newPoolQueues(0)
		for i, name := range []string{"a", "b", "c", "d", "e"} {
			w, wants := newBlockWaiter(name, int64(i), "10.0.0.0/28")
			q.Join(w, wants)
			q.Join(w, wants) // again, and not reported yet
		}
		q.Remove(holder("c"))
		var got []string
		for _, h := range q.ConflictedHolders(pool.Key, noRoom()) {
			got = append(got, h.Name)
		}
		if !slices.Equal(got, []string{"a", "b", "d", "e"}) {
			t.Fatalf("reported %v", got)
		}
	}
}

func TestWaiterBeyondBoundComesLast(t *testing.T) {
	q := newPoolQueues(1)
	q.Join(newWaiter("within", 5, 24))
	w, wants := newWaiter("old", 1, 24)
	q.Join(w, wants)
	if isTurn, _ := q.MayTake(pool, roomFor(24), w.Holder, w, netip.MustParsePrefix("10.0.0.0/24")); isTurn || !q.IsBeyondLimit(w.Holder) {
		t.Error("it overtakes the one that is within")
	}
	provisional, wants := newWaiter("provisional", 2, 24)
	if q.JoinProvisionally(provisional, wants); !q.IsBeyondLimit(provisional.Holder) {
		t.Error("a place that is kept is not bounded")
	}
	if q.IsQueued(w.Holder, pool.Key) || q.IsQueued(provisional.Holder, pool.Key) {
		t.Error("the waiter beyond the bound is queued")
	}
}

func TestParkedWaiterBacksOff(t *testing.T) {
	q := newPoolQueues(0)
	w, wants := newWaiter("a", 1, 24)
	if pools, retry := q.Park(w.Holder, ipam.Awaited{}, nil); retry != lastRetry || len(pools) != 0 {
		t.Errorf("one that does not wait: %v, %v", pools, retry)
	}
	if q.RecordFailure(w.Holder) || q.RestorePosition(w.Holder) != nil {
		t.Error("one that does not wait stumbles, or keeps a refusal")
	}
	q.Join(w, wants)
	for _, seconds := range []int{1, 2, 4, 8, 16, 32, 60, 60} {
		pools, retry := q.Park(w.Holder, ipam.Awaited{}, nil)
		if retry != time.Duration(seconds)*time.Second || !slices.Equal(pools, wants.Pools) {
			t.Errorf("got %v, %v, want %d s", pools, retry, seconds)
		}
	}
	if len(q.awaiting) != 0 {
		t.Errorf("awaited without a waiter: %v", q.awaiting)
	}
	restored := q.RestorePosition(w.Holder)
	if _, retry := q.Park(w.Holder, ipam.Awaited{}, nil); restored != nil || retry != firstRetry {
		t.Error("after it kept its place it is not tried again soon")
	}
	refused := errors.New("refused")
	q.Park(w.Holder, ipam.Awaited{}, refused)
	if err := q.RestorePosition(w.Holder); !errors.Is(err, refused) {
		t.Errorf("the refusal is %v", err)
	}
	if _, retry := q.Park(w.Holder, ipam.Awaited{}, refused); retry != 4*time.Second {
		t.Errorf("refused again after %v", retry)
	}
}

func TestParkedWaiterResumesOnAwaitedChange(t *testing.T) {
	q := newPoolQueues(0)
	w, wants := newWaiter("a", 1, 24)
	q.Join(w, wants)
	first, second := ipam.Awaited{Project: "red"}, ipam.Awaited{Project: "blue"}
	q.Park(w.Holder, first, nil)
	q.Park(w.Holder, second, nil)
	if got := q.ResumeAwaiting(first); len(got) != 0 || q.IsQueued(w.Holder, pool.Key) {
		t.Errorf("resumed by a change that it does not await: %v", got)
	}
	if got := q.ResumeAwaiting(second); !slices.Equal(got, wants.Pools) || !q.IsQueued(w.Holder, pool.Key) {
		t.Errorf("resumed: %v", got)
	}
	if got := q.ResumeAwaiting(second); len(got) != 0 {
		t.Errorf("resumed twice: %v", got)
	}
	q.Park(w.Holder, first, nil)
	if err := q.RestorePosition(w.Holder); err != nil || len(q.ResumeAwaiting(first)) != 0 || len(q.awaiting) != 0 {
		t.Errorf("resumed though it kept its place: %v, %v", err, q.awaiting)
	}
	if got := dueNames(q, roomFor(0)); !slices.Equal(got, []string{"a"}) {
		t.Errorf("due are %v", got)
	}
}

func TestRemovedWaiterLeavesOthersQueued(t *testing.T) {
	q := newPoolQueues(0)
	for i, name := range []string{"a", "b", "c"} {
		q.Join(newWaiter(name, int64(i), 24))
	}
	for _, want := range [][]string{{"b", "c"}, {"c"}, nil} {
		first := q.AllWaiters()[0].Holder
		q.Remove(first)
		var concerned []string
		for _, w := range q.AffectedWaiters(inventory.Change{Pool: pool.Key}) {
			concerned = append(concerned, w.Holder.Name)
		}
		if !slices.Equal(concerned, want) {
			t.Errorf("when %s has left the pool concerns %v, want %v", first.Name, concerned, want)
		}
	}
	if len(q.targets) > 0 {
		t.Errorf("when all have left %d targets are kept", len(q.targets))
	}
}

// TestWaiterOfProjectAtLimitIsSkipped covers a pool with plenty of room. The waiter keeps its position,
// as it can wait for room in another pool.
func TestWaiterOfProjectAtLimitIsSkipped(t *testing.T) {
	q := newPoolQueues(0)
	for i, project := range []string{"red", "green", "blue"} {
		w, wants := newWaiter(project, int64(i), 24)
		wants.Account.Project = project
		q.Join(w, wants)
	}
	if due := dueNames(q, room{largest: 8, atLimit: []string{"red"}}); !slices.Equal(due, []string{"green", "blue"}) {
		t.Errorf("%v are due, want those below their limits", due)
	}
	if !q.IsQueued(holder("red"), pool.Key) {
		t.Error("it has lost its place")
	}
}

// TestWaiterForOneBlockDoesNotDelayOthers covers a claim or a child pool that requests one
// block: it can wait for long, or only seem to, if this process is behind in its view. If there is
// plenty, others take another block.
func TestWaiterForOneBlockDoesNotDelayOthers(t *testing.T) {
	for name, c := range map[string]struct {
		room  Room
		block string
		want  string // the block wanted in its place
		may   bool
		as    string
	}{
		"another block": {everythingFree(), "10.0.1.0/28", "", true, "new"},
		"the block":     {everythingFree(), "10.0.0.0/28", "10.0.0.0/28", false, "new"},
		"a part of it":  {everythingFree(), "10.0.0.8/29", "10.0.0.0/28", false, "new"},
		"more than it":  {everythingFree(), "10.0.0.0/27", "10.0.0.0/28", false, "new"},
		"the block, for the one that asked for it": {everythingFree(), "10.0.0.0/28", "", true, "a"},
		"another block, where there is not plenty": {freeBeside(27, "10.0.0.0/28"), "10.0.1.0/28", "", false, "new"},
		"the block, where it is not all free":      {roomFor(8), "10.0.0.0/29", "", true, "new"},
		"the block, where its project has enough":  {room{free: everythingFree().free, atLimit: []string{"red"}}, "10.0.0.0/28", "", true, "new"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newPoolQueues(0)
			place, wants := newBlockWaiter("a", 1, "10.0.0.0/28")
			wants.Account.Project = "red"
			q.Join(place, wants)
			holder := ipam.Holder{Kind: "IPClaim", Namespace: "red", Name: c.as}
			isTurn, wantedBlock := q.MayTake(pool, c.room, holder, Waiter{}, netip.MustParsePrefix(c.block))
			if c.want == "" && wantedBlock.IsValid() || c.want != "" && wantedBlock.String() != c.want || isTurn != c.may {
				t.Errorf("may take: %t, but for %v; want %t, %q", isTurn, wantedBlock, c.may, c.want)
			}
		})
	}
}

// TestBlockIsNotKeptForIneligibleWaiter expects that a block that a waiter requests by CIDR is not
// kept for it if it cannot have the block, or if a part of it is in use: others come before the
// newcomer, but there is plenty.
func TestBlockIsNotKeptForIneligibleWaiter(t *testing.T) {
	for name, c := range map[string]struct {
		room Room
		as   string
		may  bool
	}{
		"it may have it":           {everythingFree(), "new", false},
		"its project has enough":   {room{free: everythingFree().free, atLimit: []string{"red"}}, "new", true},
		"a part of it is in use":   {roomFor(0), "new", true},
		"it asks itself":           {everythingFree(), "exact", true},
		"it asks, and is at limit": {room{free: everythingFree().free, atLimit: []string{"red"}}, "exact", true},
	} {
		q := newPoolQueues(0)
		w, wants := newBlockWaiter("exact", 5, "10.0.0.0/28")
		wants.Account.Project = "red"
		q.Join(w, wants)
		q.Join(newWaiter("any", 1, 28))
		if got, wanted := q.MayTake(pool, c.room, holder(c.as), Waiter{}, netip.MustParsePrefix("10.0.0.0/28")); got != c.may || wanted.IsValid() == c.may {
			t.Errorf("%s: may take %t (%v), want %t", name, got, wanted, c.may)
		}
	}
}
