// Command plots draws the curves of a run of the benchmark:
//
//	plots FILE DIRECTORY   a picture of each curve of a bench.json, bench-*.svg
package main

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/cadastre-dev/cadastre/test/perf/bench/document"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "plots:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("usage: plots FILE DIRECTORY")
	}
	report, err := figures.Load(args[0])
	if err != nil {
		return err
	}
	for _, curves := range document.Plots(report) {
		svg, err := drawing(curves)
		if err != nil {
			return fmt.Errorf("the curves %s: %w", curves.Name, err)
		}
		if err := os.WriteFile(filepath.Join(args[1], curves.File()), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// The size of a picture, and the part of its width that the names of the lines take.
const (
	width, height = 22 * vg.Centimeter, 12 * vg.Centimeter
	names         = 6 * vg.Centimeter
)

// drawing returns the curves as SVG. Both axes begin at zero; the names of the lines are at the
// right of them.
func drawing(curves document.Plot) ([]byte, error) {
	plot.DefaultFont.Variant = "Sans"
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = curves.Title, curves.X, curves.Y
	p.X.Min, p.Y.Min = 0, 0
	p.Add(plotter.NewGrid())
	legend := plot.NewLegend()
	legend.Top, legend.Left = true, true
	for i, line := range curves.Lines {
		drawn, points, err := plotter.NewLinePoints(xy(line.Points))
		if err != nil {
			return nil, err
		}
		drawn.Color, points.Color = plotutil.Color(i), plotutil.Color(i)
		points.Shape = plotutil.Shape(i)
		p.Add(drawn, points)
		legend.Add(line.Name, drawn, points)
	}
	c := vgsvg.New(width, height)
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Path())
	p.Draw(draw.Crop(all, 0, -names, 0, 0))
	legend.Draw(draw.Crop(all, width-names, 0, 0, 0))
	var out bytes.Buffer
	_, err := c.WriteTo(&out)
	return out.Bytes(), err
}

// xy implements plotter.XYer.
type xy []figures.Point

func (p xy) Len() int { return len(p) }

func (p xy) XY(i int) (x, y float64) { return p[i].X, p[i].Y }
