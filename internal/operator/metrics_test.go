package operator

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/testing/replica"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

var (
	began  = time.Unix(1_800_000_000, 0)
	shared = netip.MustParsePrefix("10.0.0.0/24")
)

// newTestMeasures returns the measures of a ledger that a source feeds.
func newTestMeasures(t testing.TB, records ...ipam.Record) *measures {
	t.Helper()
	r := replica.WithRecords(t, replica.Options{Clock: clocktesting.NewFakePassiveClock(began)}, records...)
	t.Cleanup(r.Allocator.Close)
	m := newMeasures(&operator{ledger: r.Ledger, catalog: r.Catalog, queue: r.Queue, metrics: r.Metrics}, &policyWatch{}, newRollbacks(clientgoscheme.Scheme, logr.Discard()))
	m.notAfter = func() (time.Time, bool) { return began, true }
	m.replacements = func() map[string]int { return map[string]int{"start": 1} }
	return m
}

func (m *measures) describe(pools ...ipam.Pool) {
	for _, pool := range pools {
		m.catalog.SetPool(pool)
		m.ledger.Describe(pool)
	}
}

func record(name, block string, state ipam.State) ipam.Record {
	holder := ipam.Holder{Group: v1alpha1.GroupVersion.Group, Kind: "IPClaim", Namespace: "team", Name: name}
	return ipam.Record{
		Name: ipam.Name{Namespace: "team", Name: name}, UID: name, Block: netip.MustParsePrefix(block), Pool: ipam.PoolNamed("shared"),
		Holder: holder, Purpose: ipam.PurposeClaim, Reclaim: ipam.ReclaimDelete, State: state, Project: "blue", Class: "gold",
	}
}

// newPopulatedRegistry returns a registry of which every metric has a time series.
func newPopulatedRegistry(t testing.TB) (*measures, *prometheus.Registry) {
	t.Helper()
	bound := record("bound", "10.0.0.128/26", ipam.StateBound)
	bound.HolderUID = "uid"
	m := newTestMeasures(t, bound, record("new", "10.0.0.32/28", ipam.StateBound),
		record("retained", "10.0.0.48/29", ipam.StateRetained), record("cooling", "10.0.0.56/30", ipam.StateCooling))
	m.describe(ipam.Pool{
		Key: ipam.PoolNamed("shared"), Family: ipam.IPv4, CIDR: shared,
		Withheld: space.NewRanges(shared, []space.Range{space.RangeOf(netip.MustParsePrefix("10.0.0.0/28"))}),
		Limit:    ipam.Limit{Addresses: ipam.Maximum{Set: true, Count: space.CountOf64(100)}},
	}, ipam.Pool{Key: ipam.LocalPoolNamed("team", "own"), Family: ipam.IPv6, CIDR: netip.MustParsePrefix("2001:db8::/64")},
		ipam.Pool{Key: ipam.PoolOfKind(ipam.PoolKindInClusterIPPool, "team", "own"), Family: ipam.IPv4, CIDR: netip.MustParsePrefix("10.9.0.0/30")})
	m.catalog.SetPool(ipam.Pool{Key: ipam.PoolNamed("without-cidr")})
	m.catalog.SetClass(inventory.ClassEntry{Class: ipam.Class{Name: "gold", Family: ipam.IPv4, Limit: ipam.Limit{Blocks: ipam.Maximum{Set: true, Count: space.CountOf64(5)}}}})
	m.queue.Wait(queue.Waiter{Since: began.Add(-time.Minute), Holder: convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: "waits"}), Request: ipam.Request{Class: "missing"}})
	m.claims.Handler(keyOfClaim).OnAdd(&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound}}, false)
	m.policies = newPolicyWatchInMemory(t)
	m.provider = &provider{state: providerAbsent}
	m.metrics.Lead()
	m.metrics.Allocated(metrics.Allocation{Origin: metrics.OriginAdmission, Class: "gold", Family: "IPv4"}, metrics.ResultAllocated, began)
	m.metrics.Refused("ipclaims", "create", 422)
	m.metrics.HistoryLost("file", 1)
	m.metrics.Passed("ippool", "changed")
	m.metrics.ClusterNetwork("pods", true)
	registry := prometheus.NewPedanticRegistry()
	if _, err := m.register(registry); err != nil {
		t.Fatal(err)
	}
	return m, registry
}

