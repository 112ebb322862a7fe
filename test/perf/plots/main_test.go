package main

import (
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// TestCurvesAreDrawn draws the two curves of a report, which are documents of XML with the names of
// their lines.
func TestCurvesAreDrawn(t *testing.T) {
	report := &figures.Report{}
	for _, scenario := range []string{"bare", "<claim>"} {
		series := report.Of(figures.Key{Scenario: scenario, Shape: "150/s"})
		series.Add(load.Round{Took: time.Second, Latencies: []time.Duration{time.Millisecond, time.Second}}, 0, nil)
	}
	report.Of(figures.Key{Scenario: "capi"}).Add(load.Round{Took: time.Second, Latencies: make([]time.Duration, 2)}, 0, nil)
	dir := t.TempDir()
	file := filepath.Join(dir, "bench.json")
	if err := report.Save(file); err != nil {
		t.Fatal(err)
	}
	if err := run([]string{file, dir}); err != nil {
		t.Fatal(err)
	}
	for name, lines := range map[string][]string{"bench-150.svg": {"bare", "<claim>"}, "bench-capi.svg": {"bound"}} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		var drawn struct {
			Texts []string `xml:"g>text"`
		}
		if err := xml.Unmarshal(svg, &drawn); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, line := range lines {
			if !strings.Contains(strings.Join(drawn.Texts, "\n"), line) {
				t.Errorf("%s does not name the line %s: %q", name, line, drawn.Texts)
			}
		}
	}
}
