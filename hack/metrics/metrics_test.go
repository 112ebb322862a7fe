package metrics

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

const root = "../.."

func alerts(t *testing.T) *Alerts {
	t.Helper()
	all, err := ReadAlerts(root)
	must.Succeed(t, err)
	return all
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, file))
	must.Succeed(t, err)
	return string(text)
}

func TestRulesAreAccepted(t *testing.T) {
	if err := alerts(t).Check(t.TempDir()); err != nil {
		t.Error(err)
	}
}

// TestAlertsFireOnlyWhenExpected runs promtool.
func TestAlertsFireOnlyWhenExpected(t *testing.T) {
	all, tests := alerts(t), read(t, "hack/metrics/testdata/alerts.yaml")
	if err := all.Test(t.TempDir(), []byte(tests)); err != nil {
		t.Error(err)
	}
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name     string `json:"alertname"`
				Expected []any  `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	must.Succeed(t, yaml.Unmarshal([]byte(tests), &file))
	fires, silent := map[string]bool{}, map[string]bool{}
	for _, test := range file.Tests {
		for _, alert := range test.Alerts {
			if len(alert.Expected) > 0 {
				fires[alert.Name] = true
			} else {
				silent[alert.Name] = true
			}
		}
	}
	for _, rule := range all.All {
		if !fires[rule.Alert] || !silent[rule.Alert] {
			t.Errorf("%s: tested that it fires: %t, that it does not: %t", rule.Alert, fires[rule.Alert], silent[rule.Alert])
		}
	}
}

// TestWrongAlertIsDetected expects promtool to find a threshold that was changed.
func TestWrongAlertIsDetected(t *testing.T) {
	all := alerts(t)
	all.rules = bytes.Replace(all.rules, []byte("< 0.1"), []byte("< 0.01"), 1)
	if err := all.Test(t.TempDir(), []byte(read(t, "hack/metrics/testdata/alerts.yaml"))); err == nil || !strings.Contains(err.Error(), "CadastrePoolNearlyFull") {
		t.Errorf("promtool has not found it: %v", err)
	}
}

func TestEveryAlertHasARunbook(t *testing.T) {
	index := read(t, "docs/runbooks/README.md")
	var want []string
	for _, rule := range alerts(t).All {
		page := rule.Alert + ".md"
		want = append(want, page)
		if url := "https://github.com/cadastre-dev/cadastre/blob/main/docs/runbooks/" + page; rule.Annotations["runbook_url"] != url {
			t.Errorf("%s names the runbook %q, want %s", rule.Alert, rule.Annotations["runbook_url"], url)
		}
		severity := rule.Labels["severity"]
		if severity != "warning" && severity != "critical" {
			t.Errorf("%s has the severity %q", rule.Alert, severity)
		}
		if row := "| [" + rule.Alert + "](" + page + ") | " + severity + " |"; !strings.Contains(index, row) {
			t.Errorf("docs/runbooks/README.md has no row %q", row)
		}
		for _, part := range []string{"# " + rule.Alert + "\n", "## What it means\n", "## How to see it\n", "## What to do\n"} {
			if !strings.Contains(read(t, "docs/runbooks/"+page), part) {
				t.Errorf("docs/runbooks/%s has no %q", page, part)
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	must.Succeed(t, err)
	var got []string
	for _, page := range pages {
		if name := filepath.Base(page); name != "README.md" {
			got = append(got, name)
		}
	}
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-alerts +runbooks)\n%s", diff)
	}
}

func TestAlertsReadExistingMetrics(t *testing.T) {
	reads, err := alerts(t).Reads()
	must.Succeed(t, err)
	if len(reads) == 0 {
		t.Fatal("the alerts read nothing")
	}
	for _, missing := range Missing(reads) {
		t.Errorf("%s %s", missing.Rule, missing)
	}
}

// TestDocumentsNameExistingMetrics reads all names of metrics in documents, and the queries.
func TestDocumentsNameExistingMetrics(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	must.Succeed(t, err)
	runbooks, err := filepath.Glob(filepath.Join(root, "docs/runbooks/*.md"))
	must.Succeed(t, err)
	named := regexp.MustCompile("`(cadastre_[a-z_]+)")
	query := regexp.MustCompile("(?s)```promql\n(.*?)```")
	metricLabels := Known()
	for _, d := range metrics.Definitions() {
		metricLabels[d.Name] = d.Labels
	}
	exported, err := os.ReadFile(filepath.Join(root, "provisioner/run.go"))
	must.Succeed(t, err)
	for _, name := range regexp.MustCompile(`Name: "(cadastre_[a-z_]+)"`).FindAllStringSubmatch(string(exported), -1) {
		metricLabels[name[1]] = nil
	}
	var queries, from []string
	for _, file := range append(files, runbooks...) {
		text, err := os.ReadFile(file)
		must.Succeed(t, err)
		for _, name := range named.FindAllStringSubmatch(string(text), -1) {
			if _, ok := metricLabels[name[1]]; !ok {
				t.Errorf("%s names %s, which nothing exports", file, name[1])
			}
		}
		for _, q := range query.FindAllStringSubmatch(string(text), -1) {
			queries, from = append(queries, q[1]), append(from, file)
		}
	}
	if len(queries) == 0 {
		t.Fatal("no document has a query")
	}
	reads, err := alerts(t).ReadsOf(queries)
	must.Succeed(t, err)
	for _, missing := range Missing(reads) {
		query, err := strconv.Atoi(missing.Rule)
		must.Succeed(t, err)
		t.Errorf("%s %s", from[query], missing)
	}
}