// TestMetricsMatchDefinitions compares the exports of a registry with the definitions, from
// which the documentation is generated: names, types, help and labels.
func TestMetricsMatchDefinitions(t *testing.T) {
	_, registry := newPopulatedRegistry(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got, want []metrics.Definition
	for _, family := range families {
		labels := map[string]bool{}
		for _, metric := range family.GetMetric() {
			for _, pair := range metric.GetLabel() {
				labels[pair.GetName()] = true
			}
		}
		got = append(got, metrics.Definition{Name: family.GetName(), Type: family.GetType(), Help: family.GetHelp(), Labels: slices.Sorted(maps.Keys(labels))})
	}
	for _, d := range metrics.Definitions() {
		want = append(want, metrics.Definition{Name: d.Name, Type: d.Type, Help: d.Help, Labels: slices.Sorted(slices.Values(d.Labels))})
	}
	slices.SortFunc(want, func(a, b metrics.Definition) int { return strings.Compare(a.Name, b.Name) })
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-defined +exported)\n%s", diff)
	}
}

// TestMetricNamesFollowPrometheus runs the linter of promtool.
func TestMetricNamesFollowPrometheus(t *testing.T) {
	_, registry := newPopulatedRegistry(t)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// TestLabelsNameNoClaimAddressOrUser keeps the number of time series low.
func TestLabelsNameNoClaimAddressOrUser(t *testing.T) {
	allowed := []string{"result", "origin", "class", "family", "step", "kind", "phase", "reason", "pool_namespace", "pool", "state", "project", "unit", "policy", "resource", "operation", "code", "sink", "version", "controller", "purpose"}
	for _, d := range metrics.Definitions() {
		for _, label := range d.Labels {
			if !slices.Contains(allowed, label) {
				t.Errorf("%s has the label %s: is the number of its values bounded by what platform teams make?", d.Name, label)
			}
		}
		if d.Type == dto.MetricType_HISTOGRAM && len(d.Buckets) == 0 {
			t.Errorf("%s has no buckets", d.Name)
		}
	}
}

func TestMetricsReportPoolUtilization(t *testing.T) {
	m, _ := newPopulatedRegistry(t)
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	m.rollbacks.add("IPPool", 2)
	text := strings.Builder{}
	for name, lines := range map[string][]string{
		metrics.PoolCapacity:  {`{pool="InClusterIPPool/own",pool_namespace="team"} 4`, `{pool="own",pool_namespace="team"} 1.8446744073709552e+19`, `{pool="shared",pool_namespace=""} 256`},
		metrics.PoolAllocated: {`{pool="InClusterIPPool/own",pool_namespace="team"} 0`, `{pool="own",pool_namespace="team"} 0`, `{pool="shared",pool_namespace=""} 92`},
		metrics.PoolAvailable: {`{pool="InClusterIPPool/own",pool_namespace="team"} 4`, `{pool="own",pool_namespace="team"} 1.8446744073709552e+19`, `{pool="shared",pool_namespace=""} 148`},
		metrics.PoolWithheld:  {`{pool="InClusterIPPool/own",pool_namespace="team"} 0`, `{pool="own",pool_namespace="team"} 0`, `{pool="shared",pool_namespace=""} 16`},
		metrics.PoolRetained:  {`{pool="shared",pool_namespace=""} 8`},
		metrics.PoolCooling:   {`{pool="shared",pool_namespace=""} 4`},
		metrics.PoolUnclaimed: {`{pool="shared",pool_namespace=""} 16`},
		metrics.PoolAllocations: {
			`{pool="InClusterIPPool/own",pool_namespace="team",state="bound"} 0`, `{pool="own",pool_namespace="team",state="bound"} 0`, `{pool="shared",pool_namespace="",state="bound"} 1`,
			`{pool="shared",pool_namespace="",state="cooling"} 1`, `{pool="shared",pool_namespace="",state="retained"} 1`, `{pool="shared",pool_namespace="",state="unclaimed"} 1`,
		},
		metrics.ProjectLimit:      {`{class="",pool="shared",pool_namespace="",unit="addresses"} 100`, `{class="gold",pool="",pool_namespace="",unit="blocks"} 5`},
		metrics.ProjectUsage:      {`{class="",pool="shared",pool_namespace="",project="blue",unit="addresses"} 92`, `{class="gold",pool="",pool_namespace="",project="blue",unit="blocks"} 4`},
		metrics.Waiting:           {`{pool="",pool_namespace="",reason="missing"} 1`},
		metrics.WaitingOldest:     {`{pool="",pool_namespace="",reason="missing"} 60`},
		metrics.Claims:            {`{kind="IPClaim",phase="Bound",reason="Bound"} 1`},
		metrics.CertificateExpiry: {` 1.8e+09`},
		metrics.StoreRollbacks:    {`{kind="IPAllocation"} 0`, `{kind="IPPool"} 2`},
		metrics.Protected:         {`{policy="cadastre-allocations"} 1`, `{policy="cadastre-cluster-networks"} 0`, `{policy="cadastre-filled-in"} 0`},
	} {
		d := metrics.DefinitionOf(name)
		fmt.Fprintf(&text, "# HELP %s %s\n# TYPE %s %s\n", name, d.Help, name, strings.ToLower(d.Type.String()))
		for _, line := range lines {
			fmt.Fprintf(&text, "%s%s\n", name, line)
		}
	}
	compared := []string{
		metrics.PoolCapacity, metrics.PoolAllocated, metrics.PoolAvailable, metrics.PoolWithheld, metrics.PoolRetained, metrics.PoolCooling, metrics.PoolUnclaimed,
		metrics.PoolAllocations, metrics.ProjectLimit, metrics.ProjectUsage, metrics.Waiting, metrics.WaitingOldest, metrics.Claims, metrics.CertificateExpiry, metrics.Protected,
		metrics.StoreRollbacks,
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text.String()), compared...); err != nil {
		t.Error(err)
	}
}

