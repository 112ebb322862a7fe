// Package history writes the tables that docs/history.md has, of the fields of an entry and
// of the reasons, and its test checks that they are up to date.
package history

import (
	"fmt"
	"io"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/history"
)

// Write writes both tables.
func Write(to io.Writer) error {
	lines := []string{"| field | |", "|---|---|"}
	for _, f := range history.Fields() {
		lines = append(lines, fmt.Sprintf("| `%s` | %s |", f.Name, f.Meaning))
	}
	lines = append(lines, "", "| reason | of | |", "|---|---|---|")
	for _, r := range history.Reasons() {
		of := make([]string, len(r.Of))
		for i, action := range r.Of {
			of[i] = string(action)
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", r.Reason, strings.Join(of, ", "), r.Meaning))
	}
	_, err := fmt.Fprintln(to, strings.Join(lines, "\n"))
	return err
}
