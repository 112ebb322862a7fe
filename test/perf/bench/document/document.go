// Package document writes the measurements of a run of the benchmark: as a table, as
// plots, and as Markdown. No figure is typed by hand.
package document

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// Markdown returns the part of docs/benchmarks.md about a run.
func Markdown(r *figures.Report) string {
	return "## The operator\n\n" + about(r) + "\n### Targets\n\n" + Targets(r) + costs(r) + rates(r) + growth(r) + lives(r) + curves(r) + notes(r)
}

func about(r *figures.Report) string {
	text := fmt.Sprintf("Measured on %s by `%s` in %s, with the control plane, the operator and the clients all on one machine: %d CPUs (%s)",
		r.Begun.Format(time.DateOnly), r.Command, time.Duration(r.Seconds*float64(time.Second)), r.Machine.CPUs, r.Machine.CPU)
	if r.Machine.MemoryMiB > 0 {
		text += fmt.Sprintf(", %d MiB", r.Machine.MemoryMiB)
	}
	var versions []string
	for _, name := range []string{"Cadastre", "kube-apiserver", "controller-runtime", "Go"} {
		if version := r.Versions[name]; version != "" {
			versions = append(versions, name+" "+version)
		}
	}
	return text + ", " + r.Machine.Platform + ".\n" + strings.Join(versions, ", ") + "\n"
}

// Targets returns a table of the targets and the measured figures.
func Targets(r *figures.Report) string {
	t := table{head: []string{"measure", "target", "measured", "met"}, numbers: 2}
	for _, target := range r.Targets() {
		met := "no"
		switch {
		case target.Measured == "":
			target.Measured, met = "-", "not measured"
		case target.Met:
			met = "yes"
		}
		t.add(target.What, target.Wanted, target.Measured, met)
	}
	return t.String()
}

// costs returns the CPU times that explain the rates, if they were measured.
func costs(r *figures.Report) string {
	claim := r.Find(figures.Key{Scenario: "claim", Variant: "by pool", Shape: "8 clients"})
	bare := r.Find(figures.Key{Scenario: "bare", Shape: "8 clients"})
	if claim == nil || bare == nil || cpu(claim) == 0 || cpu(bare) == 0 {
		return ""
	}
	text := fmt.Sprintf("\nA claim is two writes and a call of a webhook. Until it is Bound it takes %.1f ms of CPU time in all, %.1f of them in the API server; a bare create, which is one write, takes %.1f ms. Everything shares the %d CPUs, so that the rates are to each other about as these.\n",
		cpu(claim), claim.CPU("apiserver"), cpu(bare), r.Machine.CPUs)
	if writes := r.Find(figures.Key{Scenario: "writes", Shape: "8 clients"}); writes != nil {
		text += fmt.Sprintf("The two writes by themselves, made by the client with no operator, take %.1f ms, and with 8 clients their rate is %.2f of that of bare creates.\n",
			cpu(writes), writes.Ratio(bare, figures.Round.PerSecond))
	}
	return text
}

// cpu returns the CPU time of all parts for a request, in milliseconds.
func cpu(s *figures.Series) (sum float64) {
	for _, part := range []string{"apiserver", "managers", "etcd", "clients", "controller-manager"} {
		sum += s.CPU(part)
	}
	return sum
}

