package document

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

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
