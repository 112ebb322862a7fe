package operator

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/cadastre-dev/cadastre/internal/allocator"
)

// collect tells of the picture and the queue, as they are when they are asked.
func collect(alloc *allocator.Allocator) []prometheus.Collector {
	return []prometheus.Collector{
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "cadastre_silent_watches_total",
			Help: "How often the watch of IPAllocations was begun anew because it did not show an acknowledged record in time.",
		}, func() float64 {
			relists, _ := alloc.Ledger().Relists()
			return float64(relists)
		}),
		prometheus.NewCounterFunc(prometheus.CounterOpts{
			Name: "cadastre_unreadable_allocations_total",
			Help: "How often an IPAllocation was seen that cannot be read, and so holds nothing.",
		}, func() float64 {
			_, unread := alloc.Ledger().Relists()
			return float64(unread)
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "cadastre_waiting",
			Help: "Claims and child pools that wait for a block.",
		}, func() float64 { return float64(alloc.Queue().Len()) }),
	}
}
