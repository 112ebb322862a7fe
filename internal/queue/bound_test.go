package queue

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

func TestLargeWaiterCountsAsSeveral(t *testing.T) {
	q := newPoolQueues(4)
	join := func(name string, since int64, bytes int) ipam.Holder {
		w, wants := newWaiter(name, since, 32)
		w.Request.SelectorBytes = bytes
		q.Join(w, wants)
		return w.Holder
	}
	huge := join("huge", 1, 100*bytesOfWaiter)
	large := join("large", 2, 2*bytesOfWaiter)
	small := join("small", 3, bytesOfWaiter-1)
	other := join("other", 4, 0)
	if q.IsBeyondLimit(huge) || !q.IsBeyondLimit(large) || !q.IsBeyondLimit(small) || !q.IsFull("red", ipam.Request{}) {
		t.Error("not those are beyond the bound that came after the one that fills it")
	}
	if result, _ := q.Remove(huge); !slices.Equal(result.MovedUp, []ipam.Holder{large, small}) || !q.IsBeyondLimit(other) {
		t.Errorf("when it leaves %v move up, want %v and %v", result.MovedUp, large, small)
	}
	if result, _ := q.Remove(small); !slices.Equal(result.MovedUp, []ipam.Holder{other}) {
		t.Errorf("when a small one leaves %v move up, want %v", result.MovedUp, other)
	}
	q.Remove(other)
	if q.IsFull("red", ipam.Request{}) || !q.IsFull("red", ipam.Request{SelectorBytes: bytesOfWaiter}) {
		t.Error("there is room for one small one, and for no larger one")
	}
}

// TestLargestWaiterMovesUpAlone covers a waiter that is larger than the bound of its namespace.
func TestLargestWaiterMovesUpAlone(t *testing.T) {
	q := newPoolQueues(2)
	first, wants := newWaiter("first", 1, 32)
	q.Join(first, wants)
	largest, wants := newWaiter("largest", 2, 32)
	largest.Request.SelectorBytes = 100 * bytesOfWaiter
	q.Join(largest, wants)
	if !q.IsBeyondLimit(largest.Holder) {
		t.Error("it is within the bound beside another")
	}
	if result, _ := q.Remove(first.Holder); !slices.Equal(result.MovedUp, []ipam.Holder{largest.Holder}) {
		t.Errorf("alone, it stays beyond the bound: %v moves up", result.MovedUp)
	}
}

func TestWaitersOfNamespaceAreBounded(t *testing.T) {
	q := newPoolQueues(2)
	for i, name := range []string{"a", "b", "c", "d"} {
		if full := q.IsFull("red", ipam.Request{}); full != (i >= 2) {
			t.Errorf("with %d waiters it is full: %t", i, full)
		}
		q.Join(newWaiter(name, int64(i), 32))
	}
	q.Join(newWaiter("d", 3, 32)) // seen again
	holder := func(name string) ipam.Holder { w, _ := newWaiter(name, 0, 32); return w.Holder }
	if q.IsBeyondLimit(holder("b")) || !q.IsBeyondLimit(holder("c")) || q.IsFull("blue", ipam.Request{}) || q.IsFull("", ipam.Request{}) {
		t.Error("not those are beyond the bound that came later, or another namespace is full")
	}
	if place, _ := q.Waiter(holder("c")); mayTake(q, roomFor(32), holder("c"), place, 32) {
		t.Error("one that is beyond the bound overtakes those within")
	}
	for _, step := range []struct{ leaves, moved, first string }{{"d", "", "a"}, {"a", "c", "b"}, {"b", "", "c"}, {"c", "", ""}} {
		result, _ := q.Remove(holder(step.leaves))
		if len(result.MovedUp) > 1 || len(result.MovedUp) == 1 != (step.moved != "") || step.moved != "" && result.MovedUp[0].Name != step.moved {
			t.Errorf("when %s leaves %v move up, want %q", step.leaves, result.MovedUp, step.moved)
		}
		if got := q.first(pool, roomFor(32)); got != step.first {
			t.Errorf("when %s has left %q is due, want %q", step.leaves, got, step.first)
		}
	}
	if len(q.namespaces)+len(q.byPool)+len(q.waiters) > 0 {
		t.Errorf("something is left: %+v", q)
	}
}

