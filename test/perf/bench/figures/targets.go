package figures

import (
	"fmt"
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
	claim := func(shape string) Key { return Key{"claim", "by pool", shape, 0} }
	const few, many = "8 clients", "32 clients"
	targets := []Target{
		r.rate("claims fully Bound : bare creates, 8 clients", ratio{claim(few), Key{"bare", "", few, 0}, Round.DonePerSecond, 0.30}),
		r.rate("claims fully Bound : bare creates, 32 clients", ratio{claim(many), Key{"bare", "", many, 0}, Round.DonePerSecond, 0.28}),
		r.rate("claims fully Bound : two plain creates by the client, 8 clients", ratio{claim(few), Key{"writes", "", few, 0}, Round.DonePerSecond, 0.65}),
		r.rate("claims fully Bound : Services, 8 clients", ratio{claim(few), Key{"service", "", few, 0}, Round.DonePerSecond, 1.4}),
	}
	for _, s := range r.Each("service", "") {
		if s.At > 0 {
			targets = append(targets, r.rate(fmt.Sprintf("the same with %d of each", s.At), ratio{Key{"claim", "by pool", s.Shape, s.At}, s.Key, Round.DonePerSecond, 5}))
		}
	}
	return slices.Concat(targets, r.latencies(), r.addressClaims(), r.growth(), r.lives())
}

// ratio names two series whose rates are compared.
type ratio struct {
	of, to Key
	rate   func(Round) float64
	wanted float64
}

func (r *Report) rate(what string, q ratio) Target {
	t := Target{What: what, Wanted: fmt.Sprintf("≥ %.2f", q.wanted)}
	of, to := r.Find(q.of), r.Find(q.to)
	if of == nil || to == nil {
		return t
	}
	measured := of.Ratio(to, q.rate)
	t.Measured, t.Met = fmt.Sprintf("%.2f", measured), measured >= q.wanted
	return t
}

// most returns the target of a figure that must not exceed a value.
func most(what, unit string, measured *float64, wanted float64) Target {
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

func (r *Report) value(key Key, name string) *float64 {
	if s := r.Find(key); s != nil {
		if value, ok := s.Values[name]; ok {
			return &value
		}
	}
	return nil
}

func (r *Report) latencies() []Target {
	claim, bare := r.p95(Key{"claim", "by pool", "100/s", 0}), r.p95(Key{"bare", "", "100/s", 0})
	times := Target{What: "claim p95 : bare create p95, each at 100/s, open loop", Wanted: "≤ 4"}
	if claim != nil && bare != nil {
		times.Measured, times.Met = fmt.Sprintf("%.1f", *claim / *bare), *claim <= 4**bare
	}
	return []Target{
		times, most("claim p95 at 150/s, open loop", "ms", r.p95(Key{"claim", "by pool", "150/s", 0}), 60),
		most("deny p95 at 150/s, open loop", "ms", r.p95(Key{"deny", "", "150/s", 0}), 5),
		most("release until the waiting claim is Bound, p95", "ms", r.p95(Key{Scenario: "release"}), 40),
	}
}

func (r *Report) addressClaims() []Target {
	shape := "32 clients"
	targets := []Target{r.rate("IPAddressClaims bound : bare creates", ratio{Key{"capi", "", shape, 0}, Key{"bare", "", shape, 0}, Round.DonePerSecond, 0.18})}
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
	memory := Target{What: "manager memory beyond 60 MiB, an allocation", Wanted: "≤ 1.5 KiB"}
	if resident, held := r.value(Key{Scenario: "memory", Variant: "after"}, "residentBytes"), r.value(Key{Scenario: "memory", Variant: "after"}, "allocations"); resident != nil && *held > 0 {
		each := (*resident - 60*(1<<20)) / *held / 1024
		memory.What = fmt.Sprintf("manager memory beyond 60 MiB, for each of %.0f allocations", *held)
		memory.Measured, memory.Met = fmt.Sprintf("%.2f KiB", each), each <= 1.5
	}
	return []Target{rate, memory}
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
	restart := most("restart until ready", "s", nil, 5)
	for _, s := range r.Series {
		if s.Scenario == "restart" && s.Millis != nil {
			slowest := s.Millis.Max / 1000
			restart = most(fmt.Sprintf("restart with %d allocations until ready, slowest of %d", s.At, s.Requests), "s", &slowest, 5)
		}
	}
	failover := most("kill -9 of the leader until the next bound claim", "s", nil, 3)
	failed := Target{What: "creates that fail while the leader of two is killed", Wanted: "≤ 5"}
	if s := r.Find(Key{Scenario: "failover"}); s != nil && s.Millis != nil {
		slowest := s.Millis.Max / 1000
		failover = most(fmt.Sprintf("kill -9 of the leader until the next bound claim, slowest of %d", s.Requests), "s", &slowest, 3)
		failed.What += fmt.Sprintf(" %d times, 8 clients", s.Requests)
		failed.Measured, failed.Met = fmt.Sprint(s.Failures), s.Failures <= 5
	}
	targets := []Target{restart, failover, failed}
	for _, shape := range []string{"8 clients", "32 clients"} {
		targets = append(targets, r.rate("claim creates, two replicas : one, "+shape,
			ratio{Key{"replicas", "2", shape, 0}, Key{"replicas", "1", shape, 0}, Round.PerSecond, 0.95}))
	}
	return targets
}
