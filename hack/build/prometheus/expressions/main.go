// The expressions command lists the metrics that rules of Prometheus read, with their labels:
//
//	expressions <rules.yaml
//
// It reads a file of rules, as promtool does, and writes lines of three columns: the rule, a
// metric, and a label by which the metric is selected. The metric is empty if time series
// are grouped or matched by the label.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"
)

type rules struct {
	Groups []struct {
		Rules []struct{ Alert, Record, Expr string }
	}
}

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "expressions:", err)
		os.Exit(1)
	}
}

func run(from io.Reader, to io.Writer) error {
	var all rules
	if err := yaml.NewDecoder(from).Decode(&all); err != nil {
		return err
	}
	out := bufio.NewWriter(to)
	for _, group := range all.Groups {
		for _, rule := range group.Rules {
			if err := list(out, rule.Alert+rule.Record, rule.Expr); err != nil {
				return err
			}
		}
	}
	return out.Flush()
}

// list writes the reads of an expression.
func list(to io.Writer, rule, expression string) error {
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		return fmt.Errorf("%s: %w", rule, err)
	}
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		for _, read := range reads(node) {
			_, _ = fmt.Fprintf(to, "%s\t%s\t%s\n", rule, read.metric, read.label) // Flush returns the error
		}
		return nil
	})
	return nil
}

// read represents a read of a metric, and of a label of it; or of a label alone, by which time
// series are grouped or matched.
type read struct{ metric, label string }

func reads(node parser.Node) []read {
	var all []read
	switch node := node.(type) {
	case *parser.VectorSelector:
		all = append(all, read{node.Name, ""})
		for _, matcher := range node.LabelMatchers {
			if matcher.Name != model.MetricNameLabel {
				all = append(all, read{node.Name, matcher.Name})
			}
		}
	case *parser.AggregateExpr:
		for _, label := range node.Grouping {
			all = append(all, read{"", label})
		}
	case *parser.BinaryExpr:
		if node.VectorMatching != nil {
			for _, label := range append(node.VectorMatching.MatchingLabels, node.VectorMatching.Include...) {
				all = append(all, read{"", label})
			}
		}
	}
	return all
}
