package figures

import (
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
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

func TestRatioComparesSimultaneousRounds(t *testing.T) {
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

func TestFlatnessIsRelativeToBareCreates(t *testing.T) {
	r := &Report{}
	add := func(variant string, at, requests int) {
		r.Of(Key{"fill", variant, "8 clients", at}).Add(load.Round{Latencies: make([]time.Duration, requests), Took: time.Second}, 0, nil)
	}
	// The machine becomes half as fast, and claims a tenth slower than bare creates.
	for at, speed := range []int{200, 200, 150, 100} {
		add("bare", at, 5*speed)
		add("claim", at, speed)
	}
	r.Find(Key{"fill", "claim", "8 clients", 3}).Rounds[0].Requests = 90
	for _, target := range r.Targets() {
		if strings.HasPrefix(target.What, "claim creates at 103 in use") {
			if target.Measured != "0.90" || target.Met {
				t.Errorf("measured %s, met %t: want 0.90 and false", target.Measured, target.Met)
			}
			return
		}
	}
	t.Error("it is not among the targets")
}
