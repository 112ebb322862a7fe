package play

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// servicesAt returns the number of claims, and of Services, when they are compared for the
// second time.
func (w *World) servicesAt() int { return either(w, 9000, 500) }

// fill fills a /12 by /28, with a bare round beside each step; on the way claims
// and Services are compared when there are thousands of each. In a full run nothing
// else is claimed: memory and restarts are for the claims that fill it.
func (w *World) fill(ctx context.Context) error {
	step, upTo := either(w, 5000, 500), either(w, 60000, 1500)
	if err := w.afresh(ctx, bare()); err != nil {
		return err
	}
	if err := w.memory(ctx, "before"); err != nil {
		return err
	}
	for at := 0; at < upTo; at += step {
		if err := w.fillStep(ctx, at, step); err != nil {
			return err
		}
		if at < w.servicesAt() && at+step >= w.servicesAt() {
			if err := w.services(ctx); err != nil {
				return err
			}
		}
	}
	return w.memory(ctx, "after")
}

func (w *World) fillStep(ctx context.Context, at, step int) error {
	reference := bare()
	reference.scenario, reference.variant = "fill", "bare"
	// For so long that the API server collects its garbage during the round, as it does beside
	// the claims: with much in its caches that is seldom, and takes long.
	if err := w.measure(ctx, []contender{reference}, plan{closed(8), load.Limit{For: either(w, 5*time.Second, time.Second)}, 1, at}); err != nil {
		return err
	}
	c := byPool("fill")
	c.scenario, c.variant = "fill", "claim"
	// The bound in time is for slow machines.
	return w.measure(ctx, []contender{c}, plan{closed(8), load.Limit{Count: step, For: either(w, 90*time.Second, 6*time.Second)}, 1, at})
}

// services makes thousands of Services and compares.
func (w *World) services(ctx context.Context) error {
	at := w.servicesAt()
	w.say("making %d Services", at)
	for made := 0; made < at; {
		measured, err := w.round(ctx, service(), closed(32), load.Limit{Count: min(at-made, 3000)})
		if err != nil {
			return err
		}
		if len(measured.Latencies) == 0 {
			return fmt.Errorf("no Service could be made: %w", measured.Errors[0])
		}
		made += len(measured.Latencies)
	}
	return w.measure(ctx, []contender{bare(), byPool("by-pool"), service()}, plan{closed(8), w.slice(), either(w, 5, 1), at})
}

// memory notes the leader's memory, with the number of its allocations.
func (w *World) memory(ctx context.Context, when string) error {
	leader, err := w.leader(ctx)
	if err != nil {
		return err
	}
	if leader == nil {
		return fmt.Errorf("no manager leads")
	}
	found, err := w.metrics(ctx, leader)
	if err != nil {
		return err
	}
	series := w.report.Of(figures.Key{Scenario: "memory", Variant: when})
	series.Set("allocations", float64(w.held))
	series.Set("residentBytes", found["process_resident_memory_bytes"])
	series.Set("heapBytes", found["go_memstats_heap_alloc_bytes"])
	server, err := w.apiServerMemory(ctx)
	if err != nil {
		return err
	}
	series.Set("apiserverResidentBytes", server["process_resident_memory_bytes"])
	series.Set("apiserverHeapBytes", server["go_memstats_heap_alloc_bytes"])
	w.say("memory   %s: %d allocations, %.0f MiB resident, %.0f MiB heap; API server %.0f and %.0f", when, w.held,
		found["process_resident_memory_bytes"]/(1<<20), found["go_memstats_heap_alloc_bytes"]/(1<<20),
		server["process_resident_memory_bytes"]/(1<<20), server["go_memstats_heap_alloc_bytes"]/(1<<20))
	return nil
}

// apiServerMemory returns the metrics of the API server after a garbage collection.
func (w *World) apiServerMemory(ctx context.Context) (map[string]float64, error) {
	if _, err := w.watch.do(ctx, http.MethodGet, "/debug/pprof/heap?gc=1", nil); err != nil {
		return nil, err
	}
	return w.apiServerMetrics(ctx)
}

func (w *World) apiServerMetrics(ctx context.Context) (map[string]float64, error) {
	text, err := w.watch.do(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return nil, fmt.Errorf("metrics of the API server: %w", err)
	}
	return readMetrics(text), nil
}

// restart measures how long a manager takes from its start until it is ready,
// with all that was filled, in a cluster at rest.
func (w *World) restart(ctx context.Context) error {
	series := w.report.Of(figures.Key{Scenario: "restart", At: w.held})
	var samples []time.Duration
	manager := w.cluster.Managers[0]
	for range either(w, 5, 2) {
		if err := w.awaitIdle(ctx); err != nil {
			return err
		}
		if err := manager.Stop(); err != nil {
			return err
		}
		begin := time.Now()
		if err := manager.Start(ctx); err != nil {
			return err
		}
		samples = append(samples, time.Since(begin))
		w.say("restart  ready after %.1f s with %d allocations", time.Since(begin).Seconds(), w.held)
	}
	series.AddLatencies(samples)
	if err := w.awaitLeader(ctx); err != nil {
		return err
	}
	if err := w.awaitIdle(ctx); err != nil { // it is ready before it has read the claims
		return err
	}
	return w.memory(ctx, "restarted")
}

