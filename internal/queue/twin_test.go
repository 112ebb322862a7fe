package queue

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// twin implements a queue that looks at every waiter each time, over pools of 256 addresses each.
type twin struct {
	waiters map[ipam.Holder]Waiter
	wants   map[ipam.Holder]ipam.Wants
	parked  map[ipam.Holder]bool
}

// addresses holds the free space of one pool, address by address.
type addresses struct {
	used [256]bool
	// least holds, by project, the shortest prefix that it can have.
	least map[string]int
}

// Allows implements Room.
func (s *addresses) Allows(a ipam.Account, length int) bool { return length >= s.least[a.Project] }

// Has implements Room.
func (s *addresses) Has(length int) bool {
	size := 1 << (32 - length)
	for at := 0; size <= len(s.used) && at < len(s.used); at += size {
		if !slices.Contains(s.used[at:at+size], true) {
			return true
		}
	}
	return false
}

// IsFree implements Room.
func (s *addresses) IsFree(block netip.Prefix) bool {
	at, size := extent(block)
	return !slices.Contains(s.used[at:at+size], true)
}

func extent(block netip.Prefix) (at, size int) {
	return int(block.Addr().As4()[3]), 1 << (32 - block.Bits())
}

// first implements the rule as the package's documentation states it.
func (w *twin) first(pool ipam.Pool, room *addresses, excludedHolder ipam.Holder) (Waiter, bool) {
	var first Waiter
	for holder, waiter := range w.waiters {
		wants := w.wants[holder]
		fits := waiter.Request.Block.IsValid() && room.IsFree(waiter.Request.Block) || !waiter.Request.Block.IsValid() && room.Has(wants.Length)
		if holder == excludedHolder || w.parked[holder] || !fits || !room.Allows(wants.Account, wants.Length) || !slices.Contains(wants.Pools, pool.Key) {
			continue
		}
		if first.IsZero() || waiter.isAheadOf(first, pool) {
			first = waiter
		}
	}
	return first, !first.IsZero()
}

// TestQueueMatchesTwin does the same random steps with both, and compares the turns. A pool of
// 256 addresses never has plenty.
func TestQueueMatchesTwin(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { playTwin(t, rand.New(rand.NewPCG(seed, 0)), 3000) })
	}
}

func playTwin(t *testing.T, random *rand.Rand, steps int) {
	t.Helper()
	q := newPoolQueues(0)
	pools := []ipam.Pool{{Key: ipam.PoolNamed("a"), OpenSince: time.Unix(20, 0)}, {Key: ipam.PoolNamed("b")}, {Key: ipam.PoolNamed("c"), OpenSince: time.Unix(1, 0)}}
	spaces := map[ipam.PoolKey]*addresses{}
	for _, p := range pools {
		spaces[p.Key] = &addresses{least: map[string]int{}}
	}
	w := &twin{waiters: map[ipam.Holder]Waiter{}, wants: map[ipam.Holder]ipam.Wants{}, parked: map[ipam.Holder]bool{}}
	for step := range steps {
		call := w.step(q, random, pools, spaces)
		for _, p := range pools {
			excludedHolder, position := ipam.Holder{}, Waiter{}
			if random.IntN(2) == 0 {
				excludedHolder = holderOf(random.IntN(40))
				position = w.waiters[excludedHolder]
			}
			want, found := w.first(p, spaces[p.Key], ipam.Holder{})
			if got := q.DueHolders(p, spaces[p.Key]); found != (len(got) == 1) || found && got[0] != want.Holder {
				t.Fatalf("step %d: %s: due in %s are %v, want %v", step, call, p.Key, got, want.Holder)
			}
			want, found = w.first(p, spaces[p.Key], excludedHolder)
			isTurn := !found || !position.IsZero() && !want.isAheadOf(position, p)
			if got, _ := q.MayTake(p, spaces[p.Key], excludedHolder, position, netip.MustParsePrefix("10.0.0.0/32")); got != isTurn {
				t.Fatalf("step %d: %s: %v may take of %s: %t, want %t (first is %v)", step, call, excludedHolder, p.Key, got, isTurn, want.Holder)
			}
		}
	}
	for holder := range w.waiters {
		q.Remove(holder)
	}
	if len(q.byPool)+len(q.waiters)+len(q.targets)+len(q.namespaces)+len(q.awaiting) > 0 {
		t.Errorf("something is left: %+v", q)
	}
}

func holderOf(n int) ipam.Holder {
	return ipam.Holder{Kind: "IPClaim", Namespace: "ns", Name: fmt.Sprint("c-", n)}
}

// step does one thing with both, and describes it.
func (w *twin) step(q *poolQueues, random *rand.Rand, pools []ipam.Pool, spaces map[ipam.PoolKey]*addresses) string {
	holder, pool := holderOf(random.IntN(40)), pools[random.IntN(len(pools))].Key
	_, waits := w.waiters[holder]
	switch random.IntN(8) {
	case 0, 1:
		waiter, wants := w.draw(random, holder, pools)
		if waits { // its age stays
			waiter.Since = w.waiters[holder].Since
		}
		w.waiters[holder], w.wants[holder] = waiter, wants
		return fmt.Sprint("join ", holder, q.Join(waiter, wants))
	case 2:
		delete(w.waiters, holder)
		delete(w.parked, holder)
		_, ok := q.Remove(holder)
		return fmt.Sprint("leave ", holder, ok)
	case 3:
		if waits {
			w.parked[holder] = true
		}
		q.Park(holder, ipam.Awaited{}, nil)
		return fmt.Sprint("park ", holder)
	case 4:
		delete(w.parked, holder)
		return fmt.Sprint("keep ", holder, q.RestorePosition(holder))
	case 5:
		project, least := drawProject(random), []int{0, 30, 33}[random.IntN(3)]
		spaces[pool].least[project] = least
		return fmt.Sprint(project, " may have a /", least, " of ", pool)
	}
	block := drawBlock(random)
	at, size := extent(block)
	use := random.IntN(3) > 0
	for i := range size {
		spaces[pool].used[at+i] = use
	}
	if !use {
		q.NoteFreed(pool, block)
	}
	return fmt.Sprint(block, " in use: ", use)
}

func (w *twin) draw(random *rand.Rand, holder ipam.Holder, pools []ipam.Pool) (Waiter, ipam.Wants) {
	waiter := Waiter{Since: time.Unix(random.Int64N(40), 0), Holder: holder}
	wants := ipam.Wants{Length: 24 + random.IntN(9), Account: ipam.Account{Project: drawProject(random)}}
	if random.IntN(2) == 0 {
		waiter.Request.Block = drawBlock(random)
		wants.Length = waiter.Request.Block.Bits()
	}
	for _, p := range pools {
		if random.IntN(2) == 0 {
			wants.Pools = append(wants.Pools, p.Key)
		}
	}
	return waiter, wants
}

func drawProject(random *rand.Rand) string { return fmt.Sprint("project-", random.IntN(4)) }

func drawBlock(random *rand.Rand) netip.Prefix {
	block := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(random.IntN(256))}), 24+random.IntN(9))
	return block.Masked()
}
