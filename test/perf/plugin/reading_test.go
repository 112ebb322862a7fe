package plugin

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	stored "github.com/cadastre-dev/cadastre/test/framework/records"
	"github.com/cadastre-dev/cadastre/test/framework/viewer"
	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// rounds is how often each command is run, in turns.
const rounds = 3

// command holds one that is measured, and the longest time allowed, as a part of the time in which
// kubectl lists the records.
type command struct {
	line []string
	most float64
	// small is the same with few records, when the start of a process counts most.
	small float64
	what  string
	// mixed reports whether the status of the pool leaves open which sizes its blocks have.
	mixed bool
}

// reference is the command with which all others are compared.
const reference = "kubectl get ipallocations -A"

func commands(records int) []command {
	held := stored.Address(records / 2).String()
	return []command{
		{line: []string{"kubectl", "get", "ipallocations", "-A"}, most: 1, small: 1, what: "500 objects a request"},
		{line: []string{"kubectl-ipam", "who", held}, most: 0.13, small: 1, what: "an address that is held"},
		{line: []string{"kubectl-ipam", "who", "10.15.255.255"}, most: 0.13, small: 1, what: "an address that is free"},
		{line: []string{"kubectl-ipam", "who", "10.15.255.254"}, most: 0.5, small: 2, what: "the same where blocks may have any size: a request for each length", mixed: true},
		{line: []string{"kubectl-ipam", "pools"}, most: 0.13, small: 1, what: "from the status of the pools"},
		{line: []string{"kubectl-ipam", "pools", "--count"}, most: 1, small: 1.5, what: "all records"},
		{line: []string{"kubectl-ipam", "who", stored.Address(0).String() + "/28"}, most: 1, small: 1.5, what: "all records"},
		{line: []string{"kubectl-ipam", "map", "hosts"}, most: 1, small: 1.5, what: "all records of the pool"},
		{line: []string{"kubectl-ipam", "tree"}, most: 1, small: 1.5, what: "all records"},
	}
}

func (c command) name() string {
	name := c.line[0]
	for _, word := range c.line[1:] {
		name += " " + word
	}
	return name
}

// run holds the measurements of one run of a command.
type run struct {
	wall, cpu time.Duration
	mib       int64 // resident at most
}

// TestCommandTimeIsBoundedRelativeToKubectl compares the time of commands that read the register with that
// in which kubectl lists the records, in one run, by the medians of their rounds, and that of the
// page of `kubectl ipam ui`. $RECORDS is the number of records. With $PLUGIN_FIGURES it writes its
// measurements there.
func TestCommandTimeIsBoundedRelativeToKubectl(t *testing.T) {
	records := 100_000
	if testing.Short() {
		records = 2_000
	}
	records = suite.Setting(t, "RECORDS", records, strconv.Atoi)
	w := load(t, records)
	kubectl, err := cluster.Binary("kubectl")
	suite.Must(t, err)
	t.Setenv("KUBECACHEDIR", t.TempDir())
	programs := map[string]string{"kubectl": kubectl, "kubectl-ipam": viewer.Build(t)}
	runs := map[string][]run{}
	measured := commands(records)
	for range rounds {
		for _, c := range measured {
			suite.Must(t, w.writeStatus(t.Context(), c.mixed))
			runs[c.name()] = append(runs[c.name()], w.measure(t, programs[c.line[0]], c.line[1:]))
		}
	}
	referenceSeconds := medians(runs[reference]).wall.Seconds()
	var rows [][]string
	for _, c := range measured {
		m := medians(runs[c.name()])
		ratio, most := m.wall.Seconds()/referenceSeconds, c.most
		if testing.Short() {
			most = c.small
		}
		t.Logf("%-40s %6.2f s, %.3f of kubectl's", c.name(), m.wall.Seconds(), ratio)
		if ratio > most {
			t.Errorf("%s takes %.2f of the time of %s, want %.2f at most", c.name(), ratio, reference, most)
		}
		rows = append(rows, []string{
			"`" + c.name() + "`", c.what, fmt.Sprintf("%.2f", m.wall.Seconds()), fmt.Sprintf("%.3f", ratio),
			fmt.Sprintf("%.2f", m.cpu.Seconds()), fmt.Sprint(m.mib),
		})
	}
	page := w.page(t, programs["kubectl"], programs["kubectl-ipam"])
	if path := os.Getenv("PLUGIN_FIGURES"); path != "" {
		suite.Must(t, os.WriteFile(path, []byte(markdown(records, rows)+page), 0o644))
	}
}

// measure runs a program as the administrator.
func (w *world) measure(t *testing.T, program string, args []string) run {
	t.Helper()
	process := exec.CommandContext(t.Context(), program, args...)
	process.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	var errs bytes.Buffer
	process.Stderr = &errs
	begin := time.Now()
	if _, err := process.Output(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	took := run{wall: time.Since(begin), cpu: process.ProcessState.UserTime() + process.ProcessState.SystemTime()}
	if usage, ok := process.ProcessState.SysUsage().(*syscall.Rusage); ok {
		took.mib = usage.Maxrss / 1024 // Linux counts in KiB
	}
	return took
}

// medians returns those of each figure.
func medians(runs []run) run {
	return run{
		wall: median(runs, func(r run) time.Duration { return r.wall }),
		cpu:  median(runs, func(r run) time.Duration { return r.cpu }),
		mib:  median(runs, func(r run) int64 { return r.mib }),
	}
}

func median[R any, T cmp.Ordered](runs []R, value func(R) T) T {
	var values []T
	for _, r := range runs {
		values = append(values, value(r))
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// markdown returns the text for docs/benchmarks.md.
func markdown(records int, rows [][]string) string {
	m := figures.ThisMachine()
	return fmt.Sprintf(`## The plug-in

How long commands of `+"`kubectl ipam`"+` take that read the register, beside kubectl's own list of the same %d
IPAllocations of single addresses, in one pool. Medians of %d rounds in turns, with the API server on the same
machine: %d CPUs (%s), %s. CPU time and memory are the command's. `+"`make bench-plugin`"+` generates this
part again.

`, records, rounds, m.CPUs, m.CPU, m.Platform) +
		document.Table([]string{"command", "reads", "seconds", "of kubectl's", "CPU seconds", "MiB"}, 2, rows)
}
