package draw

import (
	"encoding/xml"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cadastre-dev/cadastre/hack/dashboards"
	lint "github.com/cadastre-dev/cadastre/hack/metrics"
)

// written texts of a picture, with the place that each takes.
type drawn struct {
	what string
	box
}

func texts(t *testing.T, svg []byte) []drawn {
	t.Helper()
	var picture struct {
		Texts []struct {
			X      float64 `xml:"x,attr"`
			Y      float64 `xml:"y,attr"`
			Size   float64 `xml:"font-size,attr"`
			Anchor string  `xml:"text-anchor,attr"`
			What   string  `xml:",chardata"`
		} `xml:"text"`
	}
	if err := xml.Unmarshal(svg, &picture); err != nil {
		t.Fatal(err)
	}
	var all []drawn
	for _, text := range picture.Texts {
		wide := breadth(text.What, text.Size)
		left := text.X - wide*map[string]float64{"start": 0, "middle": 0.5, "end": 1}[text.Anchor]
		all = append(all, drawn{text.What, box{left, text.Y - text.Size*0.8, wide, text.Size * 0.8}})
	}
	return all
}

func (b box) meets(other box) bool {
	const touch = 0.5
	return b.x+touch < other.x+other.w && other.x+touch < b.x+b.w && b.y+touch < other.y+other.h && other.y+touch < b.y+b.h
}

// invented answers every query with so many time series, whose labels are long.
func invented(d dashboards.Dashboard, span Span, many int) Answers {
	all := Answers{}
	for _, p := range d.Panels {
		for i := range p.Targets {
			var series []Series
			for n := range many {
				s := Series{Labels: map[string]string{}}
				for _, label := range []string{"pool_namespace", "pool", "reason", "origin", "result", "instance", "name", "policy", "version", "project", "class", "unit", "state", "webhook", "code"} {
					s.Labels[label] = fmt.Sprintf("%s-of-some-length-%d", label, n)
				}
				for at := span.From; !at.After(span.To); at = at.Add(span.Step) {
					s.Points = append(s.Points, Point{at, math.Pow(10, float64(n%8-i)) * (1.1 + math.Sin(float64(at.Unix())))})
				}
				series = append(series, s)
			}
			all[p.ID] = append(all[p.ID], series)
		}
	}
	return all
}

func made(t *testing.T) []dashboards.Dashboard {
	t.Helper()
	alerts, err := lint.ReadAlerts("../../../..")
	if err != nil {
		t.Fatal(err)
	}
	all, err := dashboards.All(alerts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestTextsDoNotOverlap draws with none, few and many time series.
func TestTextsDoNotOverlap(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	span := Span{from, from.Add(6 * time.Minute), 5 * time.Second}
	for _, d := range made(t) {
		for _, many := range []int{0, 1, 4, 40} {
			all := texts(t, Dashboard(d, invented(d, span, many), span))
			if len(all) < len(d.Panels) {
				t.Errorf("%s has %d panels, and %d texts", d.UID, len(d.Panels), len(all))
			}
			for i, a := range all {
				if a.x < 0 || a.x+a.w > 24*unitWidth+2*margin {
					t.Errorf("%s, %d time series: %q leaves the picture: %+v", d.UID, many, a.what, a.box)
				}
				for _, b := range all[:i] {
					if a.meets(b.box) {
						t.Errorf("%s, %d time series: %q overlaps %q", d.UID, many, a.what, b.what)
					}
				}
			}
		}
	}
}

func TestWhatDoesNotFitIsCounted(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	span := Span{from, from.Add(time.Minute), 5 * time.Second}
	for _, d := range made(t) {
		counted := 0
		for _, text := range texts(t, Dashboard(d, invented(d, span, 40), span)) {
			if strings.HasPrefix(text.what, "and ") && strings.HasSuffix(text.what, " more") {
				counted++
			}
		}
		if counted < 5 {
			t.Errorf("%s: 40 time series, and %d panels say that there are more", d.UID, counted)
		}
	}
}

func TestValuesHaveTheirUnits(t *testing.T) {
	for _, c := range []struct {
		value float64
		unit  string
		want  string
	}{
		{0, "s", "0 s"}, {0.0042, "s", "4.2 ms"}, {75, "s", "1.25 min"}, {30 * 86400, "s", "30 d"},
		{1 << 20, "bytes", "1 MiB"}, {0.125, "percentunit", "12.5%"}, {0, "percentunit", "0%"},
		{0.25, "ops", "0.25/s"}, {12.34, "reqps", "12.3/s"}, {1024, "short", "1.02 K"}, {1.2e24, "short", "1.2e24"}, {512, "none", "512"}, {-3, "short", "-3"},
	} {
		if got := written(c.value, c.unit); got != c.want {
			t.Errorf("%g in %s is written %q, want %q", c.value, c.unit, got, c.want)
		}
	}
}

func TestATableJoinsTheAnswersByTheirLabels(t *testing.T) {
	at := func(pool string, value float64) Series {
		return Series{Labels: map[string]string{"pool": pool}, Points: []Point{{Value: value}}}
	}
	p := dashboards.Panel{
		Targets: []dashboards.Target{{RefID: "A"}, {RefID: "B"}}, FieldConfig: &dashboards.FieldConfig{Defaults: dashboards.Defaults{Unit: "none"}},
		Transformations: []dashboards.Transformation{{ID: "organize", Options: dashboards.Organize{
			Index: map[string]int{"pool": 0, "Value #B": 1, "Value #A": 2}, Rename: map[string]string{"pool": "Pool", "Value #A": "First", "Value #B": "Second"},
		}}},
	}
	_, rows := tabulated(p, [][]Series{{at("b", 1), at("a", 2)}, {at("a", 3)}})
	if diff := cmp.Diff([][]string{{"a", "3", "2"}, {"b", "", "1"}}, rows); diff != "" {
		t.Error(diff)
	}
}

func TestALineHasAGapWhereThereAreNoPoints(t *testing.T) {
	from := time.Unix(1_800_000_000, 0)
	c, f := &canvas{}, field{box{0, 0, 100, 100}, axis{0, 10, 5}, Span{from, from.Add(time.Minute), 5 * time.Second}}
	c.line(f, shown{"", []Point{{from, 1}, {from.Add(5 * time.Second), 2}, {from.Add(30 * time.Second), 3}}}, 0)
	if got := strings.Count(strings.SplitN(c.String(), `"`, 3)[1], "M"); got != 2 {
		t.Errorf("the line begins %d times, want 2: %s", got, c)
	}
}
