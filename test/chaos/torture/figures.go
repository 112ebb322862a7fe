package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// The markers around the figures in a document.
const (
	figuresBegin = "<!-- torture:begin -->\n"
	figuresEnd   = "<!-- torture:end -->\n"
)

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

// WriteInto writes the figures of a report into a document, between its markers. A document that
// does not exist is created with nothing else.
func (r *Report) WriteInto(path string) error {
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		data, err = []byte(figuresBegin+figuresEnd), nil
	}
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(data), figuresBegin)
	_, after, ends := strings.Cut(rest, figuresEnd)
	if !begins || !ends {
		return fmt.Errorf("%s has no lines %q and %q", path, strings.TrimSpace(figuresBegin), strings.TrimSpace(figuresEnd))
	}
	var b strings.Builder
	b.WriteString(before + figuresBegin)
	r.figures(&b)
	b.WriteString(figuresEnd + after)
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// figures writes the report as Markdown.
func (r *Report) figures(to io.Writer) {
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(to, format, args...) }
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
