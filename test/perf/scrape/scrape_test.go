// Package scrape measures the cost of a scrape of a large installation in a real manager.
package scrape

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/netip"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/records"
)

const (
	// most bounds the CPU time of a scrape in relation to that of reading its answer in this
	// process. With 100 pools it is 1.4 times as much; with 1,000 pools and 100,000 records up to
	// 3.4 times, as the answer's garbage causes scans of the whole view of the manager.
	most = 4.0
	// Of several series of scrapes the cheapest counts: the operator has other work.
	series, scrapes = 5, 20
)

// TestManagerScrapeIsCheap measures with 1,000 pools and 100,000 IPAllocations, TLS and the
// metrics of the libraries included. $RECORDS is their number: a hundred for each pool.
func TestManagerScrapeIsCheap(t *testing.T) {
	count := suite.Setting(t, "RECORDS", suite.Sized(100_000, 2_000), strconv.Atoi)
	pools := count / 100
	w := suite.Start(t, cluster.Options{Managers: 1, ManagerArgs: []string{"--orphan-grace=24h"}}) // the blocks have no holders
	w.Patience = 10 * time.Minute
	w.Created(build.ClusterBinding("scrapes", "cadastre-metrics-reader", build.ServiceAccount("default", "prometheus")))
	token := w.Account("prometheus")
	for i := range records.Namespaces {
		w.Namespace(records.Namespace(i))
	}
	for i := range pools {
		w.Created(build.Pool(pool(i)).CIDR(netip.PrefixFrom(records.Address(256*i), 24).String()).Obj())
	}
	records.Store(t, w.AsOperator(), count, record)
	w.Await("the manager has seen all records", func(context.Context) bool {
		return scraped(t, w, token)[metrics.Unheld] == float64(count)
	})
	least := math.Inf(1)
	for range series {
		begun, before := ownCPU(t), scraped(t, w, token)[processCPU]
		var after float64
		for range scrapes {
			after = scraped(t, w, token)[processCPU]
		}
		cost, own := (after-before)/scrapes, (ownCPU(t)-begun).Seconds()/(scrapes+1)
		t.Logf("a scrape with %d pools and %d IPAllocations takes %.1f ms of the processors; to read it, %.1f ms", pools, count, 1000*cost, 1000*own)
		least = min(least, cost/own)
	}
	if least > most {
		t.Errorf("a scrape takes %.2f times as much of the processors as to read it, want %.2f at most", least, most)
	}
}

// ownCPU returns how long this process has used the processors.
func ownCPU(t *testing.T) time.Duration {
	t.Helper()
	used := &syscall.Rusage{}
	suite.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func pool(i int) string { return fmt.Sprintf("region-%d-machines", i) }

// record returns the i-th one: a hundred in each pool.
func record(i int) ipam.Record {
	return records.Of(i, pool(i/100), records.Address(256*(i/100)+i%100))
}

// processCPU is the CPU time of the process, in seconds.
const processCPU = "process_cpu_seconds_total"

// scraped returns the sum of each metric that is a counter or a gauge.
func scraped(t *testing.T, w *suite.World, token string) map[string]float64 {
	t.Helper()
	code, text := w.Diagnostics(0, "/metrics", token)
	if code != http.StatusOK {
		t.Fatalf("a scrape is answered with %d: %s", code, text)
	}
	sums := map[string]float64{}
	for name, family := range suite.Families(t, text) {
		for _, m := range family.Metric {
			sums[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sums
}
