package draw

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
	"github.com/cadastre-dev/cadastre/test/perf/bench/chart"
)

// axis reaches from one round number to another.
type axis struct{ begin, end, step float64 }

// valueAxis reaches from the least to the largest value, where the panel sets no other bounds,
// and has few marks.
func valueAxis(all []shown, d dashboards.Defaults) axis {
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range all {
		for _, p := range s.points {
			if !math.IsNaN(p.Value) && !math.IsInf(p.Value, 0) {
				low, high = math.Min(low, p.Value), math.Max(high, p.Value)
			}
		}
	}
	if low > high {
		low, high = 0, 1
	}
	if d.Min != nil {
		low = *d.Min
	}
	if d.Max != nil {
		high = *d.Max
	}
	if low >= high {
		high = low + 1
	}
	step := round((high-low)/4, d.Unit)
	return axis{step * math.Floor(low/step), step * math.Ceil(high/step-1e-9), step}
}

// round is a round number at or above another.
func round(least float64, unit string) float64 {
	switch {
	case unit == "s" && least > 1:
		for _, s := range []float64{2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400} {
			if s >= least {
				return s
			}
		}
	case unit == "bytes":
		return math.Pow(2, math.Ceil(math.Log2(least)))
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, by := range []float64{1, 2, 2.5, 5} {
		if power*by >= least*(1-1e-9) {
			return power * by
		}
	}
	return power * 10
}

// field is where lines are drawn.
type field struct {
	box
	y    axis
	span Span
}

func (f field) across(at time.Time) float64 {
	return f.x + f.w*float64(at.Sub(f.span.From))/float64(f.span.To.Sub(f.span.From))
}

func (f field) down(value float64) float64 {
	return f.box.y + f.h*(f.y.end-value)/(f.y.end-f.y.begin)
}

// lines draws time series.
func (c *canvas) lines(p dashboards.Panel, all []shown, at box, span Span) {
	rows := c.legend(all, at)
	plot := box{at.x, at.y + 4, at.w, at.h - 4 - 18 - float64(rows)*legendHeight}
	f := field{plot, valueAxis(all, p.FieldConfig.Defaults), span}
	labels := 0.0
	for mark := f.y.begin; mark <= f.y.end+f.y.step/2; mark += f.y.step {
		labels = math.Max(labels, breadth(written(mark, p.FieldConfig.Defaults.Unit), smallSize))
	}
	f.x, f.w = f.x+labels+8, f.w-labels-8-14
	c.axes(f, p.FieldConfig.Defaults.Unit)
	c.add(`<clipPath id="panel-%d"><rect x="%.1f" y="%.1f" width="%.1f" height="%.1f"/></clipPath><g clip-path="url(#panel-%[1]d)">`, p.ID, f.x, f.box.y-1, f.w, f.h+2)
	for i, s := range all {
		c.line(f, s, i)
	}
	c.add("</g>")
	c.thresholds(f, p.FieldConfig.Defaults)
}

func (c *canvas) axes(f field, unit string) {
	for mark := f.y.begin; mark <= f.y.end+f.y.step/2; mark += f.y.step {
		y := f.down(mark)
		c.add(`<path d="M%.1f %.1fH%.1f" stroke="%s"/>`, f.x, y, f.x+f.w, grid)
		c.text(box{f.x - 108, y - 6, 100, 12}, written(mark, unit), style{size: smallSize, colour: faint, anchor: "end"})
	}
	step := time.Minute
	for float64(f.span.To.Sub(f.span.From)/step) > math.Min(6, f.w/50) {
		step *= 2
	}
	for at := f.span.From.Truncate(step).Add(step); !at.After(f.span.To); at = at.Add(step) {
		x := f.across(at)
		c.add(`<path d="M%.1f %.1fV%.1f" stroke="%s"/>`, x, f.box.y, f.box.y+f.h, grid)
		c.text(box{x - 30, f.box.y + f.h + 3, 60, 14}, at.UTC().Format("15:04"), style{size: smallSize, colour: faint, anchor: "middle"})
	}
}

// colour of the nth line, and how it is dashed where the colours are used up.
func colour(n int) (colour, dashes string) {
	all := chart.Colours()
	return all[n%len(all)], []string{"none", "5 3", "2 2"}[n/len(all)%3]
}

func (c *canvas) line(f field, s shown, n int) {
	path := &strings.Builder{}
	var before time.Time
	for _, p := range s.points {
		if math.IsNaN(p.Value) || math.IsInf(p.Value, 0) {
			continue
		}
		command := "L"
		if p.At.Sub(before) > f.span.Step*3/2 {
			command = "M"
		}
		before = p.At
		fmt.Fprintf(path, "%s%.1f %.1f", command, f.across(p.At), f.down(p.Value))
	}
	stroke, dashes := colour(n)
	c.add(`<path d="%s" fill="none" stroke="%s" stroke-width="1.6" stroke-linecap="round" stroke-dasharray="%s"/>`, path, stroke, dashes)
}

// thresholds draws where an alert fires, if that is within the axis.
func (c *canvas) thresholds(f field, d dashboards.Defaults) {
	if d.Thresholds == nil {
		return
	}
	for _, step := range d.Thresholds.Steps {
		if step.Value != nil && *step.Value >= f.y.begin && *step.Value <= f.y.end {
			y := f.down(*step.Value)
			c.add(`<path d="M%.1f %.1fH%.1f" stroke="%s" stroke-dasharray="6 4"/>`, f.x, y, f.x+f.w, hue("red"))
		}
	}
}

// The legend: how high its lines are, and how many there are at most.
const legendHeight, legendRows = 16, 4

// legend writes the names of lines at the bottom of a box, and returns how many lines it takes.
func (c *canvas) legend(all []shown, at box) int {
	type entry struct {
		x    float64
		row  int
		name string
		n    int
	}
	var entries []entry
	x, row, left := 0.0, 0, 0
	for i, s := range all {
		if s.name == "" {
			continue
		}
		wide := math.Min(breadth(s.name, smallSize)+30, at.w)
		if x > 0 && x+wide > at.w {
			x, row = 0, row+1
		}
		if row == legendRows-1 && x+wide > at.w-90 && i < len(all)-1 || row >= legendRows {
			left = len(all) - i
			break
		}
		entries = append(entries, entry{x, row, s.name, i})
		x += wide
	}
	rows := min(row, legendRows-1) + 1
	top := at.y + at.h - float64(rows)*legendHeight
	for _, e := range entries {
		stroke, dashes := colour(e.n)
		y := top + float64(e.row)*legendHeight
		c.add(`<path d="M%.1f %.1fh14" stroke="%s" stroke-width="3" stroke-dasharray="%s"/>`, at.x+e.x, y+8, stroke, dashes)
		c.text(box{at.x + e.x + 18, y, at.w - e.x - 18, legendHeight}, e.name, style{size: smallSize, anchor: "start"})
	}
	if left > 0 {
		c.text(box{at.x, top + (legendRows-1)*legendHeight, at.w, legendHeight}, fmt.Sprintf("and %d more", left), style{size: smallSize, colour: faint, anchor: "end"})
	}
	return rows
}
