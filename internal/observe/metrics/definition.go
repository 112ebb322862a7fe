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

// These are the names of all metrics.
const (
	Allocations        = "cadastre_allocations_total"
	AllocationDuration = "cadastre_allocation_duration_seconds"
	StepDuration       = "cadastre_allocation_step_duration_seconds"
	LostRaces          = "cadastre_lost_races_total"

	Claims        = "cadastre_claims"
	Waiting       = "cadastre_waiting"
	WaitingOldest = "cadastre_waiting_oldest_seconds"

	PoolCapacity    = "cadastre_pool_capacity_addresses"
	PoolAllocated   = "cadastre_pool_allocated_addresses"
	PoolAvailable   = "cadastre_pool_available_addresses"
	PoolWithheld    = "cadastre_pool_withheld_addresses"
	PoolRetained    = "cadastre_pool_retained_addresses"
	PoolCooling     = "cadastre_pool_cooling_addresses"
	PoolUnclaimed   = "cadastre_pool_unclaimed_addresses"
	PoolAllocations = "cadastre_pool_allocations"
	ProjectLimit    = "cadastre_project_limit"
	ProjectUsage    = "cadastre_project_usage"

	Releases   = "cadastre_releases_total"
	Unheld     = "cadastre_unheld_allocations"
	Conflicts  = "cadastre_conflicts"
	Unreadable = "cadastre_unreadable_allocations_total"
	Protected  = "cadastre_register_protected"

	WatchRestarts     = "cadastre_watch_restarts_total"
	StoreRollbacks    = "cadastre_store_rollbacks_total"
	WatchLists        = "cadastre_watch_lists_total"
	WatchLag          = "cadastre_watch_lag_seconds"
	Refusals          = "cadastre_webhook_refusals_total"
	Passes            = "cadastre_passes_total"
	CertificateExpiry = "cadastre_webhook_certificate_expiry_timestamp_seconds"
	PathReplacements  = "cadastre_webhook_path_replacements_total"
	HistoryLost       = "cadastre_history_lost_total"
	ClusterNetworks   = "cadastre_cluster_networks_total"
	InClusterProvider = "cadastre_in_cluster_provider"
	Build             = "cadastre_build_info"
)

// allocating returns the metrics of the results and the durations of allocations.
func allocating() []Definition {
	return []Definition{
		counter(Allocations, "Allocations that have ended, by result, by where the request came from (admission, controller, existing), by class, which is empty where none is named, and by address family.", "result", "origin", "class", "family"),
		histogram(AllocationDuration, "Seconds from an allocation's begin to its end, waits for a release on its way included.", durations(), "origin", "result"),
		histogram(StepDuration, "Seconds that one step of an allocation takes: find a free block and hold it, record it by a create call, confirm it by the own watch.", durations(), "step"),
		counter(LostRaces, "Records that were given up because another replica had recorded the block, or exceeded the limit, first."),
	}
}

// waiting returns the metrics of claims, and of the waiting claims and child pools.
func waiting() []Definition {
	return []Definition{
		gauge(Claims, "IPClaims, and IPAddressClaims of this operator's pools and classes, by phase and by the reason of the condition Ready.", "kind", "phase", "reason"),
		gauge(Waiting, "Claims and child pools that wait for a block: in line for a pool (no_room), one that may be served by several pools in the line of each; and in no line, without pool, as what they name is missing (missing), as they are refused for another reason (refused), or as their namespace has as many that wait as it may (beyond_limit).", "pool_namespace", "pool", "reason"),
		gauge(WaitingOldest, "Age in seconds of the oldest claim or child pool of those that cadastre_waiting counts.", "pool_namespace", "pool", "reason"),
	}
}