// makePools makes the pools and the class of the scenarios. Each scenario has
// its own pool, so that none finds another's blocks in use.
func (w *World) makePools(ctx context.Context) error {
	if err := w.k8s.Create(ctx, build.Class("bench").Length(28).Obj()); err != nil {
		return err
	}
	pools := []*v1alpha1.IPPool{
		build.Pool("by-pool").CIDR("10.0.0.0/12").Obj(),
		build.Pool("ipv6").CIDR("2001:db8::/32").Obj(),
		build.Pool("hosts").CIDR("172.16.0.0/16").Network(16, "172.16.0.1").Obj(),
		build.Pool("mixed").CIDR("11.0.0.0/8").Obj(),
		build.Pool("replicas").CIDR("10.32.0.0/12").Obj(),
		build.Pool("fill").CIDR("10.16.0.0/12").Obj(),
		build.Pool("machines").CIDR("10.48.0.0/15").Network(15, "10.48.0.1").Obj(),
	}
	for i := range 4 {
		pools = append(pools, build.Pool(fmt.Sprintf("of-class-%d", i)).CIDR(fmt.Sprintf("12.%d.0.0/16", i)).Classes("bench").Obj())
	}
	for _, pool := range pools {
		if err := w.pool(ctx, pool); err != nil {
			return err
		}
	}
	return nil
}

// pool makes a pool and waits until it hands out blocks.
func (w *World) pool(ctx context.Context, pool *v1alpha1.IPPool) error {
	if err := w.k8s.Create(ctx, pool); err != nil {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := w.k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)
		return pool.Status.Phase == v1alpha1.PoolReady, err
	})
	if err != nil {
		return fmt.Errorf("waiting for pool %s: %w", pool.Name, err)
	}
	return nil
}

// deny measures claims that a full pool refuses.
func (w *World) deny(ctx context.Context) error {
	if err := w.pool(ctx, build.Pool("full").CIDR("13.0.0.0/24").Rejects().Obj()); err != nil {
		return err
	}
	if _, err := w.round(ctx, byPool("full"), closed(1), load.Limit{Count: 16}); err != nil {
		return err
	}
	namespace, err := w.namespace(ctx)
	if err != nil {
		return err
	}
	c := byPool("full")
	create := request(w.wires, c, fmt.Sprintf(c.collection, namespace))
	refused := func(ctx context.Context, client, n int) error {
		err := create(ctx, client, n)
		var status *statusError
		if errors.As(err, &status) && status.code == http.StatusInsufficientStorage {
			return nil
		}
		return fmt.Errorf("not refused: %w", err)
	}
	for _, shape := range []load.Shape{closed(1), closed(8), open(150)} {
		series := w.report.Of(figures.Key{Scenario: "deny", Shape: shape.String()})
		series.Add(load.Run(ctx, shape, load.Limit{For: either(w, 4*time.Second, time.Second)}, refused), 0, nil)
		w.reportRound(series, 0, 1)
	}
	return nil
}

// release measures how long it takes from the deletion of a claim until the one
// that has waited longest for its block is Bound.
func (w *World) release(ctx context.Context) error {
	if err := w.pool(ctx, build.Pool("awaited").CIDR("13.0.1.0/28").Obj()); err != nil {
		return err
	}
	c := byPool("awaited") // one /28: the whole pool
	path, seen, err := w.watched(ctx, c)
	if err != nil {
		return err
	}
	defer seen.stop()
	// One claim holds the block, the others wait, each behind the one before it.
	turns := either(w, 200, 30)
	for n := range turns + 1 {
		if _, err := w.wires[0].do(ctx, "POST", path, c.body(n)); err != nil {
			return err
		}
	}
	var samples []time.Duration
	for n := range turns {
		if _, err := seen.awaitName(ctx, fmt.Sprintf("c-%06d", n)); err != nil {
			return err
		}
		begin := time.Now()
		if _, err := w.wires[0].do(ctx, "DELETE", fmt.Sprintf("%s/c-%06d", path, n), nil); err != nil {
			return err
		}
		at, err := seen.awaitName(ctx, fmt.Sprintf("c-%06d", n+1))
		if err != nil {
			return err
		}
		samples = append(samples, at.Sub(begin))
	}
	series := w.report.Of(figures.Key{Scenario: "release"})
	series.AddLatencies(samples)
	w.say("release  to the next claim's Bound: p50 %.1f ms, p95 %.1f ms", series.Millis.P50, series.Millis.P95)
	return nil
}
