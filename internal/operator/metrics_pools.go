package operator

import (
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// collectPools measures how full each pool is. Most pools have nothing that is retained,
// cools down or is unclaimed, so these time series are there only where something is.
func collectPools(s scrape, pools []ledger.Counts) {
	rare := []struct {
		standing         ledger.Standing
		state, addresses string
	}{
		{ledger.Retained, "retained", metrics.PoolRetained},
		{ledger.Cooling, "cooling", metrics.PoolCooling},
		{ledger.Unclaimed, "unclaimed", metrics.PoolUnclaimed},
	}
	for _, counts := range pools {
		namespace, pool := counts.Pool.Namespace, counts.Pool.Name
		c := counts.Capacity
		s.gauge(metrics.PoolCapacity, c.Total.Float64(), namespace, pool)
		s.gauge(metrics.PoolAllocated, c.Allocated.Float64(), namespace, pool)
		s.gauge(metrics.PoolAvailable, c.Available.Float64(), namespace, pool)
		s.gauge(metrics.PoolWithheld, c.Withheld.Float64(), namespace, pool)
		s.gauge(metrics.PoolAllocations, counts.Held[ledger.Bound].Blocks.Float64(), namespace, pool, "bound")
		for _, r := range rare {
			if held := counts.Held[r.standing]; !held.Blocks.IsZero() {
				s.gauge(r.addresses, held.Addresses.Float64(), namespace, pool)
				s.gauge(metrics.PoolAllocations, held.Blocks.Float64(), namespace, pool, r.state)
			}
		}
		s.limit(counts.Limit, "", counts.Pool)
	}
}

// collectProjects measures what projects hold of what is limited.
func (m *measures) collectProjects(s scrape, pools []ledger.Counts) {
	classes := m.Catalogue.ClassLimits()
	for class, limit := range classes {
		s.limit(limit, class, ipam.PoolKey{})
	}
	limits := map[ipam.PoolKey]ipam.Limit{}
	for _, counts := range pools {
		if counts.Limit.IsSet() {
			limits[counts.Pool] = counts.Limit
		}
	}
	limitOf := func(class string, pool ipam.PoolKey) ipam.Limit {
		if class != "" {
			return classes[class]
		}
		return limits[pool]
	}
	for _, a := range m.Ledger.Accounts(func(class string, pool ipam.PoolKey) bool { return limitOf(class, pool).IsSet() }) {
		limit := limitOf(a.Class, a.Pool)
		if limit.Addresses.Set {
			s.gauge(metrics.ProjectUsage, a.Usage.Addresses.Float64(), a.Project, a.Class, a.Pool.Namespace, a.Pool.Name, "addresses")
		}
		if limit.Blocks.Set {
			s.gauge(metrics.ProjectUsage, a.Usage.Blocks.Float64(), a.Project, a.Class, a.Pool.Namespace, a.Pool.Name, "blocks")
		}
	}
}

// limit measures what one project may hold.
func (s scrape) limit(limit ipam.Limit, class string, pool ipam.PoolKey) {
	if limit.Addresses.Set {
		s.gauge(metrics.ProjectLimit, limit.Addresses.Count.Float64(), class, pool.Namespace, pool.Name, "addresses")
	}
	if limit.Blocks.Set {
		s.gauge(metrics.ProjectLimit, limit.Blocks.Count.Float64(), class, pool.Namespace, pool.Name, "blocks")
	}
}

// collectWaiting measures the queue.
func (m *measures) collectWaiting(s scrape) {
	now := m.Metrics.Now()
	for line, count := range m.Queue.Counts() {
		reason := waitReason(line.Standing)
		s.gauge(metrics.Waiting, float64(count.Waiters), line.Pool.Namespace, line.Pool.Name, reason)
		s.gauge(metrics.WaitingOldest, max(now.Sub(count.Oldest), 0).Seconds(), line.Pool.Namespace, line.Pool.Name, reason)
	}
}

func waitReason(standing queue.Standing) string {
	switch standing {
	case queue.Missing:
		return "missing"
	case queue.PassedOver:
		return "refused"
	case queue.BeyondLimit:
		return "beyond_limit"
	}
	return "no_room"
}
