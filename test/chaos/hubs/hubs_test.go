package hubs

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// figures holds the results of a run.
type figures struct {
	Seed     uint64
	Duration time.Duration
	Faults   map[string]int
	// Missing counts the ranges of clusters that a restored hub did not know, Returned the claims in it whose
	// ranges had been returned.
	Missing, Returned int
}

// TestNoAddressHasTwoHoldersInAnyCluster runs each fault once, or faults for HUBS_DURATION, drawn by SEED. Its
// figures are written to the file HUBS_FIGURES.
func TestNoAddressHasTwoHoldersInAnyCluster(t *testing.T) {
	duration := suite.Setting(t, "HUBS_DURATION", 0, time.ParseDuration)
	seed := suite.Seed(t, "SEED", 1)
	if seed == 0 {
		seed = uint64(time.Now().Unix())
	}
	t.Logf("seed %d", seed)
	w := start(t, seed, "east", "west")
	w.Duration = duration
	w.moveRangeAndRestore()
	begin := time.Now()
	stop := w.load(10)
	w.rage(duration)
	stop()
	if t.Failed() {
		return
	}
	w.giveBack()
	w.judge.end()
	report(t, "HUBS_FIGURES", w.markdown(time.Since(begin)))
}

// report logs a text, and writes it to the file that a variable names.
func report(t *testing.T, variable, text string) {
	t.Helper()
	t.Log(text)
	if path := os.Getenv(variable); path != "" {
		suite.Must(t, os.WriteFile(path, []byte(text), 0o644))
	}
}

func (w *world) progress() string {
	served, ranges := w.counts()
	w.judge.mu.Lock()
	defer w.judge.mu.Unlock()
	return fmt.Sprintf("%d claims, %d ranges", served, ranges)
}

// counts returns the number of claims that were served, and of ranges that clusters got.
func (w *world) counts() (served int64, ranges int) {
	for _, s := range w.spokes {
		served += s.served.Load()
		ranges += s.witness.Figures().PoolAllocations
	}
	return served, ranges
}

func (w *world) markdown(took time.Duration) string {
	var b strings.Builder
	served, ranges := w.counts()
	unserved, sum := int64(0), 0
	for _, s := range w.spokes {
		unserved += s.unserved.Load()
	}
	for _, n := range w.Faults {
		sum += n
	}
	j := w.judge
	j.mu.Lock()
	defer j.mu.Unlock()
	verdict := "no violation"
	if len(j.violations) > 0 {
		verdict = "VIOLATED"
	}
	fmt.Fprintf(&b, "\n`make hubs DURATION=%v SEED=%d`, on %s: %s in %.0f minutes.\n\n| what | how often |\n|---|---:|\n", w.Duration, w.Seed, time.Now().UTC().Format(time.DateOnly), verdict, took.Minutes())
	for _, row := range []struct {
		what string
		n    int
	}{
		{"claims that were served", int(served)}, {"claims that were withdrawn after four seconds without a block", int(unserved)},
		{"ranges that clusters got from the hub", ranges},
		{"records that were compared with those of the other cluster", j.records},
		{"comparisons of the pools of the clusters with the claims in the hub", j.looks}, {"of which while a range was waited for in the hub", j.waits},
		{"ranges in use that a restored hub did not know", w.Missing}, {"ranges that a restored hub had, and were returned before", w.Returned},
		{"faults", sum}, {"**violations**", len(j.violations)},
	} {
		fmt.Fprintf(&b, "| %s | %d |\n", row.what, row.n)
	}
	b.WriteString("\n| fault | how often |\n|---|---:|\n")
	for _, kind := range slices.Sorted(maps.Keys(w.Faults)) {
		fmt.Fprintf(&b, "| %s | %d |\n", kind, w.Faults[kind])
	}
	b.WriteString("\n")
	return b.String()
}
