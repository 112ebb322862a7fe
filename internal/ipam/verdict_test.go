package ipam

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
)

func TestErrorMapsToVerdict(t *testing.T) {
	block := netip.MustParsePrefix("10.0.0.0/28")
	taken := &TakenError{Block: block, Holder: Holder{Kind: "IPClaim", Name: "a"}}
	for want, err := range map[Verdict]error{
		Fits: nil, NoFreeBlock: &ExhaustedError{}, OutOfTurn: &ExhaustedError{OutOfTurn: true},
		InUse: taken, Withheld: &TakenError{Block: block}, LimitReached: &LimitError{},
		CannotFit: &MissingError{Verdict: CannotFit}, Paused: &MissingError{Verdict: Paused}, NotReady: &MissingError{},
		OutsidePool: &PolicyError{Verdict: OutsidePool}, FamilyMismatch: WithPools(&PolicyError{Verdict: FamilyMismatch}, []PoolResult{{}}),
	} {
		if err != nil {
			err = fmt.Errorf("binding: %w", err)
		}
		if got := (PoolResult{Err: err}).Verdict(); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
	if got := (PoolResult{Err: taken.Redacted()}).Verdict(); got != InUse {
		t.Errorf("redacted: got %s, want %s", got, InUse)
	}
	if got := (PoolResult{Err: &UnclaimedError{Namespace: "a"}}).Verdict(); got != LimitReached {
		t.Errorf("a namespace's share: got %s, want %s", got, LimitReached)
	}
	if got := (PoolResult{Err: ErrCrowded}).Verdict(); got != NotReady {
		t.Errorf("another error: got %s, want %s", got, NotReady)
	}
}

func TestErrorsCarryResultOfEachPool(t *testing.T) {
	cause := &ExhaustedError{Bits: 24, Pools: []PoolKey{PoolNamed("a")}}
	pools := []PoolResult{{PoolNamed("a"), cause}}
	err := fmt.Errorf("binding: %w", WithPools(cause, pools))
	if !errors.Is(err, cause) || err.Error() != "binding: "+cause.Error() || !slices.Equal(PoolsOf(err), pools) {
		t.Errorf("%v carries %v", err, PoolsOf(err))
	}
	if unserved, ok := errors.AsType[Unserved](err); !ok || !errors.Is(unserved, cause) || PoolsOf(unserved) != nil {
		t.Errorf("it is found as %#v, want the cause itself", unserved)
	}
	if WithPools(nil, pools) != nil || PoolsOf(WithPools(cause, nil)) != nil || PoolsOf(cause) != nil || PoolsOf(nil) != nil {
		t.Error("no error, or no pools, is something else with pools")
	}
	if got := PoolsOf(fmt.Errorf("parked: %w", &ParkedError{Pools: pools})); !slices.Equal(got, pools) {
		t.Errorf("a parked one carries %v", got)
	}
}

func TestPoolResultsHaveStableOrder(t *testing.T) {
	b, a, own := PoolNamed("b"), PoolNamed("a"), LocalPoolNamed("team", "z")
	results := []PoolResult{{b, nil}, {a, nil}, {own, nil}}
	SortByPool(results)
	if want := []PoolResult{{own, nil}, {a, nil}, {b, nil}}; !slices.Equal(results, want) {
		t.Errorf("got %v", results)
	}
}

// TestMessageNamesFewPools covers any number of pools: conditions are bounded.
func TestMessageNamesFewPools(t *testing.T) {
	e := &ExhaustedError{Bits: 24}
	for i := range 1000 {
		e.Pools = append(e.Pools, PoolNamed(fmt.Sprintf("p%03d", i)))
		e.Limits = append(e.Limits, &LimitError{Subject: fmt.Sprintf("pool q%03d", i), Project: "red", Unit: "block"})
	}
	want := "no free /24 in pool p000, pool p001, pool p002, pool p003, pool p004, pool p005, pool p006, pool p007, pool p008, pool p009, and 990 more; "
	if got := e.Shortage(); len(got) > 2000 || got[:len(want)] != want {
		t.Errorf("got %d characters: %s", len(got), got)
	}
}
