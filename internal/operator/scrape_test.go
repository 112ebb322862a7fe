package operator

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ipam/space"
	"github.com/cadastre-dev/cadastre/internal/queue"
)

// large returns the register of a large installation: so many pools with so many blocks each, a
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

// scraped answers one scrape in the format that Prometheus requests, and returns its size.
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