func TestClaimsAreCountedByPhaseAndReason(t *testing.T) {
	ready := func(reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.ConditionReady, Reason: reason}}
	}
	addressClaim := func(group string, status ipamv1.IPAddressClaimStatus) *ipamv1.IPAddressClaim {
		return &ipamv1.IPAddressClaim{Spec: ipamv1.IPAddressClaimSpec{PoolRef: ipamv1.IPPoolReference{APIGroup: group}}, Status: status}
	}
	ours := v1alpha1.GroupVersion.Group
	for name, c := range map[string]struct {
		obj  any
		want claimKey
	}{
		"a claim as the cache keeps it": {&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound}}, claimKey{"IPClaim", "Bound", "Bound"}},
		"one that is Bound with a conflict": {
			&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimBound, Conditions: ready(v1alpha1.ReasonConflict)}},
			claimKey{"IPClaim", "Bound", "Conflict"},
		},
		"one that waits": {
			&v1alpha1.IPClaim{Status: v1alpha1.IPClaimStatus{Phase: v1alpha1.ClaimPending, Conditions: ready(v1alpha1.ReasonClassNotFound)}},
			claimKey{"IPClaim", "Pending", "ClassNotFound"},
		},
		"Cluster API's, new":      {addressClaim(ours, ipamv1.IPAddressClaimStatus{}), claimKey{"IPAddressClaim", "Pending", ""}},
		"Cluster API's, Bound":    {addressClaim(ours, ipamv1.IPAddressClaimStatus{AddressRef: ipamv1.IPAddressReference{Name: "a"}, Conditions: ready("AddressAllocated")}), claimKey{"IPAddressClaim", "Bound", "AddressAllocated"}},
		"Cluster API's, no room":  {addressClaim(ours, ipamv1.IPAddressClaimStatus{Conditions: ready(ipamv1.IPAddressClaimReadyPoolExhaustedReason)}), claimKey{"IPAddressClaim", "Exhausted", "PoolExhausted"}},
		"another provider's":      {addressClaim("ipam.metal3.io", ipamv1.IPAddressClaimStatus{}), claimKey{}},
		"an object of other kind": {&v1alpha1.IPPool{}, claimKey{}},
	} {
		got, counted := keyOfClaim(c.obj)
		if !counted {
			got, counted = keyOfAddressClaim(convert.Targets{})(c.obj)
		}
		if got != c.want || counted != (c.want != claimKey{}) {
			t.Errorf("%s is counted (%t) as %+v, want %+v", name, counted, got, c.want)
		}
	}
}

// lateCache implements a cache whose first informers cannot be made.
type lateCache struct {
	cache.Cache
	informer *controllertest.FakeInformer
	failures int
}

