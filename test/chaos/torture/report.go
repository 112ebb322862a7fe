package torture

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// Report holds the results of a run.
type Report struct {
	Seed     uint64 `json:"seed"`
	Clients  int    `json:"clients"`
	Managers int    `json:"managers"`
	// Pause is the time without a fault between two faults, on average, in seconds.
	Pause float64   `json:"pause"`
	Began time.Time `json:"began"`
	// Seconds is the time that it took, Storm the part with faults: Duration, or until there were
	// UntilGrants and UntilFaults, if they are not both 0.
	Seconds     float64 `json:"seconds"`
	Storm       float64 `json:"storm"`
	Duration    float64 `json:"duration"`
	UntilGrants int     `json:"untilGrants,omitempty"`
	UntilFaults int     `json:"untilFaults,omitempty"`
	// GOGC is the garbage collector's setting for all processes; empty: Go's default.
	GOGC string `json:"gogc,omitempty"`
	// Calls that clients made.
	Calls   int               `json:"calls"`
	Figures witness.Figures   `json:"figures"`
	Faults  int               `json:"faults"`
	ByKind  map[string]Outage `json:"faultsByKind"`
	// Orphans that are left.
	Orphans int `json:"orphansLeft"`
	// Linearizability is empty if the run ended with a violation before.
	Linearizability Linearizability `json:"linearizability"`
	// Violations are promises that were broken, FoundAfter the time from the beginning of the storm
	// to the first of them, in seconds.
	Violations []string `json:"violations"`
	FoundAfter float64  `json:"foundAfter,omitempty"`

	storm time.Time
	seen  []time.Time // when each violation was
	text  string      // their explanation
}

// finish completes the report.
func (t *torture) finish(err error) {
	r, w := t.report, t.world
	r.Seconds = time.Since(r.Began).Seconds()
	if w == nil || w.witness == nil {
		return
	}
	faults := t.nemesis.injected()
	r.Calls, r.Figures, r.Faults, r.ByKind = w.timeline.count(), w.witness.Figures(), len(faults), w.service.outages(faults)
	r.Orphans = w.witness.Orphans()
	for _, v := range w.witness.Violations() {
		r.violate(v.Seen, v.What)
	}
	if err == nil {
		t.say("%s: checking linearizability", t.elapsed())
		w.mu.Lock()
		defer w.mu.Unlock()
		r.Linearizability = checkLinearizable(w.asked, w.releasing, w.witness.Lives())
		for _, what := range r.Linearizability.Bad {
			r.violate(time.Now(), "not linearizable: "+what)
		}
		for _, what := range r.Linearizability.Unknown {
			r.violate(time.Now(), "linearizability is unknown, which counts as broken: "+what)
		}
	} else if errors.Is(err, ErrViolated) && len(r.Violations) == 0 {
		r.violate(time.Now(), err.Error())
	}
	if len(r.Violations) > 0 {
		r.text = t.explain()
	}
}

func (r *Report) violate(at time.Time, what string) {
	if len(r.Violations) == 0 {
		r.FoundAfter = at.Sub(r.storm).Seconds()
	}
	r.Violations, r.seen = append(r.Violations, what), append(r.seen, at)
}

// Explanation returns the seed, the violations with their objects, and the moments around them;
// empty if there is none.
func (r *Report) Explanation() string { return r.text }

// explained is the number of violations that are explained, and aroundIt the time around each.
const explained, aroundIt = 3, 3 * time.Second

func (t *torture) explain() string {
	var b strings.Builder
	r := t.report
	fmt.Fprintf(&b, "seed %d: %d violations after %.1f s\n", r.Seed, len(r.Violations), r.FoundAfter)
	for _, what := range r.Violations {
		fmt.Fprintf(&b, "- %s\n", what)
	}
	witnessed := t.world.witness.Violations() // these come first
	for i, what := range r.Violations[:min(explained, len(r.Violations))] {
		fmt.Fprintf(&b, "\n== %s (at %.3f s)\n", what, r.seen[i].Sub(r.Began).Seconds())
		if i < len(witnessed) {
			fmt.Fprintf(&b, "objects at revision %d:\n  %s\n", witnessed[i].Revision, strings.Join(witnessed[i].Objects, "\n  "))
		}
		b.WriteString("time line:\n")
		t.world.timeline.around(&b, r.seen[i], aroundIt)
	}
	b.WriteString("\nfaults:\n")
	for _, f := range t.nemesis.injected() {
		fmt.Fprintf(&b, "%9.3f..%9.3f  %s\n", f.Began.Sub(t.report.Began).Seconds(), f.Ended.Sub(t.report.Began).Seconds(), f.Kind)
	}
	return b.String()
}

// write writes the report, and the explanation of a violation, to the places that Config names.
func (t *torture) write() error {
	if t.config.Out == "" {
		return nil
	}
	if err := os.MkdirAll(t.config.Out, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(t.report, "", "  ")
	if err != nil {
		return err
	}
	errs := []error{os.WriteFile(filepath.Join(t.config.Out, "report.json"), append(data, '\n'), 0o644)}
	if t.report.text != "" {
		name := fmt.Sprintf("violation-%d.txt", t.report.Seed)
		errs = append(errs, os.WriteFile(filepath.Join(t.config.Out, name), []byte(t.report.text), 0o644))
	}
	return errors.Join(errs...)
}

// moment holds an action of a participant, and its result.
type moment struct {
	Began, Ended time.Time
	Who, What    string
	Result       string
}

// timeline holds the actions, the last part of them for long runs. Its methods may be called
// concurrently.
type timeline struct {
	begin time.Time

	mu      sync.Mutex
	moments []moment
	dropped int
}

// remembered is the lowest number of moments that are kept.
const remembered = 100_000

func (t *timeline) add(m moment) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.moments) >= 2*remembered {
		t.dropped += remembered
		t.moments = slices.Clone(t.moments[remembered:])
	}
	t.moments = append(t.moments, m)
}

