// Package metrics defines the metrics of the operator: all of them in one table, from
// which they are made, documented and checked; and the Instruments, which count
// events. internal/operator collects the metrics that are measured at each scrape.
//
// No label has a claim, an address or a user as its value: the number of time series depends on
// the pools, the classes and, if a limit is set, the projects.
package metrics

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
)

// Instruments counts and times the work of one replica. All methods can be called from any
// goroutine, and cost less than a microsecond.
type Instruments struct {
	clock       clock.PassiveClock
	allocations *prometheus.CounterVec
	durations   *prometheus.HistogramVec
	steps       *prometheus.HistogramVec
	lost        *prometheus.CounterVec
	releases    *prometheus.CounterVec
	refusals    *prometheus.CounterVec
	unheld      *prometheus.GaugeVec
	passes      *prometheus.CounterVec
	historyLost *prometheus.CounterVec
	networks    *prometheus.CounterVec
}

// New makes instruments that have counted nothing.
func New(passiveClock clock.PassiveClock) *Instruments {
	m := &Instruments{
		clock:       passiveClock,
		allocations: DefinitionOf(Allocations).counter(),
		durations:   DefinitionOf(AllocationDuration).histogram(),
		steps:       DefinitionOf(StepDuration).histogram(),
		lost:        DefinitionOf(LostRaces).counter(),
		releases:    DefinitionOf(Releases).counter(),
		refusals:    DefinitionOf(Refusals).counter(),
		unheld:      DefinitionOf(Unheld).gauge(),
		passes:      DefinitionOf(Passes).counter(),
		historyLost: DefinitionOf(HistoryLost).counter(),
		networks:    DefinitionOf(ClusterNetworks).counter(),
	}
	m.lost.WithLabelValues()
	for _, step := range []Step{StepFind, StepRecord, StepConfirm} {
		m.steps.WithLabelValues(string(step))
	}
	return m
}

// Collectors returns the collectors for a registry.
func (m *Instruments) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.allocations, m.durations, m.steps, m.lost, m.releases, m.refusals, m.unheld, m.passes, m.historyLost, m.networks}
}

// Result represents the result of an allocation.
type Result string

// These are the results of allocations.
const (
	ResultAllocated        Result = "allocated"
	ResultExhausted        Result = "exhausted"
	ResultTaken            Result = "taken"
	ResultLimitReached     Result = "limit_reached"
	ResultPoolNotReady     Result = "pool_not_ready"
	ResultTooManyUnclaimed Result = "too_many_unclaimed"
	ResultUnconfirmed      Result = "unconfirmed"
	ResultError            Result = "error"
)

// Allocation represents one allocation for a request.
type Allocation struct {
	// Origin is the origin of the request.
	Origin Origin
	// Class is empty if the request names none.
	Class, Family string
}

// Origin represents the origin of a request.
type Origin string

// These are the origins of requests: a create call that is being admitted; a controller, for an
// object that exists; or an object that has its block already.
const (
	OriginAdmission  Origin = "admission"
	OriginController Origin = "controller"
	OriginExisting   Origin = "existing"
)

// Now returns the present time of the clock by which Allocated measures.
func (m *Instruments) Now() time.Time { return m.clock.Now() }

// Allocated counts an allocation that has ended, and began at the given time.
func (m *Instruments) Allocated(a Allocation, result Result, startTime time.Time) {
	m.allocations.WithLabelValues(string(result), string(a.Origin), a.Class, a.Family).Inc()
	m.durations.WithLabelValues(string(a.Origin), string(result)).Observe(m.clock.Since(startTime).Seconds())
}

// Step represents a step of an allocation.
type Step string

// These are the steps of an allocation.
const (
	StepFind    Step = "find"
	StepRecord  Step = "record"
	StepConfirm Step = "confirm"
)

// Time measures the duration of a step, from now until the returned function is called.
func (m *Instruments) Time(step Step) (done func()) {
	startTime := m.clock.Now()
	return func() { m.steps.WithLabelValues(string(step)).Observe(m.clock.Since(startTime).Seconds()) }
}

// LostRace counts a record that was given up for another one.
func (m *Instruments) LostRace() { m.lost.WithLabelValues().Inc() }

// ReleaseReason represents the reason why a record was released.
type ReleaseReason string

// These are the reasons why records are released.
const (
	HolderDeleted    ReleaseReason = "holder_deleted"
	Orphaned         ReleaseReason = "orphaned"
	RetentionExpired ReleaseReason = "retention_expired"
	ReuseDelayOver   ReleaseReason = "reuse_delay_over"
	Deleted          ReleaseReason = "deleted"
)

// Lead exports the metrics of the leader with 0, on a replica that begins to lead: a counter that
// first appears with 1 has not increased for its readers.
func (m *Instruments) Lead() {
	for _, reason := range []ReleaseReason{HolderDeleted, Orphaned, RetentionExpired, ReuseDelayOver, Deleted} {
		m.releases.WithLabelValues(string(reason))
	}
	m.unheld.WithLabelValues()
}

// Released counts a record that was released.
func (m *Instruments) Released(reason ReleaseReason) {
	m.releases.WithLabelValues(string(reason)).Inc()
}

// Unheld sets the number of records without holder.
func (m *Instruments) Unheld(records int) { m.unheld.WithLabelValues().Set(float64(records)) }

// Refused counts a request that a webhook has refused.
func (m *Instruments) Refused(resource, operation string, code int32) {
	m.refusals.WithLabelValues(resource, operation, strconv.Itoa(int(code))).Inc()
}

// Passed counts a pass of a controller that has ended.
func (m *Instruments) Passed(controller, result string) {
	m.passes.WithLabelValues(controller, result).Inc()
}

// HistoryLost counts entries of the history that a sink did not take.
func (m *Instruments) HistoryLost(sink string, entries int) {
	m.historyLost.WithLabelValues(sink).Add(float64(entries))
}

// ClusterNetwork counts a block that was asked for with a new Cluster, by its purpose.
func (m *Instruments) ClusterNetwork(purpose string, isFilled bool) {
	result := "refused"
	if isFilled {
		result = "filled"
	}
	m.networks.WithLabelValues(purpose, result).Inc()
}
