package figures

import (
	"math"
	"slices"
	"time"
)

// Percentiles of latencies, in milliseconds: each is one of the samples (nearest
// rank), nothing is interpolated.
type Percentiles struct {
	P50 float64 `json:"p50"`
	P90 float64 `json:"p90"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
	// Curve has every fifth percentile from 0 on, and the last few one by one.
	Curve []Point `json:"curve"`
}

// Point of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// PercentilesOf works out the percentiles of all samples; nil where there are
// none.
func PercentilesOf(samples []time.Duration) *Percentiles {
	if len(samples) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(samples))
	at := func(percent float64) float64 {
		rank := int(math.Ceil(percent / 100 * float64(len(sorted))))
		return millis(sorted[max(rank, 1)-1])
	}
	p := &Percentiles{P50: at(50), P90: at(90), P95: at(95), P99: at(99), Max: at(100)}
	for percent := 0.0; percent < 95; percent += 5 {
		p.Curve = append(p.Curve, Point{percent, at(percent)})
	}
	for percent := 95.0; percent <= 100; percent++ {
		p.Curve = append(p.Curve, Point{percent, at(percent)})
	}
	return p
}

// millis are rounded to a microsecond.
func millis(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }
