package document

import (
	"fmt"
	"math"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// Reads returns the latencies of reads, and of creates beside them, from a run of that scenario; empty if it was not
// played.
func Reads(r *figures.Report) string {
	t := table{head: []string{"what", "load", "claims", "done/s", "p50 ms", "p95 ms", "p99 ms", "failed"}, numbers: 2}
	for _, s := range r.Series {
		if s.Scenario != "reads" {
			continue
		}
		cells := []string{s.Variant, s.Shape, fmt.Sprint(s.At), fmt.Sprintf("%.1f", s.PerSecond())}
		for _, percentile := range []func(*figures.Percentiles) float64{
			func(p *figures.Percentiles) float64 { return p.P50 }, func(p *figures.Percentiles) float64 { return p.P95 }, func(p *figures.Percentiles) float64 { return p.P99 },
		} {
			if s.Millis == nil {
				cells = append(cells, "-")
				continue
			}
			cells = append(cells, fmt.Sprintf("%.1f", percentile(s.Millis)))
		}
		t.add(append(cells, fmt.Sprint(s.Failures))...)
	}
	if len(t.rows) == 0 {
		return ""
	}
	return about(r) + "\nEach client is a separate user, to whom the API server's priority and fairness applies. *kubectl get -A* reads all claims as tables of 500, *LIST of an informer* all of them in one answer from the watch cache. Each of many clients begins `kubectl get -A` again until the creates beside it end, and gives up after a minute. *Claims* is how many there were at first: the creates of each row add up to 1,000. In an open loop (n/s) times count from when a request was meant to be sent; *until a watch shows it* is from when it was sent. *bare* are creates of custom objects without webhooks and rules.\n\n" +
		t.String() + notes(r)
}

// Cores returns what creates cost with the control plane limited to one CPU and to two, and an estimate for more, from a
// run of that scenario; empty if it was not played.
func Cores(r *figures.Report) string {
	t := table{head: []string{"what", "CPUs", "done/s", "p95 ms", "CPU ms: API server", "managers", "etcd", "others", "all"}, numbers: 1}
	totals := map[int]float64{}
	for _, s := range r.Series {
		if s.Scenario != "cores" {
			continue
		}
		if s.Variant == "claim, by pool" {
			totals[s.At] = cpu(s) - s.CPU("clients")
		}
		t.add(s.Variant, fmt.Sprint(s.At), fmt.Sprintf("%.0f", s.DonePerSecond()), fmt.Sprintf("%.1f", s.Millis.P95),
			fmt.Sprintf("%.2f", s.CPU("apiserver")), fmt.Sprintf("%.2f", s.CPU("managers")), fmt.Sprintf("%.2f", s.CPU("etcd")),
			fmt.Sprintf("%.2f", s.CPU("clients")+s.CPU("controller-manager")), fmt.Sprintf("%.2f", cpu(s)))
	}
	if len(t.rows) == 0 {
		return ""
	}
	text := about(r) + "\nCreates by 8 clients, with `GOMAXPROCS` of etcd and of the API server each set to the number of CPUs; operator and clients use what is left.\n\n" + t.String()
	if totals[1] > 0 && totals[2] > 0 {
		growth := totals[2] / totals[1]
		eight := totals[2] * math.Pow(max(growth, 1), 2)
		text += fmt.Sprintf("\nAn estimate for 8 CPUs, on which nothing else runs: without the clients, a claim takes %.2f ms of CPU time with one CPU each for etcd and the API server, and %.2f with two each, %.2f times as much. If each doubling multiplies it by that again, or leaves it if it is below 1, it takes %.2f with 8, which can do %.0f claims a second, as long as neither etcd's disk nor its single log is the limit.\n",
			totals[1], totals[2], growth, eight, 8000/eight)
	}
	return text + notes(r)
}
