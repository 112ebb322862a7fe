package operator

import (
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// measures is what a replica measures when it is asked: it has no state of its own. A scrape
// costs O(pools + waiting claims + projects with a limit), whatever number of blocks is in
// use: what is counted of those is kept.
type measures struct {
	allocator.Parts
	claims   *kubeutil.Tally[claimKey]
	policies *policyWatch
	guard    webhookGuard
	// rollbacks are those that informers have found.
	rollbacks *rollbacks

	descs map[string]*prometheus.Desc
}

// webhookGuard is what is measured of the guard.
type webhookGuard interface {
	// NotAfter is when the certificate of the webhooks expires.
	NotAfter() (time.Time, bool)
	// Replacements are the secrets that were made for the paths, by cause.
	Replacements() map[string]int
}

// newMeasures are those of one replica.
func newMeasures(of allocator.Parts, policies *policyWatch, rollbacks *rollbacks, guard webhookGuard) *measures {
	m := &measures{
		Parts: of, claims: kubeutil.NewTally[claimKey](), policies: policies, rollbacks: rollbacks,
		guard: guard, descs: map[string]*prometheus.Desc{},
	}
	for _, name := range []string{
		metrics.Claims, metrics.Waiting, metrics.WaitingOldest,
		metrics.PoolCapacity, metrics.PoolAllocated, metrics.PoolAvailable, metrics.PoolWithheld, metrics.PoolRetained,
		metrics.PoolCooling, metrics.PoolUnclaimed, metrics.PoolAllocations, metrics.ProjectLimit, metrics.ProjectUsage,
		metrics.Conflicts, metrics.Unreadable, metrics.Protected,
		metrics.WatchRestarts, metrics.StoreRollbacks, metrics.WatchLists, metrics.WatchLag, metrics.CertificateExpiry, metrics.PathReplacements, metrics.Build,
	} {
		m.descs[name] = metrics.Of(name).Desc()
	}
	return m
}

// register has a registry export all metrics of the operator, until unregister is called.
func (m *measures) register(with prometheus.Registerer) (unregister func(), err error) {
	var registered []prometheus.Collector
	unregister = func() {
		for _, c := range registered {
			with.Unregister(c)
		}
	}
	for _, c := range append(m.Metrics.Collectors(), m) {
		if err := with.Register(c); err != nil {
			unregister()
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
		registered = append(registered, c)
	}
	return unregister, nil
}

// Describe implements prometheus.Collector.
func (m *measures) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range m.descs {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *measures) Collect(to chan<- prometheus.Metric) {
	s := scrape{m.descs, to}
	pools := m.Ledger.Counts()
	collectPools(s, pools)
	m.collectProjects(s, pools)
	m.collectWaiting(s)
	m.collectRegister(s)
	for key, count := range m.claims.Counts() {
		s.gauge(metrics.Claims, float64(count), key.kind, key.phase, key.reason)
	}
	for policy, protected := range m.policies.state() {
		s.gauge(metrics.Protected, number(protected), policy)
	}
	if at, ok := m.guard.NotAfter(); ok {
		s.gauge(metrics.CertificateExpiry, float64(at.Unix()))
	}
	for cause, count := range m.guard.Replacements() {
		s.counter(metrics.PathReplacements, count, cause)
	}
	s.gauge(metrics.Build, 1, version.Own())
}

// collectRegister measures the view.
func (m *measures) collectRegister(s scrape) {
	restarts, unreadable := m.Ledger.Relists()
	s.counter(metrics.WatchRestarts, restarts)
	s.counter(metrics.Unreadable, unreadable)
	s.counter(metrics.StoreRollbacks, m.Ledger.Rollbacks(), "IPAllocation")
	for kind, count := range m.rollbacks.byKind() {
		s.counter(metrics.StoreRollbacks, count, kind)
	}
	s.counter(metrics.WatchLists, m.Ledger.Lists())
	s.gauge(metrics.WatchLag, m.Ledger.Lag().Seconds())
	s.gauge(metrics.Conflicts, float64(len(m.Ledger.Conflicts())))
}

// scrape is where the metrics of one scrape go.
type scrape struct {
	descs map[string]*prometheus.Desc
	to    chan<- prometheus.Metric
}

func (s scrape) gauge(name string, value float64, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(s.descs[name], prometheus.GaugeValue, value, labels...)
}

func (s scrape) counter(name string, value int, labels ...string) {
	s.to <- prometheus.MustNewConstMetric(s.descs[name], prometheus.CounterValue, float64(value), labels...)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
