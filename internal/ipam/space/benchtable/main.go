// Command benchtable writes a part of docs/benchmarks.md from the output of go test -bench on
// its standard input, so that no figure in it is typed by hand. make bench-space calls it:
//
//	go test -run '^$' -bench . -benchtime 0.2s -count 5 ./internal/ipam/space |
//		go run ./internal/ipam/space/benchtable
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

const intro = `## The free space of a pool

What one operation of ` + "`internal/ipam/space`" + ` costs with 100,000 blocks in use, in
10.0.0.0/8 and in 2001:db8::/32: *dense* is one contiguous run of addresses,
*striped* every second address, *sparse* blocks of mixed lengths at random places.
*Cycle* finds one address by the named fit, uses it and releases it; its *From* is
FindFrom from random addresses that are in use. *Churn* releases a random
block and uses it again. *Fill* uses all the blocks from an empty pool on, and shows
the time and the heap for each. *GapScan* is the cycle of first fit done the usual
way, with a sorted slice of prefixes that is searched for a gap; its last column is
how many times longer than *Cycle* that takes. Figures are medians.
` + "`make bench-space`" + ` generates this part again, on a machine that does nothing else (a
busy one shows several times more).

`

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "benchtable:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	r := results{runs: map[string]map[string][]float64{}}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if err := r.read(lines.Text()); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(r.names) == 0 {
		return errors.New("no benchmark in the input")
	}
	_, err := io.WriteString(out, intro+r.machine()+r.tables())
	return err
}

// results holds the figures of a go test -bench.
type results struct {
	cpu, procs string
	names      []string                        // in order of appearance, such as Cycle/ipv4/dense/From
	runs       map[string]map[string][]float64 // by name and unit
}

var benchmark = regexp.MustCompile(`^Benchmark(\S+?)(?:-(\d+))?\s+\d+\s+(.*)$`)

func (r *results) read(line string) error {
	if cpu, ok := strings.CutPrefix(line, "cpu: "); ok {
		r.cpu = cpu
	}
	if strings.HasPrefix(line, "FAIL") || strings.HasPrefix(line, "--- FAIL") {
		return fmt.Errorf("the benchmarks failed: %s", line)
	}
	m := benchmark.FindStringSubmatch(line)
	if m == nil {
		return nil
	}
	name := m[1]
	r.procs = m[2]
	if r.runs[name] == nil {
		r.names = append(r.names, name)
		r.runs[name] = map[string][]float64{}
	}
	fields := strings.Fields(m[3])
	for i := 0; i+1 < len(fields); i += 2 {
		value, err := strconv.ParseFloat(fields[i], 64)
		if err != nil {
			return fmt.Errorf("reading %q: %w", line, err)
		}
		r.runs[name][fields[i+1]] = append(r.runs[name][fields[i+1]], value)
	}
	return nil
}

func (r *results) median(name, unit string) float64 {
	values := slices.Sorted(slices.Values(r.runs[name][unit]))
	return values[len(values)/2]
}

func (r *results) machine() string {
	runs := len(r.runs[r.names[0]]["ns/op"])
	return fmt.Sprintf("%s, %s/%s, cpu: %s, GOMAXPROCS %s, %d runs of each.\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, r.cpu, r.procs, runs)
}

// tables returns one table for each benchmark function.
func (r *results) tables() string {
	var b strings.Builder
	section := ""
	for _, name := range r.names {
		function, layout, _ := strings.Cut(name, "/")
		if function != section {
			section = function
			header := r.header(name)
			align := slices.Repeat([]string{"---:"}, len(header))
			align[0] = ":---"
			fmt.Fprintf(&b, "\n### %s\n\n%s%s", function, row(header), row(align))
		}
		fmt.Fprint(&b, row(r.figures(name, layout)))
	}
	return b.String()
}

type column struct{ unit, header string }

// columns returns the columns for which a benchmark reports the unit.
func (r *results) columns(name string) []column {
	all := []column{
		{"ns/op", "time"},
		{"ns/block", "time per block"},
		{"heap-B/block", "heap per block"},
		{"B/op", "allocated"},
		{"allocs/op", "allocations"},
	}
	return slices.DeleteFunc(all, func(c column) bool {
		return len(r.runs[name][c.unit]) == 0
	})
}

func (r *results) header(name string) []string {
	header := []string{"case"}
	for _, column := range r.columns(name) {
		header = append(header, column.header)
	}
	if _, ok := r.ratio(name); ok {
		header = append(header, "times Cycle")
	}
	return header
}

func (r *results) figures(name, layout string) []string {
	figures := []string{layout}
	for _, column := range r.columns(name) {
		figures = append(figures, format(r.median(name, column.unit), column.unit))
	}
	if ratio, ok := r.ratio(name); ok {
		figures = append(figures, fmt.Sprintf("%.0f", ratio))
	}
	return figures
}

// ratio returns how many times longer a gap scan takes than first fit.
func (r *results) ratio(name string) (float64, bool) {
	layout, ok := strings.CutPrefix(name, "GapScan/")
	ours := "Cycle/" + layout + "/FirstFit"
	if !ok || len(r.runs[ours]["ns/op"]) == 0 {
		return 0, false
	}
	return r.median(name, "ns/op") / r.median(ours, "ns/op"), true
}

func format(value float64, unit string) string {
	switch {
	case strings.Contains(unit, "B/"):
		return fmt.Sprintf("%.0f B", value)
	case !strings.HasPrefix(unit, "ns/"):
		return fmt.Sprintf("%.0f", value)
	case value >= 1e6:
		return fmt.Sprintf("%.3g ms", value/1e6)
	case value >= 1e3:
		return fmt.Sprintf("%.3g µs", value/1e3)
	}
	return fmt.Sprintf("%.0f ns", value)
}

func row(cells []string) string {
	return "| " + strings.Join(cells, " | ") + " |\n"
}
