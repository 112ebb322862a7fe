package document

import (
	"strconv"
	"strings"

	"github.com/cadastre-dev/cadastre/test/perf/bench/chart"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

// plotted is what the plots show, by name.
func plotted() map[string]string {
	return map[string]string{
		"fill":    "Filling a pool",
		"clients": "Creates by the number of clients",
		"150":     "Latencies at 150 creates a second",
		"300":     "Latencies at 300 creates a second",
		"capi":    "IPAddressClaims by the number of addresses in use",
	}
}

// Plots are the curves of a run as SVG, by name.
func Plots(r *figures.Report) map[string][]byte {
	plots := map[string][]byte{}
	for name, c := range map[string]chart.Chart{
		"fill":    fillPlot(r),
		"clients": clientsPlot(r),
		"150":     latencyPlot(r, "150/s"),
		"300":     latencyPlot(r, "300/s"),
		"capi":    capiPlot(r),
	} {
		if len(c.Lines) > 0 {
			plots[name] = c.SVG()
		}
	}
	return plots
}

func fillPlot(r *figures.Report) chart.Chart {
	c := chart.Chart{Title: "Filling a /12 with /28, 8 clients", X: "allocations in use", Y: "per second"}
	claims, bare := r.Each("fill", "claim"), r.Each("fill", "bare")
	addLine(&c, "claims created", claims, inUse, (*figures.Series).PerSecond)
	addLine(&c, "claims Bound", claims, inUse, (*figures.Series).DonePerSecond)
	addLine(&c, "bare creates", bare, inUse, (*figures.Series).PerSecond)
	return c
}

func capiPlot(r *figures.Report) chart.Chart {
	c := chart.Chart{Title: "IPAddressClaims until addressRef is set, 32 clients", X: "addresses in use", Y: "per second"}
	addLine(&c, "bound", r.Each("capi", ""), inUse, (*figures.Series).DonePerSecond)
	return c
}

func clientsPlot(r *figures.Report) chart.Chart {
	c := chart.Chart{Title: "Creates, closed loop", X: "clients", Y: "per second"}
	for _, of := range []struct{ name, scenario, variant string }{
		{"bare", "bare", ""}, {"two writes", "writes", ""}, {"claim by pool", "claim", "by pool"}, {"claim by class", "claim", "by class"},
		{"claim IPv6", "claim", "IPv6"}, {"host addresses", "claim", "host addresses"}, {"mixed sizes", "claim", "mixed sizes"},
		{"Service", "service", ""},
	} {
		var closed []*figures.Series
		for _, s := range r.Each(of.scenario, of.variant) {
			if clients(s) > 0 && s.At == 0 {
				closed = append(closed, s)
			}
		}
		addLine(&c, of.name, closed, clients, (*figures.Series).PerSecond)
	}
	return c
}

// latencyPlot is the latency that so many percent of requests did not exceed.
func latencyPlot(r *figures.Report, shape string) chart.Chart {
	c := chart.Chart{Title: "Latency of creates at " + shape + ", open loop", X: "percentile", Y: "ms"}
	for _, s := range r.Series {
		if s.Shape != shape || s.Millis == nil || s.At != 0 {
			continue
		}
		line := chart.Line{Name: title(s)}
		for _, p := range s.Millis.Curve {
			line.Points = append(line.Points, chart.Point(p))
		}
		c.Lines = append(c.Lines, line)
	}
	return c
}

func addLine(c *chart.Chart, name string, series []*figures.Series, x, y func(*figures.Series) float64) {
	if len(series) == 0 {
		return
	}
	line := chart.Line{Name: name}
	for _, s := range series {
		line.Points = append(line.Points, chart.Point{X: x(s), Y: y(s)})
	}
	c.Lines = append(c.Lines, line)
}

func inUse(s *figures.Series) float64 { return float64(s.At) }

// clients of a closed loop; zero for an open one.
func clients(s *figures.Series) float64 {
	number, rest, _ := strings.Cut(s.Shape, " ")
	if !strings.HasPrefix(rest, "client") {
		return 0
	}
	n, _ := strconv.Atoi(number)
	return float64(n)
}
