package document

import (
	"fmt"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// Observed is a table of what metrics and traces cost; empty where it was not measured.
func Observed(r *figures.Report) string {
	t := table{head: []string{"replica", "claims/s", "of the first", "CPU of the replica, ms a claim", "p95 ms"}, numbers: 1}
	rounds := 0
	var first *figures.Series
	for _, variant := range figures.Observed {
		for _, s := range r.Each("observed", variant) {
			if first == nil {
				first = s
			}
			rounds = len(s.Rounds)
			t.add(variant, fmt.Sprintf("%.0f", s.PerSecond()), fmt.Sprintf("%.3f", s.Ratio(first, figures.Round.PerSecond)), fmt.Sprintf("%.2f", s.CPU("managers")), fmt.Sprintf("%.1f", s.Millis.P95))
		}
	}
	if first == nil {
		return ""
	}
	return about(r) + fmt.Sprintf("Medians of %d rounds each, in turn.\n\n", rounds) + t.String() + notes(r)
}
