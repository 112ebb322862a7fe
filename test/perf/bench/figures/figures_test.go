package figures

import (
	"slices"
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
	expectTarget(t, r, "claim creates at 103 in use", "0.9", false)
}

func expectTarget(t *testing.T, r *Report, begin, measured string, isMet bool) {
	t.Helper()
	for _, target := range r.Targets() {
		if strings.HasPrefix(target.What, begin) {
			if target.Measured != measured || target.Met != isMet {
				t.Errorf("%s: measured %s, met %t: want %s and %t", begin, target.Measured, target.Met, measured, isMet)
			}
			return
		}
	}
	t.Errorf("%s is not among the targets", begin)
}

func TestClaimsAreComparedWithFirstServices(t *testing.T) {
	r := &Report{}
	for range 3 {
		for at, took := range map[int]time.Duration{0: time.Second, 400: 6 * time.Second} { // of the Services; each later one takes longer
			r.Of(Key{"early", "claim", few, at}).Add(load.Round{Latencies: make([]time.Duration, 400), Took: time.Second}, 2*time.Second, nil)
			r.Of(Key{"early", "service", few, at}).Add(load.Round{Latencies: make([]time.Duration, 400), Took: took}, 0, nil)
		}
	}
	slices.SortFunc(r.Series, func(a, b *Series) int { return a.At - b.At })
	expectTarget(t, r, "claims fully Bound : Services, the first 400 of each", "0.5", false)
	expectTarget(t, r, "the same over the first 800", "1.75", true)
}

func TestPercentilesAreComparedRoundByRound(t *testing.T) {
	r := &Report{}
	r.Of(Key{Scenario: Half, Shape: "120/s"})
	for _, took := range []time.Duration{10 * time.Millisecond, 10 * time.Millisecond, time.Second} { // in the last the machine was busy, for a moment
		r.Of(byPool("120/s")).Add(load.Round{Latencies: []time.Duration{10 * time.Millisecond}}, 0, nil)
		r.Of(byClass("120/s")).Add(load.Round{Latencies: []time.Duration{took}}, 0, nil)
	}
	expectTarget(t, r, "p95 of a claim by class : by pool, open loop, 120/s", "1", true)
}

func TestMemoryOfClaimsIsThatOfNothingElse(t *testing.T) {
	r := &Report{}
	for variant, claims := range map[string]float64{BeforeClaims: 1000, AfterClaims: 61000} {
		s := r.Of(Key{Scenario: "memory", Variant: variant})
		s.Set("allocations", claims)
		s.Set("residentBytes", 1<<26+claims*512)
		s.Set("apiserverResidentBytes", 1<<28+claims*40*1024)
	}
	expectTarget(t, r, "resident memory of a replica", "0.5 KiB", true)
	expectTarget(t, r, "resident memory of the API server", "40 KiB", false)
}
