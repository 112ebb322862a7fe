package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cadastre-dev/cadastre/internal/allocator"
)

// collect measures the view and the queue, as they are when they are asked.
func collect(of allocator.Parts) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "cadastre_silent_watches_total",
			Help: "How often the watch of IPAllocations was begun anew because it did not show an acknowledged record in time.",
		}, func() float64 {
			relists, _ := of.Ledger.Relists()
			return float64(relists)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "cadastre_unreadable_allocations_total",
			Help: "How often an IPAllocation was seen that cannot be read, and so holds nothing.",
		}, func() float64 {
			_, unread := of.Ledger.Relists()
			return float64(unread)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cadastre_waiting",
			Help: "Claims and child pools that wait for a block.",
		}, func() float64 { return float64(of.Queue.Len()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cadastre_conflicts",
			Help: "IPAllocations whose block has overlapped that of another one in the same pool or routing domain for more than 10 seconds. It must be 0.",
		}, func() float64 { return float64(len(of.Ledger.Conflicts())) }),
		newPoolCollector(of),
	}
}

// poolCollector measures how full each pool is.
type poolCollector struct {
	of                     allocator.Parts
	addresses, allocations *prometheus.Desc
}

func newPoolCollector(of allocator.Parts) poolCollector {
	// The namespace of a pool is not the one that a scrape itself says: so its label
	// has another name.
	labels := []string{"pool_kind", "pool_namespace", "pool"}
	return poolCollector{
		of: of,
		addresses: prometheus.NewDesc("cadastre_pool_addresses",
			"Addresses of a pool by what becomes of them: allocated, available, withheld. Together they are all that the pool has.",
			append(labels, "state"), nil),
		allocations: prometheus.NewDesc("cadastre_pool_allocations", "Blocks of a pool that are held.", labels, nil),
	}
}

// Describe implements prometheus.Collector.
func (c poolCollector) Describe(to chan<- *prometheus.Desc) {
	to <- c.addresses
	to <- c.allocations
}

// Collect implements prometheus.Collector.
func (c poolCollector) Collect(to chan<- prometheus.Metric) {
	for _, pool := range c.of.Catalogue.Pools() {
		capacity, ok := c.of.Ledger.Capacity(pool)
		if !ok {
			continue
		}
		gauge := func(of *prometheus.Desc, value float64, state ...string) {
			labels := append([]string{string(pool.Kind), pool.Namespace, pool.Name}, state...)
			to <- prometheus.MustNewConstMetric(of, prometheus.GaugeValue, value, labels...)
		}
		gauge(c.addresses, capacity.Allocated.Sub(capacity.OutOfRange).Float64(), "allocated")
		gauge(c.addresses, capacity.Available.Float64(), "available")
		gauge(c.addresses, capacity.Withheld.Float64(), "withheld")
		gauge(c.allocations, float64(capacity.Records))
	}
}
