package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
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

func writeSpans(out io.Writer) error {
	lines := []string{"| span | | attributes |", "|---|---|---|"}
	for _, d := range tracing.Definitions() {
		keys := make([]string, len(d.Attributes))
		for i, key := range d.Attributes {
			keys[i] = "`" + string(key) + "`"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", d.Name, d.Help, strings.Join(keys, ", ")))
	}
	return writeLines(out, lines)
}

func writeAttributes(out io.Writer) error {
	lines := []string{"| attribute | type | |", "|---|---|---|"}
	for _, a := range tracing.Attributes() {
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", a.Key, strings.ToLower(a.Type.String()), a.Help))
	}
	return writeLines(out, lines)
}

func writeLines(out io.Writer, lines []string) error {
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
