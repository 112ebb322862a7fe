package dashboards

import "fmt"

// quantiles returns queries of the median and of the 99th percentile of a histogram.
func quantiles(histogram, by, of, legend string) []query {
	var all []query
	for _, q := range []struct{ value, name string }{{"0.5", "p50"}, {"0.99", "p99"}} {
		all = append(all, query{fmt.Sprintf("histogram_quantile(%s, sum by (%s, le) (rate(%s_bucket%s[$__rate_interval])))", q.value, by, histogram, of), legend + " " + q.name})
	}
	return all
}

// operator adds the panels of the replicas: whether they work, how much they do, and how fast.
func (b *builder) operator() {
	b.choices = replicas
	b.row("Is it working?")
	b.working()
	b.row("Allocations")
	b.allocating()
	b.row("Waiting claims")
	b.waits()
	b.row("Webhooks")
	b.webhooks()
	b.row("Watch of IPAllocations")
	b.watching()
	b.row("Controllers")
	b.controllers()
	b.row("Processes")
	b.processes()
}

func (b *builder) working() {
	small := place{4, 4}
	b.stat("Replicas", "none", "Replicas that are scraped. While none runs, IPClaims cannot be created.", small,
		query{"count(cadastre_build_info)", ""}).from(Step{Value: new(0.0), Color: bad}, Step{Value: new(1.0), Color: poor}, Step{Value: new(2.0), Color: good})
	leader := b.stat("Leader", "none", "Whether one of the replicas is the leader. Without one, claims that wait and IPAddressClaims are not served, and nothing is released.", small,
		b.one("CadastreNoLeader", ""))
	leader.FieldConfig.Defaults.Mappings = yesNo("yes", "none")
	b.runbook(leader, "CadastreNoLeader")
	conflicts := b.stat("Conflicts", "none", "IPAllocations that overlap others of the same pool or routing domain. It must be 0.", small,
		b.one("CadastreConflict", "")).from(Step{Value: new(1.0), Color: bad})
	b.runbook(conflicts, "CadastreConflict")
	unheld := b.stat("Records without holder", "none", "IPAllocations of which no holder is found. The operator releases them after --orphan-grace.", small,
		b.one("CadastreRecordsWithoutHolder", "")).from(Step{Value: new(1.0), Color: poor})
	b.runbook(unheld, "CadastreRecordsWithoutHolder")
	b.stat("Unreadable records", "none", "IPAllocations that were seen since the start and cannot be read. No pool hands out the block of one, if that can be read. It must be 0.", small,
		query{"max(cadastre_unreadable_allocations_total)", ""}).from(Step{Value: new(1.0), Color: bad})
	certificate := b.stat("Certificate expires in", "s", "How long the serving certificate of the webhooks is valid. It is replaced when two thirds of its life are over.", small,
		b.one("CadastreCertificateExpires", ""))
	certificate.FieldConfig.Defaults.Thresholds.Steps = []Step{{Color: bad}, {Value: new(b.threshold("CadastreCertificateExpires")), Color: good}}
	b.runbook(certificate, "CadastreCertificateExpires")
	policies := b.stat("Admission policies", "none", "Whether each ValidatingAdmissionPolicy that protects the operator's data exists and is bound.", place{16, 4},
		b.one("CadastreRegisterUnprotected", "{{policy}}"))
	policies.FieldConfig.Defaults.Mappings = yesNo("in place", "missing")
	b.runbook(policies, "CadastreRegisterUnprotected")
	b.stat("Versions", "none", "How many replicas have each version. Two versions are usual during an upgrade alone.", place{8, 4},
		query{"count by (version) (cadastre_build_info)", "{{version}}"})
}

// yesNo returns the texts of 1 and 0.
func yesNo(yes, no string) []Mapping {
	return []Mapping{{Type: "value", Options: map[string]Text{"1": {yes, good, 0}, "0": {no, bad, 1}}}}
}

func (b *builder) allocating() {
	third := place{8, 8}
	b.lines("Allocations by result and origin", "ops", "Allocations that have ended, a second. Admission is the create call of an IPClaim; the controller serves claims that wait and those of Cluster API.", third,
		query{"sum by (origin, result) (rate(cadastre_allocations_total[$__rate_interval]))", "{{origin}} {{result}}"})
	b.lines("Allocations by class and family", "ops", "Allocations that succeeded, a second. Those without a name name no class.", third,
		query{`sum by (class, family) (rate(cadastre_allocations_total{result="allocated"}[$__rate_interval]))`, "{{class}} {{family}}"})
	b.lines("Lost races", "ops", "Records that were given up because another replica recorded the block, or exceeded the limit, first, a second. Each costs the loser another attempt.", third,
		query{"sum by (instance) (rate(cadastre_lost_races_total[$__rate_interval]))", "{{instance}}"})
	b.lines("Duration of an allocation", "s", "Of those that succeeded, waits for a release included.", third,
		quantiles("cadastre_allocation_duration_seconds", "origin", `{result="allocated"}`, "{{origin}}")...)
	b.lines("Duration of each step", "s", "find: a free block is found and held in memory. record: the create call of the IPAllocation. confirm: the replica's own watch shows it.", third,
		quantiles("cadastre_allocation_step_duration_seconds", "step", "", "{{step}}")...)
	b.lines("Releases by reason", "ops", "Records that were released, a second.", third,
		query{"sum by (reason) (rate(cadastre_releases_total[$__rate_interval]))", "{{reason}}"})
}

