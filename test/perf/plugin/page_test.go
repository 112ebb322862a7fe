package plugin

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
)

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
	took.cpu = process.ProcessState.UserTime() + process.ProcessState.SystemTime()
	if usage, ok := process.ProcessState.SysUsage().(*syscall.Rusage); ok {
		took.mib = usage.Maxrss / 1024 // Linux counts in KiB
	}
	return took
}
