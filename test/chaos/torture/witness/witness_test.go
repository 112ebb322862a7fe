package witness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// story passes stored objects to a witness, one revision after the other.
type story struct {
	t       *testing.T
	witness *Witness
	objects map[string]*Object
	excused bool
	at      time.Time
}

func begin(t *testing.T) *story {
	s := &story{t: t, objects: map[string]*Object{}, at: time.Unix(1_000_000, 0)}
	s.witness = New(func(time.Time) bool { return s.excused })
	return s
}

// scene runs a story as a subtest.
func scene(t *testing.T, name string, events func(*story)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { events(begin(t)) })
}

// stores stores an object: its metadata, its spec, and the rest of its fields.
func (s *story) stores(kind, name, uid, rest string) {
	s.t.Helper()
	raw := fmt.Sprintf(`{"metadata":{"namespace":"team","name":%q,"uid":%q,"creationTimestamp":%q},%s}`,
		name, uid, s.at.UTC().Format(time.RFC3339), rest)
	if strings.HasPrefix(rest, `"metadata"`) {
		raw = "{" + rest + "}"
	}
	after, err := Read([]byte(raw))
	must.Succeed(s.t, err)
	s.tell(kind, name, after)
}

func (s *story) loses(kind, name string) { s.tell(kind, name, nil) }

func (s *story) tell(kind, name string, after *Object) {
	before := s.objects[kind+name]
	s.objects[kind+name] = after
	if after == nil {
		delete(s.objects, kind+name)
	}
	e := Event{Revision: s.witness.Revision() + 1, Seen: s.at, Kind: kind, Before: before, After: after}
	must.Succeed(s.t, s.witness.Take(e))
}

