// Package play runs the scenarios of the benchmark on a separate control plane, with the
// operator in it.
package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// Options holds the options of a run.
type Options struct {
	// Quick takes fewer and smaller measurements.
	Quick bool
	// Only are the scenarios to run; none is all.
	Only []string
	// Profiles is the directory for profiles.
	Profiles string
	// Dir keeps credentials, data and logs of the last cluster; empty: they go when
	// the run ends.
	Dir string
	// ManagerArgs are flags for the managers.
	ManagerArgs []string
	// Progress receives messages about the progress.
	Progress io.Writer
}

// World holds the cluster and the clients of the scenarios.
type World struct {
	options Options
	report  *figures.Report
	cluster *cluster.Cluster
	// k8s is for requests that are not measured.
	k8s client.WithWatch
	// wires are the connections of the measured clients.
	wires []*wire
	watch *wire
	// token is that of an account that can ask the managers for metrics and profiles.
	token     string
	startTime time.Time
	// held counts the blocks that the scenarios have claimed so far, in this cluster.
	held int
	// namespaces is the number of namespaces made.
	namespaces int
	// capi reports whether IPAddressClaims are served.
	capi bool
}

// managers are as many as a scenario needs at most.
const managers = 3

// Start starts the control plane and the operator as `make up` does, with one
// manager that runs.
func Start(ctx context.Context, options Options, report *figures.Report) (*World, error) {
	w := &World{options: options, report: report, startTime: time.Now()}
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	return w, nil
}

// restartCluster starts another cluster in place of the one that runs, if something has been
// claimed in that.
func (w *World) restartCluster(ctx context.Context) error {
	if w.held == 0 {
		return nil
	}
	return w.anotherCluster(ctx)
}

func (w *World) anotherCluster(ctx context.Context) error {
	w.say("starting again, with nothing claimed")
	if err := w.Stop(); err != nil {
		return err
	}
	w.wires, w.held, w.namespaces = nil, 0, 0
	return w.start(ctx)
}

func (w *World) start(ctx context.Context) error {
	with := cluster.Options{
		Dir: w.options.Dir, ControllerManager: true, Managers: managers, Progress: w.options.Progress,
		ManagerArgs: w.options.ManagerArgs, OwnLease: true, Revive: true,
		// Services are to number thousands.
		APIServerFlags: map[string]string{"service-cluster-ip-range": "10.224.0.0/12", "profiling": "true"},
	}
	started, err := cluster.Start(ctx, with)
	if err != nil {
		return err
	}
	w.cluster = started
	if err := w.furnish(ctx); err != nil {
		return fmt.Errorf("preparing the benchmark: %w", errors.Join(err, w.Stop()))
	}
	return nil
}

// Stop ends everything that runs.
func (w *World) Stop() error {
	running := w.cluster
	w.cluster = nil
	if running == nil {
		return nil
	}
	return running.Stop()
}

// furnish makes clients, and the objects that the scenarios need.
func (w *World) furnish(ctx context.Context) (err error) {
	if err := w.cluster.InstallClusterAPICRDs(ctx); err != nil {
		return err
	}
	if err := w.replicas(ctx, 1); err != nil { // which find the kinds of Cluster API
		return err
	}
	if w.k8s, err = cluster.NewClient(w.cluster.Config()); err != nil {
		return err
	}
	for range 32 {
		wire, err := newWire(w.cluster.Config())
		if err != nil {
			return err
		}
		w.wires = append(w.wires, wire)
	}
	if w.watch, err = newWire(w.cluster.Config()); err != nil {
		return err
	}
	if w.token, err = w.newToken(ctx); err != nil {
		return err
	}
	if err := w.installBare(ctx); err != nil {
		return err
	}
	if err := w.describe(ctx); err != nil {
		return err
	}
	if err := w.makePools(ctx); err != nil {
		return err
	}
	w.capi = w.serves(ctx)
	return nil
}

// replicas runs exactly so many managers, all of them restarted, so that the API server's
// connections are spread over them.
func (w *World) replicas(ctx context.Context, n int) error {
	for _, m := range w.cluster.Managers {
		if err := m.Stop(); err != nil {
			return err
		}
	}
	for _, m := range w.cluster.Managers[:n] {
		if err := m.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// namespace makes a new namespace.
func (w *World) namespace(ctx context.Context) (string, error) {
	w.namespaces++
	name := fmt.Sprintf("bench-%03d", w.namespaces)
	return name, w.k8s.Create(ctx, build.Namespace(name))
}

// say reports the progress of the run.
func (w *World) say(format string, args ...any) {
	passed := time.Since(w.startTime).Round(time.Second)
	_, _ = fmt.Fprintf(w.options.Progress, "[%02d:%02d] %s\n", int(passed.Minutes()), int(passed.Seconds())%60, fmt.Sprintf(format, args...))
}

// either returns the value for a full run or for a quick one.
func either[T any](w *World, full, quick T) T {
	if w.options.Quick {
		return quick
	}
	return full
}

// describe records the machine and the versions of the run.
func (w *World) describe(ctx context.Context) error {
	w.report.Machine = figures.ThisMachine()
	answer, err := w.watch.do(ctx, "GET", "/version", nil)
	if err != nil {
		return err
	}
	var version struct{ GitVersion string }
	if err := json.Unmarshal(answer, &version); err != nil {
		return fmt.Errorf("reading the API server's version: %w", err)
	}
	w.report.Versions = map[string]string{"kube-apiserver": version.GitVersion, "Go": runtime.Version(), "Cadastre": commit(ctx)}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "sigs.k8s.io/controller-runtime" {
				w.report.Versions["controller-runtime"] = module.Version
			}
		}
	}
	return nil
}

// commit returns git's description of the working tree.
func commit(ctx context.Context) string {
	out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return "unknown"
	}
	return strings.TrimSpace(string(out))
}
