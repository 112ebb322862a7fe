// Package metrics writes the table of metrics in docs/metrics.md. Its tests check that the table
// is up to date, that every alert has a runbook, and that the alerts and the runbooks name
// metrics that exist.
package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/yaml"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// Rule represents one alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Alerts holds the alerts of a repository.
type Alerts struct {
	root string
	// rules is the content of a file of rules, as promtool reads it.
	rules []byte
	All   []Rule
}

// ReadAlerts reads the PrometheusRule of the repository in a directory.
func ReadAlerts(root string) (*Alerts, error) {
	manifest, err := os.ReadFile(filepath.Join(root, "config/prometheus/rules/cadastre.yaml"))
	if err != nil {
		return nil, err
	}
	var object struct {
		Spec map[string]any `json:"spec"`
	}
	if err := yaml.Unmarshal(manifest, &object); err != nil {
		return nil, err
	}
	a := &Alerts{root: root}
	if a.rules, err = yaml.Marshal(object.Spec); err != nil {
		return nil, err
	}
	var spec struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(a.rules, &spec); err != nil {
		return nil, err
	}
	for _, group := range spec.Groups {
		a.All = append(a.All, group.Rules...)
	}
	return a, nil
}

// Test runs `promtool test rules` with a file of tests, which names its rules rules.yaml, in a
// separate directory. The error contains the output of promtool.
func (a *Alerts) Test(dir string, tests []byte) error {
	if err := errors.Join(
		os.WriteFile(filepath.Join(dir, "rules.yaml"), a.rules, 0o600),
		os.WriteFile(filepath.Join(dir, "tests.yaml"), tests, 0o600),
	); err != nil {
		return err
	}
	_, err := a.tool("promtool", nil, "test", "rules", filepath.Join(dir, "tests.yaml"))
	return err
}

// Check runs `promtool check rules`.
func (a *Alerts) Check(dir string) error {
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, a.rules, 0o600); err != nil {
		return err
	}
	_, err := a.tool("promtool", nil, "check", "rules", "--lint=all", "--lint-fatal", file)
	return err
}

// CheckMetrics runs `promtool check metrics` on a response of /metrics.
func (a *Alerts) CheckMetrics(text []byte) error {
	_, err := a.tool("promtool", text, "check", "metrics")
	return err
}

// Read represents one read of an expression: a metric, and a label of it; or a label alone, by
// which time series are grouped or matched.
type Read struct{ Rule, Metric, Label string }

// Reads returns the reads of all alerts.
func (a *Alerts) Reads() ([]Read, error) { return a.reads(a.rules) }

// ReadsOf returns the reads of expressions; the rule of each is its index in the list.
func (a *Alerts) ReadsOf(expressions []string) ([]Read, error) {
	rules := make([]map[string]string, len(expressions))
	for i, expression := range expressions {
		rules[i] = map[string]string{"record": fmt.Sprint(i), "expr": expression}
	}
	file, err := yaml.Marshal(map[string]any{"groups": []map[string]any{{"rules": rules}}})
	if err != nil {
		return nil, err
	}
	return a.reads(file)
}

func (a *Alerts) reads(rules []byte) ([]Read, error) {
	out, err := a.tool("expressions", rules)
	if err != nil {
		return nil, err
	}
	var all []Read
	for line := range strings.Lines(string(out)) {
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) != 3 {
			return nil, fmt.Errorf("expressions writes %q", line)
		}
		all = append(all, Read{columns[0], columns[1], columns[2]})
	}
	return all, nil
}

// tool runs a program of `make prometheus`.
func (a *Alerts) tool(name string, input []byte, args ...string) ([]byte, error) {
	path, err := filepath.Abs(filepath.Join(a.root, "bin/prometheus", name))
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("%w: run make prometheus", err)
	}
	command := exec.Command(path, args...)
	command.Stdin = bytes.NewReader(input)
	out, err := command.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
	}
	return out, nil
}

