// Package metrics writes the table of metrics in docs/metrics.md. Its tests check that the table
// is up to date, that every alert has a runbook, and that the alerts and the runbooks name
// metrics that exist.
package metrics

import (
	"fmt"
	"io"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// Write writes the table, with one row for each metric.
func Write(to io.Writer) error {
	lines := []string{"| metric | type | labels | |", "|---|---|---|---|"}
	for _, d := range metrics.Definitions() {
		labels := make([]string, len(d.Labels))
		for i, label := range d.Labels {
			labels[i] = "`" + label + "`"
		}
		help := d.Help
		if d.Leader {
			help += " The leader alone exports it."
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", d.Name, strings.ToLower(d.Type.String()), strings.Join(labels, ", "), help))
	}
	_, err := fmt.Fprintln(to, strings.Join(lines, "\n"))
	return err
}
