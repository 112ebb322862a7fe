package story

import (
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// Measured expects the value of a metric, summed over the time series that have all the label
// values.
func (w *World) Measured(want float64, name string, labels ...string) {
	w.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(w.Metrics.Collectors()...)
	families, err := registry.Gather()
	suite.Must(w.t, err)
	got := 0.0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && hasLabels(m, labels) {
				got += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	if got != want {
		w.t.Fatalf("%s%q is %g, want %g", name, labels, got, want)
	}
}

func hasLabels(m *dto.Metric, values []string) bool {
	for _, value := range values {
		if !slices.ContainsFunc(m.GetLabel(), func(l *dto.LabelPair) bool { return l.GetValue() == value }) {
			return false
		}
	}
	return true
}

// HasHistory expects the entries of the history since it was last called, such as "Released
// 10.0.0.0/28 Orphaned", in this order.
func (w *World) HasHistory(want ...string) {
	w.t.Helper()
	var got []string
	for _, e := range w.entries.Take(w.History) {
		text := fmt.Sprintf("%s %s %s", e.Action, e.Block, e.Reason)
		if !e.Until.IsZero() {
			text += fmt.Sprintf(", %s for %s", e.State, e.Until.Sub(w.Clock.Now()))
		}
		got = append(got, text)
	}
	if !slices.Equal(got, want) {
		w.t.Fatalf("the history says %q, want %q", got, want)
	}
}
