// The docs command writes the parts that are generated from the code into documents, and the
// dashboards for Grafana. It runs at the root of the repository; `make docs` calls it after
// crd-ref-docs, which writes docs/api.md up to the conditions.
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"github.com/cadastre-dev/cadastre/hack/apireference"
	"github.com/cadastre-dev/cadastre/hack/dashboards"
	"github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/hack/reference"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
)

// part represents the text between the markers of a document: see document.Splice.
type part struct {
	file, name string
	write      func(io.Writer) error
}

func parts() []part {
	return []part{
		{"docs/dashboards.md", "panels", func(out io.Writer) error { return dashboards.Write(".", out) }},
		{"docs/history.md", "history", writeHistory},
		{"docs/kubectl-ipam/README.md", "rights", reference.WriteRights},
		{"docs/metrics.md", "metrics", metrics.Write},
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "docs:", err)
		os.Exit(1)
	}
}

func run() error {
	for _, part := range parts() {
		var content strings.Builder
		if err := part.write(&content); err != nil {
			return fmt.Errorf("%s, %s: %w", part.file, part.name, err)
		}
		if err := document.SpliceFile(part.file, part.name, content.String()); err != nil {
			return err
		}
	}
	if err := reference.Write("docs/kubectl-ipam"); err != nil {
		return err
	}
	return appendConditions("docs/api.md")
}

var emptyLines = regexp.MustCompile(`\n{3,}`)

// appendConditions replaces the conditions and reasons at the end of a page, and leaves one of
// several empty lines.
func appendConditions(file string) error {
	api, err := apireference.Read(".")
	if err != nil {
		return err
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	fields, _, _ := bytes.Cut(text, []byte("\n## Conditions and reasons\n"))
	page := bytes.NewBuffer(fields)
	if err := api.Write(page); err != nil {
		return err
	}
	return os.WriteFile(file, emptyLines.ReplaceAll(page.Bytes(), []byte("\n\n")), 0o644)
}

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
	_, err := fmt.Fprintln(out, strings.Join(lines, "\n"))
	return err
}
