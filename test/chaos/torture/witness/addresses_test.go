package witness

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

func (s *story) addressRecord(name, claim, uid, block string) {
	s.stores(Records, name, uid, fmt.Sprintf(`"spec":{"cidr":%q,"poolRef":{"kind":"IPPool","name":"pool"},"claimRef":{"kind":"IPAddressClaim","name":%q},"state":"Bound"}`, block, claim))
}

func (s *story) address(name, uid, address string) {
	s.stores(Addresses, name, uid, fmt.Sprintf(`"spec":{"address":%q,"poolRef":{"kind":"IPPool","name":"pool"}}`, address))
}

func (s *story) addressClaim(name, uid, ref, message string) {
	s.stores(AddressClaims, name, uid, fmt.Sprintf(`"spec":{"poolRef":{"kind":"IPPool","name":"pool"}},"status":{"addressRef":{"name":%q},"conditions":[{"type":"Ready","status":"False","message":%q}]}`, ref, message))
}

// answers records an address, makes the IPAddress, and notifies the witness of it.
func (s *story) answers(claim, address string) {
	s.addressClaim(claim, "u-"+claim, "", "")
	s.addressRecord(claim+"-r", claim, "r-"+claim, address+"/32")
	s.address(claim, "a-"+claim, address)
	s.addressClaim(claim, "u-"+claim, claim, "")
}

func TestAddressClaimHoldsAddress(t *testing.T) {
	scene(t, "its address, which no other holder may then get", func(s *story) {
		s.answers("a", "10.0.0.7")
		s.allocates("b", "10.0.0.0/24")
		s.finds("TWO HOLDERS")
	})
	scene(t, "nothing before its status names one", func(s *story) {
		s.addressClaim("a", "u-a", "", "")
		s.address("a", "a-a", "10.0.0.7")
		s.allocates("b", "10.0.0.0/24")
		s.finds()
	})
	scene(t, "the address of its IPAddress also when that comes after the status", func(s *story) {
		s.addressRecord("a-r", "a", "r-a", "10.0.0.7/32")
		s.addressClaim("a", "u-a", "a", "")
		s.address("a", "a-a", "10.0.0.7")
		s.allocates("b", "10.0.0.7/32")
		s.finds("TWO HOLDERS")
	})
	scene(t, "until it is gone, not only its IPAddress", func(s *story) {
		s.answers("a", "10.0.0.7")
		s.loses(Addresses, "a")
		s.allocates("b", "10.0.0.7/32")
		s.finds("TWO HOLDERS")
	})
	scene(t, "nothing when it is gone", func(s *story) {
		s.answers("a", "10.0.0.7")
		s.loses(Addresses, "a")
		s.loses(AddressClaims, "a")
		s.loses(Records, "a-r")
		s.allocates("b", "10.0.0.7/32")
		s.finds()
	})
	scene(t, "only a block that is recorded for it", func(s *story) {
		s.addressRecord("a-r", "a", "r-a", "10.0.0.8/32")
		s.address("a", "a-a", "10.0.0.7")
		s.addressClaim("a", "u-a", "a", "")
		s.finds("has no record of its block")
	})
	scene(t, "its record for as long as it lives", func(s *story) {
		s.answers("a", "10.0.0.7")
		s.addressRecord("a-later", "a", "r-later", "10.0.0.7/32")
		s.loses(Records, "a-later")
		s.finds()
		s.loses(Records, "a-r")
		s.finds("was released while it holds the block")
	})
	scene(t, "one address for life", func(s *story) {
		s.answers("a", "10.0.0.7")
		s.loses(Addresses, "a")
		s.address("a", "a-b", "10.0.0.9")
		s.finds("has another address now")
	})
}

