package queue

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// TestWaiterOfProjectAtLimitIsSkipped expects it in that pool alone: the waiter keeps its
// position, as it can wait for room in another one.
func TestWaiterOfProjectAtLimitIsSkipped(t *testing.T) {
	q := newPoolQueues(0)
	join := func(project string, since int64, length int) Waiter {
		w, wants := newWaiter(project, since, length)
		wants.Account.Project = project
		q.Join(w, wants)
		return w
	}
	first := join("red", 1, 24)
	join("red-too", 2, 24)
	join("blue", 3, 24)
	exact, wants := newBlockWaiter("exact", 0, "10.0.0.0/24")
	wants.Account.Project = "red"
	q.Join(exact, wants)
	free := func(atLimit ...string) room {
		return room{largest: 24, free: func(netip.Prefix) bool { return true }, atLimit: atLimit}
	}
	for _, c := range []struct {
		atLimit []string
		want    string
	}{
		{nil, "exact"}, {[]string{"red"}, "red-too"}, {[]string{"red", "red-too"}, "blue"}, {[]string{"red", "red-too", "blue"}, ""},
	} {
		if got := q.first(pool, free(c.atLimit...)); got != c.want {
			t.Errorf("when %v are at their limits %q is first, want %q", c.atLimit, got, c.want)
		}
		newcomer := ipam.Holder{Kind: "IPClaim", Namespace: "green", Name: "new"}
		if got := mayTake(q, free(c.atLimit...), newcomer, Waiter{}, 24); got != (c.want == "") {
			t.Errorf("when %v are at their limits a newcomer can take a block: %t", c.atLimit, got)
		}
	}
	plenty := room{largest: 8, atLimit: []string{"red"}}
	if due := q.DueHolders(pool, plenty); len(due) != 2 || due[0].Name != "red-too" || due[1].Name != "blue" {
		t.Errorf("with plenty of room %v are due, want those below their limits", due)
	}
	if !q.IsQueued(first.Holder, pool.Key) {
		t.Error("it has lost its place")
	}
}
