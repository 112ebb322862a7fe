package plugin

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
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
	records := suite.Setting(t, "RECORDS", suite.Sized(100_000, 2_000), strconv.Atoi)
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
		ratio, most := m.wall.Seconds()/referenceSeconds, suite.Sized(c.most, c.small)
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
	return ended(process, begin)
}

// ended returns the measurements of a process that began at a time, and has ended.
func ended(process *exec.Cmd, begin time.Time) run {
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

// pageRounds is how often the page is opened.
const pageRounds = 3

// opened holds how long it took from the start of `kubectl ipam ui` until a page that was opened as
// soon as the address was printed had its first pools, and everything.
type opened struct {
	run
	served, pools, ready time.Duration
	bytes                int
}

// page opens the page, and compares the time with that in which kubectl prints the same records
// as JSON. It returns a part of docs/benchmarks.md.
func (w *world) page(t *testing.T, kubectl, plugin string) string {
	t.Helper()
	asJSON := w.measure(t, kubectl, []string{"get", "ipallocations", "-A", "-o", "json"})
	var rounds []opened
	for range pageRounds {
		rounds = append(rounds, w.open(t, plugin))
	}
	medianOf := func(what func(opened) time.Duration) time.Duration { return median(rounds, what) }
	served, pools, ready := medianOf(func(o opened) time.Duration { return o.served }), medianOf(func(o opened) time.Duration { return o.pools }), medianOf(func(o opened) time.Duration { return o.ready })
	cpu, mib := medianOf(func(o opened) time.Duration { return o.cpu }), median(rounds, func(o opened) int64 { return o.mib })
	mb := float64(rounds[0].bytes) / 1e6
	t.Logf("kubectl ipam ui: serves after %s, first pools after %s, all after %s; %.1f MB sent; %s of CPU, %d MiB at most; kubectl -o json: %s, %d MiB",
		served, pools, ready, mb, cpu, mib, asJSON.wall, asJSON.mib)
	if pools > 2*time.Second {
		t.Errorf("the first pools come after %s, want 2 s at most", pools)
	}
	if most := asJSON.wall; ready > max(most, 3*time.Second) {
		t.Errorf("everything comes after %s, and kubectl prints it in %s", ready, asJSON.wall)
	}
	if most := int64(400); mib > most {
		t.Errorf("it takes %d MiB, want %d at most", mib, most)
	}
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.2f", d.Seconds()) }
	return "\n`kubectl ipam ui` in the same run, with a page that is opened as soon as the address is printed, beside the time in which\n" +
		"kubectl prints the records as JSON; the time is from the start of the command, and the memory the most until then:\n\n" +
		document.Table([]string{"", "seconds", "MiB"}, 1, [][]string{
			{"the page is served", seconds(served), ""},
			{"the page has the pools", seconds(pools), ""},
			{fmt.Sprintf("the page has everything: %.1f MB, %s CPU seconds", mb, seconds(cpu)), seconds(ready), fmt.Sprint(mib)},
			{"`kubectl get ipallocations -A -o json`", seconds(asJSON.wall), fmt.Sprint(asJSON.mib)},
		})
}

// open starts the command, reads the stream until all has been sent, and ends it.
func (w *world) open(t *testing.T, plugin string) opened {
	t.Helper()
	process := exec.CommandContext(t.Context(), plugin, "ui")
	process.Env = append(os.Environ(), "KUBECONFIG="+w.Kubeconfig())
	var errs bytes.Buffer
	process.Stderr = &errs
	out, err := process.StdoutPipe()
	suite.Must(t, err)
	begin := time.Now()
	suite.Must(t, process.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	took := opened{served: time.Since(begin)}
	_, address, _ := strings.Cut(strings.TrimSpace(line), "at ")
	origin, token, _ := strings.Cut(address, "/#token=")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, origin+"/api/stream", nil)
	suite.Must(t, err)
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := http.DefaultClient.Do(req)
	suite.Must(t, err)
	defer resp.Body.Close()
	for lines := bufio.NewReaderSize(resp.Body, 4<<20); took.ready == 0; {
		message, err := lines.ReadBytes('\n')
		suite.Must(t, err)
		took.bytes += len(message)
		switch {
		case took.pools == 0 && bytes.HasPrefix(message, []byte(`{"type":"pools"`)):
			took.pools = time.Since(begin)
		case bytes.HasPrefix(message, []byte(`{"type":"ready"`)):
			took.ready = time.Since(begin)
		}
	}
	suite.Must(t, process.Process.Signal(syscall.SIGINT))
	end()
	if err := process.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	took.run = ended(process, begin)
	return took
}

// world holds a control plane without the operator, so that records can be stored as they are.
type world struct {
	*suite.World
	pool    *v1alpha1.IPPool
	records int
}

// load stores a pool and so many records of single addresses, one behind the other, as the
// operator makes them.
func load(t testing.TB, records int) *world {
	w := &world{suite.Start(t, cluster.Options{}), build.Pool("hosts").CIDR("10.0.0.0/12").Obj(), records}
	w.Created(w.pool)
	for i := range stored.Namespaces {
		w.Namespace(stored.Namespace(i))
	}
	stored.Store(t, w, records, record)
	return w
}

// record returns the i-th one of the pool.
func record(i int) ipam.Record { return stored.Of(i, "hosts", stored.Address(i)) }

// writeStatus writes the status of the pool, as the operator does; if mixed is true, as if some of the
// records were of larger blocks.
func (w *world) writeStatus(ctx context.Context, mixed bool) error {
	total, pool := 1<<20, w.pool
	allocated := w.records
	if mixed {
		allocated = total / 2
	}
	pool.Status = v1alpha1.PoolStatus{
		ObservedGeneration: pool.Generation, Phase: v1alpha1.PoolReady, AllocatedCIDR: pool.Spec.CIDR, IPFamily: v1alpha1.IPv4,
		Capacity: &v1alpha1.Capacity{
			Total: fmt.Sprint(total), Allocated: fmt.Sprint(allocated), Available: fmt.Sprint(total - allocated), Withheld: "0", OutOfRange: "0",
		},
		Allocations: int64(w.records), UtilizationPercent: int32(100 * allocated / total), LargestFreePrefix: "/13",
	}
	return w.Status().Update(ctx, pool)
}
