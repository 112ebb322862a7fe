package dashboards

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	grafana "github.com/grafana/grafana-foundation-sdk/go/dashboard"

	lint "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

const root = "../.."

// notShown holds the metrics that no dashboard shows, each with the reason.
var notShown = map[string]string{
	"cadastre_cluster_networks_total":          "cadastre_claims shows the claims that Clusters have, cadastre_webhook_refusals_total the refusals",
	"cadastre_in_cluster_provider":             "it is for those who move over from the in-cluster provider, and for kubectl get pools, whose conditions say the same",
	"cadastre_webhook_path_replacements_total": "a replacement asks nothing of anyone; the counts are for the search after a leak",
}

// notPlotted holds the alerts that no panel watches, each with the reason.
var notPlotted = map[string]string{
	"CadastreDown": "it fires when there is nothing to plot; the panel Replicas counts them",
}

func made(t *testing.T) ([]Dashboard, *lint.Alerts) {
	t.Helper()
	alerts, err := lint.ReadAlerts(root)
	must.Succeed(t, err)
	all, err := All(alerts)
	must.Succeed(t, err)
	return all, alerts
}

func TestEveryFileIsDashboard(t *testing.T) {
	all, _ := made(t)
	want := []string{"kustomization.yaml"}
	for _, d := range all {
		want = append(want, d.File())
	}
	entries, err := os.ReadDir(filepath.Join(root, Directory))
	must.Succeed(t, err)
	for _, entry := range entries {
		if !slices.Contains(want, entry.Name()) {
			t.Errorf("%s/%s is not written by make docs: delete it", Directory, entry.Name())
		}
	}
}

// TestDashboardsMatchGrafanaSchema decodes the dashboards with the types that Grafana generates from its
// schema: no field is unknown or of a wrong type, and no required one is missing.
func TestDashboardsMatchGrafanaSchema(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	all, _ := made(t)
	for _, d := range all {
		text, err := d.JSON()
		must.Succeed(t, err)
		if err := taken(text); err != nil {
			t.Errorf("%s: %v", d.UID, err)
		}
		for wrong, right := range map[string]string{
			`"refreshh": "1m"`: `"refresh": "1m"`, `"drawstyle": "line"`: `"drawStyle": "line"`, `"legendformat": `: `"legendFormat": `,
			`"showLegends": true`: `"showLegend": true`, `"h": "8"`: `"h": 8`, `"calc": [`: `"calcs": [`, `"transparency": [`: `"transformations": [`,
		} {
			if !strings.Contains(string(text), right) && d.UID != all[1].UID { // all are in the second one
				continue
			}
			if err := taken([]byte(strings.Replace(string(text), right, wrong, 1))); err == nil {
				t.Errorf("%s: %s in place of %s is not found", d.UID, wrong, right)
			}
		}
	}
}

// taken returns the error of Grafana's types for a dashboard.
func taken(text []byte) error {
	board := grafana.NewDashboard()
	if board.SchemaVersion != schemaVersion {
		return fmt.Errorf("the version of the schema is %d, and that of Grafana's types is %d", schemaVersion, board.SchemaVersion)
	}
	err := board.UnmarshalJSONStrict(text)
	if found := (cog.BuildErrors)(nil); errors.As(err, &found) && len(found) == 0 {
		err = nil // a list without errors
	}
	return errors.Join(err, board.Validate())
}

