package metrics

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
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
