// Package chart draws line charts as SVG: enough for the curves of the
// benchmark, with nothing but the standard library.
package chart

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"slices"
)

// Chart is a drawing of several lines over one x axis.
type Chart struct {
	Title, X, Y string
	Lines       []Line
}

// Line joins points from left to right.
type Line struct {
	Name   string
	Points []Point
}

// Point of a line.
type Point struct{ X, Y float64 }

// The drawing and the field within it, in pixels.
const (
	width, height            = 760, 420
	left, right, top, bottom = 70, 180, 44, 52
)

// Colours of lines, in their order.
func Colours() []string {
	return []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555"} // Okabe and Ito's, told apart by everybody
}

// SVG is the drawing. Both axes begin at zero.
func (c Chart) SVG() []byte {
	out := &bytes.Buffer{}
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(out, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
	text(out, left, 24, "start", c.Title)
	x, y := c.axis(func(p Point) float64 { return p.X }), c.axis(func(p Point) float64 { return p.Y })
	c.drawAxes(out, x, y)
	for i, line := range c.Lines {
		drawLine(out, line, x, y, i)
	}
	fmt.Fprintln(out, "</svg>")
	return out.Bytes()
}

// axis reaches from zero to a round number at or above the largest value.
type axis struct{ step, end float64 }

func (c Chart) axis(of func(Point) float64) axis {
	largest := 0.0
	for _, line := range c.Lines {
		for _, p := range line.Points {
			largest = math.Max(largest, of(p))
		}
	}
	if largest == 0 {
		return axis{1, 1}
	}
	step := math.Pow(10, math.Floor(math.Log10(largest)))
	for _, part := range []float64{0.1, 0.2, 0.5} {
		if largest/(step*part) <= 6 {
			step *= part
			break
		}
	}
	return axis{step, step * math.Ceil(largest/step)}
}

func (a axis) marks() []float64 {
	var marks []float64
	for n := range int(math.Round(a.end/a.step)) + 1 {
		marks = append(marks, float64(n)*a.step)
	}
	return marks
}

func across(x axis, value float64) float64 { return left + value/x.end*(width-left-right) }

func down(y axis, value float64) float64 {
	return height - bottom - value/y.end*(height-top-bottom)
}

func (c Chart) drawAxes(out *bytes.Buffer, x, y axis) {
	for _, mark := range y.marks() {
		at := down(y, mark)
		fmt.Fprintf(out, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", left, at, width-right)
		text(out, left-8, at+4, "end", number(mark))
	}
	for _, mark := range x.marks() {
		at := across(x, mark)
		fmt.Fprintf(out, `<path d="M%.1f %dv5" stroke="#888"/>`+"\n", at, height-bottom)
		text(out, at, height-bottom+20, "middle", number(mark))
	}
	fmt.Fprintf(out, `<path d="M%d %dV%dH%d" fill="none" stroke="#888"/>`+"\n", left, top, height-bottom, width-right)
	text(out, (left+width-right)/2, height-12, "middle", c.X)
	text(out, 12, top-8, "start", c.Y)
}

func drawLine(out *bytes.Buffer, line Line, x, y axis, n int) {
	colour := Colours()[n%len(Colours())]
	points := slices.SortedStableFunc(slices.Values(line.Points), func(a, b Point) int {
		switch {
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	fmt.Fprintf(out, `<polyline fill="none" stroke="%s" stroke-width="2" points="`, colour)
	for _, p := range points {
		fmt.Fprintf(out, "%.1f,%.1f ", across(x, p.X), down(y, p.Y))
	}
	fmt.Fprintln(out, `"/>`)
	for _, p := range points {
		fmt.Fprintf(out, `<circle cx="%.1f" cy="%.1f" r="2.5" fill="%s"/>`+"\n", across(x, p.X), down(y, p.Y), colour)
	}
	at := float64(top + 16 + 18*n)
	fmt.Fprintf(out, `<path d="M%d %.1fh18" stroke="%s" stroke-width="3"/>`+"\n", width-right+12, at-4, colour)
	text(out, width-right+36, at, "start", line.Name)
}

func text(out *bytes.Buffer, x, y float64, anchor, what string) {
	fmt.Fprintf(out, `<text x="%.1f" y="%.1f" text-anchor="%s">`, x, y, anchor)
	_ = xml.EscapeText(out, []byte(what)) // a buffer takes everything
	fmt.Fprintln(out, "</text>")
}

func number(v float64) string {
	if v >= 10000 {
		return fmt.Sprintf("%gk", math.Round(v)/1000)
	}
	return fmt.Sprintf("%.4g", v)
}