// rates returns a table of the rates and latencies of creates.
func rates(r *figures.Report) string {
	t := table{head: []string{"what", "load", "beside", "created/s", "done/s", "p50 ms", "p95 ms", "p99 ms", "failed", "CPU ms: API server", "managers", "etcd", "others"}, numbers: 2}
	for _, s := range r.Series {
		if len(s.Rounds) == 0 || s.Scenario == "fill" || s.Millis == nil {
			continue
		}
		finished := "-"
		if s.Rounds[0].DoneSeconds > 0 {
			finished = fmt.Sprintf("%.0f", s.DonePerSecond())
		}
		row := []string{title(s), s.Shape, fmt.Sprint(s.At), fmt.Sprintf("%.0f", s.PerSecond()), finished,
			fmt.Sprintf("%.1f", s.Millis.P50), fmt.Sprintf("%.1f", s.Millis.P95), fmt.Sprintf("%.1f", s.Millis.P99), fmt.Sprint(s.Failures)}
		for _, used := range []float64{s.CPU("apiserver"), s.CPU("managers"), s.CPU("etcd"), s.CPU("clients") + s.CPU("controller-manager")} {
			if cpu(s) == 0 {
				row = append(row, "-")
				continue
			}
			row = append(row, fmt.Sprintf("%.2f", used))
		}
		t.add(row...)
	}
	return "\n### Rates and latencies\n\n" +
		"*bare*: a custom object as large as a claim that has its block, of a kind without webhooks and rules: the most that the control plane can do. *writes*: two such objects, one of them with a status, like the writes of a claim, made by the client itself. *claim*: an IPClaim, whose create response has its block. *service*: a Service of type ClusterIP, Kubernetes' own synchronous allocator; the more there are, the longer takes the next, so *early* creates both in turn from the first ones on. *deny*: claims of a full pool that rejects. *capi*: IPAddressClaims of Cluster API. *failed* are creates that were refused or cut off, such as by 429 where more is offered than can be stored.\n\n" +
		"*Beside* is how many there were already; *done* is until all claims were Bound, or had their address. Rates are medians of rounds, percentiles are of all samples; in an open loop (n/s) they count from when a request was meant to be sent. The last columns are CPU time for each request, until all was done; *others* are the clients and kube-controller-manager.\n\n" + t.String()
}

func title(s *figures.Series) string {
	if s.Scenario == "replicas" {
		return "claim, replicas: " + s.Variant
	}
	return strings.TrimSuffix(s.Scenario+", "+s.Variant, ", ")
}

// growth returns tables of rates and memory by the number of blocks in use.
func growth(r *figures.Report) string {
	steps := r.Each("fill", "claim")
	if len(steps) == 0 {
		return ""
	}
	t := table{head: []string{"in use before", "claims created/s", "Bound/s", "bare creates/s beside"}, numbers: 0}
	for _, s := range steps {
		reference := "-"
		if b := r.Find(figures.Key{Scenario: "fill", Variant: "bare", Shape: s.Shape, At: s.At}); b != nil {
			reference = fmt.Sprintf("%.0f", b.PerSecond())
		}
		t.add(fmt.Sprint(s.At), fmt.Sprintf("%.0f", s.PerSecond()), fmt.Sprintf("%.0f", s.DonePerSecond()), reference)
	}
	m := table{head: []string{"memory", "allocations", "operator: resident MiB", "heap MiB", "API server: resident MiB", "heap MiB"}, numbers: 1}
	for _, s := range r.Series {
		if s.Scenario == "memory" {
			row := []string{s.Variant, fmt.Sprintf("%.0f", s.Values["allocations"])}
			for _, name := range []string{"residentBytes", "heapBytes", "apiserverResidentBytes", "apiserverHeapBytes"} {
				row = append(row, fmt.Sprintf("%.0f", s.Values[name]/(1<<20)))
			}
			m.add(row...)
		}
	}
	return "\n### Filling a /12 with /28\n\n" + t.String() + "\n" + m.String()
}

// lives returns a table of releases, restarts and failovers.
func lives(r *figures.Report) string {
	t := table{head: []string{"what", "times", "p50 ms", "p95 ms", "slowest ms"}, numbers: 1}
	for _, s := range r.Series {
		if s.Millis != nil && (s.Scenario == "restart" || s.Scenario == "failover" || s.Scenario == "release") {
			t.add(s.Scenario, fmt.Sprint(s.Requests), fmt.Sprintf("%.1f", s.Millis.P50), fmt.Sprintf("%.1f", s.Millis.P95), fmt.Sprintf("%.1f", s.Millis.Max))
		}
	}
	text := "\n### Release, restart, failover\n\n" + t.String()
	if s := r.Find(figures.Key{Scenario: "failover"}); s != nil {
		text += fmt.Sprintf("\nWhile the leader of two was killed, eight clients created claims: the longest time without a created claim was %.0f ms, and %d creates failed.\n", s.Values["longestGapMillis"], s.Failures)
	}
	return text
}

