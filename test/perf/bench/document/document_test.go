package document_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// round returns a round of so many requests in a second, each of which took so long.
func round(requests int, each time.Duration) load.Round {
	r := load.Round{Took: time.Second}
	for range requests {
		r.Latencies = append(r.Latencies, each)
	}
	return r
}

func report() *figures.Report {
	r := &figures.Report{Command: "make bench", Seconds: 90, Machine: figures.Machine{CPU: "a CPU", CPUs: 2, Platform: "linux/amd64"}}
	for _, shape := range []string{"8 clients", "100/s", "150/s"} {
		r.Of(figures.Key{Scenario: "bare", Shape: shape}).Add(round(1000, 4*time.Millisecond), 0, nil)
		r.Of(figures.Key{Scenario: "claim", Variant: "by pool", Shape: shape}).Add(round(400, 10*time.Millisecond), 2*time.Second, nil)
	}
	failover := r.Of(figures.Key{Scenario: "failover"})
	failover.AddLatencies([]time.Duration{time.Second, 2 * time.Second})
	failover.Failures = 6
	return r
}

func TestTargetsStateMeasurementAndVerdict(t *testing.T) {
	for _, c := range []struct{ what, measured, met string }{
		{"claims fully Bound : bare creates, 8 clients", "0.20", "no"},
		{"claim p95 at 150/s, open loop", "10 ms", "yes"},
		{"claim p95 : bare create p95, each at 100/s, open loop", "2.5", "yes"},
		{"claims fully Bound : bare creates, 32 clients", "-", "not measured"},
		{"creates that fail while the leader of two is killed 2 times, 8 clients", "6", "no"},
	} {
		if row := rowOf(document.Targets(report()), c.what); row[3] != c.measured || row[4] != c.met {
			t.Errorf("%s: measured %q, met %q: want %q and %q", c.what, row[3], row[4], c.measured, c.met)
		}
	}
}

func TestDocumentStatesCostOfClaimWrites(t *testing.T) {
	r, used := &figures.Report{}, func(ms float64) map[string]float64 { return map[string]float64{"apiserver": ms} }
	r.Of(figures.Key{Scenario: "bare", Shape: "8 clients"}).Add(round(1000, time.Millisecond), 0, used(2))
	r.Of(figures.Key{Scenario: "claim", Variant: "by pool", Shape: "8 clients"}).Add(round(200, time.Millisecond), time.Second, used(9))
	const sentence = "made by the client with no operator, take 6.5 ms, and with 8 clients their rate is 0.30 of that of bare creates"
	if text := document.Markdown(r); strings.Contains(text, sentence) {
		t.Errorf("says %q, which was not measured", sentence)
	}
	r.Of(figures.Key{Scenario: "writes", Shape: "8 clients"}).Add(round(300, time.Millisecond), time.Second, used(6.5))
	if text := document.Markdown(r); !strings.Contains(text, sentence) {
		t.Errorf("does not say %q:\n%s", sentence, text)
	}
}

// rowOf returns the row of a table that begins with a cell.
func rowOf(table, first string) []string {
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if len(cells) > 4 && cells[1] == first {
			return cells
		}
	}
	return make([]string, 6)
}

func TestSavedReportYieldsSameDocument(t *testing.T) {
	path := t.TempDir() + "/bench.json"
	must.Succeed(t, report().Save(path))
	loaded, err := figures.Load(path)
	must.Succeed(t, err)
	if got, want := document.Markdown(loaded), document.Markdown(report()); got != want {
		t.Errorf("from the file:\n%s\nwant:\n%s", got, want)
	}
}

func TestPlotsShowMeasuredSeries(t *testing.T) {
	var got []string
	for _, plot := range document.Plots(report()) {
		for _, line := range plot.Lines {
			got = append(got, fmt.Sprintf("%s: %s, %d points", plot.File(), line.Name, len(line.Points)))
		}
	}
	want := []string{
		"bench-150.svg: bare, 25 points", "bench-150.svg: claim, by pool, 25 points",
		"bench-clients.svg: bare, 1 points", "bench-clients.svg: claim by pool, 1 points",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("plots (-want +got):\n%s", diff)
	}
}

func TestSpliceKeepsSurroundingText(t *testing.T) {
	const text = "a\n<!-- begin x -->\nold\n<!-- end x -->\nb\n"
	got, err := document.Splice(text, "x", "new\n")
	if want := "a\n<!-- begin x -->\nnew\n<!-- end x -->\nb\n"; got != want || err != nil {
		t.Errorf("got %q, %v: want %q", got, err, want)
	}
	if _, err := document.Splice(text, "y", "new\n"); err == nil {
		t.Error("a part that the document does not have was put somewhere")
	}
}
