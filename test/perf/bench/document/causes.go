package document

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// Causes returns the CPU time of each kind of object by cause, and the memory of the API server, from a run of that
// scenario; empty if it was not played.
func Causes(r *figures.Report) string {
	levels := map[int][]*figures.Series{}
	for _, s := range r.Series {
		if s.Scenario == "causes" {
			levels[s.At] = append(levels[s.At], s)
		}
	}
	if len(levels) == 0 {
		return ""
	}
	var text strings.Builder
	text.WriteString(about(r) + "\nMilliseconds of CPU time for each create with 8 clients, until all that follows is done. Of the stack of each sample of a 10 s profile the first rule that applies counts (`test/perf/bench/causes`). *KiB allocated* is memory that the API server allocates for each create, which its garbage collector frees again.\n")
	for _, at := range slices.Sorted(maps.Keys(levels)) {
		fmt.Fprintf(&text, "\nWith %d claims in use at first, one round of each kind in the order of the columns:\n\n%s", at, causesOf(levels[at]))
	}
	return text.String() + serverMemory(r) + notes(r)
}

// causesOf returns the table of one level: the causes of each part, the largest of the claims first.
func causesOf(series []*figures.Series) string {
	t := table{head: []string{"part", "cause"}, numbers: 2}
	for _, s := range series {
		t.head = append(t.head, s.Variant)
	}
	for _, part := range []struct{ key, name string }{{"apiserver", "API server"}, {"managers", "operator"}} {
		highest := map[string]float64{}
		for _, s := range series {
			for name, value := range s.Values {
				if cause, ok := strings.CutPrefix(name, part.key+": "); ok {
					highest[cause] = max(highest[cause], value)
				}
			}
		}
		t.add(row(part.name, "all", series, func(s *figures.Series) float64 { return s.CPU(part.key) })...)
		for _, cause := range slices.SortedFunc(maps.Keys(highest), func(a, b string) int { return cmp.Or(cmp.Compare(highest[b], highest[a]), cmp.Compare(a, b)) }) {
			t.add(row(part.name, cause, series, func(s *figures.Series) float64 { return s.Values[part.key+": "+cause] })...)
		}
	}
	t.add(row("etcd", "all", series, func(s *figures.Series) float64 { return s.CPU("etcd") })...)
	t.add(row("API server", "KiB allocated", series, func(s *figures.Series) float64 { return s.Values["go_memstats_alloc_bytes_total"] / 1024 })...)
	return t.String()
}

func row(part, cause string, series []*figures.Series, value func(*figures.Series) float64) []string {
	cells := []string{part, cause}
	for _, s := range series {
		cells = append(cells, fmt.Sprintf("%.2f", value(s)))
	}
	return cells
}

// serverMemory returns what each claim and its record take in the API server and in the operator.
func serverMemory(r *figures.Report) string {
	server, heap, operator := r.KiBOfClaim("apiserverResidentBytes"), r.KiBOfClaim("apiserverHeapBytes"), r.KiBOfClaim("residentBytes")
	if math.IsNaN(server) {
		return ""
	}
	return fmt.Sprintf("\nEach claim, with its record, takes %.1f KiB of the API server's resident memory, %.1f KiB of its heap, and %.2f KiB of the operator's resident memory.\n",
		server, heap, operator)
}
