package document_test

import (
	"errors"
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
		{"claims fully Bound : bare creates, 8 clients", "0.2", "no"},
		{"claim p95 at 150/s, open loop", "10 ms", "yes"},
		{"p95 of a claim : a bare create, open loop, 100/s", "2.5", "yes"},
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

func TestCausesAreStatedForEachLevel(t *testing.T) {
	r := &figures.Report{}
	for at, ms := range map[int]float64{0: 2, 60000: 3} {
		s := r.Of(figures.Key{Scenario: "causes", Variant: "bare", Shape: "8 clients", At: at})
		s.Add(round(1000, time.Millisecond), 0, map[string]float64{"apiserver": ms})
		s.Set("apiserver: etcd", ms/2)
		s.Set("apiserver: managed fields", ms/4)
	}
	empty, _, _ := strings.Cut(document.Causes(r), "With 60000 claims")
	if row := rowOf(empty, "API server"); row[2] != "all" || row[3] != "2.00" {
		t.Errorf("the first row is %q", row)
	}
	for _, want := range []string{"| etcd           | 1.50 |", "| managed fields | 0.75 |"} {
		if text := document.Causes(r); !strings.Contains(text, want) {
			t.Errorf("does not have %q:\n%s", want, text)
		}
	}
	for variant, bytes := range map[string]float64{"before claims": 1 << 20, "after claims": 3 << 20} {
		s := r.Of(figures.Key{Scenario: "memory", Variant: variant})
		s.Set("allocations", bytes/(1<<11))
		s.Set("apiserverResidentBytes", bytes*8)
		s.Set("apiserverHeapBytes", bytes*4)
		s.Set("residentBytes", bytes)
	}
	const sentence = "takes 16.0 KiB of the API server's resident memory, 8.0 KiB of its heap, and 2.00 KiB of the operator's resident memory"
	if text := document.Causes(r); !strings.Contains(text, sentence) {
		t.Errorf("does not say %q:\n%s", sentence, text)
	}
}

func TestReadsStateFailures(t *testing.T) {
	r := &figures.Report{}
	refused := round(10, 20*time.Millisecond)
	refused.Errors = []error{errors.New("refused")}
	r.Of(figures.Key{Scenario: "reads", Variant: "kubectl get -A", Shape: "50 clients", At: 1000}).Add(refused, 0, nil)
	row := rowOf(document.Reads(r), "kubectl get -A")
	if diff := cmp.Diff([]string{"kubectl get -A", "50 clients", "1000", "10.0", "20.0", "20.0", "20.0", "1"}, row[1:len(row)-1]); diff != "" {
		t.Errorf("row (-want +got):\n%s", diff)
	}
}

func TestEstimateForMoreCPUsGrowsWithCost(t *testing.T) {
	for second, want := range map[float64]string{
		8:  "1.00 times as much. If each doubling multiplies it by that again, or leaves it if it is below 1, it takes 8.00 with 8, which can do 1000 claims a second",
		10: "1.25 times as much. If each doubling multiplies it by that again, or leaves it if it is below 1, it takes 15.62 with 8, which can do 512 claims a second",
		4:  "0.50 times as much. If each doubling multiplies it by that again, or leaves it if it is below 1, it takes 4.00 with 8, which can do 2000 claims a second",
	} {
		r := &figures.Report{}
		for cpus, ms := range map[int]float64{1: 8, 2: second} {
			key := figures.Key{Scenario: "cores", Variant: "claim, by pool", Shape: "8 clients", At: cpus}
			r.Of(key).Add(round(100, time.Millisecond), time.Second, map[string]float64{"apiserver": ms})
		}
		if text := document.Cores(r); !strings.Contains(text, want) {
			t.Errorf("does not say %q:\n%s", want, text)
		}
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