// curves returns references to the plots, which stand in a directory beside the document.
func curves(r *figures.Report) string {
	var text strings.Builder
	text.WriteString("\n### Curves\n")
	for _, plot := range Plots(r) {
		fmt.Fprintf(&text, "\n![%s](plots/%s)\n", plot.Caption, plot.File())
	}
	return text.String()
}

func notes(r *figures.Report) string {
	if len(r.Notes) == 0 {
		return ""
	}
	return "\nLeft out or different:\n\n- " + strings.Join(r.Notes, "\n- ") + "\n"
}

// Observed returns a table of the cost of metrics and traces; empty if it was not measured.
func Observed(r *figures.Report) string {
	t := table{head: []string{"replica", "claims/s", "of the first", "CPU of the replica, ms a claim", "p95 ms"}, numbers: 1}
	rounds := 0
	var first *figures.Series
	for _, variant := range figures.Observed {
		for _, s := range r.Each("observed", variant) {
			if first == nil {
				first = s
			}
			rounds = len(s.Rounds)
			t.add(variant, fmt.Sprintf("%.0f", s.PerSecond()), fmt.Sprintf("%.3f", s.Ratio(first, figures.Round.PerSecond)), fmt.Sprintf("%.2f", s.CPU("managers")), fmt.Sprintf("%.1f", s.Millis.P95))
		}
	}
	if first == nil {
		return ""
	}
	return about(r) + fmt.Sprintf("Medians of %d rounds each, in turn.\n\n", rounds) + t.String() + notes(r)
}