func TestPanelsFillRowsWithoutOverlap(t *testing.T) {
	all, _ := made(t)
	for _, d := range all {
		ids, taken, lines := map[int]bool{}, map[[2]int]string{}, 0
		for _, p := range d.Panels {
			if p.ID <= 0 || ids[p.ID] {
				t.Errorf("%s: panel %q has the id %d, which is wrong, or that of another", d.UID, p.Title, p.ID)
			}
			ids[p.ID] = true
			g := p.GridPos
			if g.X < 0 || g.X+g.W > 24 || g.W <= 0 || g.H <= 0 {
				t.Errorf("%s: panel %q is at %+v, beyond 24 units", d.UID, p.Title, g)
			}
			for y := g.Y; y < g.Y+g.H; y++ {
				for x := g.X; x < g.X+g.W; x++ {
					if other, ok := taken[[2]int{x, y}]; ok {
						t.Fatalf("%s: panels %q and %q overlap", d.UID, p.Title, other)
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
			lines = max(lines, g.Y+g.H)
		}
		if len(taken) != 24*lines {
			t.Errorf("%s: %d of %d units are empty", d.UID, 24*lines-len(taken), 24*lines)
		}
	}
}

func TestPanelsAreDescribed(t *testing.T) {
	all, _ := made(t)
	uids := map[string]bool{}
	for _, d := range all {
		if uids[d.UID] || len(d.UID) > 40 {
			t.Errorf("uid %q belongs to another dashboard, or is too long", d.UID)
		}
		uids[d.UID] = true
		titles := map[string]bool{}
		for _, p := range d.Panels {
			if p.Type == TypeRow {
				continue
			}
			if titles[p.Title] || p.Title == "" {
				t.Errorf("%s: %q is the title of two panels, or none", d.UID, p.Title)
			}
			titles[p.Title] = true
			if !strings.HasSuffix(p.Description, ".") || p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %q lacks a description, a unit, the data source or queries: %+v", d.UID, p.Title, p)
			}
		}
	}
}

var variable = regexp.MustCompile(`\$[a-z_]+`)

// expressions returns the queries of all dashboards as Prometheus gets them, and their sources:
// panels and variables.
func expressions(t *testing.T, all []Dashboard) (texts, from []string) {
	t.Helper()
	for _, d := range all {
		names := []string{"$__rate_interval"}
		for _, v := range d.Templating.List {
			names = append(names, "$"+v.Name)
			if query, ok := strings.CutPrefix(v.Definition, "label_values("); ok {
				i := strings.LastIndex(query, ", ")
				texts = append(texts, fmt.Sprintf("count by (%s) (%s)", strings.TrimSuffix(query[i+2:], ")"), query[:i]))
				from = append(from, fmt.Sprintf("%s: variable %s", d.UID, v.Name))
			}
		}
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				texts = append(texts, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m"))
				from = append(from, fmt.Sprintf("%s: panel %q, query %s", d.UID, p.Title, target.RefID))
				for _, name := range variable.FindAllString(target.Expr, -1) {
					if !slices.Contains(names, name) {
						t.Errorf("%s reads %s, which is no variable", from[len(from)-1], name)
					}
				}
			}
		}
	}
	return texts, from
}

// TestExpressionsReadExistingMetrics parses them with the parser of Prometheus; together they must
// read all metrics of the operator.
func TestExpressionsReadExistingMetrics(t *testing.T) {
	all, alerts := made(t)
	texts, from := expressions(t, all)
	reads, err := alerts.ReadsOf(texts)
	must.Succeed(t, err)
	for _, missing := range lint.Missing(reads) {
		index, err := strconv.Atoi(missing.Rule)
		must.Succeed(t, err)
		t.Errorf("%s %s", from[index], missing)
	}
	shown := map[string]bool{}
	for _, r := range reads {
		shown[r.Metric] = true
	}
	for _, d := range metrics.Definitions() {
		_, explained := notShown[d.Name]
		if on := shown[d.Name] || shown[d.Name+"_bucket"]; on == explained {
			t.Errorf("%s is on a dashboard: %t, and explained in notShown: %t", d.Name, on, explained)
		}
	}
}

func TestPanelWithMissingMetricIsDetected(t *testing.T) {
	_, alerts := made(t)
	reads, err := alerts.ReadsOf([]string{`sum by (color) (cadastre_claims{shape="round"}) / cadastre_nothing`})
	must.Succeed(t, err)
	if missing := fmt.Sprint(lint.Missing(reads)); !strings.Contains(missing, "color") || !strings.Contains(missing, "shape") || !strings.Contains(missing, "cadastre_nothing") {
		t.Errorf("found is %s", missing)
	}
	if _, err := alerts.ReadsOf([]string{"sum by (a (b)"}); err == nil {
		t.Error("an expression that does not parse is accepted")
	}
}

// TestPanelsShowAlertExpressions finds the expressions of each alert, without comparisons, on panels
// that link to its runbook.
func TestPanelsShowAlertExpressions(t *testing.T) {
	all, alerts := made(t)
	matchers := regexp.MustCompile(`[a-z_]+=~"\$[a-z_]+"(, )?`)
	for _, rule := range alerts.All {
		wanted, err := parts(rule)
		if err != nil {
			t.Error(err)
		}
		var got string
		for _, d := range all {
			for _, p := range d.Panels {
				if !slices.ContainsFunc(p.Links, func(l Link) bool { return l.URL == rule.Annotations["runbook_url"] }) {
					continue
				}
				for _, target := range p.Targets {
					got += strings.ReplaceAll(matchers.ReplaceAllString(target.Expr, ""), "{}", "") + "\n"
				}
			}
		}
		_, explained := notPlotted[rule.Alert]
		if (got == "") != explained {
			t.Errorf("%s has a panel that links to its runbook: %t, and is explained in notPlotted: %t", rule.Alert, got != "", explained)
		}
		for _, want := range wanted {
			if !strings.Contains(got, want.expr) {
				t.Errorf("%s reads\n%s\nand its panels\n%s", rule.Alert, want.expr, got)
			}
		}
	}
}