func (b *builder) waits() {
	half := place{12, 8}
	b.lines("Waiting claims", "short", "Claims and child pools that wait for a block, by pool and reason.", half,
		query{"max by (pool_namespace, pool, reason) (cadastre_waiting)", "{{pool_namespace}} {{pool}} {{reason}}"})
	b.watched("CadastreClaimsWaiting", panelText{"Age of the oldest waiting claim", "s", "By pool and reason. The alert fires above the dashed line."}, half, "{{pool_namespace}} {{pool}} {{reason}}")
}

func (b *builder) webhooks() {
	third := place{8, 8}
	b.lines("Refusals", "reqps", "Requests that the webhooks have refused, a second. 507: the pool is full; 429: too many at once, or beyond a limit of the operator; 403 and 422: the request itself.", third,
		query{"sum by (resource, operation, code) (rate(cadastre_webhook_refusals_total[$__rate_interval]))", "{{operation}} {{resource}} {{code}}"})
	failing := b.lines("Failures", "reqps", "Calls of the webhooks that failed, a second: seen by the API server, admitted by it nevertheless, and answered with 500. The alert fires above 0; no data means that none has failed.", third,
		b.queriesOf("CadastreWebhookFailing", "{{name}} rejected", "{{name}} let pass", "{{resource}} 500")...)
	b.runbook(failing, "CadastreWebhookFailing")
	b.watched("CadastreWebhookSlow", panelText{"Latency of admission, 99th percentile", "s", "As the API server sees it, and of the allocation in it. The alert fires above the dashed line."}, third, "{{name}}", "allocation at {{origin}}")
	b.lines("Latency of the webhooks", "s", "As the operator sees it.", place{12, 8},
		quantiles("controller_runtime_webhook_latency_seconds", "webhook", "", "{{webhook}}")...)
	b.lines("Requests to the webhooks", "reqps", "By HTTP code of the answer to the API server. A refusal is answered with 200, too.", place{12, 8},
		query{"sum by (code) (rate(controller_runtime_webhook_requests_total[$__rate_interval]))", "{{code}}"})
}

func (b *builder) watching() {
	quarter := place{6, 8}
	b.lines("Lag", "s", "Age of the oldest record that the API server has acknowledged and the watch has not shown. While it is high, a replica answers creates with 429.", quarter,
		query{"max by (instance) (cadastre_watch_lag_seconds)", "{{instance}}"})
	b.watched("CadastreWatchRestarts", panelText{"Restarts within 30 minutes", "short", "Of the watch, because it did not show an acknowledged record in time. The alert fires above the dashed line."}, quarter, "{{instance}}")
	b.watched("CadastreStoreRolledBack", panelText{"Rollbacks within 30 minutes", "short", "Lists that were read because the store of the API server had gone back to an earlier revision. The alert fires above the dashed line."}, quarter, "{{instance}}")
	b.lines("Complete lists within 30 minutes", "short", "Of all IPAllocations: one at the start, and one whenever the watch could not be continued.", quarter,
		query{"increase(cadastre_watch_lists_total[30m])", "{{instance}}"})
}

func (b *builder) controllers() {
	quarter, third := place{6, 8}, place{8, 8}
	b.lines("Reconciliations", "ops", "A second, by controller.", quarter,
		query{"sum by (controller) (rate(controller_runtime_reconcile_total[$__rate_interval]))", "{{controller}}"})
	b.lines("Passes by result", "ops", "Of the controllers that write, a second: something was changed, nothing was, or the pass failed and is repeated with back-off.", quarter,
		query{"sum by (controller, result) (rate(cadastre_passes_total[$__rate_interval]))", "{{controller}} {{result}}"})
	b.watched("CadastreControllerLoops", panelText{"Passes that change nothing", "ops", "A second, by controller. The alert fires above the dashed line, where there are ten times as many of them as others."}, quarter, "{{controller}}")
	b.lines("Duration of a reconciliation", "s", "99th percentile, by controller.", quarter,
		query{"histogram_quantile(0.99, sum by (controller, le) (rate(controller_runtime_reconcile_time_seconds_bucket[$__rate_interval])))", "{{controller}}"})
	b.lines("Queued", "short", "Objects in the work queues of the controllers.", third,
		query{"sum by (name) (workqueue_depth)", "{{name}}"})
	b.lines("Time in the queue", "s", "99th percentile, by work queue.", third,
		query{"histogram_quantile(0.99, sum by (name, le) (rate(workqueue_queue_duration_seconds_bucket[$__rate_interval])))", "{{name}}"})
	b.lines("Requests to the API server", "reqps", "By HTTP code of the answer.", third,
		query{"sum by (code) (rate(rest_client_requests_total[$__rate_interval]))", "{{code}}"})
}

func (b *builder) processes() {
	quarter := place{6, 8}
	b.lines("CPU", "short", "Processors that each replica uses.", quarter,
		query{"sum by (instance) (rate(process_cpu_seconds_total[$__rate_interval]))", "{{instance}}"})
	b.lines("Memory", "bytes", "Resident memory of each replica.", quarter,
		query{"max by (instance) (process_resident_memory_bytes)", "{{instance}}"})
	b.lines("Goroutines", "short", "Of each replica.", quarter,
		query{"max by (instance) (go_goroutines)", "{{instance}}"})
	b.lines("Lost entries of the history", "ops", "Entries that were not written, a second, by where they go: it failed, or was too slow.", quarter,
		query{"sum by (sink) (rate(cadastre_history_lost_total[$__rate_interval]))", "{{sink}}"})
}
