package draw

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
)

// stat writes one value, or several beside each other with their names.
func (c *canvas) stat(p dashboards.Panel, all []shown, at box) {
	const narrowest = 100
	if fit := max(int(at.w/narrowest), 1); len(all) > fit {
		c.text(box{at.x, at.y + at.h - 16, at.w, 16}, fmt.Sprintf("and %d more", len(all)-fit), style{size: smallSize, colour: faint, anchor: "end"})
		all, at.h = all[:fit], at.h-16
	}
	each := box{at.x, at.y, at.w / float64(len(all)), at.h}
	for _, s := range all {
		text, colour := worded(s.last(), p.FieldConfig.Defaults)
		value := each
		if s.name != "" {
			c.text(box{each.x + 4, each.y, each.w - 8, 18}, s.name, style{size: textSize, colour: faint, anchor: "middle"})
			value = each.below(18)
		}
		size := 30.0
		for size > 12 && breadth(text, size) > each.w-8 {
			size--
		}
		c.text(value, text, style{size: size, colour: colour, anchor: "middle"})
		each.x += each.w
	}
}

// bars draws one bar a time series.
func (c *canvas) bars(p dashboards.Panel, all []shown, at box) {
	const height = 24.0
	d := p.FieldConfig.Defaults
	fit := int(at.h / height)
	if len(all) > fit {
		c.text(box{at.x, at.y + at.h - 16, at.w, 16}, fmt.Sprintf("and %d more", len(all)-fit+1), style{size: smallSize, colour: faint, anchor: "end"})
		all = all[:fit-1]
	}
	names := 0.0
	for _, s := range all {
		names = math.Max(names, breadth(s.name, textSize))
	}
	names = math.Min(names+8, at.w/2)
	for i, s := range all {
		line := box{at.x, at.y + float64(i)*height, at.w, height - 4}
		c.text(box{line.x, line.y, names - 8, line.h}, s.name, style{size: textSize, anchor: "start"})
		text, colour := worded(s.last(), d)
		whole := line.w - names - 56
		part := whole * math.Max(0, math.Min(1, (s.last()-*d.Min)/(*d.Max-*d.Min)))
		c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, line.x+names, line.y, whole, line.h, grid)
		c.add(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`, line.x+names, line.y, part, line.h, colour)
		c.text(box{line.x + line.w - 54, line.y, 54, line.h}, text, style{size: textSize, colour: colour, anchor: "end"})
	}
}

// table writes a row for each combination of labels.
func (c *canvas) table(p dashboards.Panel, answers [][]Series, at box) {
	columns, rows := tabulated(p, answers)
	const height = 20.0
	fit := int(at.h/height) - 1
	if len(rows) > fit {
		c.text(box{at.x, at.y + at.h - 16, at.w, 16}, fmt.Sprintf("and %d more", len(rows)-fit+1), style{size: smallSize, colour: faint, anchor: "end"})
		rows = rows[:fit-1]
	}
	widths, sum := make([]float64, len(columns)), 0.0
	for i, column := range columns {
		widths[i] = breadth(column.name, textSize)
		for _, row := range rows {
			widths[i] = math.Max(widths[i], breadth(row[i], textSize))
		}
		sum += widths[i]
	}
	free := (at.w - sum) / float64(len(columns))
	for n, row := range append([][]string{nil}, rows...) {
		y := at.y + float64(n)*height
		if n > 0 {
			c.add(`<path d="M%.1f %.1fH%.1f" stroke="%s"/>`, at.x, y, at.x+at.w, grid)
		}
		x := at.x
		for i, column := range columns {
			s := style{size: textSize, anchor: "start"}
			text := column.name
			if row == nil {
				s.weight, s.colour = "bold", faint
			} else {
				text = row[i]
			}
			if column.numeric {
				s.anchor = "end"
			}
			c.text(box{x, y, widths[i] + math.Min(free, 0), height}, text, s)
			x += widths[i] + free
		}
	}
}

// tableColumn is a column of a table, in its order.
type tableColumn struct {
	field, name string
	numeric     bool
	unit        string
}

// tabulated joins the answers of all queries by their labels, as Grafana's transformations
// merge and organize do.
func tabulated(p dashboards.Panel, answers [][]Series) (columns []tableColumn, rows [][]string) {
	organize := p.Transformations[len(p.Transformations)-1].Options
	fields := slices.SortedFunc(maps.Keys(organize.Index), func(a, b string) int { return organize.Index[a] - organize.Index[b] })
	for _, field := range fields {
		column := tableColumn{field: field, name: organize.Rename[field], numeric: strings.HasPrefix(field, "Value"), unit: p.FieldConfig.Defaults.Unit}
		for _, override := range p.FieldConfig.Overrides {
			if override.Matcher.Options == column.name {
				column.unit = fmt.Sprint(override.Properties[0].Value)
			}
		}
		columns = append(columns, column)
	}
	byLabels := map[string]map[string]string{}
	for i, series := range answers {
		value := "Value"
		if len(answers) > 1 {
			value += " #" + p.Targets[i].RefID
		}
		for _, s := range series {
			key := fmt.Sprint(s.Labels)
			if byLabels[key] == nil {
				byLabels[key] = maps.Clone(s.Labels)
			}
			of := slices.IndexFunc(columns, func(c tableColumn) bool { return c.field == value })
			byLabels[key][value] = written(s.Points[len(s.Points)-1].Value, columns[of].unit)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byLabels)) {
		row := make([]string, len(columns))
		for i, column := range columns {
			row[i] = byLabels[key][column.field]
		}
		rows = append(rows, row)
	}
	return columns, rows
}
