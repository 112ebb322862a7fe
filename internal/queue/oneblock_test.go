package queue

import (
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
)

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
