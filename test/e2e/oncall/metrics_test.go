package oncall

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	alerts "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// moment holds the value of each time series at one moment.
type moment map[string]float64

// recorded scrapes all replicas when each record has its holder. A moment stands for minutes: a
// state that lasts for the seconds between a record and its claim must not be in it.
func (w *world) recorded() moment {
	w.Helper()
	var now moment
	w.Await("each record has its holder", func(context.Context) bool {
		now = w.scraped()
		for s, value := range now {
			if strings.HasPrefix(s, "cadastre_unheld_allocations{") && value > 0 {
				return false
			}
		}
		return true
	})
	return now
}

// scraped scrapes all replicas.
func (w *world) scraped() moment {
	w.Helper()
	all := moment{}
	for replica := range w.Managers {
		for name, family := range w.families(w.scrape(replica)) {
			if strings.HasPrefix(name, "cadastre_") || strings.HasPrefix(name, "leader_election_") {
				all.add(family, fmt.Sprintf("replica-%d", replica))
			}
		}
	}
	return all
}

func (w *world) scrape(replica int) []byte {
	w.Helper()
	code, text := w.Diagnostics(replica, "/metrics", w.token)
	if code != http.StatusOK {
		w.Fatalf("a scrape of replica %d is answered with %d: %s", replica, code, text)
	}
	return text
}

func (w *world) families(text []byte) map[string]*dto.MetricFamily {
	w.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	suite.Must(w, err)
	return families
}

func (m moment) add(family *dto.MetricFamily, instance string) {
	name := family.GetName()
	for _, metric := range family.GetMetric() {
		labels := map[string]string{"instance": instance}
		for _, pair := range metric.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		if h := metric.GetHistogram(); h != nil {
			m[series(name+"_count", labels)], m[series(name+"_sum", labels)] = float64(h.GetSampleCount()), h.GetSampleSum()
			for _, bucket := range h.GetBucket() {
				le := maps.Clone(labels)
				le["le"] = strconv.FormatFloat(bucket.GetUpperBound(), 'g', -1, 64)
				m[series(name+"_bucket", le)] = float64(bucket.GetCumulativeCount())
			}
			continue
		}
		m[series(name, labels)] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() // one of them is nil, and 0
	}
}

// series returns a time series as Prometheus stores it: without labels that are empty.
func series(name string, labels map[string]string) string {
	var pairs []string
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if labels[label] != "" {
			pairs = append(pairs, fmt.Sprintf("%s=%q", label, labels[label]))
		}
	}
	return name + "{" + strings.Join(pairs, ",") + "}"
}

// input returns the moments as the input of promtool, each of them for so many minutes.
func input(minutes int, moments ...moment) []map[string]any {
	all := map[string]bool{}
	for _, m := range moments {
		for s := range m {
			all[s] = true
		}
	}
	var written []map[string]any
	for _, s := range slices.Sorted(maps.Keys(all)) {
		var values []string
		for _, m := range moments {
			value, ok := m[s]
			if !ok {
				values = append(values, fmt.Sprintf("_x%d", minutes))
				continue
			}
			values = append(values, fmt.Sprintf("%sx%d", strconv.FormatFloat(value, 'f', -1, 64), minutes-1))
		}
		written = append(written, map[string]any{"series": s, "values": strings.Join(values, " ")})
	}
	return written
}

// afterAFailure has metrics that the API server does not export before a webhook has failed.
var afterAFailure = []string{"apiserver_admission_webhook_fail_open_count"}

// foreign compares the metrics of other programs, which alerts and dashboards read, with those that
// a replica and the API server export.
func (w *world) foreign() {
	ofReplica, ofAPIServer := alerts.Foreign()
	for _, name := range afterAFailure {
		delete(ofAPIServer, name)
	}
	// The story before has refused a claim, so that the API server counts a rejection.
	w.has("a replica", ofReplica, func() []byte { return w.scrape(0) })
	w.has("the API server", ofAPIServer, func() []byte { return []byte(w.RunKubectl("get", "--raw", "/metrics")) })
}

// has waits until a scrape has all metrics, each with exactly its labels.
func (w *world) has(who string, want map[string][]string, scrape func() []byte) {
	w.Helper()
	var missing []string
	w.Await(who+" exports the metrics that are read", func(context.Context) bool {
		families := w.families(scrape())
		missing = nil
		for name, labels := range want {
			family, bucket := strings.CutSuffix(name, "_bucket")
			if got := labelsOf(families[family], bucket); !slices.Equal(got, slices.Sorted(slices.Values(labels))) {
				missing = append(missing, name+": "+strings.Join(got, ","))
			}
		}
		w.Logf("%s: %d of %d are missing or have other labels: %v", who, len(missing), len(want), missing)
		return len(missing) == 0
	})
}

// labelsOf returns the labels of a family, in order; those of a histogram's buckets have le.
func labelsOf(family *dto.MetricFamily, bucket bool) []string {
	var labels []string
	if bucket {
		labels = append(labels, "le")
	}
	for _, metric := range family.GetMetric() {
		for _, pair := range metric.GetLabel() {
			if !slices.Contains(labels, pair.GetName()) {
				labels = append(labels, pair.GetName())
			}
		}
	}
	slices.Sort(labels)
	if family == nil {
		return []string{"(missing)"}
	}
	return labels
}
