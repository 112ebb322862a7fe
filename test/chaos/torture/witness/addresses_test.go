package witness

import (
	"fmt"
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
	t.Run("its address, which no other holder may then get", func(t *testing.T) {
		s := begin(t)
		s.answers("a", "10.0.0.7")
		s.allocates("b", "10.0.0.0/24")
		s.finds("TWO HOLDERS")
	})
	t.Run("nothing before its status names one", func(t *testing.T) {
		s := begin(t)
		s.addressClaim("a", "u-a", "", "")
		s.address("a", "a-a", "10.0.0.7")
		s.allocates("b", "10.0.0.0/24")
		s.finds()
	})
	t.Run("the address of its IPAddress also when that comes after the status", func(t *testing.T) {
		s := begin(t)
		s.addressRecord("a-r", "a", "r-a", "10.0.0.7/32")
		s.addressClaim("a", "u-a", "a", "")
		s.address("a", "a-a", "10.0.0.7")
		s.allocates("b", "10.0.0.7/32")
		s.finds("TWO HOLDERS")
	})
	t.Run("until it is gone, not only its IPAddress", func(t *testing.T) {
		s := begin(t)
		s.answers("a", "10.0.0.7")
		s.loses(Addresses, "a")
		s.allocates("b", "10.0.0.7/32")
		s.finds("TWO HOLDERS")
	})
	t.Run("nothing when it is gone", func(t *testing.T) {
		s := begin(t)
		s.answers("a", "10.0.0.7")
		s.loses(Addresses, "a")
		s.loses(AddressClaims, "a")
		s.loses(Records, "a-r")
		s.allocates("b", "10.0.0.7/32")
		s.finds()
	})
	t.Run("only a block that is recorded for it", func(t *testing.T) {
		s := begin(t)
		s.addressRecord("a-r", "a", "r-a", "10.0.0.8/32")
		s.address("a", "a-a", "10.0.0.7")
		s.addressClaim("a", "u-a", "a", "")
		s.finds("has no record of its block")
	})
	t.Run("its record for as long as it lives", func(t *testing.T) {
		s := begin(t)
		s.answers("a", "10.0.0.7")
		s.addressRecord("a-later", "a", "r-later", "10.0.0.7/32")
		s.loses(Records, "a-later")
		s.finds()
		s.loses(Records, "a-r")
		s.finds("was released while it holds the block")
	})
	t.Run("one address for life", func(t *testing.T) {
		s := begin(t)
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
