// Package figures holds the measurements of a run of the benchmark, as they stand in
// out/bench.json, and the figures that follow from them: all figures of a document are
// worked out from here.
package figures

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// Report holds the measurements of one run.
type Report struct {
	Command string    `json:"command"`
	Quick   bool      `json:"quick"`
	Begun   time.Time `json:"begun"`
	Seconds float64   `json:"seconds"`
	Machine Machine   `json:"machine"`
	// Versions of the components that took part.
	Versions map[string]string `json:"versions"`
	Series   []*Series         `json:"series"`
	// Notes name the measurements that were left out, with the reasons.
	Notes []string `json:"notes,omitempty"`
}

// Machine describes the machine on which everything ran, clients included.
type Machine struct {
	CPU       string `json:"cpu"`
	CPUs      int    `json:"cpus"`
	MemoryMiB int    `json:"memoryMiB,omitempty"`
	Platform  string `json:"platform"`
}

// Key names a series.
type Key struct {
	Scenario string `json:"scenario"`
	Variant  string `json:"variant,omitempty"`
	Shape    string `json:"shape,omitempty"`
	// At is the number of objects that existed already.
	At int `json:"at,omitempty"`
}

// Names of what targets look for.
const (
	// Half is a scenario whose shape is half of the rate of claims in a closed loop.
	Half = "half"
	// BeforeClaims is a variant of the memory, after which nothing but claims is made until AfterClaims.
	BeforeClaims = "before claims"
	// AfterClaims follows BeforeClaims.
	AfterClaims = "after claims"
)

// Series holds the measurements of one thing, in one or more rounds.
type Series struct {
	Key
	// Rounds of one run stand side by side: round i of one series was measured
	// next to round i of the others of the same shape.
	Rounds []Round `json:"rounds,omitempty"`
	// Requests that succeeded, and those that did not, with the first error.
	Requests int    `json:"requests,omitempty"`
	Failures int    `json:"failures,omitempty"`
	Error    string `json:"error,omitempty"`
	// Millis are the percentiles of the latencies of all rounds.
	Millis *Percentiles `json:"millis,omitempty"`
	// Values are figures that are no latencies, by name and unit.
	Values map[string]float64 `json:"values,omitempty"`

	samples []time.Duration
}

// Round holds one measurement of a rate.
type Round struct {
	Requests int     `json:"requests"`
	Seconds  float64 `json:"seconds"`
	// DoneSeconds is until all that follows from the requests was done, such as
	// the last claim being Bound.
	DoneSeconds float64 `json:"doneSeconds,omitempty"`
	// P95 of the latencies, in milliseconds.
	P95 float64 `json:"p95,omitempty"`
	// CPU is the time that each part used for a request, in milliseconds; empty if the
	// system does not report it.
	CPU map[string]float64 `json:"cpu,omitempty"`
}

// PerSecond returns the rate of requests.
func (r Round) PerSecond() float64 { return float64(r.Requests) / r.Seconds }

// DonePerSecond returns the rate at which requests and all that follows were done.
func (r Round) DonePerSecond() float64 {
	if r.DoneSeconds == 0 {
		return r.PerSecond()
	}
	return float64(r.Requests) / r.DoneSeconds
}

// Of returns the series of a key, made if there is none.
func (r *Report) Of(key Key) *Series {
	if s := r.Find(key); s != nil {
		return s
	}
	s := &Series{Key: key}
	r.Series = append(r.Series, s)
	return s
}

// Find returns the series of a key, or nil.
func (r *Report) Find(key Key) *Series {
	for _, s := range r.Series {
		if s.Key == key {
			return s
		}
	}
	return nil
}

// Each returns every series of a scenario and variant, in order.
func (r *Report) Each(scenario, variant string) []*Series {
	var found []*Series
	for _, s := range r.Series {
		if s.Scenario == scenario && s.Variant == variant {
			found = append(found, s)
		}
	}
	return found
}

