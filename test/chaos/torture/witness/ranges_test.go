package witness

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// pools stores a pool of ranges of 10.0.0.0/28, and its report on them.
func (s *story) pools(name, generation, ranges, report string) {
	s.stores(Pools, name, name, fmt.Sprintf(`"metadata":{"name":%q,"uid":%q,"generation":%s},"spec":{"cidr":"10.0.0.0/28","occupies":"Ranges","ranges":[%q]},"status":{"conditions":[{"type":"Allocated",%s}]}`,
		name, name, generation, ranges, report))
}

const (
	recorded = `"status":"True","reason":"Recorded","observedGeneration":1`
	earlier  = `"status":"True","reason":"Recorded","observedGeneration":0`
	conflict = `"status":"False","reason":"Conflict","observedGeneration":1`
)

// owns stores an own record of a pool, a moment after the last.
func (s *story) owns(name, pool, cidr string, more ...string) {
	s.passes(time.Millisecond)
	additional, err := json.Marshal(more)
	must.Succeed(s.t, err)
	s.stores(Records, name, name, fmt.Sprintf(`"spec":{"cidr":%q,"additionalCIDRs":%s,"claimRef":{"kind":"IPPool","name":%q,"uid":%q},"state":"Bound"}`, cidr, additional, pool, pool))
}

// claimsIn records an address in a pool and stores the claim.
func (s *story) claimsIn(pool, name, address string) {
	s.stores(Records, name+"-r", name+"-r", fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":%q},"claimRef":{"kind":"IPClaim","name":%q},"state":"Bound"}`, address, pool, name))
	s.stores(Claims, name, name, fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":%q},"allocationName":%q},"status":{"phase":"Bound"}`, address, pool, name+"-r"))
}

func TestBlocksLieInOwnRecords(t *testing.T) {
	left := func(s *story) {
		s.owns("l-1", "left", "10.0.0.0/30", "10.0.0.4/31")
		s.pools("left", "1", "10.0.0.0-10.0.0.5", recorded)
	}
	scene(t, "of which there may be several", func(s *story) {
		left(s)
		s.claimsIn("left", "a", "10.0.0.5/32")
		s.owns("l-2", "left", "10.0.0.4/30")
		s.pools("left", "1", "10.0.0.4-10.0.0.7", recorded)
		s.claimsIn("left", "b", "10.0.0.7/32")
		s.loses(Records, "l-1")
		s.finds()
		if f := s.witness.Figures(); f.RangedPools != 1 || f.Edits != 1 || f.RangeConflicts != 0 || f.Orphans != 0 {
			t.Errorf("%+v", f)
		}
	})
	scene(t, "one that lies in none is found", func(s *story) {
		left(s)
		s.claimsIn("left", "a", "10.0.0.6/32")
		s.finds("lies outside of what pool left holds")
	})
	scene(t, "one that only a late own record covers is found", func(s *story) {
		left(s)
		s.owns("r-1", "right", "10.0.0.4/30")
		s.pools("right", "1", "10.0.0.4-10.0.0.7", conflict)
		s.claimsIn("right", "a", "10.0.0.7/32")
		s.finds("lies outside of what pool right holds")
	})
	scene(t, "one whose own record is released before it is found", func(s *story) {
		left(s)
		s.claimsIn("left", "a", "10.0.0.3/32")
		s.owns("l-2", "left", "10.0.0.4/30")
		s.loses(Records, "l-1")
		s.finds("was released while ipclaims team/a")
	})
	scene(t, "two pools that report one address are found", func(s *story) {
		left(s)
		s.owns("r-1", "right", "10.0.0.5/32", "10.0.0.6/31")
		s.pools("right", "1", "10.0.0.5-10.0.0.7", earlier)
		s.finds()
		s.pools("right", "1", "10.0.0.5-10.0.0.7", recorded)
		s.finds("TWO HOLDERS in domain : ippools right")
	})
	scene(t, "a pool that takes over what others released is none", func(s *story) {
		left(s)
		s.loses(Records, "l-1")
		s.owns("r-1", "right", "10.0.0.4/31")
		s.pools("right", "1", "10.0.0.4-10.0.0.5", recorded)
		s.claimsIn("right", "a", "10.0.0.4/32")
		s.finds()
	})
	scene(t, "a claim of another pool in them is found", func(s *story) {
		left(s)
		s.stores(Pools, "other", "o", `"metadata":{"name":"other","uid":"o"},"spec":{"cidr":"10.0.1.0/24"}`)
		s.claimsIn("other", "a", "10.0.0.4/32")
		s.finds("TWO HOLDERS in domain : ipclaims team/a")
	})
}

func TestRangesAreRecordedOrInConflict(t *testing.T) {
	for name, c := range map[string]struct {
		want   string
		events func(*story)
	}{
		"recorded, and reported": {"", func(s *story) {
			s.owns("l-1", "left", "10.0.0.0/30")
			s.pools("left", "1", "10.0.0.0-10.0.0.3", recorded)
		}},
		"recorded, and not reported": {"does not report that its ranges", func(s *story) {
			s.owns("l-1", "left", "10.0.0.0/30")
			s.pools("left", "1", "10.0.0.0-10.0.0.3", earlier)
		}},
		"free": {"which are free", func(s *story) { s.pools("left", "1", "10.0.0.0-10.0.0.3", conflict) }},
		"another pool's": {"does not report that another pool", func(s *story) {
			s.owns("r-1", "right", "10.0.0.2/31")
			s.pools("left", "1", "10.0.0.0-10.0.0.3", earlier)
		}},
		"another pool's, and reported": {"", func(s *story) {
			s.owns("r-1", "right", "10.0.0.2/31")
			s.owns("l-1", "left", "10.0.0.4/30")
			s.pools("left", "1", "10.0.0.0-10.0.0.3", conflict)
		}},
		"recorded beside the former ones": {"no block needs it", func(s *story) {
			s.owns("l-1", "left", "10.0.0.0/29")
			s.owns("l-2", "left", "10.0.0.0/30")
			s.pools("left", "1", "10.0.0.0-10.0.0.3", recorded)
		}},
		"recorded beside the former ones, which a block needs": {"", func(s *story) {
			s.owns("l-1", "left", "10.0.0.0/29")
			s.owns("l-2", "left", "10.0.0.0/30")
			s.pools("left", "1", "10.0.0.0-10.0.0.3", recorded)
			s.claimsIn("left", "a", "10.0.0.6/32")
		}},
	} {
		scene(t, name, func(s *story) {
			c.events(s)
			open := slices.DeleteFunc(s.witness.Unsettled(), func(what string) bool {
				return strings.HasPrefix(what, "pool left says") || strings.Contains(what, "IPPool right")
			})
			if c.want == "" && len(open) > 0 || c.want != "" && (len(open) != 1 || !strings.Contains(open[0], c.want)) {
				t.Errorf("%q, want %q", open, c.want)
			}
		})
	}
}

func TestRangesAreCounted(t *testing.T) {
	s := begin(t)
	s.owns("l-1", "left", "10.0.0.0/30")
	s.pools("left", "1", "10.0.0.2-10.0.0.6", conflict)
	s.claimsIn("left", "a", "10.0.0.1/32")
	s.claimsIn("left", "b", "10.0.0.2/32")
	want := map[string]int{"total": 5, "available": 1, "allocated": 2, "withheld": 3, "outOfRange": 1}
	for name, got := range s.witness.newCount(s.witness.pools["/left"]).capacity() {
		if got != want[name] {
			t.Errorf("%s is %d, want %d", name, got, want[name])
		}
	}
}
