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

	lint "github.com/cadastre-dev/cadastre/hack/metrics"
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