// Foreign returns the metrics of other programs and libraries that alerts, dashboards and documents
// read, with their labels: the metrics that a replica exports, and the metrics of the API server.
// The name of a histogram is the name of the time series that is read.
func Foreign() (ofReplica, ofAPIServer map[string][]string) {
	const webhook, code, controller, name = "webhook", "code", "controller", "name"
	return map[string][]string{
			"leader_election_master_status":                     {name},
			"controller_runtime_webhook_latency_seconds_bucket": {webhook, "le"},
			"controller_runtime_webhook_requests_total":         {webhook, code},
			"controller_runtime_reconcile_total":                {controller, "result"},
			"controller_runtime_reconcile_time_seconds_bucket":  {controller, "le"},
			"workqueue_depth":                                   {controller, name, "priority"},
			"workqueue_queue_duration_seconds_bucket":           {controller, name, "le"},
			"process_cpu_seconds_total":                         nil,
			"process_resident_memory_bytes":                     nil,
			"go_goroutines":                                     nil,
			"rest_client_requests_total":                        {code, "host", "method"},
		}, map[string][]string{
			"apiserver_admission_webhook_rejection_count":                   {name, "type", "operation", "error_type", "rejection_code"},
			"apiserver_admission_webhook_fail_open_count":                   {name, "type"},
			"apiserver_admission_webhook_admission_duration_seconds_bucket": {name, "type", "operation", "rejected", "le"},
		}
}

// Known returns the labels of all metrics, foreign ones included, by the names that a query uses: a
// histogram has three names. Prometheus adds the labels instance and job.
func Known() map[string][]string {
	all, ofAPIServer := Foreign()
	maps.Copy(all, ofAPIServer)
	for _, d := range metrics.Definitions() {
		if d.Type != dto.MetricType_HISTOGRAM {
			all[d.Name] = d.Labels
			continue
		}
		all[d.Name+"_sum"], all[d.Name+"_count"] = d.Labels, d.Labels
		all[d.Name+"_bucket"] = append(slices.Clone(d.Labels), "le")
	}
	for name, labels := range all {
		all[name] = append(slices.Clone(labels), "instance", "job")
	}
	return all
}

// Missing returns the reads of a metric or a label that does not exist. If a rule groups or matches
// by a label, one of the metrics of the same rule must have it.
func Missing(reads []Read) []Read {
	metricLabels := Known()
	ruleLabels := map[string][]string{}
	for _, r := range reads {
		ruleLabels[r.Rule] = append(ruleLabels[r.Rule], metricLabels[r.Metric]...)
	}
	return slices.DeleteFunc(slices.Clone(reads), func(r Read) bool {
		if r.Metric == "" {
			return slices.Contains(ruleLabels[r.Rule], r.Label)
		}
		labels, ok := metricLabels[r.Metric]
		return ok && (r.Label == "" || slices.Contains(labels, r.Label))
	})
}

// String returns a phrase for the read as part of an error message.
func (r Read) String() string {
	switch {
	case r.Metric == "":
		return fmt.Sprintf("groups or matches by %s, which none of its metrics has", r.Label)
	case r.Label == "":
		return fmt.Sprintf("reads %s, which nothing exports", r.Metric)
	}
	return fmt.Sprintf("selects %s by %s, which it does not have, or which does not exist", r.Metric, r.Label)
}

// Write writes the table, with one row for each metric.
func Write(to io.Writer) error {
	lines := []string{"| metric | type | labels | |", "|---|---|---|---|"}
	for _, d := range metrics.Definitions() {
		labels := make([]string, len(d.Labels))
		for i, label := range d.Labels {
			labels[i] = "`" + label + "`"
		}
		help := d.Help
		if d.Leader {
			help += " The leader alone exports it."
		}
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |", d.Name, strings.ToLower(d.Type.String()), strings.Join(labels, ", "), help))
	}
	_, err := fmt.Fprintln(to, strings.Join(lines, "\n"))
	return err
}
