// Package draw draws dashboards with the answers to their queries as SVG: rows, lines over
// time, single values, bars and tables, each where the grid of the dashboard has it. It is in
// place of Grafana, which is no Go module.
package draw

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
)

// Series is a time series.
type Series struct {
	Labels map[string]string
	Points []Point
}

// Point of a time series.
type Point struct {
	At    time.Time
	Value float64
}

// Answers are the time series that each query of a panel is answered with, by the id of the
// panel. A query of one moment has one point in each.
type Answers map[int][][]Series

// Span is what is shown.
type Span struct {
	From, To time.Time
	// Step is the time between two points.
	Step time.Duration
}

// The grid in pixels: a unit, and what is left free between panels.
const (
	unitWidth, unitHeight = 60, 28
	gap, margin, header   = 8, 12, 64
	textSize, smallSize   = 12, 11
)

// The colours of the light theme.
const (
	background, surface, border = "#f4f5f5", "#ffffff", "#d8dade"
	ink, faint, grid            = "#24292e", "#5f6671", "#e6e7ea"
)

// box is a rectangle in pixels.
type box struct{ x, y, w, h float64 }

// inner is the box without so much on each side.
func (b box) inner(by float64) box { return box{b.x + by, b.y + by, b.w - 2*by, b.h - 2*by} }

// below is the box without what is at its top.
func (b box) below(by float64) box { return box{b.x, b.y + by, b.w, b.h - by} }

// canvas takes elements of SVG.
type canvas struct{ bytes.Buffer }

// Dashboard is the drawing of a dashboard.
func Dashboard(d dashboards.Dashboard, answers Answers, span Span) []byte {
	bottom := 0
	for _, p := range d.Panels {
		bottom = max(bottom, p.GridPos.Y+p.GridPos.H)
	}
	width, height := float64(24*unitWidth+2*margin-gap), float64(bottom*unitHeight+header+margin)
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %[1]g %[2]g" font-family="Inter, Helvetica, Arial, DejaVu Sans, sans-serif" font-size="%d">`, width, height, textSize)
	c.add(`<rect width="%g" height="%g" fill="%s"/>`, width, height, background)
	c.text(box{margin, 6, width - 2*margin, 28}, d.Title, style{size: 20, weight: "bold", anchor: "start"})
	c.text(box{margin, 34, width - 2*margin, 20}, fmt.Sprintf("%s From %s to %s UTC.", d.Description, span.From.UTC().Format("15:04:05"), span.To.UTC().Format("15:04:05")), style{size: textSize, colour: faint, anchor: "start"})
	for _, p := range d.Panels {
		g := p.GridPos
		at := box{float64(margin + g.X*unitWidth), float64(header + g.Y*unitHeight), float64(g.W*unitWidth - gap), float64(g.H*unitHeight - gap)}
		c.panel(p, answers[p.ID], at, span)
	}
	c.add("</svg>")
	return c.Bytes()
}

func (c *canvas) panel(p dashboards.Panel, answers [][]Series, at box, span Span) {
	if p.Type == dashboards.TypeRow {
		c.text(at, p.Title, style{size: 15, weight: "bold", anchor: "start"})
		return
	}
	c.add(`<rect x="%g" y="%g" width="%g" height="%g" rx="3" fill="%s" stroke="%s"/>`, at.x, at.y, at.w, at.h, surface, border)
	inner := at.inner(8)
	c.text(box{inner.x, inner.y, inner.w, 16}, p.Title, style{size: textSize + 1, weight: "bold", anchor: "start"})
	inner = inner.below(22)
	none := true
	for _, series := range answers {
		none = none && len(series) == 0
	}
	switch {
	case none && p.Type == dashboards.TypeStat:
		c.text(inner, p.FieldConfig.Defaults.NoValue, style{size: 24, colour: faint, anchor: "middle"})
	case none:
		c.text(inner, "No data", style{size: textSize, colour: faint, anchor: "middle"})
	case p.Type == dashboards.TypeTimeSeries:
		c.lines(p, named(p, answers), inner, span)
	case p.Type == dashboards.TypeStat:
		c.stat(p, named(p, answers), inner)
	case p.Type == dashboards.TypeBarGauge:
		c.bars(p, named(p, answers), inner)
	case p.Type == dashboards.TypeTable:
		c.table(p, answers, inner)
	}
}

// shown is a time series with its name.
type shown struct {
	name   string
	points []Point
}

// last is the value of the last point.
func (s shown) last() float64 { return s.points[len(s.points)-1].Value }

var inLegend = regexp.MustCompile(`\{\{ *([a-z_]+) *\}\}`)

// named are the time series of a panel with their names, as the legend of the query has it.
func named(p dashboards.Panel, answers [][]Series) []shown {
	var all []shown
	for i, series := range answers {
		for _, s := range series {
			name := inLegend.ReplaceAllStringFunc(p.Targets[i].LegendFormat, func(label string) string {
				return s.Labels[inLegend.FindStringSubmatch(label)[1]]
			})
			name = strings.Join(strings.Fields(name), " ")
			if name == "" && p.Targets[i].LegendFormat != "" {
				name = "(none)"
			}
			if len(s.Points) > 0 {
				all = append(all, shown{name, s.Points})
			}
		}
	}
	return all
}

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(&c.Buffer, format+"\n", args...) }

// style of a text.
type style struct {
	size           float64
	weight, colour string
	anchor         string // start, middle or end
}

// text writes a text into a box, shortened to its width.
func (c *canvas) text(at box, what string, s style) {
	if s.colour == "" {
		s.colour = ink
	}
	if s.weight == "" {
		s.weight = "normal"
	}
	x := map[string]float64{"start": at.x, "middle": at.x + at.w/2, "end": at.x + at.w}[s.anchor]
	fmt.Fprintf(&c.Buffer, `<text x="%.1f" y="%.1f" font-size="%g" font-weight="%s" fill="%s" text-anchor="%s">`, x, at.y+at.h/2+s.size*0.36, s.size, s.weight, s.colour, s.anchor)
	_ = xml.EscapeText(c, []byte(shortened(what, at.w, s.size))) // a buffer takes everything
	c.add("</text>")
}

// breadth is about how wide a text is: for a wide font, so that it is rather less.
func breadth(text string, size float64) float64 {
	sum := 0.0
	for _, r := range text {
		switch {
		case strings.ContainsRune("iljtfrI.,:;'|()[]/ ", r):
			sum += 0.38
		case strings.ContainsRune("mwMW%@", r):
			sum += 0.95
		case r >= 'A' && r <= 'Z':
			sum += 0.72
		default:
			sum += 0.62
		}
	}
	return sum * size
}

// shortened is a text that is no wider than a width.
func shortened(text string, width, size float64) string {
	if breadth(text, size) <= width {
		return text
	}
	runes := []rune(text)
	for len(runes) > 0 && breadth(string(runes)+"…", size) > width {
		runes = runes[:len(runes)-1]
	}
	return strings.TrimSpace(string(runes)) + "…"
}
