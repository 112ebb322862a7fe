package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// Definition represents a metric that the operator exports, as docs/metrics.md lists it.
type Definition struct {
	Name string
	// Type is a counter, a gauge or a histogram.
	Type dto.MetricType
	// Help is one line, as a scrape shows it.
	Help string
	// Labels are in the order in which their values are given.
	Labels []string
	// Buckets holds the buckets of a histogram.
	Buckets []float64
	// Leader reports whether only the leader exports it.
	Leader bool
}

// Definitions returns all metrics, in the order of the documentation.
func Definitions() []Definition {
	return slices.Concat(allocating(), waiting(), pools(), keeping(), serving())
}

// DefinitionOf returns the definition of a name. A name without definition is an error of the program.
func DefinitionOf(name string) Definition {
	all := Definitions()
	return all[slices.IndexFunc(all, func(d Definition) bool { return d.Name == name })]
}

// Desc returns the description of the metric for a registry.
func (d Definition) Desc() *prometheus.Desc { return prometheus.NewDesc(d.Name, d.Help, d.Labels, nil) }

func (d Definition) counter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func (d Definition) gauge() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: d.Name, Help: d.Help}, d.Labels)
}

func (d Definition) histogram() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets}, d.Labels)
}

func counter(name, help string, labels ...string) Definition {
	return Definition{Name: name, Type: dto.MetricType_COUNTER, Help: help, Labels: labels}
}

func gauge(name, help string, labels ...string) Definition {
	return Definition{Name: name, Type: dto.MetricType_GAUGE, Help: help, Labels: labels}
}

func histogram(name, help string, buckets []float64, labels ...string) Definition {
	return Definition{Name: name, Type: dto.MetricType_HISTOGRAM, Help: help, Buckets: buckets, Labels: labels}
}

// ofLeader returns the metric as one that only the leader exports.
func ofLeader(d Definition) Definition {
	d.Leader = true
	return d
}
