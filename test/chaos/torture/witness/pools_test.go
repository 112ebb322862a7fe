package witness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// pool records a pool's CIDR and stores the pool. Its home is the name of its parent, or of a
// routing domain.
func (s *story) pool(name, home, cidr string, isChild bool) {
	s.t.Helper()
	s.ownRecord(name, home, cidr, isChild, "Bound")
	lies := fmt.Sprintf(`"routingDomain":%q`, home)
	if isChild {
		lies = fmt.Sprintf(`"parentRef":{"kind":"IPPool","name":%q}`, home)
	}
	s.stores(Pools, name, "p-"+name, fmt.Sprintf(
		`"metadata":{"name":%q,"uid":"p-%s","annotations":{"torture/asked":"yes"}},"spec":{"cidr":%q,%s},"status":{"conditions":[{"type":"Ready","status":"True"}]}`,
		name, name, cidr, lies))
}

func (s *story) ownRecord(name, home, cidr string, isChild bool, state string) {
	s.t.Helper()
	lies := fmt.Sprintf(`"routingDomain":%q`, home)
	if isChild {
		lies = fmt.Sprintf(`"poolRef":{"kind":"IPPool","name":%q}`, home)
	}
	s.stores(Records, "ippool."+name, "o-"+name, fmt.Sprintf(`"spec":{"cidr":%q,%s,"claimRef":{"kind":"IPPool","name":%q},"state":%q}`, cidr, lies, name, state))
}

// allocatesIn records a block of a pool and stores the claim.
func (s *story) allocatesIn(pool, claim, block string) {
	s.t.Helper()
	s.stores(Records, claim+"-r", "r-"+claim, fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":%q},"claimRef":{"kind":"IPClaim","name":%q},"state":"Bound"}`, block, pool, claim))
	s.stores(Claims, claim, "c-"+claim, fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":%q},"allocationName":%q},"status":{"phase":"Bound"}`, block, pool, claim+"-r"))
}

// losesPool deletes a pool and its record.
func (s *story) losesPool(name string) {
	s.loses(Pools, name)
	s.loses(Records, "ippool."+name)
}

func TestTwoHoldersInRoutingDomainAreFound(t *testing.T) {
	t.Run("a block that outlives its pool, and one of the pool that comes after", func(t *testing.T) {
		s := begin(t)
		s.pool("old", "d", "10.0.0.0/24", false)
		s.stores(Records, "x-r", "r-x", `"spec":{"cidr":"10.0.0.0/28","poolRef":{"kind":"IPPool","name":"old"},"claimRef":{"kind":"IPClaim","name":"x"},"state":"Bound"}`)
		s.losesPool("old")
		s.pool("new", "d", "10.0.0.0/24", false)
		s.allocatesIn("new", "y", "10.0.0.0/32")
		s.finds()
		s.claims("x", "c-x", "10.0.0.0/28", "x-r") // its pool is "pool", by its own word
		s.finds("no record of its block")
	})
	t.Run("claims of two pools", func(t *testing.T) {
		s := begin(t)
		s.pool("old", "d", "10.0.0.0/24", false)
		s.losesPool("old")
		s.pool("new", "d", "10.0.0.0/24", false)
		s.allocatesIn("new", "y", "10.0.0.0/32")
		s.allocatesIn("old", "x", "10.0.0.0/28")
		s.finds("TWO HOLDERS in domain d", "TWO HOLDERS in domain d") // the pool's CIDR is not x's either
	})
	t.Run("a pool on the CIDR of one that was forced away with a block in it", func(t *testing.T) {
		s := begin(t)
		s.pool("old", "d", "10.0.0.0/24", false)
		s.allocatesIn("old", "x", "10.0.0.0/28")
		s.losesPool("old")
		s.pool("new", "d", "10.0.0.0/25", false)
		s.finds("TWO HOLDERS in domain d")
	})
	t.Run("none, if the pool is made again under its own name", func(t *testing.T) {
		s := begin(t)
		s.pool("old", "d", "10.0.0.0/24", false)
		s.allocatesIn("old", "x", "10.0.0.0/28")
		s.losesPool("old")
		s.pool("old", "d", "10.0.0.0/24", false)
		s.allocatesIn("old", "y", "10.0.0.16/28")
		s.finds()
	})
	t.Run("none, if the routing domains differ", func(t *testing.T) {
		s := begin(t)
		s.pool("one", "d", "10.0.0.0/24", false)
		s.pool("other", "e", "10.0.0.0/24", false)
		s.allocatesIn("one", "x", "10.0.0.0/28")
		s.allocatesIn("other", "y", "10.0.0.0/28")
		s.finds()
	})
	t.Run("none, if a child pool has its blocks, and its parent others", func(t *testing.T) {
		s := begin(t)
		s.pool("parent", "d", "10.0.0.0/16", false)
		s.pool("child", "parent", "10.0.1.0/24", true)
		s.allocatesIn("child", "x", "10.0.1.0/28")
		s.allocatesIn("parent", "y", "10.0.0.0/24")
		s.finds()
	})
	t.Run("a block of a child pool that is gone, and one of its parent", func(t *testing.T) {
		s := begin(t)
		s.pool("parent", "d", "10.0.0.0/16", false)
		s.pool("child", "parent", "10.0.1.0/24", true)
		s.losesPool("child")
		s.allocatesIn("parent", "y", "10.0.1.0/28")
		s.allocatesIn("child", "x", "10.0.1.0/32")
		s.finds("TWO HOLDERS in domain d")
	})
	t.Run("a child pool, and a block of its parent", func(t *testing.T) {
		s := begin(t)
		s.pool("parent", "d", "10.0.0.0/16", false)
		s.allocatesIn("parent", "y", "10.0.1.0/28")
		s.pool("child", "parent", "10.0.1.0/24", true)
		s.finds("TWO HOLDERS in domain d")
	})
}

func TestPoolRecordIsKeptForItsBlocks(t *testing.T) {
	s := begin(t)
	about := func(want string) {
		t.Helper()
		open := slices.DeleteFunc(s.witness.Unsettled(), func(what string) bool { return strings.HasPrefix(what, "pool old says") })
		if want == "" && len(open) > 0 || want != "" && (len(open) != 1 || !strings.Contains(open[0], want)) {
			t.Errorf("%q, want %q", open, want)
		}
	}
	s.pool("old", "d", "10.0.0.0/24", false)
	s.allocatesIn("old", "x", "10.0.0.0/28")
	s.loses(Pools, "old")
	about("")
	s.ownRecord("old", "d", "10.0.0.0/24", false, "Releasing")
	about("is marked as releasing")
	s.loses(Records, "ippool.old")
	about("its own CIDR is not")
	s.ownRecord("old", "d", "10.0.0.0/24", false, "Bound")
	s.loses(Claims, "x")
	s.loses(Records, "x-r")
	about("has no holder")
}
