package dashboards

import (
	"fmt"
	"slices"
	"strings"

	lint "github.com/cadastre-dev/cadastre/hack/metrics"
)

// source returns the data source that the reader chooses.
func source() *Reference { return &Reference{Type: "prometheus", UID: "${datasource}"} }

// These are the colors of thresholds and of texts.
const (
	good = "green"
	poor = "orange"
	bad  = "red"
)

// builder places the panels of a dashboard from left to right and from the top down.
type builder struct {
	Dashboard
	choices choices
	alerts  *lint.Alerts
	// x and y are the position of the next panel, and h is the height of the line.
	x, y, h int
	errs    []error
}

// query holds an expression without the choices of the reader, and the name of its time series.
type query struct{ expr, legend string }

// place holds the width and the height of a panel.
type place struct{ w, h int }

// row begins a part of the dashboard.
func (b *builder) row(title string) {
	b.breakLine()
	b.Panels = append(b.Panels, Panel{
		ID: len(b.Panels) + 1, Type: TypeRow, Title: title, GridPos: Grid{H: 1, W: 24, Y: b.y},
		Collapsed: new(bool), Panels: &[]Panel{},
	})
	b.y++
}

func (b *builder) breakLine() { b.x, b.y, b.h = 0, b.y+b.h, 0 }

// add places a panel, with its queries.
func (b *builder) add(panel Panel, at place, queries ...query) *Panel {
	if b.x+at.w > 24 {
		b.breakLine()
	}
	panel.ID, panel.GridPos, panel.Datasource = len(b.Panels)+1, Grid{H: at.h, W: at.w, X: b.x, Y: b.y}, source()
	instant := panel.Type != TypeTimeSeries
	for i, q := range queries {
		target := Target{RefID: string(rune('A' + i)), Datasource: source(), Expr: b.choices.chosen(q.expr), LegendFormat: q.legend, Format: "time_series", Instant: instant, Range: !instant}
		if panel.Type == TypeTable {
			target.Format = "table"
		}
		panel.Targets = append(panel.Targets, target)
	}
	b.x, b.h = b.x+at.w, max(b.h, at.h)
	b.Panels = append(b.Panels, panel)
	return &b.Panels[len(b.Panels)-1]
}

// lines adds a panel of lines over time.
func (b *builder) lines(title, unit, description string, at place, queries ...query) *Panel {
	return b.add(Panel{
		Type: TypeTimeSeries, Title: title, Description: description,
		FieldConfig: &FieldConfig{Overrides: []Override{}, Defaults: Defaults{
			Unit: unit, Min: new(float64), Color: &Color{Mode: "palette-classic"},
			Custom: map[string]any{"drawStyle": "line", "lineWidth": 1, "fillOpacity": 10, "showPoints": "never", "spanNulls": false},
		}},
		Options: map[string]any{
			"legend":  map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []string{}},
			"tooltip": map[string]any{"mode": "multi", "sort": "desc"},
		},
	}, at, queries...)
}

// reduced returns the setting by which a panel makes one value of each time series: queries are of
// one moment, so there is at most one value.
func reduced() map[string]any {
	return map[string]any{"calcs": []string{"lastNotNull"}, "values": false}
}

// stat adds a panel with one value or few values, which are green.
func (b *builder) stat(title, unit, description string, at place, q query) *Panel {
	return b.add(Panel{
		Type: TypeStat, Title: title, Description: description,
		FieldConfig: &FieldConfig{Overrides: []Override{}, Defaults: Defaults{
			Unit: unit, NoValue: "none", Thresholds: &Thresholds{Mode: "absolute", Steps: []Step{{Color: good}}}, Color: &Color{Mode: "thresholds"},
		}},
		Options: map[string]any{
			"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "percentChangeColorMode": "standard",
			"reduceOptions": reduced(), "showPercentChange": false, "textMode": "auto", "wideLayout": true,
		},
	}, at, q)
}

// from adds steps, from which on values have other colors.
func (p *Panel) from(steps ...Step) *Panel {
	thresholds := p.FieldConfig.Defaults.Thresholds
	thresholds.Steps = append(thresholds.Steps, steps...)
	return p
}

// bars adds a panel with one bar for each time series, from 0 to 1.
func (b *builder) bars(title, description string, at place, q query, steps ...Step) *Panel {
	return b.add(Panel{
		Type: TypeBarGauge, Title: title, Description: description,
		FieldConfig: &FieldConfig{Overrides: []Override{}, Defaults: Defaults{
			Unit: "percentunit", Decimals: new(1), Min: new(float64), Max: new(1.0), NoValue: "none", Color: &Color{Mode: "thresholds"},
			Thresholds: &Thresholds{Mode: "absolute", Steps: steps},
		}},
		Options: map[string]any{
			"displayMode": "basic", "valueMode": "color", "namePlacement": "auto", "showUnfilled": true, "sizing": "auto",
			"minVizWidth": 8, "minVizHeight": 16, "maxVizHeight": 300, "orientation": "horizontal", "reduceOptions": reduced(),
			"legend": map[string]any{"displayMode": "list", "placement": "bottom", "showLegend": false, "calcs": []string{}},
		},
	}, at, q)
}