// pools returns the metrics of address space. A pool without namespace is an IPPool, others are
// LocalIPPools.
func pools() []Definition {
	pool := func(name, help string, more ...string) Definition {
		return gauge(name, help, append([]string{"pool_namespace", "pool"}, more...)...)
	}
	return []Definition{
		pool(PoolCapacity, "Addresses of a pool's CIDR. pool_namespace is set for a LocalIPPool, and empty for an IPPool. A pool of the in-cluster provider has its kind in pool, such as InClusterIPPool/machines."),
		pool(PoolAllocated, "Addresses of a pool that are in blocks that are recorded, in whatever state."),
		pool(PoolAvailable, "Addresses of a pool that can be handed out."),
		pool(PoolWithheld, "Addresses of a pool that are never handed out: reserved, outside its ranges, gateway and edges."),
		pool(PoolRetained, "Addresses of a pool in blocks that are retained for a claim that is gone. Missing if there are none."),
		pool(PoolCooling, "Addresses of a pool in blocks that were released and are not handed out again yet. Missing if there are none."),
		pool(PoolUnclaimed, "Addresses of a pool in blocks that no claim names (yet). Missing if there are none."),
		pool(PoolAllocations, "Blocks of a pool that are recorded, by state: bound, unclaimed, retained, cooling. A state but bound is missing if there are none.", "state"),
		gauge(ProjectLimit, "The limit of one project for a class or a pool, in addresses or in blocks. Only if a limit is set.", "class", "pool_namespace", "pool", "unit"),
		gauge(ProjectUsage, "The addresses or blocks that a project holds of a class or a pool. Only if a limit is set.", "project", "class", "pool_namespace", "pool", "unit"),
	}
}

// keeping returns the metrics of the register.
func keeping() []Definition {
	return []Definition{
		ofLeader(counter(Releases, "Records that were released, by reason: the holder's deletion was seen (holder_deleted), no holder was found (orphaned), the retention is over (retention_expired), the reuse delay is over (reuse_delay_over), a user deleted a retained one (deleted).", "reason")),
		ofLeader(gauge(Unheld, "IPAllocations of which no holder is found. They are released after --orphan-grace.")),
		gauge(Conflicts, "IPAllocations whose block has overlapped that of another one in the same pool or routing domain for more than 10 seconds. It must be 0."),
		counter(Unreadable, "IPAllocations that were seen and cannot be read. No pool hands out the block of one, if that can be read."),
		gauge(Protected, "Whether a ValidatingAdmissionPolicy that protects the operator's data exists and is bound (1), or not (0).", "policy"),
	}
}

// serving returns the metrics of this process.
func serving() []Definition {
	return []Definition{
		counter(WatchRestarts, "Restarts of the watch of IPAllocations because it did not show an acknowledged record in time."),
		counter(StoreRollbacks, "Complete lists that were read because the store of the API server had gone back to an earlier revision, as when a snapshot of etcd is restored without --bump-revision, by the kind that was listed.", "kind"),
		counter(WatchLists, "Complete lists of all IPAllocations that were read: one at the start, and one whenever the watch could not be continued."),
		gauge(WatchLag, "Age in seconds of the oldest record that the API server has acknowledged and the watch has not shown. 0 if there is none."),
		counter(Refusals, "Requests that the webhooks have refused, by resource, operation and HTTP code of the answer. Resource and operation are empty if a request was not read, as too many bytes are being handled (429) or as it is too large (413).", "resource", "operation", "code"),
		counter(Passes, "Passes of the controllers that write, by result: something was changed (changed), nothing was (unchanged), or it failed and is tried again with back-off (failed).", "controller", "result"),
		counter(HistoryLost, "Entries of the history that were not written, by sink (log, file, otlp): it failed, or was too slow.", "sink"),
		counter(ClusterNetworks, "Blocks that were asked for with a new Cluster of Cluster API, by purpose (pods, services, endpoint, variable) and result (filled, refused). Dry runs are not counted.", "purpose", "result"),
		gauge(InClusterProvider, "1, with what is seen of Cluster API's in-cluster provider: its lease is renewed, so its pools are not served (lease), its webhooks have endpoints and no lease is renewed (endpoints), nothing (absent), or it was not looked for yet (unknown). Only with --in-cluster-pools.", "state"),
		counter(PathReplacements, "Secrets that this replica has made for the paths of the webhooks, by reason: the Secret held none (missing), a replica has started (start), a request has ended without its answer (unanswered), the secret was an hour old (age).", "reason"),
		gauge(CertificateExpiry, "When the serving certificate of the webhooks expires, in seconds since 1970. Missing until one is loaded."),
		gauge(Build, "1, with the version of the operator.", "version"),
	}
}

// durations returns buckets from a millisecond to the longest time that a request can take.
func durations() []float64 {
	return []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}
}