func (c *lateCache) WaitForCacheSync(context.Context) bool { return true }

func (c *lateCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	if c.failures--; c.failures >= 0 {
		return nil, errBroken
	}
	return c.informer, nil
}

func TestCountOfClaimsBeginsAgainAfterFailures(t *testing.T) {
	m := newTestMeasures(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		informer := controllertest.NewFakeInformer(controllertest.Synced)
		m.countClaims(ctx, &lateCache{informer: informer, failures: 3})
		suite.Must(t, ctx.Err()) // else it has not returned by itself
		informer.Add(&v1alpha1.IPClaim{})
		if got := m.claims.Counts(); got[claimKey{kind: "IPClaim"}] != 1 {
			t.Errorf("%v are counted, want one IPClaim", got)
		}
	})
}

// newLargeRegistry returns the register of a large installation: so many pools with so many blocks each, a
// limit on each tenth pool of which ten projects hold blocks, and so many waiting claims.
func newLargeRegistry(t testing.TB, pools, blocks, waiting int) *prometheus.Registry {
	t.Helper()
	all := make([]ipam.Record, 0, pools*blocks)
	keys := make([]ipam.PoolKey, pools)
	for p := range pools {
		keys[p] = ipam.PoolNamed(fmt.Sprintf("region-%d-machines", p))
		for b := range blocks {
			r := record(fmt.Sprintf("c-%d-%d", p, b), fmt.Sprintf("10.%d.%d.%d/32", p>>8, p&255, b), ipam.StateBound)
			r.Pool, r.Project, r.HolderUID = keys[p], fmt.Sprintf("team-%d", b%10), "uid"
			all = append(all, r)
		}
	}
	m := newTestMeasures(t, all...)
	for p, key := range keys {
		pool := ipam.Pool{Key: key, Family: ipam.IPv4, CIDR: netip.MustParsePrefix(fmt.Sprintf("10.%d.%d.0/24", p>>8, p&255)), Classes: []string{"gold"}}
		if p%10 == 0 {
			pool.Limit.Addresses = ipam.Maximum{Set: true, Count: space.CountOf64(100)}
		}
		m.describe(pool)
	}
	for n := range waiting {
		m.queue.Wait(queue.Waiter{Since: began, Holder: convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: fmt.Sprint("w-", n)}), Request: ipam.Request{Pool: keys[n%pools]}})
	}
	registry := prometheus.NewRegistry()
	if _, err := m.register(registry); err != nil {
		t.Fatal(err)
	}
	return registry
}

// scrapeSize answers one scrape in the format that Prometheus requests, and returns its size.
func scrapeSize(registry *prometheus.Registry) int {
	request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	request.Header.Set("Accept-Encoding", "gzip")
	answer := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(answer, request)
	return answer.Body.Len()
}

// cpu returns the time that this process has used of the processors.
func cpu(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestScrapeCostDoesNotDependOnRecords compares the CPU time of a scrape of the same pools with
// 100,000 and with 10,000 records of the same projects, without the
// collection of garbage: counts are kept, and not made at each scrape.
func TestScrapeCostDoesNotDependOnRecords(t *testing.T) {
	const most, times = 2, 5
	few, many := newLargeRegistry(t, 1000, 10, 1000), newLargeRegistry(t, 1000, 100, 1000)
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	least := func(registry *prometheus.Registry) time.Duration {
		least := time.Hour // of several: others use the processors too
		for range times {
			runtime.GC()
			before := cpu(t)
			if size := scrapeSize(registry); size == 0 {
				t.Fatal("nothing was exported")
			}
			least = min(least, cpu(t)-before)
		}
		return least
	}
	with, without := least(many), least(few)
	t.Logf("a scrape of 1000 pools takes %s with 100000 records, and %s with 10000", with, without)
	if with > most*without {
		t.Errorf("a scrape takes %s with 100000 records, and %s with 10000: want at most %d times as long", with, without, most)
	}
}

func BenchmarkScrape(b *testing.B) {
	registry := newLargeRegistry(b, 1000, 100, 1000)
	before, n := cpu(b), 0
	for b.Loop() {
		scrapeSize(registry)
		n++
	}
	b.ReportMetric(float64((cpu(b)-before).Microseconds())/float64(n)/1000, "cpu-ms/op")
	b.ReportMetric(float64(scrapeSize(registry)), "bytes")
}