// column represents a column of a table: a label, or the value of a query.
type column struct {
	name string
	// label is empty if the column is the next query's value.
	label, expr string
	unit        string
}

// table adds a panel with one row for each combination of labels.
func (b *builder) table(title, description string, at place, columns ...column) {
	organize := Organize{Exclude: map[string]bool{"Time": true}, Index: map[string]int{}, Rename: map[string]string{}}
	config := &FieldConfig{Overrides: []Override{}, Defaults: Defaults{Unit: "short", Custom: map[string]any{"align": "auto", "inspect": false}}}
	values := 0
	for _, c := range columns {
		if c.label == "" {
			values++
		}
	}
	var queries []query
	for i, c := range columns {
		field := c.label
		if field == "" {
			field = "Value"
			if values > 1 { // the name of the query distinguishes values
				field += " #" + string(rune('A'+len(queries)))
			}
			queries = append(queries, query{c.expr, ""})
		}
		organize.Index[field], organize.Rename[field] = i, c.name
		if c.unit != "" {
			config.Overrides = append(config.Overrides, Override{Matcher{"byName", c.name}, []Property{{"unit", c.unit}}})
		}
	}
	transformations := []Transformation{{ID: "organize", Options: organize}}
	if values > 1 {
		transformations = append([]Transformation{{ID: "merge"}}, transformations...)
	}
	b.add(Panel{
		Type: TypeTable, Title: title, Description: description, FieldConfig: config, Transformations: transformations,
		Options: map[string]any{"frameIndex": 0, "showHeader": true, "cellHeight": "sm"},
	}, at, queries...)
}

// runbook adds a link to the runbook of an alert.
func (b *builder) runbook(panel *Panel, alert string) {
	rule := b.rule(alert)
	panel.Links = append(panel.Links, Link{Title: "Runbook " + rule.Alert, Type: "link", Icon: "external link", URL: rule.Annotations["runbook_url"], Tags: []string{}, TargetBlank: true})
}

func (b *builder) rule(alert string) lint.Rule {
	i := slices.IndexFunc(b.alerts.All, func(r lint.Rule) bool { return r.Alert == alert })
	if i < 0 {
		b.errs = append(b.errs, fmt.Errorf("there is no alert %s", alert))
		return lint.Rule{}
	}
	return b.alerts.All[i]
}

// queriesOf returns the queries of an alert: its expressions, without the comparisons, with names for
// their time series.
func (b *builder) queriesOf(alert string, legends ...string) []query {
	all, err := parts(b.rule(alert))
	if err == nil && len(all) != len(legends) {
		err = fmt.Errorf("%s has %d expressions, and the panel names for %d", alert, len(all), len(legends))
	}
	if err != nil {
		b.errs = append(b.errs, err)
		return nil
	}
	queries := make([]query, len(all))
	for i, part := range all {
		queries[i] = query{part.expr, legends[i]}
	}
	return queries
}

// one returns the query of an alert that has one expression.
func (b *builder) one(alert, legend string) query {
	all := b.queriesOf(alert, legend)
	if len(all) == 0 {
		return query{} // the reason is in errs
	}
	return all[0]
}

// threshold returns the number with which an alert compares.
func (b *builder) threshold(alert string) float64 {
	all, err := parts(b.rule(alert))
	if err != nil || len(all) == 0 {
		b.errs = append(b.errs, fmt.Errorf("%s has no threshold: %w", alert, err))
		return 0
	}
	return all[0].threshold
}

// panelText holds the texts and the unit of a panel.
type panelText struct{ title, unit, description string }

// watched adds a panel of lines of an alert, with a line at the threshold of the alert.
func (b *builder) watched(alert string, what panelText, at place, legends ...string) {
	b.dashed(b.lines(what.title, what.unit, what.description, at, b.queriesOf(alert, legends...)...), alert)
}

// dashed adds a line at the threshold of an alert, and a link to its runbook.
func (b *builder) dashed(panel *Panel, alert string) {
	b.runbook(panel, alert)
	steps := []Step{{Color: "transparent"}, {Value: new(b.threshold(alert)), Color: bad}}
	if strings.Contains(b.rule(alert).Expr, "<") {
		steps[0].Color, steps[1].Color = steps[1].Color, steps[0].Color
	}
	defaults := &panel.FieldConfig.Defaults
	defaults.Thresholds = &Thresholds{Mode: "absolute", Steps: steps}
	defaults.Custom.(map[string]any)["thresholdsStyle"] = map[string]any{"mode": "dashed"}
}