// count returns how many moments there were.
func (t *timeline) count() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dropped + len(t.moments)
}

// around writes the moments within so long of a time, in order.
func (t *timeline) around(to io.Writer, at time.Time, within time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var near []moment
	for _, m := range t.moments {
		if m.Ended.After(at.Add(-within)) && m.Began.Before(at.Add(within)) {
			near = append(near, m)
		}
	}
	slices.SortFunc(near, func(a, b moment) int { return a.Began.Compare(b.Began) })
	for _, m := range near {
		_, _ = fmt.Fprintf(to, "%9.3f..%9.3f  %-10s %s: %s\n",
			m.Began.Sub(t.begin).Seconds(), m.Ended.Sub(t.begin).Seconds(), m.Who, m.What, m.Result)
	}
}

// ReadReport reads a report that a run has written.
func ReadReport(path string) (*Report, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	r := &Report{}
	if err := json.Unmarshal(data, r); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return r, nil
}

// Markdown returns the figures of the report.
func (r *Report) Markdown() string {
	var b strings.Builder
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(&b, format, args...) }
	f, l := r.Figures, r.Linearizability
	setting := ""
	if r.GOGC != "" {
		setting = "GOGC=" + r.GOGC + " "
	}
	say("\n`%smake torture DURATION=%.0fs ALLOCATIONS=%d FAULTS=%d SEED=%d CLIENTS=%d MANAGERS=%d PAUSE=%vs`, on %s: %s in %.0f minutes, %.0f of them with faults.\n\n",
		setting, r.Duration, r.UntilGrants, r.UntilFaults, r.Seed, r.Clients, r.Managers, r.Pause, r.Began.UTC().Format("2006-01-02"), r.verdict(), r.Seconds/60, r.Storm/60)
	say("| what | how often |\n|---|---:|\n")
	for _, line := range []struct {
		what string
		n    int
	}{
		{"allocations", f.Allocations}, {"of which to claims that had waited", f.Served}, {"of which CIDRs of pools", f.PoolAllocations}, {"of which to Cluster API's IPAddressClaims", f.AddressGrants},
		{"Clusters that were stored with their networks", f.Clusters - f.Moved}, {"Clusters that were moved out and back", f.Moved},
		{"pools of ranges that were made", f.RangedPools}, {"edits of ranges", f.Edits}, {"conflicts between such pools", f.RangeConflicts},
		{"releases", f.Releases}, {"calls of clients", r.Calls}, {"changes seen in etcd", int(f.Revisions)},
		{"faults", r.Faults}, {"**violations**", len(r.Violations)},
		{"records made", f.Records}, {"of which orphans: gone, and never seen with a holder", f.Orphans},
		{"of those, gone within a second", f.GivenUp}, {"of those, collected later", f.Collected}, {"records without holder that were left at the end", r.Orphans},
		{"blocks released by force, for the test", f.Forced}, {"of which were recorded again", f.Restored}, {"claims overtaken in line while a fault was active", f.Overtaken},
		{"operations checked for linearizability", l.Operations}, {"in groups of blocks that overlap", l.Partitions},
	} {
		say("| %s | %d |\n", line.what, line.n)
	}
	say("\nAmong the orphans are records of IPAddresses that never had a claim.\n")
	say("\n| fault | how often | longest time without an answer that names a block, s |\n|---|---:|---:|\n")
	for _, kind := range slices.Sorted(maps.Keys(r.ByKind)) {
		say("| %s | %d | %.1f |\n", kind, r.ByKind[kind].Count, r.ByKind[kind].Longest)
	}
	say("\nWhere it is 0.0, no two such answers were %v apart. Creates of IPAddressClaims are answered without one, and do not count.\n\n", noticed)
	return b.String()
}

func (r *Report) verdict() string {
	if len(r.Violations) == 0 {
		return "no violation"
	}
	return "VIOLATED"
}

// gap is a time in which no block was handed out.
type gap struct{ from, to time.Time }

// noticed is the shortest gap that is kept.
const noticed = 100 * time.Millisecond

// service holds the times at which blocks were handed out.
type service struct {
	mu   sync.Mutex
	last time.Time
	gaps []gap
}

func (s *service) allocated() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if !s.last.IsZero() && now.Sub(s.last) > noticed {
		s.gaps = append(s.gaps, gap{s.last, now})
	}
	s.last = now
}

// fault holds one that was injected.
type fault struct {
	Kind         string
	Began, Ended time.Time
}

// Outage holds the effects of one kind of fault.
type Outage struct {
	Count int `json:"count"`
	// Longest is the longest time without any block handed out that began while such a fault was
	// active, or covers it. Seconds.
	Longest float64 `json:"longestWithoutService"`
}

// outages returns the counts and longest gaps by kind of fault.
func (s *service) outages(faults []fault) map[string]Outage {
	s.mu.Lock()
	gaps := s.gaps
	s.mu.Unlock()
	outages := map[string]Outage{}
	for _, f := range faults {
		o := outages[f.Kind]
		o.Count++
		for _, g := range gaps {
			if g.from.Before(f.Ended) && g.to.After(f.Began) {
				o.Longest = max(o.Longest, g.to.Sub(g.from).Seconds())
			}
		}
		outages[f.Kind] = o
	}
	return maps.Clone(outages)
}
