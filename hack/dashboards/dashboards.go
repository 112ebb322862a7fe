// Package dashboards makes the dashboards for Grafana: of the operator, and of the addresses.
// A panel for an alert has the expression of the alert, so that the two cannot differ.
package dashboards

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	lint "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// Directory is the directory of the dashboards, within the module.
const Directory = "config/dashboards"

const documents = "https://github.com/cadastre-dev/cadastre/blob/main/docs/"

// All returns the dashboards, with expressions and thresholds of the alerts.
func All(alerts *lint.Alerts) ([]Dashboard, error) {
	operator := &builder{alerts: alerts, Dashboard: dashboard("cadastre-operator", "Cadastre / Operator",
		"Whether Cadastre works: its replicas, allocations, webhooks, watch and controllers.",
		queried("job", "Job", "cadastre_build_info", ""), queried("instance", "Replica", `cadastre_build_info{job=~"$job"}`, ""))}
	operator.operator()
	space := &builder{alerts: alerts, Dashboard: dashboard("cadastre-address-space", "Cadastre / Address space",
		"How full the pools are, which claims wait for addresses, and how much of their limits projects hold.",
		queried("pool_namespace", "Namespace of the pool", "cadastre_pool_capacity_addresses", ".*"),
		queried("pool", "Pool", `cadastre_pool_capacity_addresses{pool_namespace=~"$pool_namespace"}`, ".*"),
		queried("project", "Project", "cadastre_project_usage", ".*"))}
	space.space()
	return []Dashboard{operator.Dashboard, space.Dashboard}, errors.Join(append(operator.errs, space.errs...)...)
}

func dashboard(uid, title, description string, variables ...Variable) Dashboard {
	choose := Variable{Type: "datasource", Name: "datasource", Label: "Data source", Query: "prometheus", Refresh: 1}
	link := func(title, page string) Link {
		return Link{Title: title, Type: "link", Icon: "doc", URL: documents + page, Tags: []string{}, TargetBlank: true}
	}
	return Dashboard{
		UID: uid, Title: title, Description: description, Tags: []string{"cadastre", "ipam"},
		Links: []Link{
			{Title: "Cadastre", Type: "dashboards", Icon: "external link", Tags: []string{"cadastre"}, KeepTime: true},
			link("What the panels show", "dashboards.md"), link("Metrics", "metrics.md"), link("Runbooks", "runbooks/README.md"),
		},
		Templating:  Templating{List: append([]Variable{choose}, variables...)},
		Annotations: Annotations{List: []any{}},
		Time:        Range{From: "now-6h", To: "now"}, Refresh: "1m", Timezone: "browser", GraphTooltip: 1,
		Editable: true, SchemaVersion: schemaVersion,
	}
}

// queried returns a variable with the values of a label of a metric. The reader can choose several
// of them. With an empty all, the choice All means these values, because other programs export the
// same metrics as the operator's libraries. Otherwise it means all values that the expression all
// matches, such as a missing label: an IPPool has no namespace.
func queried(label, title, of, all string) Variable {
	query := fmt.Sprintf("label_values(%s, %s)", of, label)
	return Variable{
		Type: "query", Name: label, Label: title, Datasource: source(), Definition: query,
		Query:   map[string]any{"query": query, "refId": "label_" + label},
		Current: &Choice{Text: []string{"All"}, Value: []string{"$__all"}},
		Refresh: 2, Sort: 1, Multi: true, IncludeAll: true, AllValue: all, // queried again when the range of time changes, in order
	}
}

// File returns the name of a dashboard's file.
func (d Dashboard) File() string { return d.UID + ".json" }

// JSON returns the content of a dashboard's file.
func (d Dashboard) JSON() ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // keeps its expressions readable
	encoder.SetIndent("", "  ")
	err := encoder.Encode(d)
	return text.Bytes(), err
}

// Write writes the dashboards of a repository, and to out the tables of their panels.
func Write(root string, out io.Writer) error {
	alerts, err := lint.ReadAlerts(root)
	if err != nil {
		return err
	}
	all, err := All(alerts)
	if err != nil {
		return err
	}
	for _, d := range all {
		text, err := d.JSON()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, Directory, d.File()), text, 0o644); err != nil {
			return err
		}
	}
	_, err = io.WriteString(out, Document(all))
	return err
}

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