// Note adds a remark about the run that no figure states.
func (r *Report) Note(text string) {
	if !slices.Contains(r.Notes, text) {
		r.Notes = append(r.Notes, text)
	}
}

// Add records a round; done is zero if nothing follows from a request.
func (s *Series) Add(round load.Round, done time.Duration, cpu map[string]float64) {
	result := Round{Requests: len(round.Latencies), Seconds: round.Took.Seconds(), DoneSeconds: done.Seconds(), CPU: cpu}
	if percentiles := PercentilesOf(round.Latencies); percentiles != nil {
		result.P95 = percentiles.P95
	}
	s.Rounds = append(s.Rounds, result)
	s.Failures += len(round.Errors)
	if len(round.Errors) > 0 && s.Error == "" {
		s.Error = round.Errors[0].Error()
	}
	s.AddLatencies(round.Latencies)
}

// AddLatencies records latencies alone.
func (s *Series) AddLatencies(samples []time.Duration) {
	s.Requests += len(samples)
	s.samples = append(s.samples, samples...)
	s.Millis = PercentilesOf(s.samples)
}

// Set records a figure that is no latency.
func (s *Series) Set(name string, value float64) {
	if s.Values == nil {
		s.Values = map[string]float64{}
	}
	s.Values[name] = value
}

// PerSecond returns the median rate of the rounds.
func (s *Series) PerSecond() float64 { return s.median(Round.PerSecond) }

// DonePerSecond returns the median rate at which all was done.
func (s *Series) DonePerSecond() float64 { return s.median(Round.DonePerSecond) }

// CPU returns the median of the time that a part used for a request, in milliseconds.
func (s *Series) CPU(part string) float64 {
	return s.median(func(r Round) float64 { return r.CPU[part] })
}

func (s *Series) median(value func(Round) float64) float64 {
	rates := make([]float64, len(s.Rounds))
	for i, r := range s.Rounds {
		rates[i] = value(r)
	}
	return median(rates)
}

// Ratio returns the median, over rounds that were measured next to each other, of the
// value of s to that of other.
func (s *Series) Ratio(other *Series, value func(Round) float64) float64 {
	ratios := make([]float64, min(len(s.Rounds), len(other.Rounds)))
	for i := range ratios {
		ratios[i] = value(s.Rounds[i]) / value(other.Rounds[i])
	}
	return median(ratios)
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// Save writes the report as JSON.
func (r *Report) Save(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// Load reads what Save wrote.
func Load(path string) (*Report, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// Observed lists the variants of the scenario observed, the one without anything first.
var Observed = [...]string{"no metrics, no traces", "scraped each second", "scraped, every create traced"} //nolint:gochecknoglobals // a constant list

// ThisMachine returns the description of the machine that this process runs on.
func ThisMachine() Machine {
	m := Machine{CPU: "unknown", CPUs: runtime.NumCPU(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	if name, ok := field("/proc/cpuinfo", "model name"); ok {
		m.CPU = name
	}
	if total, ok := field("/proc/meminfo", "MemTotal"); ok {
		kib, _ := strconv.Atoi(strings.TrimSuffix(total, " kB"))
		m.MemoryMiB = kib / 1024
	}
	return m
}

// field returns the first value of a name in a file of "name: value" lines; none
// if the system has no such file.
func field(path, name string) (string, bool) {
	file, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer func() { _ = file.Close() }()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		key, value, _ := strings.Cut(lines.Text(), ":")
		if strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), true
		}
	}
	return "", false
}

// Percentiles holds percentiles of latencies, in milliseconds: each is one of the samples (nearest
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

// Point represents a point of a curve.
type Point struct {
	X float64 `json:"x"`
	Y float64 `json:"y"`
}

// PercentilesOf computes the percentiles of all samples; nil if there are none.
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

// millis returns milliseconds, rounded to a microsecond.
func millis(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1000 }
