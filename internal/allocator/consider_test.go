package allocator

import (
	"slices"
	"testing"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
)

func verdicts(results []ipam.PoolResult) []string {
	var all []string
	for _, r := range results {
		all = append(all, r.Pool.Name+" "+string(r.Verdict()))
	}
	return all
}

// TestPoolResultsDoNotDependOnOrder covers the order of pools, which changes with
// their utilization.
func TestPoolResultsDoNotDependOnOrder(t *testing.T) {
	full, limit := &ipam.ExhaustedError{Largest: 26}, &ipam.LimitError{Subject: "pool c", Project: "red", Unit: "block"}
	says := map[string]error{"a": full, "b": ledger.ErrOutOfTurn, "c": limit, "d": full}
	order := claimOrder("x", 24)
	order.PassedOver = []ipam.PoolResult{{Pool: ipam.PoolNamed("aa"), Err: &ipam.MissingError{Verdict: ipam.Paused}}}
	message := ""
	for _, tried := range [][]string{{"a", "b", "c", "d"}, {"d", "c", "b", "a"}, {"c", "a", "d", "b"}} {
		s := order.newShortage()
		for _, name := range tried {
			if !s.addResult(ipam.Pool{Key: ipam.PoolNamed(name)}, says[name]) {
				t.Errorf("%v is not taken", says[name])
			}
		}
		err := s.err()
		want := []string{"a NoFreeBlock", "b OutOfTurn", "c LimitReached", "d NoFreeBlock", "aa Paused"}
		if got := verdicts(ipam.PoolsOf(err)); !slices.Equal(got, want) {
			t.Errorf("tried in the order %v: got %q, want %q", tried, got, want)
		}
		if message == "" {
			message = err.Error()
		}
		if err.Error() != message {
			t.Errorf("tried in the order %v: %s\nbefore: %s", tried, err, message)
		}
	}
}

// TestDryRunReportsWhetherEachPoolFits expects that a dry run reports the present state, and
// takes nothing.
func TestDryRunReportsWhetherEachPoolFits(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		api.stores(t, heldBlock("y", "10.0.0.0/25"))
		unknown := parent()
		unknown.Key = ipam.PoolNamed("a-unknown")
		passed := ipam.PoolResult{Pool: ipam.PoolNamed("0-paused"), Err: &ipam.MissingError{Verdict: ipam.Paused}}
		for length, want := range map[int]string{28: "Fits", parent().CIDR.Bits(): "NoFreeBlock"} {
			order := claimOrder("x", length)
			order.Pools = []ipam.Pool{parent(), unknown}
			order.PassedOver = []ipam.PoolResult{passed}
			got := verdicts(a.Consider(order, 10))
			if all := []string{"a-unknown NotReady", parent().Key.Name + " " + want, "0-paused Paused"}; !slices.Equal(got, all) {
				t.Errorf("/%d: got %q, want %q", length, got, all)
			}
			if few := a.Consider(order, 0); len(few) != 3 || few[0].Err != nil {
				t.Errorf("of none the ledger is to be asked: got %v", few)
			}
		}
		if records := api.server.records(); len(records) != 1 {
			t.Errorf("%d records are stored, want 1", len(records))
		}
	})
}
