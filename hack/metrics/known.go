package metrics

import (
	"fmt"
	"maps"
	"slices"

	dto "github.com/prometheus/client_model/go"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
)

// Foreign returns the metrics of other programs and libraries that alerts, dashboards and documents
// read, with their labels: the metrics that a replica exports, and the metrics of the API server.
// The name of a histogram is the name of the time series that is read.
func Foreign() (ofReplica, ofAPIServer map[string][]string) {
	const webhook, code, controller, name = "webhook", "code", "controller", "name"
	return map[string][]string{
			"leader_election_master_status":                     {name},
			"controller_runtime_webhook_latency_seconds_bucket": {webhook, "le"},
			"controller_runtime_webhook_requests_total":         {webhook, code},
			"controller_runtime_reconcile_total":                {controller, "result"},
			"controller_runtime_reconcile_time_seconds_bucket":  {controller, "le"},
			"workqueue_depth":                                   {controller, name, "priority"},
			"workqueue_queue_duration_seconds_bucket":           {controller, name, "le"},
			"process_cpu_seconds_total":                         nil,
			"process_resident_memory_bytes":                     nil,
			"go_goroutines":                                     nil,
			"rest_client_requests_total":                        {code, "host", "method"},
		}, map[string][]string{
			"apiserver_admission_webhook_rejection_count":                   {name, "type", "operation", "error_type", "rejection_code"},
			"apiserver_admission_webhook_fail_open_count":                   {name, "type"},
			"apiserver_admission_webhook_admission_duration_seconds_bucket": {name, "type", "operation", "rejected", "le"},
		}
}

// Known returns the labels of all metrics, foreign ones included, by the names that a query uses: a
// histogram has three names. Prometheus adds the labels instance and job.
func Known() map[string][]string {
	all, ofAPIServer := Foreign()
	maps.Copy(all, ofAPIServer)
	for _, d := range metrics.Definitions() {
		if d.Type != dto.MetricType_HISTOGRAM {
			all[d.Name] = d.Labels
			continue
		}
		all[d.Name+"_sum"], all[d.Name+"_count"] = d.Labels, d.Labels
		all[d.Name+"_bucket"] = append(slices.Clone(d.Labels), "le")
	}
	for name, labels := range all {
		all[name] = append(slices.Clone(labels), "instance", "job")
	}
	return all
}

// Missing returns the reads of a metric or a label that does not exist. If a rule groups or matches
// by a label, one of the metrics of the same rule must have it.
func Missing(reads []Read) []Read {
	metricLabels := Known()
	ruleLabels := map[string][]string{}
	for _, r := range reads {
		ruleLabels[r.Rule] = append(ruleLabels[r.Rule], metricLabels[r.Metric]...)
	}
	return slices.DeleteFunc(slices.Clone(reads), func(r Read) bool {
		if r.Metric == "" {
			return slices.Contains(ruleLabels[r.Rule], r.Label)
		}
		labels, ok := metricLabels[r.Metric]
		return ok && (r.Label == "" || slices.Contains(labels, r.Label))
	})
}

// String returns a phrase for the read as part of an error message.
func (r Read) String() string {
	switch {
	case r.Metric == "":
		return fmt.Sprintf("groups or matches by %s, which none of its metrics has", r.Label)
	case r.Label == "":
		return fmt.Sprintf("reads %s, which nothing exports", r.Metric)
	}
	return fmt.Sprintf("selects %s by %s, which it does not have, or which does not exist", r.Metric, r.Label)
}
