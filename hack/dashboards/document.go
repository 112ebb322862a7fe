package dashboards

import (
	"fmt"
	"strings"
)

// Document returns the description of the panels for docs/dashboards.md, row by row.
func Document(all []Dashboard) string {
	var text strings.Builder
	for _, d := range all {
		fmt.Fprintf(&text, "### %s\n\n%s\n\n| | panel | |\n|---|---|---|\n", strings.TrimPrefix(d.Title, "Cadastre / "), d.Description)
		row := ""
		for _, p := range d.Panels {
			if p.Type == TypeRow {
				row = p.Title
				continue
			}
			fmt.Fprintf(&text, "| %s | %s | %s%s |\n", row, p.Title, p.Description, runbooks(p))
			row = ""
		}
		text.WriteString("\n")
	}
	return strings.TrimSuffix(text.String(), "\n")
}

// runbooks returns links to the runbooks of a panel.
func runbooks(p Panel) string {
	var text strings.Builder
	for _, link := range p.Links {
		fmt.Fprintf(&text, " [%s](%s)", strings.TrimPrefix(link.Title, "Runbook "), strings.TrimPrefix(link.URL, documents))
	}
	return text.String()
}
