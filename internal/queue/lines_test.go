package queue

import (
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// pool is the pool in which the tests wait.
var pool = ipam.Pool{Key: ipam.PoolNamed("p"), CIDR: netip.MustParsePrefix("10.0.0.0/8")}

// room holds the free blocks that a test defines.
type room struct {
	largest int
	free    func(netip.Prefix) bool
	// atLimit holds the projects that have reached their limit.
	atLimit []string
}

// Allows implements Room.
func (r room) Allows(a ipam.Account, _ int) bool { return !slices.Contains(r.atLimit, a.Project) }

// Has implements Room.
func (r room) Has(length int) bool { return r.largest <= length }

// IsFree implements Room.
func (r room) IsFree(block netip.Prefix) bool { return r.free != nil && r.free(block) }

// Kinds of room.
func noRoom() room                    { return room{largest: ipam.NoLength + 200} }
func roomFor(length int) room         { return room{largest: length} }
func everythingFree() room            { return room{free: func(netip.Prefix) bool { return true }} }
func freeAlone(blocks ...string) room { return freeBeside(200, blocks...) }
func freeBeside(largest int, blocks ...string) room {
	return room{largest: largest, free: func(p netip.Prefix) bool { return slices.Contains(blocks, p.String()) }}
}

// newWaiter returns a waiter for a /length of the pool, since the second.
func newWaiter(name string, second int64, length int) (Waiter, ipam.Wants) {
	n := ipam.Name{Namespace: "red", Name: name}
	w := Waiter{Since: time.Unix(second, 0), Holder: ipam.Holder{Kind: "IPClaim", Namespace: "red", Name: name}}
	w.Request = ipam.Request{Claim: n, Pool: pool.Key, Length: length}
	return w, ipam.Wants{Pools: []ipam.PoolKey{pool.Key}, Length: length}
}

// newBlockWaiter returns a waiter for that block alone.
func newBlockWaiter(name string, second int64, block string) (Waiter, ipam.Wants) {
	p := netip.MustParsePrefix(block)
	w, wants := newWaiter(name, second, p.Bits())
	w.Request.Block = p
	return w, wants
}

func (q *poolQueues) first(p ipam.Pool, r room) string {
	if due := q.DueHolders(p, r); len(due) == 1 {
		return due[0].Name
	} else if len(due) > 1 {
		return strconv.Itoa(len(due))
	}
	return ""
}

func TestOldestWaiterWithRoomIsFirst(t *testing.T) {
	q := newPoolQueues(0)
	for i, w := range []struct {
		name   string
		length int
	}{{"large", 24}, {"small-b", 32}, {"small-a", 32}, {"middle", 28}} {
		q.Join(newWaiter(w.name, int64(i/2), w.length))
	}
	q.Join(newBlockWaiter("exact", 0, "10.9.0.0/32"))
	for name, c := range map[string]struct {
		room room
		want string
	}{
		"nothing is free":                   {noRoom(), ""},
		"room for the smallest":             {roomFor(32), "small-b"},
		"room for the larger":               {roomFor(25), "small-b"},
		"room for the largest":              {roomFor(24), "large"},
		"the one block is free":             {freeAlone("10.9.0.0/32"), "exact"},
		"the one block is free, and larger": {freeBeside(24, "10.9.0.0/32"), "exact"},
	} {
		open := pool
		open.OpenSince = time.Unix(-1, 0) // no block is returned: by age and name alone
		q.NoteFreed(pool.Key, pool.CIDR)
		if got := q.first(open, c.room); got != c.want {
			t.Errorf("%s: first is %q, want %q", name, got, c.want)
		}
	}
}

func TestReturningWaiterPrecedesWaiterForAnyBlock(t *testing.T) {
	for name, c := range map[string]struct {
		open time.Time
		want []string
	}{
		"before the pool opens, or as long as that is not known": {time.Time{}, []string{"back", "late", "any"}},
		"in the second in which they came":                       {time.Unix(2, 0), []string{"back", "any", "late"}},
		"when it was open before":                                {time.Unix(1, 0), []string{"any", "back", "late"}},
	} {
		t.Run(name, func(t *testing.T) {
			q := newPoolQueues(0)
			q.Join(newBlockWaiter("late", 9, "10.0.0.1/32"))
			q.Join(newWaiter("any", 1, 32))
			q.Join(newBlockWaiter("back", 2, "10.0.0.0/32"))
			opened := pool
			opened.OpenSince = c.open
			for _, want := range c.want {
				got := q.first(opened, freeBeside(32, "10.0.0.0/32", "10.0.0.1/32"))
				if got != want {
					t.Fatalf("it is %q, want %q", got, want)
				}
				q.Remove(ipam.Holder{Kind: "IPClaim", Namespace: "red", Name: got})
			}
			if len(q.byPool)+len(q.waiters)+len(q.targets)+len(q.namespaces)+len(q.awaiting) > 0 {
				t.Errorf("something is left: %+v", q)
			}
		})
	}
}

// mayTake reports whether the holder can take the first block of a length of the pool.
func mayTake(q *poolQueues, room Room, holder ipam.Holder, place Waiter, length int) bool {
	isTurn, _ := q.MayTake(pool, room, holder, place, netip.PrefixFrom(netip.MustParseAddr("10.0.0.0"), length))
	return isTurn
}

// TestLargeWaiterDoesNotStarve expects the largest waiter to decide whether there is
// plenty. If the smallest decided, newcomers would take, and release, the free blocks, and never
// leave a block that is large enough.
func TestLargeWaiterDoesNotStarve(t *testing.T) {
	q := newPoolQueues(0)
	for i := range 20 {
		q.Join(newWaiter("small-"+strconv.Itoa(i), int64(10+i), 32))
	}
	newcomer := ipam.Holder{Kind: "IPClaim", Namespace: "blue", Name: "new"}
	// Room for 2,048 of the small ones.
	if !mayTake(q, roomFor(21), newcomer, Waiter{}, 32) {
		t.Error("without the large one there is not plenty")
	}
	q.Join(newWaiter("large", 1, 21))
	if mayTake(q, roomFor(21), newcomer, Waiter{}, 32) {
		t.Error("a newcomer takes of the only block that is large enough for the one that waits")
	}
	if got := q.first(pool, roomFor(21)); got != "large" {
		t.Errorf("%q is due, want large alone", got)
	}
	if got := q.first(pool, roomFor(8)); got != "21" {
		t.Errorf("where there is plenty for the large one too %q are due, want all 21", got)
	}
	w, _ := newWaiter("large", 1, 21)
	q.Remove(w.Holder)
	if !mayTake(q, roomFor(21), newcomer, Waiter{}, 32) {
		t.Error("when the large one has left there is not plenty")
	}
}

func TestConflictedWaiterIsReportedOnce(t *testing.T) {
	q := newPoolQueues(0)
	q.Join(newBlockWaiter("a", 1, "10.0.0.0/32"))
	for i, step := range []struct {
		pool ipam.PoolKey
		room room
		told int
	}{{pool.Key, everythingFree(), 0}, {ipam.PoolNamed("q"), noRoom(), 0}, {pool.Key, noRoom(), 1}, {pool.Key, noRoom(), 0}} {
		if got := q.ConflictedHolders(step.pool, step.room); len(got) != step.told {
			t.Errorf("step %d: reported %v, want %d", i, got, step.told)
		}
	}
	q.Join(newBlockWaiter("a", 1, "10.0.0.0/32")) // as after each event of it
	if got := q.ConflictedHolders(pool.Key, noRoom()); len(got) != 0 {
		t.Errorf("reported %v once more", got)
	}
	q.Join(newBlockWaiter("a", 1, "10.0.0.1/32"))
	if got := q.ConflictedHolders(pool.Key, noRoom()); len(got) != 1 {
		t.Errorf("when it asks for another: reported %v, want it", got)
	}
}

// TestFreedBlockIsCheckedAgain checks a block while it is in use, so that it is not checked
// again, and then frees it with a larger and in a smaller one.
func TestFreedBlockIsCheckedAgain(t *testing.T) {
	for _, freed := range []string{"10.0.1.0/24", "10.0.0.0/16", "10.0.1.128/25", "10.0.2.0/24"} {
		q := newPoolQueues(0)
		q.Join(newBlockWaiter("a", 1, "10.0.1.0/24"))
		q.Join(newBlockWaiter("b", 2, "10.0.1.0/24"))
		if got := q.first(pool, noRoom()); got != "" {
			t.Fatalf("%q is due though its block is in use", got)
		}
		q.NoteFreed(pool.Key, netip.MustParsePrefix(freed))
		want := "a"
		if freed == "10.0.2.0/24" {
			want = "" // not checked: no part of its block became free
		}
		if got := q.first(pool, everythingFree()); got != want {
			t.Errorf("after %s became free %q is due, want %q", freed, got, want)
		}
	}
}

func TestProvisionalWaiterKeepsPosition(t *testing.T) {
	for name, c := range map[string]struct {
		then      func(*poolQueues)
		first     string // of the queue, when those that did not join are taken out
		leftCount int
	}{
		"does not come":                  {func(*poolQueues) {}, "young", 1},
		"joins":                          {func(q *poolQueues) { q.Join(newWaiter("old", 1, 32)) }, "old", 0},
		"leaves":                         {func(q *poolQueues) { w, _ := newWaiter("old", 1, 32); q.Remove(w.Holder) }, "young", 0},
		"joins and is provisional again": {func(q *poolQueues) { q.Join(newWaiter("old", 1, 32)); q.JoinProvisionally(newWaiter("old", 1, 32)) }, "old", 0},
	} {
		t.Run(name, func(t *testing.T) {
			q := newPoolQueues(0)
			q.JoinProvisionally(newWaiter("old", 1, 32))
			q.Join(newWaiter("young", 2, 32))
			if got := q.first(pool, roomFor(32)); got != "old" {
				t.Errorf("before that, %q is first, want old", got)
			}
			c.then(q)
			if results := q.RemoveProvisional(); len(results) != c.leftCount {
				t.Errorf("%d were taken out, want %d", len(results), c.leftCount)
			}
			if got := q.first(pool, roomFor(32)); got != c.first {
				t.Errorf("%q is first, want %q", got, c.first)
			}
			if results := q.RemoveProvisional(); len(results) != 0 {
				t.Errorf("%d were taken out once more", len(results))
			}
		})
	}
}

func TestFailingWaiterLosesItsTurn(t *testing.T) {
	q := newPoolQueues(0)
	stuck, wants := newWaiter("stuck", 1, 32)
	q.Join(stuck, wants)
	q.Join(newWaiter("behind", 2, 32))
	due := func(when, want string) {
		t.Helper()
		if got := q.first(pool, roomFor(32)); got != want {
			t.Errorf("%s: %q is due, want %q", when, got, want)
		}
	}
	refusal := errors.New("exceeded quota")
	limit := ipam.Awaited{Project: "red", Pool: pool.Key}
	q.Park(stuck.Holder, limit, nil)
	due("parked", "behind")
	q.Join(stuck, wants)
	due("when it is seen again", "behind")
	q.ResumeAwaiting(ipam.Awaited{Project: "blue", Pool: pool.Key})
	q.ResumeAwaiting(ipam.Awaited{})
	due("when something else has changed", "behind")
	if resumed := q.ResumeAwaiting(limit); len(resumed) != 1 || resumed[0] != pool.Key {
		t.Errorf("resumed are %v, want it", resumed)
	}
	due("when that has changed", "stuck")
	if _, retry := q.Park(stuck.Holder, ipam.Awaited{}, refusal); retry != time.Second {
		t.Errorf("parked again it is tried after %v, want as for the first time", retry)
	}
	stuck.Reason = ReasonNoRoom
	q.Join(stuck, wants)
	due("when its status is that it wants room", "stuck")
	stuck.Reason = ReasonRefused
	q.Join(stuck, wants)
	due("when its status is that it is refused", "behind")
	if got := q.RestorePosition(stuck.Holder); !errors.Is(got, refusal) {
		t.Errorf("when it failed for want of room it returns %v", got)
	}
	q.Join(stuck, wants) // its status is the same still
	due("when it failed for want of room", "stuck")
	q.Park(stuck.Holder, ipam.Awaited{}, refusal)
	if !q.Update(stuck.Holder, ipam.Wants{Pools: wants.Pools, Length: 30}) || q.Update(stuck.Holder, ipam.Wants{Pools: wants.Pools, Length: 30}) {
		t.Error("a change of its request is not reported once")
	}
	q.Update(stuck.Holder, wants)
	due("when its request has changed", "stuck")
	for i := range toleratedFailures + 1 {
		if got := q.RecordFailure(stuck.Holder); got != (i == toleratedFailures) {
			t.Errorf("after %d failures that pass by themselves it is to be parked: %t", i+1, got)
		}
	}
}

// TestSelectorsAreEvaluatedOutsideLock covers the lock that every create takes: a selector that
// takes it itself ends. A pool that is not selected affects the waiter, as it can have been selected
// before.
func TestSelectorsAreEvaluatedOutsideLock(t *testing.T) {
	q := newPoolQueues(0)
	w, wants := newWaiter("a", 1, 32)
	w.Request.Pool = ipam.PoolKey{}
	w.Request.Selects = func(labels map[string]string) bool { return q.Len() == 1 && labels["zone"] == "a" }
	q.Join(w, wants)
	for zone, want := range map[string]int{"a": 1, "b": 0} {
		change := inventory.Change{Pool: pool.Key, Labels: map[string]string{"zone": zone}}
		if got := q.WaitingFor(change); len(got) != want {
			t.Errorf("for a pool in zone %s %v wait, want %d", zone, got, want)
		}
		if got := q.AffectedWaiters(change); len(got) != 1 {
			t.Errorf("a pool in zone %s affects %v, want it", zone, got)
		}
	}
}

func TestPlentyCoversAllWaiters(t *testing.T) {
	q := newPoolQueues(0)
	newcomer := ipam.Holder{Kind: "IPClaim", Namespace: "blue", Name: "new"}
	for i := range 300 {
		q.Join(newWaiter("w-"+strconv.Itoa(i), int64(i), 32))
		// 512 blocks are enough for 255 waiters, and 256 others; 1,024 for all.
		for length, want := range map[int]bool{24: false, 23: i < 255, 22: true} {
			if got := mayTake(q, roomFor(length), newcomer, Waiter{}, 32); got != want {
				t.Fatalf("with %d that wait, in a /%d: may take %t, want %t", i+1, length, got, want)
			}
		}
	}
}