// Splice puts a part between its markers in a document, and leaves the rest as it
// is. The markers of a part are comments that Markdown does not show.
func Splice(text, part, content string) (string, error) {
	begin, end := "<!-- begin "+part+" -->\n", "<!-- end "+part+" -->\n"
	before, rest, ok := strings.Cut(text, begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		return "", fmt.Errorf("the document has no %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	return before + begin + content + end + after, nil
}

// SpliceFile does the same in a file.
func SpliceFile(path, part, content string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	spliced, err := Splice(string(text), part, content)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.WriteFile(path, []byte(spliced), 0o644)
}

// table holds a table in Markdown that is readable as plain text, too.
type table struct {
	head []string
	// numbers is the first column that is aligned to the right.
	numbers int
	rows    [][]string
}

// Table returns a table in Markdown. The columns from number numbers on are aligned to the right.
func Table(head []string, numbers int, rows [][]string) string {
	t := table{head: head, numbers: numbers, rows: rows}
	return t.String()
}

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) String() string {
	widths := make([]int, len(t.head))
	for _, row := range append([][]string{t.head}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	b.WriteString(t.line(t.head, widths))
	for i, width := range widths {
		if i >= t.numbers {
			fmt.Fprintf(&b, "| %s: ", strings.Repeat("-", max(width-1, 2)))
		} else {
			fmt.Fprintf(&b, "| %s ", strings.Repeat("-", max(width, 3)))
		}
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		b.WriteString(t.line(row, widths))
	}
	return b.String()
}

func (t *table) line(cells []string, widths []int) string {
	var b strings.Builder
	for i, cell := range cells {
		space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
		if i >= t.numbers {
			fmt.Fprintf(&b, "| %s%s ", space, cell)
		} else {
			fmt.Fprintf(&b, "| %s%s ", cell, space)
		}
	}
	return b.String() + "|\n"
}

// Plot holds the lines of a picture. test/perf/plots draws it.
type Plot struct {
	// Name is part of the name of its file, and Caption stands for it in the document.
	Name, Caption string
	Title, X, Y   string
	Lines         []Line
}

// Line joins points in the order of x.
type Line struct {
	Name   string
	Points []figures.Point
}

// File returns the name of the picture's file.
func (p *Plot) File() string { return "bench-" + p.Name + ".svg" }

// Plots returns the curves of a run, without those that it did not measure.
func Plots(r *figures.Report) []Plot {
	return slices.DeleteFunc([]Plot{
		latencyPlot(r, "150/s"),
		latencyPlot(r, "300/s"),
		capiPlot(r),
		clientsPlot(r),
		fillPlot(r),
	}, func(p Plot) bool { return len(p.Lines) == 0 })
}

func fillPlot(r *figures.Report) Plot {
	c := Plot{Name: "fill", Caption: "Filling a pool", Title: "Filling a /12 with /28, 8 clients", X: "allocations in use", Y: "per second"}
	claims, bare := r.Each("fill", "claim"), r.Each("fill", "bare")
	addLine(&c, "claims created", claims, inUse, (*figures.Series).PerSecond)
	addLine(&c, "claims Bound", claims, inUse, (*figures.Series).DonePerSecond)
	addLine(&c, "bare creates", bare, inUse, (*figures.Series).PerSecond)
	return c
}

func capiPlot(r *figures.Report) Plot {
	c := Plot{Name: "capi", Caption: "IPAddressClaims by the number of addresses in use", Title: "IPAddressClaims until addressRef is set, 32 clients", X: "addresses in use", Y: "per second"}
	addLine(&c, "bound", r.Each("capi", ""), inUse, (*figures.Series).DonePerSecond)
	return c
}

func clientsPlot(r *figures.Report) Plot {
	c := Plot{Name: "clients", Caption: "Creates by the number of clients", Title: "Creates, closed loop", X: "clients", Y: "per second"}
	for _, curve := range []struct{ name, scenario, variant string }{
		{"bare", "bare", ""}, {"two writes", "writes", ""}, {"claim by pool", "claim", "by pool"}, {"claim by class", "claim", "by class"},
		{"claim IPv6", "claim", "IPv6"}, {"host addresses", "claim", "host addresses"}, {"mixed sizes", "claim", "mixed sizes"},
		{"Service", "service", ""},
	} {
		var closed []*figures.Series
		for _, s := range r.Each(curve.scenario, curve.variant) {
			if clients(s) > 0 && s.At == 0 {
				closed = append(closed, s)
			}
		}
		addLine(&c, curve.name, closed, clients, (*figures.Series).PerSecond)
	}
	return c
}

// latencyPlot returns the plot of the latency that so many percent of requests did not exceed.
func latencyPlot(r *figures.Report, shape string) Plot {
	rate := strings.TrimSuffix(shape, "/s")
	c := Plot{Name: rate, Caption: "Latencies at " + rate + " creates a second", Title: "Latency of creates at " + shape + ", open loop", X: "percentile", Y: "ms"}
	for _, s := range r.Series {
		if s.Shape != shape || s.Millis == nil || s.At != 0 {
			continue
		}
		c.Lines = append(c.Lines, Line{title(s), s.Millis.Curve})
	}
	return c
}

func addLine(c *Plot, name string, series []*figures.Series, x, y func(*figures.Series) float64) {
	if len(series) == 0 {
		return
	}
	line := Line{Name: name}
	for _, s := range series {
		line.Points = append(line.Points, figures.Point{X: x(s), Y: y(s)})
	}
	slices.SortFunc(line.Points, func(a, b figures.Point) int { return cmp.Compare(a.X, b.X) })
	c.Lines = append(c.Lines, line)
}

func inUse(s *figures.Series) float64 { return float64(s.At) }

// clients returns the number of clients of a closed loop; zero for an open one.
func clients(s *figures.Series) float64 {
	number, rest, _ := strings.Cut(s.Shape, " ")
	if !strings.HasPrefix(rest, "client") {
		return 0
	}
	n, _ := strconv.Atoi(number)
	return float64(n)
}
