package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
)

// writeHistory writes the fields of an entry of the history, and the reasons.
func writeHistory(out io.Writer) error {
	lines := []string{"| field | |", "|---|---|"}
	for _, f := range history.Fields() {
		lines = append(lines, fmt.Sprintf("| `%s` | %s |", f.Name, f.Meaning))
	}
	lines = append(lines, "", "| reason | of | |", "|---|---|---|")
	for _, r := range history.Reasons() {
		actions := make([]string, len(r.Of))
		for i, action := range r.Of {
			actions[i] = string(action)
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", r.Reason, strings.Join(actions, ", "), r.Meaning))
	}
	return writeLines(out, lines)
}

func writeLines(out io.Writer, lines []string) error {
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
