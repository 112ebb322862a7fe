package figures

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Target holds a figure to be reached, and the measured one.
type Target struct {
	What, Wanted string
	// Measured is a figure with its unit; empty if nothing was measured.
	Measured string
	Met      bool
}

// Targets returns all targets, in the order of the document.
func (r *Report) Targets() []Target {
	targets := []Target{
		target("claims fully Bound : bare creates, 8 clients", r.ratio(byPool(few), Key{"bare", "", few, 0}, Round.DonePerSecond), "≥", 0.30, ""),
		target("claims fully Bound : bare creates, 32 clients", r.ratio(byPool(many), Key{"bare", "", many, 0}, Round.DonePerSecond), "≥", 0.28, ""),
		target("claims fully Bound : two plain creates by the client, 8 clients", r.ratio(byPool(few), Key{"writes", "", few, 0}, Round.DonePerSecond), "≥", 0.80, ""),
	}
	targets = append(targets, r.services()...)
	for _, shape := range []string{few, many} {
		targets = append(targets,
			target("claims by class : by pool, "+shape, r.ratio(byClass(shape), byPool(shape), Round.DonePerSecond), "≥", 0.95, ""),
			target("p95 of claims by class : by pool, "+shape, r.ratio(byClass(shape), byPool(shape), p95), "≤", 1.1, ""))
	}
	return slices.Concat(targets, r.latencies(), r.addressClaims(), r.growth(), r.lives())
}

const few, many = "8 clients", "32 clients"

func byPool(shape string) Key { return Key{"claim", "by pool", shape, 0} }

func byClass(shape string) Key { return Key{"claim", "by class", shape, 0} }

func p95(r Round) float64 { return r.P95 }

// target returns the target of a figure, NaN if it was not measured, that must be at least (≥) or at most (≤) a value.
func target(what string, measured float64, sign string, wanted float64, unit string) Target {
	t := Target{What: what, Wanted: strings.TrimSpace(fmt.Sprintf("%s %g %s", sign, wanted, unit))}
	if !math.IsNaN(measured) {
		t.Measured = strings.TrimSpace(short(measured) + " " + unit)
		t.Met = measured == wanted || (measured > wanted) == (sign == "≥")
	}
	return t
}

// count returns a number that the run decides; n if nothing was measured.
func count(number int) string {
	if number == 0 {
		return "n"
	}
	return strconv.Itoa(number)
}