func (s *story) records(name, claim, uid, block string) {
	s.stores(Records, name, uid, fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":"pool"},"claimRef":{"kind":"IPClaim","name":%q},"state":"Bound"}`, block, claim))
}

func (s *story) claims(name, uid, block, record string) {
	s.stores(Claims, name, uid, fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":"pool"},"allocationName":%q},"status":{"phase":"Bound"}`, block, record))
}

func (s *story) waits(name, uid string, length int, phase string) {
	s.stores(Claims, name, uid, fmt.Sprintf(`"spec":{"poolRef":{"kind":"IPPool","name":"pool"},"prefixLength":%d},"status":{"phase":%q}`, length, phase))
}

// allocates records a block and stores the claim.
func (s *story) allocates(claim, block string) {
	s.records(claim+"-r", claim, "r-"+claim, block)
	s.claims(claim, "c-"+claim, block, claim+"-r")
}

func (s *story) passes(d time.Duration) { s.at = s.at.Add(d) }

// finds expects exactly the violations whose beginnings are given.
func (s *story) finds(want ...string) {
	s.t.Helper()
	got := s.witness.Violations()
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(got[i].What, want[i])
	}
	if !ok {
		s.t.Errorf("found %v, want %q", got, want)
	}
}

func TestTwoHoldersAreFound(t *testing.T) {
	scene(t, "of blocks that only touch are no violation", func(s *story) {
		s.allocates("a", "10.0.0.0/25")
		s.allocates("b", "10.0.0.128/25")
		s.finds()
	})
	for _, blocks := range [][2]string{
		{"10.0.0.0/24", "10.0.0.0/24"}, {"10.0.0.0/24", "10.0.0.7/32"}, {"10.0.0.7/32", "10.0.0.0/24"},
	} {
		t.Run(fmt.Sprintf("of %s and then %s", blocks[0], blocks[1]), func(t *testing.T) {
			s := begin(t)
			s.allocates("a", blocks[0])
			s.allocates("b", blocks[1])
			s.finds("TWO HOLDERS in pool pool")
		})
	}
	scene(t, "are none if the first is gone", func(s *story) {
		s.allocates("a", "10.0.0.0/24")
		s.loses(Claims, "a")
		s.loses(Records, "a-r")
		s.allocates("b", "10.0.0.0/25")
		s.finds()
	})
	scene(t, "are two also if the first is being deleted", func(s *story) {
		s.allocates("a", "10.0.0.0/24")
		s.stores(Claims, "a", "c-a", `"metadata":{"namespace":"team","name":"a","uid":"c-a","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.0.0.0/24","poolRef":{"name":"pool"},"allocationName":"a-r"}`)
		s.allocates("b", "10.0.0.0/25")
		s.finds("TWO HOLDERS")
	})
}

func TestClaimAndRecordMustMatch(t *testing.T) {
	scene(t, "a claim without one", func(s *story) {
		s.claims("a", "c-a", "10.0.0.0/24", "a-r")
		s.finds("has no record of its block")
	})
	scene(t, "a claim whose record has another block", func(s *story) {
		s.records("a-r", "a", "r-a", "10.0.1.0/24")
		s.claims("a", "c-a", "10.0.0.0/24", "a-r")
		s.finds("has no record of its block")
	})
	scene(t, "released under a claim", func(s *story) {
		s.allocates("a", "10.0.0.0/24")
		s.loses(Records, "a-r")
		s.finds("was released while it holds the block")
	})
	t.Run("that never had a holder are counted", func(t *testing.T) {
		s := begin(t)
		s.records("a-r", "a", "r-a", "10.0.0.0/24")
		s.passes(time.Minute)
		s.loses(Records, "a-r")
		s.finds()
		if f := s.witness.Figures(); f.Orphans != 1 || f.Collected != 1 {
			t.Errorf("%+v", f)
		}
	})
}

func TestForcedReleaseAllowsNewHolder(t *testing.T) {
	s := begin(t)
	s.allocates("a", "10.0.0.0/24")
	s.witness.Force("r-a")
	s.loses(Records, "a-r")
	s.allocates("b", "10.0.0.0/25")
	s.finds() // a person released it
	s.records("a-r", "a", "r-a2", "10.0.0.0/24")
	s.finds() // a's new record gives way to b's
	s.loses(Records, "a-r")
	s.loses(Claims, "b")
	s.loses(Records, "b-r")
	s.records("a-r", "a", "r-a3", "10.0.0.0/24")
	s.finds() // a holds its block again
	s.allocates("d", "10.0.0.0/26")
	s.finds("TWO HOLDERS")
	s.loses(Claims, "a")
	s.loses(Records, "a-r")
	if orphans := s.witness.Figures().Orphans; orphans != 1 {
		t.Errorf("%d orphans, want the record alone that gave way", orphans)
	}
}

func TestOvertakingIsFound(t *testing.T) {
	overtaking := func(t *testing.T, excused bool, delay time.Duration, length int) *story {
		s := begin(t)
		s.excused = excused
		s.waits("first", "c-1", length, "Exhausted")
		s.passes(delay)
		s.waits("second", "c-2", 28, "Exhausted")
		s.passes(time.Minute)
		s.records("second-r", "second", "r-2", "10.0.0.0/28")
		s.claims("second", "c-2", "10.0.0.0/28", "second-r")
		return s
	}
	t.Run("a claim that waits longer, for no more, is served first", func(t *testing.T) {
		overtaking(t, false, time.Minute, 28).finds("overtook")
	})
	t.Run("a larger block may be passed", func(t *testing.T) {
		overtaking(t, false, time.Minute, 27).finds()
	})
	scene(t, "if there is room for many, no claim waits for others", func(s *story) {
		s.stores(Pools, "pool", "p", `"metadata":{"name":"pool","uid":"p"},"spec":{"cidr":"10.0.0.0/16","routingDomain":"d"}`)
		s.waits("first", "c-1", 28, "Exhausted")
		s.passes(time.Minute)
		s.allocates("second", "10.0.0.0/28")
		s.finds()
		s.waits("large", "c-2", 20, "Exhausted")
		s.passes(time.Minute)
		s.allocates("third", "10.0.16.0/20")
		s.finds("overtook")
	})
	t.Run("faults excuse it, and it is counted", func(t *testing.T) {
		s := overtaking(t, true, time.Minute, 28)
		s.finds()
		if s.witness.Figures().Overtaken != 1 {
			t.Error("it is not counted")
		}
	})
}

func TestAnswersMustMatchStore(t *testing.T) {
	answered := func(s *story, block string, revision int64) {
		a := Answer{Attempt: "1", UID: "c-a", Revision: revision}
		if o, err := Read([]byte(`{"spec":{"cidr":"` + block + `"}}`)); err == nil {
			a.Block = o.Block
		}
		s.witness.Answered(a)
	}
	stored := func(s *story, block string) {
		s.records("a-r", "a", "r-a", block)
		s.stores(Claims, "a", "c-a", fmt.Sprintf(`"metadata":{"namespace":"team","name":"a","uid":"c-a","annotations":{"torture/attempt":"1"}},"spec":{"cidr":%q,"poolRef":{"name":"pool"},"allocationName":"a-r"}`, block))
	}
	scene(t, "that are stored as they were given", func(s *story) {
		answered(s, "10.0.0.0/24", 2)
		stored(s, "10.0.0.0/24")
		s.finds()
	})
	scene(t, "that name another block", func(s *story) {
		stored(s, "10.0.0.0/24")
		answered(s, "10.0.1.0/24", 2)
		s.finds("attempt 1 was answered")
	})
	scene(t, "that are never stored", func(s *story) {
		answered(s, "10.0.0.0/24", 1)
		s.records("b-r", "b", "r-b", "10.0.0.0/24")
		s.finds("was never stored")
	})
	scene(t, "that refuse, and are stored", func(s *story) {
		stored(s, "10.0.0.0/24")
		s.witness.Never("1", "refused")
		s.finds("attempt 1 is stored")
	})
	scene(t, "to a dry run, which is recorded", func(s *story) {
		s.witness.Rehearsed("team", "a")
		s.records("b-r", "b", "r-b", "10.0.1.0/24")
		s.finds()
		s.records("a-r", "a", "r-a", "10.0.0.0/24")
		s.finds("a dry run was recorded")
	})
}

func TestUnsettledListsClaimsAndPools(t *testing.T) {
	s := begin(t)
	s.stores(Pools, "pool", "p", `"metadata":{"name":"pool","uid":"p"},"spec":{"cidr":"10.0.0.0/24","parentRef":{"name":"none"}},"status":{"capacity":{"total":"256","allocated":"16","available":"240","withheld":"0","outOfRange":"0"}}`)
	s.allocates("a", "10.0.0.0/28")
	unsettled := func(want string) {
		t.Helper()
		for _, got := range s.witness.Unsettled() {
			if !strings.HasPrefix(got, "ippools pool") && (want == "" || !strings.Contains(got, want)) {
				t.Errorf("%q, want %q", got, want)
			}
		}
		if want != "" && len(s.witness.Unsettled()) < 2 {
			t.Errorf("nothing, want %q", want)
		}
	}
	unsettled("")
	s.records("b-r", "b", "r-b", "10.0.0.0/28")
	unsettled("has no holder")
	s.loses(Records, "b-r")
	s.records("b-r", "b", "r-b", "10.0.0.16/28")
	s.claims("b", "c-b", "10.0.0.16/28", "b-r")
	unsettled("and it is")
	s.loses(Claims, "b")
	s.loses(Records, "b-r")
	s.waits("c", "c-c", 28, "Exhausted")
	unsettled("waits, and there is room")
}

func TestLingeringObjectsWereDeletedLongAgo(t *testing.T) {
	s := begin(t)
	deleted := func(ago time.Duration) string {
		return fmt.Sprintf(`"deletionTimestamp":%q`, time.Now().Add(-ago).UTC().Format(time.RFC3339))
	}
	for name, meta := range map[string]string{"stays": `"labels":{}`, "goes": deleted(time.Minute), "lingers": deleted(time.Hour)} {
		s.stores(AddressClaims, "team/"+name, name, fmt.Sprintf(`"metadata":{"namespace":"team","name":%q,"uid":%q,%s}`, name, name, meta))
	}
	s.stores(AddressClaims, "other/lingers", "other", fmt.Sprintf(`"metadata":{"namespace":"other","name":"lingers","uid":"other",%s}`, deleted(time.Hour)))
	if left := s.witness.LeftIn("team"); len(left) != 3 {
		t.Errorf("left: %q", left)
	}
	if linger := s.witness.LingerIn("team", 10*time.Minute); len(linger) != 1 || !strings.Contains(linger[0], "lingers") {
		t.Errorf("linger: %q", linger)
	}
}

func TestEmptyDeletedPoolIsUnsettled(t *testing.T) {
	s := begin(t)
	leaving := func() []string {
		return slices.DeleteFunc(s.witness.Unsettled(), func(what string) bool { return !strings.Contains(what, "is being deleted") })
	}
	s.stores(Pools, "pool", "p", `"metadata":{"name":"pool","uid":"p","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"cidr":"10.0.0.0/24","parentRef":{"name":"none"}}`)
	s.allocates("a", "10.0.0.0/28")
	if got := leaving(); len(got) > 0 {
		t.Errorf("%q, want nothing: a claim is in it", got)
	}
	s.loses(Claims, "a")
	s.loses(Records, "a-r")
	if got := leaving(); len(got) != 1 {
		t.Errorf("%q, want that the pool is being deleted: it has no claims", got)
	}
}
