package figures

import (
	"fmt"
	"math"
	"slices"
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
		r.least("claims fully Bound : bare creates, 8 clients", ratio{byPool(few), Key{"bare", "", few, 0}, Round.DonePerSecond, 0.30}),
		r.least("claims fully Bound : bare creates, 32 clients", ratio{byPool(many), Key{"bare", "", many, 0}, Round.DonePerSecond, 0.28}),
		r.least("claims fully Bound : two plain creates by the client, 8 clients", ratio{byPool(few), Key{"writes", "", few, 0}, Round.DonePerSecond, 0.80}),
	}
	targets = append(targets, r.services()...)
	for _, shape := range []string{few, many} {
		targets = append(targets,
			r.least("claims by class : by pool, "+shape, ratio{byClass(shape), byPool(shape), Round.DonePerSecond, 0.95}),
			r.most("p95 of claims by class : by pool, "+shape, ratio{byClass(shape), byPool(shape), p95, 1.1}))
	}
	return slices.Concat(targets, r.latencies(), r.addressClaims(), r.growth(), r.lives())
}

const few, many = "8 clients", "32 clients"

func byPool(shape string) Key { return Key{"claim", "by pool", shape, 0} }

func byClass(shape string) Key { return Key{"claim", "by class", shape, 0} }

func p95(r Round) float64 { return r.P95 }

// ratio names two series of which a figure is compared.
type ratio struct {
	of, to Key
	figure func(Round) float64
	wanted float64
}

// least returns the target of a ratio that must reach a value.
func (r *Report) least(what string, q ratio) Target {
	t := Target{What: what, Wanted: fmt.Sprintf("≥ %.2f", q.wanted)}
	if measured := r.ratio(q); !math.IsNaN(measured) {
		t.Measured, t.Met = fmt.Sprintf("%.2f", measured), measured >= q.wanted
	}
	return t
}

// most returns the target of a ratio that must not exceed a value.
func (r *Report) most(what string, q ratio) Target {
	t := Target{What: what, Wanted: fmt.Sprintf("≤ %.2f", q.wanted)}
	if measured := r.ratio(q); !math.IsNaN(measured) {
		t.Measured, t.Met = fmt.Sprintf("%.2f", measured), measured <= q.wanted
	}
	return t
}

// ratio returns a ratio; NaN if it was not measured.
func (r *Report) ratio(q ratio) float64 {
	of, to := r.Find(q.of), r.Find(q.to)
	if of == nil || to == nil {
		return math.NaN()
	}
	return of.Ratio(to, q.figure)
}

// services returns the targets of claims beside Services, of which each makes the next one slower.
func (r *Report) services() []Target {
	first := Target{What: "claims fully Bound : Services, the first of each", Wanted: "≥ 0.80"}
	all := Target{What: "claims fully Bound : Services, from the first ones on", Wanted: "≥ 1.40"}
	if claims, services := r.Each("early", "claim"), r.Each("early", "service"); len(claims) > 0 && len(claims) == len(services) {
		first = r.least(fmt.Sprintf("claims fully Bound : Services, the first %d of each, 8 clients", claims[0].Rounds[0].Requests), ratio{claims[0].Key, services[0].Key, Round.DonePerSecond, 0.80})
		var ratios []float64
		count := 0
		for i := range claims[len(claims)-1].Rounds { // of which there are fewer if the run ended early
			var of, to Round
			for j := range claims {
				of, to = of.plus(claims[j].Rounds[i]), to.plus(services[j].Rounds[i])
			}
			count, ratios = of.Requests, append(ratios, of.DonePerSecond()/to.DonePerSecond())
		}
		all.What = fmt.Sprintf("the same over the first %d", count)
		all.Measured, all.Met = fmt.Sprintf("%.2f", median(ratios)), median(ratios) >= 1.4
	}
	targets := []Target{first, all}
	for _, s := range r.Each("service", "") {
		if s.At > 0 {
			targets = append(targets, r.least(fmt.Sprintf("the same with %d of each", s.At), ratio{Key{"claim", "by pool", s.Shape, s.At}, s.Key, Round.DonePerSecond, 5}))
		}
	}
	return targets
}

// plus returns a round of the requests of both, one after the other.
func (r Round) plus(other Round) Round {
	return Round{Requests: r.Requests + other.Requests, Seconds: r.Seconds + other.Seconds, DoneSeconds: r.DoneSeconds + other.DoneSeconds}
}

// bound returns the target of a figure that must not exceed a value.
func bound(what, unit string, measured *float64, wanted float64) Target {
	t := Target{What: what, Wanted: fmt.Sprintf("≤ %g %s", wanted, unit)}
	if measured != nil {
		t.Measured, t.Met = fmt.Sprintf("%s %s", short(*measured), unit), *measured <= wanted
	}
	return t
}

// short returns a figure with three digits, or with all those before the point.
func short(value float64) string {
	if value >= 1000 {
		return fmt.Sprintf("%.0f", value)
	}
	return fmt.Sprintf("%.3g", value)
}

