// Package tracing writes the tables of spans and attributes that docs/tracing.md has; its test
// checks that they are up to date.
package tracing

import (
	"fmt"
	"strings"

	"github.com/cadastre-dev/cadastre/internal/tracing"
)

// Spans is the table of spans.
func Spans() string {
	lines := []string{"| span | | attributes |", "|---|---|---|"}
	for _, d := range tracing.Definitions() {
		keys := make([]string, len(d.Attributes))
		for i, key := range d.Attributes {
			keys[i] = "`" + string(key) + "`"
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", d.Name, d.Help, strings.Join(keys, ", ")))
	}
	return strings.Join(lines, "\n") + "\n"
}

// Attributes is the table of attributes.
func Attributes() string {
	lines := []string{"| attribute | type | |", "|---|---|---|"}
	for _, a := range tracing.Attributes() {
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s |", a.Key, strings.ToLower(a.Type.String()), a.Help))
	}
	return strings.Join(lines, "\n") + "\n"
}
