package ipam

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam/space"
)

func TestErrorsStateProblemAndValue(t *testing.T) {
	pools := []PoolKey{PoolNamed("p"), PoolNamed("q")}
	limit := &LimitError{Subject: "pool r", Project: "red", Unit: "block", Most: space.CountOf64(2), Held: space.CountOf64(2)}
	block, held := netip.MustParsePrefix("10.0.0.0/24"), netip.MustParsePrefix("10.0.0.0/25")
	holder := Holder{Kind: "IPClaim", Namespace: "red", Name: "a"}
	taken := &TakenError{Block: block, Pool: pools[0], Holder: holder, Overlap: held}
	withheld := &TakenError{Block: block, Pool: pools[0]}
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"nothing is free":       {&ExhaustedError{Pools: pools, Bits: 24, Largest: NoLength}, "no free /24 in pool p, pool q: nothing is free"},
		"only less is free":     {&ExhaustedError{Pools: pools[:1], Bits: 24, Largest: 26}, "no free /24 in pool p: the largest free block is a /26"},
		"a limit keeps others":  {&ExhaustedError{Pools: pools[:1], Bits: 24, Largest: 26, Limits: []*LimitError{limit}}, "no free /24 in pool p; pool r allows project red 2 blocks, which it holds: the largest free block is a /26"},
		"a namespace's share":   {&UnclaimedError{Namespace: "red", Pool: pools[0]}, "namespace red has reached its share of unclaimed allocations in pool p: wait until earlier creates finish"},
		"a project's share":     {&UnclaimedError{Project: "red", Pool: pools[0]}, "project red has reached its share of unclaimed allocations in pool p: wait until earlier creates finish"},
		"a project's bound":     {&UnclaimedError{Project: "red", Most: 5}, "project red has reached its limit of 5 unclaimed allocations: wait until earlier creates finish"},
		"a namespace's bound":   {&UnclaimedError{Namespace: "red", Most: 5}, "namespace red has reached its limit of 5 unclaimed allocations: wait until earlier creates finish"},
		"a limit":               {limit, "exceeded limit: pool r allows project red 2 blocks, 2 are held: release some, or ask for a higher limit"},
		"a limit of addresses":  {&LimitError{Subject: "class c", Project: "red", Unit: "address", Most: space.CountOf64(8), Held: space.CountOf64(1)}, "exceeded limit: class c allows project red 8 addresses, 1 is held: release some, or ask for a higher limit"},
		"a value is not right":  {&PolicyError{Field: "spec.prefixLength", Value: 8, Remedy: "is too large"}, "spec.prefixLength: 8: is too large"},
		"a value is missing":    {&PolicyError{Field: "spec.prefixLength", Remedy: "set it"}, "spec.prefixLength: Required value: set it"},
		"it is taken":           {taken, "10.0.0.0/24 conflicts with 10.0.0.0/25 of pool p, held by IPClaim red/a"},
		"it is taken, redacted": {taken.Redacted(), "10.0.0.0/24 is in use in pool p"},
		"it is withheld":        {withheld, "10.0.0.0/24 is not handed out by pool p: it is reserved, a gateway or edge address, or outside its ranges"},
		"withheld is no secret": {withheld.Redacted(), withheld.Error()},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
	if err := error(&UnclaimedError{Namespace: "red"}); !errors.Is(err, ErrTooManyUnclaimed) || errors.Is(err, ErrCrowded) {
		t.Error("an UnclaimedError is not that there are too many unclaimed allocations, or something else")
	}
	if got, want := limit.Stable(), "pool r allows project red 2 blocks, which it holds: release some, or ask for a higher limit"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if taken.IsWithheld() || taken.Redacted().IsWithheld() || !withheld.IsWithheld() || !withheld.Redacted().IsWithheld() {
		t.Errorf("withheld: taken %t, redacted %t; withheld %t, redacted %t",
			taken.IsWithheld(), taken.Redacted().IsWithheld(), withheld.IsWithheld(), withheld.Redacted().IsWithheld())
	}
}
