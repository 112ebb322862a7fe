package draw

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
)

// scale is a name for so much of a unit.
type scale struct {
	of   float64
	name string
}

// scales are the names of each unit of Grafana, the largest first.
func scales(unit string) []scale {
	thousands := []scale{{1e30, "e30"}, {1e27, "e27"}, {1e24, "e24"}, {1e21, "e21"}, {1e18, "e18"}, {1e15, "e15"}, {1e12, " T"}, {1e9, " B"}, {1e6, " M"}, {1e3, " K"}, {1, ""}}
	switch unit {
	case "s":
		return []scale{{86400, " d"}, {3600, " h"}, {60, " min"}, {1, " s"}, {1e-3, " ms"}, {1e-6, " µs"}}
	case "bytes":
		return []scale{{1 << 30, " GiB"}, {1 << 20, " MiB"}, {1 << 10, " KiB"}, {1, " B"}}
	case "percentunit":
		return []scale{{0.01, "%"}}
	case "ops", "reqps":
		return []scale{{1e3, " K/s"}, {1, "/s"}, {1e-3, " m/s"}}
	case "none":
		return []scale{{1, ""}}
	}
	return thousands
}

// written is a value with its unit.
func written(value float64, unit string) string {
	all := scales(unit)
	if unit == "ops" || unit == "reqps" {
		all = all[:2]
	}
	chosen := all[len(all)-1]
	if value == 0 && unit == "s" {
		return "0 s"
	}
	for _, s := range all {
		if math.Abs(value) >= s.of {
			chosen = s
			break
		}
	}
	value /= chosen.of
	digits := 2
	if math.Abs(value) >= 100 {
		digits = 0
	} else if math.Abs(value) >= 10 {
		digits = 1
	}
	text := strconv.FormatFloat(value, 'f', digits, 64)
	if strings.Contains(text, ".") {
		text = strings.TrimRight(strings.TrimRight(text, "0"), ".")
	}
	if text == "-0" {
		text = "0"
	}
	return text + chosen.name
}

// worded is a value as a panel shows it: as the text of a mapping, or with its unit, and in
// which colour.
func worded(value float64, d dashboards.Defaults) (text, colour string) {
	for _, mapping := range d.Mappings {
		if t, ok := mapping.Options[fmt.Sprint(value)]; ok {
			return t.Text, hue(t.Color)
		}
	}
	colour = ink
	if d.Thresholds != nil {
		for _, step := range d.Thresholds.Steps {
			if step.Value == nil || value >= *step.Value {
				colour = hue(step.Color)
			}
		}
	}
	return written(value, d.Unit), colour
}

// hue is a colour of Grafana as its light theme has it.
func hue(name string) string {
	return map[string]string{"green": "#1a7f4b", "orange": "#c4620f", "red": "#c4162a"}[name]
}