// short returns a figure with three digits, or with all those before the point.
func short(value float64) string {
	if value >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

// ratio returns a ratio; NaN if it was not measured.
func (r *Report) ratio(of, to Key, figure func(Round) float64) float64 {
	series, reference := r.Find(of), r.Find(to)
	if series == nil || reference == nil {
		return math.NaN()
	}
	return series.Ratio(reference, figure)
}

// services returns the targets of claims beside Services, of which each makes the next one slower.
func (r *Report) services() []Target {
	claims, services := r.Each("early", "claim"), r.Each("early", "service")
	first, all, requests, total := math.NaN(), math.NaN(), 0, 0
	if len(claims) > 0 && len(claims) == len(services) {
		requests, first = claims[0].Rounds[0].Requests, claims[0].Ratio(services[0], Round.DonePerSecond)
		var ratios []float64
		for i := range claims[len(claims)-1].Rounds { // of which there are fewer if the run ended early
			var of, to Round
			for j := range claims {
				of, to = of.plus(claims[j].Rounds[i]), to.plus(services[j].Rounds[i])
			}
			total, ratios = of.Requests, append(ratios, of.DonePerSecond()/to.DonePerSecond())
		}
		all = median(ratios)
	}
	targets := []Target{
		target(fmt.Sprintf("claims fully Bound : Services, the first %s of each, 8 clients", count(requests)), first, "≥", 0.80, ""),
		target("the same over the first "+count(total), all, "≥", 1.4, ""),
	}
	for _, s := range r.Each("service", "") {
		if s.At > 0 {
			targets = append(targets, target(fmt.Sprintf("the same with %d of each", s.At), r.ratio(Key{"claim", "by pool", s.Shape, s.At}, s.Key, Round.DonePerSecond), "≥", 5, ""))
		}
	}
	return targets
}

// plus returns a round of the requests of both, one after the other.
func (r Round) plus(other Round) Round {
	return Round{Requests: r.Requests + other.Requests, Seconds: r.Seconds + other.Seconds, DoneSeconds: r.DoneSeconds + other.DoneSeconds}
}

func (r *Report) p95(key Key) float64 {
	if s := r.Find(key); s != nil && s.Millis != nil {
		return s.Millis.P95
	}
	return math.NaN()
}

func (r *Report) latencies() []Target {
	half := "half of the rate of 8 clients"
	if halves := r.Each(Half, ""); len(halves) > 0 {
		half = halves[0].Shape
	}
	var targets []Target
	for _, shape := range []string{half, "150/s"} {
		targets = append(targets,
			target("p95 of a claim : a Service, open loop, "+shape, r.ratio(byPool(shape), Key{"service", "", shape, 0}, p95), "≤", 1.2, ""),
			target("p95 of a claim by class : by pool, open loop, "+shape, r.ratio(byClass(shape), byPool(shape), p95), "≤", 1.1, ""))
	}
	return append(targets,
		target("p95 of a claim : a bare create, open loop, 100/s", r.ratio(byPool("100/s"), Key{"bare", "", "100/s", 0}, p95), "≤", 4, ""),
		target("claim p95 at 150/s, open loop", r.p95(byPool("150/s")), "≤", 60, "ms"),
		target("deny p95 at 150/s, open loop", r.p95(Key{"deny", "", "150/s", 0}), "≤", 5, "ms"),
		target("release until the waiting claim is Bound, p95", r.p95(Key{Scenario: "release"}), "≤", 25, "ms"))
}

func (r *Report) addressClaims() []Target {
	flat, most := math.NaN(), 0
	if series := r.Each("capi", ""); len(series) > 1 {
		flat, most = r.flatness(series, (*Series).DonePerSecond, "bare", ""), series[len(series)-1].At
	}
	return []Target{
		target("IPAddressClaims bound : bare creates", r.ratio(Key{"capi", "", many, 0}, Key{"bare", "", many, 0}, Round.DonePerSecond), "≥", 0.17, ""),
		target(fmt.Sprintf("IPAddressClaims bound at %s in use : at 0, each beside bare creates", count(most)), flat, "≥", 0.95, ""),
	}
}

// growth returns the targets that must not depend on the number of blocks in use.
func (r *Report) growth() []Target {
	flat, most := math.NaN(), 0
	if steps := r.Each("fill", "claim"); len(steps) > 1 {
		last := steps[len(steps)-1]
		flat, most = r.flatness(steps, (*Series).PerSecond, "fill", "bare"), last.At+last.Requests
	}
	return []Target{
		target(fmt.Sprintf("claim creates at %s in use : at 0, each beside bare creates", count(most)), flat, "≥", 0.95, ""),
		target("resident memory of a replica, for each claim", r.KiBOfClaim("residentBytes"), "≤", 1, "KiB"),
		target("resident memory of the API server, for each claim and its record", r.KiBOfClaim("apiserverResidentBytes"), "≤", 32, "KiB"),
	}
}

// KiBOfClaim returns by how much a figure of the memory grows with each claim when only claims are made; NaN if that
// was not measured.
func (r *Report) KiBOfClaim(name string) float64 {
	before, after := r.Find(Key{Scenario: "memory", Variant: BeforeClaims}), r.Find(Key{Scenario: "memory", Variant: AfterClaims})
	if before == nil || after == nil {
		return math.NaN()
	}
	return (after.Values[name] - before.Values[name]) / (after.Values["allocations"] - before.Values["allocations"]) / 1024
}

// flatness returns the rate of the last quarter of the steps to that of the first. A
// rate is relative to the bare creates next to the claims: in the minutes
// between, the machine itself may have become slower or faster. Steps with no bare
// creates next to them do not count; with fewer than two others it is 0.
func (r *Report) flatness(steps []*Series, rate func(*Series) float64, scenario, variant string) float64 {
	var relative []float64
	for _, s := range steps {
		if bare := r.Find(Key{scenario, variant, s.Shape, s.At}); bare != nil {
			relative = append(relative, rate(s)/bare.PerSecond())
		}
	}
	if len(relative) < 2 {
		return 0
	}
	quarter := max(1, len(relative)/4)
	return median(relative[len(relative)-quarter:]) / median(relative[:quarter])
}

// lives returns the targets of releases, restarts, failovers and replicas.
func (r *Report) lives() []Target {
	restart, failover := r.last("restart"), r.last("failover")
	failed := math.NaN()
	if failover.Millis != nil {
		failed = float64(failover.Failures)
	}
	targets := []Target{
		target(fmt.Sprintf("restart with %s allocations until ready, slowest of %s", count(restart.At), count(restart.Requests)), restart.slowest(), "≤", 4, "s"),
		target(fmt.Sprintf("kill -9 of the leader until the next bound claim, slowest of %s", count(failover.Requests)), failover.slowest(), "≤", 3, "s"),
		target(fmt.Sprintf("creates that fail while the leader of two is killed %s times, 8 clients", count(failover.Requests)), failed, "≤", 5, ""),
	}
	for _, shape := range []string{few, many} {
		targets = append(targets, target("claim creates, two replicas : one, "+shape,
			r.ratio(Key{"replicas", "2", shape, 0}, Key{"replicas", "1", shape, 0}, Round.PerSecond), "≥", 0.95, ""))
	}
	return targets
}

// last returns the last series of a scenario; an empty one if there is none.
func (r *Report) last(scenario string) *Series {
	all := r.Each(scenario, "")
	if len(all) == 0 {
		return &Series{}
	}
	return all[len(all)-1]
}

// slowest returns the longest latency, in seconds; NaN if nothing was measured.
func (s *Series) slowest() float64 {
	if s.Millis == nil {
		return math.NaN()
	}
	return s.Millis.Max / 1000
}