func TestNamespaceDoesNotWaitForPoolsOfAnother(t *testing.T) {
	q := newPoolQueues(0)
	for i, namespace := range []string{"red", "blue"} {
		w, _ := newWaiter("c", int64(i), 32)
		w.Holder.Namespace = namespace
		w.Request = ipam.Request{Claim: ipam.Name{Namespace: namespace, Name: "c"}, Class: "gold"}
		q.Join(w, ipam.Wants{})
	}
	for key, want := range map[ipam.PoolKey]int{
		ipam.PoolNamed("p"): 2, ipam.LocalPoolNamed("red", "p"): 1, ipam.LocalPoolNamed("blue", "p"): 1, ipam.LocalPoolNamed("green", "p"): 0,
	} {
		change := inventory.Change{Pool: key, Classes: []string{"gold", "gold"}}
		woken := q.WaitingFor(change)
		if len(woken) != want || len(q.AffectedWaiters(change)) != want {
			t.Errorf("a change of %s wakes %v, want %d", key, woken, want)
		}
	}
	if got := q.WaitingFor(inventory.Change{Namespace: "blue"}); len(got) != 1 || got[0].Namespace != "blue" {
		t.Errorf("the project of a namespace wakes %v", got)
	}
	if got := q.WaitingForClass("gold"); len(got) != 2 || got[0].Namespace != "red" {
		t.Errorf("for the class wait %v, want red first", got)
	}
}

func TestWaitersAreCountedByQueue(t *testing.T) {
	a, b := ipam.PoolNamed("a"), ipam.PoolNamed("b")
	since := func(n int) time.Time { return time.Unix(int64(n), 0) }
	q := newPoolQueues(4)
	join := func(name string, at int, block string, pools ...ipam.PoolKey) ipam.Holder {
		w := Waiter{Since: since(at), Holder: ipam.Holder{Kind: "IPClaim", Namespace: "team", Name: name}}
		if block != "" {
			w.Request.Block = netip.MustParsePrefix(block)
		}
		q.Join(w, ipam.Wants{Pools: pools, Length: 32})
		return w.Holder
	}
	join("of-both", 30, "", a, b)
	join("of-one", 20, "", b)
	join("of-one-block", 10, "10.0.0.1/32", b)
	refused := join("refused", 5, "", a)
	join("beyond", 40, "", a)
	q.Park(refused, ipam.Awaited{}, nil)
	want := map[CountKey]Count{
		{Pool: a}:               {1, since(30)},
		{Pool: b}:               {3, since(10)},
		{Standing: PassedOver}:  {1, since(5)},
		{Standing: BeyondLimit}: {1, since(40)},
	}
	if diff := cmp.Diff(want, q.Counts()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	q.Remove(refused) // the one beyond the limit is queued instead
	join("missing", 50, "")
	if got := q.Counts()[CountKey{Pool: a}]; got.Waiters != 2 {
		t.Errorf("%d wait for a, want 2", got.Waiters)
	}
	if got := q.Counts()[CountKey{Standing: BeyondLimit}]; got != (Count{1, since(50)}) {
		t.Errorf("beyond the limit: %+v", got)
	}
	for _, name := range []string{"of-both", "of-one"} {
		q.Remove(ipam.Holder{Kind: "IPClaim", Namespace: "team", Name: name})
	}
	if got := q.Counts()[CountKey{Standing: Missing}]; got != (Count{1, since(50)}) {
		t.Errorf("for the missing pool: %+v", got)
	}
}