func (r *Report) p95(key Key) *float64 {
	if s := r.Find(key); s != nil && s.Millis != nil {
		return &s.Millis.P95
	}
	return nil
}

func (r *Report) latencies() []Target {
	half := "half of the rate of 8 clients"
	if halves := r.Each(Half, ""); len(halves) > 0 {
		half = halves[0].Shape
	}
	var targets []Target
	for _, shape := range []string{half, "150/s"} {
		targets = append(targets,
			r.most("p95 of a claim : a Service, open loop, "+shape, ratio{byPool(shape), Key{"service", "", shape, 0}, p95, 1.2}),
			r.most("p95 of a claim by class : by pool, open loop, "+shape, ratio{byClass(shape), byPool(shape), p95, 1.1}))
	}
	return append(targets,
		r.most("p95 of a claim : a bare create, open loop, 100/s", ratio{byPool("100/s"), Key{"bare", "", "100/s", 0}, p95, 4}),
		bound("claim p95 at 150/s, open loop", "ms", r.p95(byPool("150/s")), 60),
		bound("deny p95 at 150/s, open loop", "ms", r.p95(Key{"deny", "", "150/s", 0}), 5),
		bound("release until the waiting claim is Bound, p95", "ms", r.p95(Key{Scenario: "release"}), 25))
}

func (r *Report) addressClaims() []Target {
	targets := []Target{r.least("IPAddressClaims bound : bare creates", ratio{Key{"capi", "", many, 0}, Key{"bare", "", many, 0}, Round.DonePerSecond, 0.17})}
	series := r.Each("capi", "")
	t := Target{What: "IPAddressClaims bound, most in use : none in use", Wanted: "≥ 0.95"}
	if len(series) > 1 {
		measured := r.flatness(series, (*Series).DonePerSecond, "bare", "")
		t.What = fmt.Sprintf("IPAddressClaims bound at %d in use : at 0, each beside bare creates", series[len(series)-1].At)
		t.Measured, t.Met = fmt.Sprintf("%.2f", measured), measured >= 0.95
	}
	return append(targets, t)
}

// growth returns the targets that must not depend on the number of blocks in use.
func (r *Report) growth() []Target {
	rate := Target{What: "claim creates with all of them in use : with none, each beside bare creates", Wanted: "≥ 0.95"}
	if steps := r.Each("fill", "claim"); len(steps) > 1 {
		last := steps[len(steps)-1]
		measured := r.flatness(steps, (*Series).PerSecond, "fill", "bare")
		rate.What = fmt.Sprintf("claim creates at %d in use : at 0, each beside bare creates", last.At+last.Requests)
		rate.Measured, rate.Met = fmt.Sprintf("%.2f", measured), measured >= 0.95
	}
	return []Target{
		rate, bound("resident memory of a replica, for each claim", "KiB", r.KiBOfClaim("residentBytes"), 1),
		bound("resident memory of the API server, for each claim and its record", "KiB", r.KiBOfClaim("apiserverResidentBytes"), 32),
	}
}

// KiBOfClaim returns by how much a figure of the memory grows with each claim when only claims are made; nil if that
// was not measured.
func (r *Report) KiBOfClaim(name string) *float64 {
	before, after := r.Find(Key{Scenario: "memory", Variant: BeforeClaims}), r.Find(Key{Scenario: "memory", Variant: AfterClaims})
	if before == nil || after == nil {
		return nil
	}
	return new((after.Values[name] - before.Values[name]) / (after.Values["allocations"] - before.Values["allocations"]) / 1024)
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
	restart := bound("restart until ready", "s", nil, 4)
	for _, s := range r.Series {
		if s.Scenario == "restart" && s.Millis != nil {
			slowest := s.Millis.Max / 1000
			restart = bound(fmt.Sprintf("restart with %d allocations until ready, slowest of %d", s.At, s.Requests), "s", &slowest, 4)
		}
	}
	failover := bound("kill -9 of the leader until the next bound claim", "s", nil, 3)
	failed := Target{What: "creates that fail while the leader of two is killed", Wanted: "≤ 5"}
	if s := r.Find(Key{Scenario: "failover"}); s != nil && s.Millis != nil {
		slowest := s.Millis.Max / 1000
		failover = bound(fmt.Sprintf("kill -9 of the leader until the next bound claim, slowest of %d", s.Requests), "s", &slowest, 3)
		failed.What += fmt.Sprintf(" %d times, 8 clients", s.Requests)
		failed.Measured, failed.Met = fmt.Sprint(s.Failures), s.Failures <= 5
	}
	targets := []Target{restart, failover, failed}
	for _, shape := range []string{few, many} {
		targets = append(targets, r.least("claim creates, two replicas : one, "+shape,
			ratio{Key{"replicas", "2", shape, 0}, Key{"replicas", "1", shape, 0}, Round.PerSecond, 0.95}))
	}
	return targets
}
