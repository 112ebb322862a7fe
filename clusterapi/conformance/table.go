package conformance

import (
	"fmt"
	"strings"
)

// Report holds the results of a provider.
type Report struct {
	Provider string
	Results  []Result
}

// Table returns a table in Markdown of the results of providers that were checked for the same
// clauses, and below it the reasons of the clauses that a provider does not follow, or that do not
// apply.
func Table(reports ...Report) string {
	var table, reasons strings.Builder
	table.WriteString("| clause | level |")
	for _, report := range reports {
		fmt.Fprintf(&table, " %s |", report.Provider)
	}
	fmt.Fprintf(&table, "\n|---|---|%s\n", strings.Repeat("---|", len(reports)))
	for i, c := range Clauses() {
		id := c.ID
		if link := c.Link(); link != "" {
			id = fmt.Sprintf("[%s](%s)", c.ID, link)
		}
		fmt.Fprintf(&table, "| %s %s | %s |", id, c.Requires, c.Level)
		for _, report := range reports {
			result := report.Results[i]
			fmt.Fprintf(&table, " %s |", result.Outcome)
			if result.Outcome != Passed {
				fmt.Fprintf(&reasons, "- %s, %s, %s: %s\n", report.Provider, c.ID, result.Outcome, oneLine(result.Reason))
			}
		}
		table.WriteString("\n")
	}
	if reasons.Len() > 0 {
		return table.String() + "\n" + reasons.String()
	}
	return table.String()
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
