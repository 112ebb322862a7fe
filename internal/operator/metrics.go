package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/version"
)

// measures implements the metrics that a replica measures at each scrape: it keeps no state. A
// scrape costs O(pools + waiting claims + projects with a limit), whatever number of blocks is in
// use: the counts of blocks are kept.
type measures struct {
	ledger   *ledger.Ledger
	catalog  *inventory.Catalog
	queue    *queue.Queue
	metrics  *metrics.Instruments
	claims   *kubeutil.Tally[claimKey]
	policies *policyWatch
	// notAfter returns the time at which the certificate of the webhooks expires.
	notAfter func() (time.Time, bool)
	// replacements returns the number of secrets that were made for the webhooks' paths, by cause.
	replacements func() map[string]int
	// rollbacks holds the rollbacks that informers have found.
	rollbacks *rollbacks
	// provider is nil if the in-cluster provider's pools are not served.
	provider *provider

	descs map[string]*prometheus.Desc
}

// newMeasures makes the measures of one replica.
func newMeasures(op *operator, policies *policyWatch, rollbacks *rollbacks) *measures {
	m := &measures{
		ledger: op.ledger, catalog: op.catalog, queue: op.queue, metrics: op.metrics, claims: kubeutil.NewTally[claimKey](), policies: policies, rollbacks: rollbacks, descs: map[string]*prometheus.Desc{},
	}
	for _, name := range []string{
		metrics.Claims, metrics.Waiting, metrics.WaitingOldest,
		metrics.PoolCapacity, metrics.PoolAllocated, metrics.PoolAvailable, metrics.PoolWithheld, metrics.PoolRetained,
		metrics.PoolCooling, metrics.PoolUnclaimed, metrics.PoolAllocations, metrics.ProjectLimit, metrics.ProjectUsage,
		metrics.Conflicts, metrics.Unreadable, metrics.Protected,
		metrics.WatchRestarts, metrics.StoreRollbacks, metrics.WatchLists, metrics.WatchLag, metrics.CertificateExpiry, metrics.PathReplacements, metrics.InClusterProvider, metrics.Build,
	} {
		m.descs[name] = metrics.DefinitionOf(name).Desc()
	}
	return m
}

// register registers all metrics of the operator with a registry, until unregister is called.
func (m *measures) register(registry prometheus.Registerer) (unregister func(), err error) {
	var registered []prometheus.Collector
	unregister = func() {
		for _, c := range registered {
			registry.Unregister(c)
		}
	}
	for _, c := range append(m.metrics.Collectors(), m) {
		if err := registry.Register(c); err != nil {
			unregister()
			return nil, fmt.Errorf("registering metrics: %w", err)
		}
		registered = append(registered, c)
	}
	return unregister, nil
}

