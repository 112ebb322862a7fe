package oncall

import (
	"bytes"
	"context"
	"net/http"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	alerts "github.com/cadastre-dev/cadastre/hack/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

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
	w.has("a replica", ofReplica, func() []byte {
		code, text := w.Diagnostics(0, "/metrics", w.token)
		if code != http.StatusOK {
			w.Fatalf("a scrape is answered with %d: %s", code, text)
		}
		return text
	})
	w.has("the API server", ofAPIServer, func() []byte {
		return []byte(w.RunKubectl("get", "--raw", "/metrics"))
	})
}

// has waits until a scrape has all metrics, each with exactly its labels.
func (w *world) has(who string, want map[string][]string, scrape func() []byte) {
	w.Helper()
	var missing []string
	w.Await(who+" exports the metrics that are read", func(context.Context) bool {
		parser := expfmt.NewTextParser(model.UTF8Validation)
		families, err := parser.TextToMetricFamilies(bytes.NewReader(scrape()))
		suite.Must(w, err)
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