func TestDeletedAddressClaimFreesAddress(t *testing.T) {
	s := begin(t)
	s.answers("a", "10.0.0.7")
	s.stores(AddressClaims, "a", "u-a", `"metadata":{"namespace":"team","name":"a","uid":"u-a","deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{"poolRef":{"kind":"IPPool","name":"pool"}},"status":{"addressRef":{"name":"a"}}`)
	s.loses(Addresses, "a")
	s.stores(Addresses, "a", "a-b", `"metadata":{"namespace":"team","name":"a","uid":"a-b","annotations":{"torture/attempt":"1"}},"spec":{"address":"10.0.0.9","poolRef":{"kind":"IPPool","name":"pool"}}`)
	s.loses(Records, "a-r")
	s.allocates("b", "10.0.0.7/32")
	s.finds()
}

func TestAddressClaimThatOvertakesIsFound(t *testing.T) {
	for name, test := range map[string]struct {
		made string
		want []string
	}{
		"a claim that waits longer":                   {"{}", []string{"overtook"}},
		"no claim, and an address that a client made": {`{"torture/attempt":"1"}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := begin(t)
			s.waits("first", "u-first", 32, "Exhausted")
			s.passes(2 * settledIn)
			s.addressRecord("a-r", "a", "r-a", "10.0.0.7/32")
			s.stores(Addresses, "a", "a-a", fmt.Sprintf(`"metadata":{"namespace":"team","name":"a","uid":"a-a","annotations":%s},"spec":{"address":"10.0.0.7","poolRef":{"kind":"IPPool","name":"pool"}}`, test.made))
			s.addressClaim("a", "u-a", "a", "")
			s.finds(test.want...)
		})
	}
}

func TestUnsettledListsAddresses(t *testing.T) {
	taken := func(t *testing.T, message string) *story {
		s := begin(t)
		s.stores(Pools, "pool", "p", `"metadata":{"name":"pool","uid":"p","annotations":{"torture/asked":"yes"}},"spec":{"cidr":"10.0.0.0/24","routingDomain":"d"},"status":{"capacity":{"total":"256","allocated":"1","available":"255","withheld":"0","outOfRange":"0"},"conditions":[{"type":"Ready","status":"True"}]}`)
		s.allocates("b", "10.0.0.7/32")
		s.address("a", "a-a", "10.0.0.7")
		s.addressClaim("a", "u-a", "", message)
		return s
	}
	about := func(s *story) string { return strings.Join(s.witness.Unsettled(), "\n") }
	t.Run("an IPAddress that is another claim's", func(t *testing.T) {
		if got := about(taken(t, "")); !strings.Contains(got, "another claim's, and does not report it") {
			t.Error(got)
		}
	})
	t.Run("not if its claim reports it", func(t *testing.T) {
		if got := about(taken(t, "conflict: b has it")); strings.Contains(got, "addressclaims") {
			t.Error(got)
		}
	})
	t.Run("an IPAddress that is not recorded", func(t *testing.T) {
		s := taken(t, "conflict: b has it")
		s.address("free", "a-f", "10.0.0.9")
		if got := about(s); !strings.Contains(got, "an IPAddress that is not recorded") {
			t.Error(got)
		}
	})
	const another, says = `{"kind":"IPPool","name":"hosts"}`, "spec.poolRef: hosts: the IPAddress of this name is from the IPPool pool: delete one of them"
	for name, c := range map[string]struct {
		annotations, asked, message string
		want                        bool
	}{
		"a claim of the same pool is unsettled":                     {`{"torture/attempt":"1"}`, `{"kind":"IPPool","name":"pool"}`, says, true},
		"a claim of another pool that reports it is settled":        {`{"torture/attempt":"1"}`, another, says, false},
		"a claim of another pool that says nothing is unsettled":    {`{"torture/attempt":"1"}`, another, "", true},
		"a claim that names a pool with a longer name is unsettled": {`{"torture/attempt":"1"}`, another, strings.Replace(says, "IPPool pool", "IPPool pools", 1), true},
		"a claim is unsettled whose IPAddress the operator made":    {`{}`, another, says, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := taken(t, "conflict: b has it")
			s.addressRecord("c-r", "c", "r-c", "10.0.0.9/32")
			s.stores(Addresses, "c", "a-c", fmt.Sprintf(`"metadata":{"namespace":"team","name":"c","uid":"a-c","annotations":%s},"spec":{"address":"10.0.0.9","poolRef":{"kind":"IPPool","name":"pool"}}`, c.annotations))
			s.stores(AddressClaims, "c", "u-c", fmt.Sprintf(`"spec":{"poolRef":%s},"status":{"conditions":[{"type":"Ready","status":"False","message":%q}]}`, c.asked, c.message))
			if got := about(s); strings.Contains(got, "does not name it") != c.want {
				t.Error(got)
			}
		})
	}
}

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
	scene(t, "a block that outlives its pool, and one of the pool that comes after", func(s *story) {
		s.pool("old", "d", "10.0.0.0/24", false)
		s.stores(Records, "x-r", "r-x", `"spec":{"cidr":"10.0.0.0/28","poolRef":{"kind":"IPPool","name":"old"},"claimRef":{"kind":"IPClaim","name":"x"},"state":"Bound"}`)
		s.losesPool("old")
		s.pool("new", "d", "10.0.0.0/24", false)
		s.allocatesIn("new", "y", "10.0.0.0/32")
		s.finds()
		s.claims("x", "c-x", "10.0.0.0/28", "x-r") // its pool is "pool", by its own word
		s.finds("no record of its block")
	})
	scene(t, "claims of two pools", func(s *story) {
		s.pool("old", "d", "10.0.0.0/24", false)
		s.losesPool("old")
		s.pool("new", "d", "10.0.0.0/24", false)
		s.allocatesIn("new", "y", "10.0.0.0/32")
		s.allocatesIn("old", "x", "10.0.0.0/28")
		s.finds("TWO HOLDERS in domain d", "TWO HOLDERS in domain d") // the pool's CIDR is not x's either
	})
	scene(t, "a pool on the CIDR of one that was forced away with a block in it", func(s *story) {
		s.pool("old", "d", "10.0.0.0/24", false)
		s.allocatesIn("old", "x", "10.0.0.0/28")
		s.losesPool("old")
		s.pool("new", "d", "10.0.0.0/25", false)
		s.finds("TWO HOLDERS in domain d")
	})
	scene(t, "none, if the pool is made again under its own name", func(s *story) {
		s.pool("old", "d", "10.0.0.0/24", false)
		s.allocatesIn("old", "x", "10.0.0.0/28")
		s.losesPool("old")
		s.pool("old", "d", "10.0.0.0/24", false)
		s.allocatesIn("old", "y", "10.0.0.16/28")
		s.finds()
	})
	scene(t, "none, if the routing domains differ", func(s *story) {
		s.pool("one", "d", "10.0.0.0/24", false)
		s.pool("other", "e", "10.0.0.0/24", false)
		s.allocatesIn("one", "x", "10.0.0.0/28")
		s.allocatesIn("other", "y", "10.0.0.0/28")
		s.finds()
	})
	scene(t, "none, if a child pool has its blocks, and its parent others", func(s *story) {
		s.pool("parent", "d", "10.0.0.0/16", false)
		s.pool("child", "parent", "10.0.1.0/24", true)
		s.allocatesIn("child", "x", "10.0.1.0/28")
		s.allocatesIn("parent", "y", "10.0.0.0/24")
		s.finds()
	})
	scene(t, "a block of a child pool that is gone, and one of its parent", func(s *story) {
		s.pool("parent", "d", "10.0.0.0/16", false)
		s.pool("child", "parent", "10.0.1.0/24", true)
		s.losesPool("child")
		s.allocatesIn("parent", "y", "10.0.1.0/28")
		s.allocatesIn("child", "x", "10.0.1.0/32")
		s.finds("TWO HOLDERS in domain d")
	})
	scene(t, "a child pool, and a block of its parent", func(s *story) {
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