// Describe implements prometheus.Collector.
func (m *measures) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range m.descs {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (m *measures) Collect(ch chan<- prometheus.Metric) {
	s := scrape{m.descs, ch}
	pools := m.ledger.Counts()
	collectPools(s, pools)
	m.collectProjects(s, pools)
	m.collectWaiting(s)
	m.collectRegister(s)
	for key, count := range m.claims.Counts() {
		s.gauge(metrics.Claims, float64(count), key.kind, key.phase, key.reason)
	}
	for policy, protected := range m.policies.state() {
		s.gauge(metrics.Protected, boolValue(protected), policy)
	}
	if m.provider != nil {
		s.gauge(metrics.InClusterProvider, 1, string(m.provider.current()))
	}
	if expiry, ok := m.notAfter(); ok {
		s.gauge(metrics.CertificateExpiry, float64(expiry.Unix()))
	}
	for cause, count := range m.replacements() {
		s.counter(metrics.PathReplacements, count, cause)
	}
	s.gauge(metrics.Build, 1, version.Own())
}

// collectRegister measures the view.
func (m *measures) collectRegister(s scrape) {
	stats := m.ledger.Stats()
	s.counter(metrics.WatchRestarts, stats.Relists)
	s.counter(metrics.Unreadable, stats.Unreadable)
	s.counter(metrics.StoreRollbacks, stats.Rollbacks, "IPAllocation")
	for kind, count := range m.rollbacks.byKind() {
		s.counter(metrics.StoreRollbacks, count, kind)
	}
	s.counter(metrics.WatchLists, stats.Lists)
	s.gauge(metrics.WatchLag, m.ledger.Lag().Seconds())
	s.gauge(metrics.Conflicts, float64(len(m.ledger.Conflicts())))
}

// scrape holds the destination of the metrics of one scrape.
type scrape struct {
	descs map[string]*prometheus.Desc
	ch    chan<- prometheus.Metric
}

func (s scrape) gauge(name string, value float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(s.descs[name], prometheus.GaugeValue, value, labels...)
}

func (s scrape) counter(name string, value int, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(s.descs[name], prometheus.CounterValue, float64(value), labels...)
}

func boolValue(condition bool) float64 {
	if condition {
		return 1
	}
	return 0
}

// claimKey represents the group in which a claim is counted.
type claimKey struct{ kind, phase, reason string }

// countRetryInterval is the time until a failed attempt is repeated.
const countRetryInterval = time.Second

// countClaims begins to count IPClaims when the cache has begun: the whole cache waits for an
// informer that is made earlier.
func (m *measures) countClaims(ctx context.Context, informerCache cache.Cache) {
	if !informerCache.WaitForCacheSync(ctx) {
		return
	}
	_ = wait.PollUntilContextCancel(ctx, countRetryInterval, true, func(ctx context.Context) (bool, error) {
		informer, err := informerCache.GetInformer(ctx, &v1alpha1.IPClaim{}, cache.BlockUntilSynced(false))
		if err != nil {
			return false, nil //nolint:nilerr // the informer logs the reason, and it is tried again
		}
		_, err = informer.AddEventHandler(m.claims.Handler(keyOfClaim))
		return err == nil, nil
	}) // fails only if ctx is done
}

// keyOfClaim returns the key of an IPClaim. The cache keeps no conditions of an IPClaim that is
// Bound and has nothing wrong.
func keyOfClaim(obj any) (claimKey, bool) {
	claim, ok := obj.(*v1alpha1.IPClaim)
	if !ok {
		return claimKey{}, false
	}
	key := claimKey{kind: "IPClaim", phase: string(claim.Status.Phase)}
	if ready := meta.FindStatusCondition(claim.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		key.reason = ready.Reason
	} else if claim.Status.Phase == v1alpha1.ClaimBound {
		key.reason = v1alpha1.ReasonBound
	}
	return key, true
}

// keyOfAddressClaim returns a function for the key of an IPAddressClaim that is served. It has no phase: it counts as Bound if it
// names its IPAddress, as Exhausted if it waits for room, and otherwise as Pending.
func keyOfAddressClaim(targets convert.Targets) func(obj any) (claimKey, bool) {
	return func(obj any) (claimKey, bool) {
		claim, ok := obj.(*ipamv1.IPAddressClaim)
		if !ok || !convert.IsOurGroup(claim.Spec.PoolRef.APIGroup) && !targets.Has(claim.Spec.PoolRef.APIGroup, claim.Spec.PoolRef.Kind) {
			return claimKey{}, false
		}
		return stateOf(claim), true
	}
}

func stateOf(claim *ipamv1.IPAddressClaim) claimKey {
	key := claimKey{kind: "IPAddressClaim", phase: string(v1alpha1.ClaimPending)}
	if ready := conditions.Get(claim, ipamv1.IPAddressClaimReadyCondition); ready != nil {
		key.reason = ready.Reason
	}
	switch {
	case claim.Status.AddressRef.Name != "":
		key.phase = string(v1alpha1.ClaimBound)
	case key.reason == ipamv1.IPAddressClaimReadyPoolExhaustedReason:
		key.phase = string(v1alpha1.ClaimExhausted)
	}
	return key
}

// poolLabels returns the values of the labels of a pool. A pool of the in-cluster provider can have the
// name of an IPPool or a LocalIPPool: its kind comes first, such as InClusterIPPool/machines.
func poolLabels(pool ipam.PoolKey) (namespace, name string) {
	if pool.Kind.IsInCluster() {
		return pool.Namespace, string(pool.Kind) + "/" + pool.Name
	}
	return pool.Namespace, pool.Name
}

// collectPools measures how full each pool is. Most pools have no block that is retained, cools
// down or is unclaimed, so these time series exist only for pools that have such blocks.
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
		namespace, pool := poolLabels(counts.Pool)
		c := counts.Capacity
		s.gauge(metrics.PoolCapacity, c.Total.Float64(), namespace, pool)
		s.gauge(metrics.PoolAllocated, c.Allocated.Float64(), namespace, pool)
		s.gauge(metrics.PoolAvailable, c.Available.Float64(), namespace, pool)
		s.gauge(metrics.PoolWithheld, c.Withheld.Float64(), namespace, pool)
		s.gauge(metrics.PoolAllocations, counts.Held[ledger.Bound].Blocks.Float64(), namespace, pool, "bound")
		for _, r := range rare {
			if usage := counts.Held[r.standing]; !usage.Blocks.IsZero() {
				s.gauge(r.addresses, usage.Addresses.Float64(), namespace, pool)
				s.gauge(metrics.PoolAllocations, usage.Blocks.Float64(), namespace, pool, r.state)
			}
		}
		s.limit(counts.Limit, "", counts.Pool)
	}
}

// collectProjects measures the limits, and the usage of the projects that they bound.
func (m *measures) collectProjects(s scrape, pools []ledger.Counts) {
	classes := m.catalog.ClassLimits()
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
	for _, a := range m.ledger.Accounts(func(class string, pool ipam.PoolKey) bool { return limitOf(class, pool).IsSet() }) {
		limit := limitOf(a.Class, a.Pool)
		namespace, pool := poolLabels(a.Pool)
		if limit.Addresses.Set {
			s.gauge(metrics.ProjectUsage, a.Usage.Addresses.Float64(), a.Project, a.Class, namespace, pool, "addresses")
		}
		if limit.Blocks.Set {
			s.gauge(metrics.ProjectUsage, a.Usage.Blocks.Float64(), a.Project, a.Class, namespace, pool, "blocks")
		}
	}
}

// limit measures the limit of one project.
func (s scrape) limit(limit ipam.Limit, class string, pool ipam.PoolKey) {
	namespace, name := poolLabels(pool)
	if limit.Addresses.Set {
		s.gauge(metrics.ProjectLimit, limit.Addresses.Count.Float64(), class, namespace, name, "addresses")
	}
	if limit.Blocks.Set {
		s.gauge(metrics.ProjectLimit, limit.Blocks.Count.Float64(), class, namespace, name, "blocks")
	}
}

// collectWaiting measures the queue.
func (m *measures) collectWaiting(s scrape) {
	now := m.metrics.Now()
	for key, count := range m.queue.Counts() {
		reason := waitReason(key.Standing)
		namespace, pool := poolLabels(key.Pool)
		s.gauge(metrics.Waiting, float64(count.Waiters), namespace, pool, reason)
		s.gauge(metrics.WaitingOldest, max(now.Sub(count.Oldest), 0).Seconds(), namespace, pool, reason)
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
