package queue

import (
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestALargeWaiterCountsAsSeveral counts it as several small ones; the first of a namespace waits
// even if it is large.
func TestALargeWaiterCountsAsSeveral(t *testing.T) {
	q := newLines(4)
	join := func(name string, since int64, bytes int) ipam.Holder {
		w, wants := waiter(name, since, 32)
		w.Request.SelectorBytes = bytes
		q.Join(w, wants)
		return w.Holder
	}
	huge := join("huge", 1, 100*bytesOfWaiter)
	large := join("large", 2, 2*bytesOfWaiter)
	small := join("small", 3, bytesOfWaiter-1)
	other := join("other", 4, 0)
	if q.IsBeyond(huge) || !q.IsBeyond(large) || !q.IsBeyond(small) || !q.IsFull("red", ipam.Request{}) {
		t.Error("not those are beyond the bound that came after the one that fills it")
	}
	if left, _ := q.Leave(huge); !slices.Equal(left.Moved, []ipam.Holder{large, small}) || !q.IsBeyond(other) {
		t.Errorf("when it leaves %v move up, want %v and %v", left.Moved, large, small)
	}
	if left, _ := q.Leave(small); !slices.Equal(left.Moved, []ipam.Holder{other}) {
		t.Errorf("when a small one leaves %v move up, want %v", left.Moved, other)
	}
	q.Leave(other)
	if q.IsFull("red", ipam.Request{}) || !q.IsFull("red", ipam.Request{SelectorBytes: bytesOfWaiter}) {
		t.Error("there is room for one small one, and for no larger one")
	}
}

func TestTheWaitersOfANamespaceAreBounded(t *testing.T) {
	q := newLines(2)
	for i, name := range []string{"a", "b", "c", "d"} {
		if full := q.IsFull("red", ipam.Request{}); full != (i >= 2) {
			t.Errorf("with %d waiters it is full: %t", i, full)
		}
		q.Join(waiter(name, int64(i), 32))
	}
	q.Join(waiter("d", 3, 32)) // seen again
	holder := func(name string) ipam.Holder { w, _ := waiter(name, 0, 32); return w.Holder }
	if q.IsBeyond(holder("b")) || !q.IsBeyond(holder("c")) || q.IsFull("blue", ipam.Request{}) || q.IsFull("", ipam.Request{}) {
		t.Error("not those are beyond the bound that came later, or another namespace is full")
	}
	if place, _ := q.Place(holder("c")); mayTake(q, roomFor(32), holder("c"), place, 32) {
		t.Error("one that is beyond the bound overtakes those within")
	}
	for _, step := range []struct{ leaves, moved, first string }{{"d", "", "a"}, {"a", "c", "b"}, {"b", "", "c"}, {"c", "", ""}} {
		left, _ := q.Leave(holder(step.leaves))
		if len(left.Moved) > 1 || len(left.Moved) == 1 != (step.moved != "") || step.moved != "" && left.Moved[0].Name != step.moved {
			t.Errorf("when %s leaves %v move up, want %q", step.leaves, left.Moved, step.moved)
		}
		if got := q.first(pool, roomFor(32)); got != step.first {
			t.Errorf("when %s has left %q is due, want %q", step.leaves, got, step.first)
		}
	}
	if len(q.namespaces)+len(q.byPool)+len(q.places) > 0 {
		t.Errorf("something is left: %+v", q)
	}
}

func TestOneNamespaceWaitsNotForAnothers(t *testing.T) {
	q := newLines(0)
	for i, namespace := range []string{"red", "blue"} {
		w, _ := waiter("c", int64(i), 32)
		w.Holder.Namespace = namespace
		w.Request = ipam.Request{Claim: ipam.Name{Namespace: namespace, Name: "c"}, Class: "gold"}
		q.Join(w, ipam.Wants{})
	}
	for key, want := range map[ipam.PoolKey]int{
		ipam.PoolNamed("p"): 2, ipam.LocalPoolNamed("red", "p"): 1, ipam.LocalPoolNamed("blue", "p"): 1, ipam.LocalPoolNamed("green", "p"): 0,
	} {
		change := inventory.Change{Pool: key, Classes: []string{"gold", "gold"}}
		woken := q.WaitingFor(change)
		if len(woken) != want || len(q.Concerned(change)) != want {
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
