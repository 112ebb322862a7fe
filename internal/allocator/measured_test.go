package allocator

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

func TestErrorMapsToMetricResult(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want metrics.Result
	}{
		"none":                     {nil, metrics.ResultAllocated},
		"no room":                  {&ipam.ExhaustedError{}, metrics.ResultExhausted},
		"another's block":          {fmt.Errorf("holding: %w", &ipam.TakenError{}), metrics.ResultTaken},
		"a limit":                  {&ipam.LimitError{}, metrics.ResultLimitReached},
		"a pool that is going":     {&ipam.MissingError{}, metrics.ResultPoolNotReady},
		"a former pool's blocks":   {ipam.ErrPoolInUse, metrics.ResultPoolNotReady},
		"too many creates at once": {&ipam.UnclaimedError{}, metrics.ResultTooManyUnclaimed},
		"not confirmed":            {errors.Join(ipam.ErrUnconfirmed, errors.New("timeout")), metrics.ResultUnconfirmed},
		"anything else":            {errors.New("refused"), metrics.ResultError},
	} {
		if got := resultOf(c.err); got != c.want {
			t.Errorf("%s counts as %s, want %s", name, got, c.want)
		}
	}
}

// sumCounter sums a counter over its labels.
func sumCounter(a *Allocator, name string) (sum float64) {
	registry := prometheus.NewRegistry()
	registry.MustRegister(a.metrics.Collectors()...)
	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

func TestAllocationsAreCounted(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, _ *steady) {
		registry := prometheus.NewPedanticRegistry()
		for _, c := range a.metrics.Collectors() {
			if err := registry.Register(c); err != nil {
				t.Fatal(err)
			}
		}
		admitted := orderFromPools(claimOrder("a", 30), parent())
		admitted.Terms.Class = "gold"
		if _, err := a.Allocate(t.Context(), admitted); err != nil {
			t.Fatal(err)
		}
		if _, err := a.Allocate(t.Context(), orderFromPools(claimOrder("b", 8), parent())); err == nil {
			t.Fatal("a block larger than the pool is allocated")
		}
		existing := claimOrder("c", 32)
		existing.Terms.Block = netip.MustParsePrefix("10.0.0.200/32")
		if _, err := a.RecordExisting(t.Context(), existing, parent().Key); err != nil {
			t.Fatal(err)
		}
		want := "# HELP cadastre_allocations_total " + metrics.DefinitionOf(metrics.Allocations).Help + `
# TYPE cadastre_allocations_total counter
cadastre_allocations_total{class="",family="IPv4",origin="admission",result="exhausted"} 1
cadastre_allocations_total{class="",family="IPv4",origin="existing",result="allocated"} 1
cadastre_allocations_total{class="gold",family="IPv4",origin="admission",result="allocated"} 1
`
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.Allocations); err != nil {
			t.Error(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		steps := map[string]uint64{}
		for _, family := range families {
			if family.GetName() == metrics.StepDuration {
				for _, m := range family.GetMetric() {
					steps[m.GetLabel()[0].GetValue()] = m.GetHistogram().GetSampleCount()
				}
			}
		}
		if steps["find"] < 2 || steps["record"] != 2 || steps["confirm"] != 2 {
			t.Errorf("steps were timed so often: %v", steps)
		}
	})
}
