package figures

import (
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/test/bench/load"
)

func TestPercentilesAreSamples(t *testing.T) {
	var samples []time.Duration
	for n := 200; n > 0; n-- {
		samples = append(samples, time.Duration(n)*time.Millisecond)
	}
	p := PercentilesOf(samples)
	if p.P50 != 100 || p.P95 != 190 || p.P99 != 198 || p.Max != 200 {
		t.Errorf("p50 %v, p95 %v, p99 %v, max %v: want 100, 190, 198, 200", p.P50, p.P95, p.P99, p.Max)
	}
	if one := PercentilesOf(samples[:1]); one.P50 != 200 || one.P99 != 200 {
		t.Errorf("of one sample: %+v", one)
	}
}

func TestARatioComparesRoundsThatWereSideBySide(t *testing.T) {
	var claim, bare Series
	for _, r := range []struct{ claims, bares int }{{50, 100}, {5, 10}, {30, 100}} { // in the second the machine was busy
		claim.Add(rounds(r.claims), 0, nil)
		bare.Add(rounds(r.bares), 0, nil)
	}
	if got := claim.Ratio(&bare, Round.PerSecond); got != 0.5 {
		t.Errorf("ratio %v, want 0.5", got)
	}
}

func rounds(n int) load.Round {
	return load.Round{Took: time.Second, Latencies: make([]time.Duration, n)}
}
