package metrics

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/utils/clock"
)

// TestOnlyLeaderCountsReleases expects that a replica that has never led exports none of them.
func TestOnlyLeaderCountsReleases(t *testing.T) {
	m, registry := New(clock.RealClock{}), prometheus.NewPedanticRegistry()
	registry.MustRegister(m.Collectors()...)
	for _, led := range []bool{false, true} {
		for _, d := range Definitions() {
			if !d.Leader {
				continue
			}
			if there, err := testutil.GatherAndCount(registry, d.Name); err != nil || (there > 0) != led {
				t.Errorf("%s has %d time series where the replica has led: %t; %v", d.Name, there, led, err)
			}
		}
		m.Lead()
	}
}

// BenchmarkAllocation measures the cost of counting and timing one allocation.
func BenchmarkAllocation(b *testing.B) {
	m := New(clock.RealClock{})
	for b.Loop() {
		began := m.Now()
		for _, step := range []Step{StepFind, StepRecord, StepConfirm} {
			m.Time(step)()
		}
		m.Allocated(Allocation{Origin: OriginAdmission, Class: "gold", Family: "IPv4"}, ResultAllocated, began)
	}
}
