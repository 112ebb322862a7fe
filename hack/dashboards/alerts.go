package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	lint "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// compared holds an expression of an alert, and the operator and the number of its comparison.
type compared struct {
	expr      string
	operator  string
	threshold float64
}

var comparison = regexp.MustCompile(`(?s)^(.*?)\s*(<|>|==)\s*([0-9.* ]+)$`)

// parts returns the expressions that a rule joins by `or`, each without its comparison. Of
// expressions joined by `and` it returns the first, which panels show.
func parts(rule lint.Rule) ([]compared, error) {
	var all []compared
	for text := range strings.SplitSeq(rule.Expr, "\nor\n") {
		first, _, _ := strings.Cut(text, "\nand\n")
		if strings.HasPrefix(first, "absent(") {
			continue
		}
		found := comparison.FindStringSubmatch(first)
		if found == nil {
			return nil, fmt.Errorf("%s: %q compares nothing with a number", rule.Alert, first)
		}
		threshold := 1.0
		for factor := range strings.SplitSeq(found[3], "*") {
			number, err := strconv.ParseFloat(strings.TrimSpace(factor), 64)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", rule.Alert, err)
			}
			threshold *= number
		}
		all = append(all, compared{found[1], found[2], threshold})
	}
	return all, nil
}

// choices returns the choices of a reader: the labels that are matched with a variable of their
// name, by the start of the name of a metric.
type choices func(metric string) []string

// replicas returns the labels that choose replicas, for the metrics that replicas export.
func replicas(string) []string { return []string{"job", "instance"} }

// holders returns the labels that choose pools and projects, if a metric has them.
func holders(metric string) []string {
	var chosen []string
	for _, d := range metrics.Definitions() {
		for _, label := range []string{"pool_namespace", "pool", "project"} {
			if d.Name == metric && slices.Contains(d.Labels, label) {
				chosen = append(chosen, label)
			}
		}
	}
	return chosen
}

var exported = regexp.MustCompile(`\b((?:cadastre|controller_runtime|go|leader_election|process|rest_client|workqueue)_[a-z0-9_]+)(\{)?`)

// chosen returns an expression with the choices of the reader.
func (c choices) chosen(expr string) string {
	return exported.ReplaceAllStringFunc(expr, func(selector string) string {
		name, matched := strings.CutSuffix(selector, "{")
		var matchers []string
		for _, label := range c(name) {
			matchers = append(matchers, fmt.Sprintf(`%s=~"$%s"`, label, label))
		}
		switch text := strings.Join(matchers, ", "); {
		case text == "":
			return selector
		case matched:
			return selector + text + ", "
		default:
			return name + "{" + text + "}"
		}
	})
}
