// Package picture makes the pictures of the dashboards in docs: it has a real Prometheus scrape
// replicas of the operator and the API server while claims are made, asks it what the panels
// ask, and draws the answers.
package picture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
	lint "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/perf/picture/draw"
)

// Options of a run.
type Options struct {
	// Module is the directory of the module, which has the dashboards and the programs.
	Module string
	// For is how long claims are made.
	For time.Duration
	// Progress is told what is going on.
	Progress io.Writer
}

// Recording is what Prometheus has answered, by the UID of a dashboard.
type Recording struct {
	Span    draw.Span
	Answers map[string]draw.Answers
}

// replicas of the operator in a run.
const replicas = 2

// Record runs the operator and Prometheus, and asks for what the dashboards show.
func Record(ctx context.Context, o Options) (recorded *Recording, err error) {
	running, err := cluster.Start(ctx, cluster.Options{ControllerManager: true, Managers: replicas, Revive: true, Progress: o.Progress})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, running.Stop()) }()
	dir, err := os.MkdirTemp("", "prometheus-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := startServer(ctx, running, filepath.Join(o.Module, "bin/prometheus/prometheus"), dir)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	all, err := made(o.Module)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := work(ctx, running, o); err != nil {
		return nil, err
	}
	if err := server.scraped(ctx); err != nil {
		return nil, err
	}
	recorded = &Recording{Span: draw.Span{From: begin, To: time.Now(), Step: interval}, Answers: map[string]draw.Answers{}}
	for _, d := range all {
		if recorded.Answers[d.UID], err = server.answers(ctx, d, recorded.Span); err != nil {
			return nil, err
		}
	}
	return recorded, nil
}

func made(module string) ([]dashboards.Dashboard, error) {
	alerts, err := lint.ReadAlerts(module)
	if err != nil {
		return nil, err
	}
	return dashboards.All(alerts)
}

// answers are those to the queries of a dashboard of which all is chosen.
func (s *server) answers(ctx context.Context, d dashboards.Dashboard, span draw.Span) (draw.Answers, error) {
	choose := []string{"$__rate_interval", (4 * interval).String()}
	for _, v := range d.Templating.List {
		value, err := s.all(ctx, v, choose, span)
		if err != nil {
			return nil, fmt.Errorf("%s, variable %s: %w", d.UID, v.Name, err)
		}
		choose = append(choose, `"$`+v.Name+`"`, strconv.Quote(value))
	}
	all := draw.Answers{}
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			query := strings.NewReplacer(choose...).Replace(target.Expr)
			ask := s.over
			if target.Instant {
				ask = s.now
			}
			series, err := ask(ctx, query, span)
			if err != nil {
				return nil, fmt.Errorf("%s, panel %q: %w", d.UID, p.Title, err)
			}
			all[p.ID] = append(all[p.ID], series)
		}
	}
	return all, nil
}

// all is what a variable stands for where all is chosen: what it names for that, or any of the
// values that it may have.
func (s *server) all(ctx context.Context, v dashboards.Variable, choose []string, span draw.Span) (string, error) {
	query, ok := strings.CutPrefix(v.Definition, "label_values(")
	if v.AllValue != "" || !ok {
		return v.AllValue, nil
	}
	of := strings.NewReplacer(choose...).Replace(strings.TrimSuffix(query, ", "+v.Name+")"))
	found, err := s.now(ctx, fmt.Sprintf("group by (%s) (%s)", v.Name, of), span)
	var values []string
	for _, series := range found {
		values = append(values, regexp.QuoteMeta(series.Labels[v.Name]))
	}
	return strings.Join(values, "|"), err
}

// Draw writes the pictures of a recording.
func Draw(o Options, recording []byte, dir string) error {
	var recorded Recording
	if err := json.Unmarshal(recording, &recorded); err != nil {
		return err
	}
	all, err := made(o.Module)
	if err != nil {
		return err
	}
	for _, d := range all {
		path := filepath.Join(dir, strings.Replace(d.UID, "cadastre", "dashboard", 1)+".svg")
		if err := os.WriteFile(path, draw.Dashboard(d, recorded.Answers[d.UID], recorded.Span), 0o644); err != nil {
			return err
		}
		_, _ = fmt.Fprintln(o.Progress, "picture:", path)
	}
	return nil
}
