package play

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/collector"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

const (
	// scrapedEvery is the interval of scrapes: 15 times as often as is usual.
	scrapedEvery = time.Second
	// fewestSpans is the least number of spans of a traced create: admission, allocate, find, record,
	// the request to the API server, and confirm.
	fewestSpans = 6
)

// observed measures claims by a manager without metrics and traces, by one whose metrics are
// scraped, and by one that traces every create besides: a round each in turn. Clients trace all
// their requests, and the API server, which does not trace, passes that on. It is not part of a
// full run.
func (w *World) observed(ctx context.Context) error {
	to, err := collector.Start(false)
	if err != nil {
		return err
	}
	defer to.Stop()
	w.observe(w.cluster.Managers, "http://"+to.Address)
	for _, wire := range w.wires {
		wire.traced = true
	}
	for i := range either(w, 9, 2) {
		for j := range figures.Observed {
			if err := w.observedRound(ctx, (i+j)%len(figures.Observed), to); err != nil {
				return err
			}
		}
	}
	return nil
}

// observe gives the managers the flags of their variants in figures.Observed.
func (w *World) observe(managers []*cluster.Manager, endpoint string) {
	managers[0].Args = append(managers[0].Args, "--metrics-bind-address=0")
	managers[2].Args = append(managers[2].Args, "--tracing-endpoint="+endpoint)
}

// observedRound runs one manager alone for a round.
func (w *World) observedRound(ctx context.Context, which int, to *collector.Collector) error {
	for _, m := range w.cluster.Managers {
		if err := m.Stop(); err != nil {
			return err
		}
	}
	manager := w.cluster.Managers[which]
	if err := manager.Start(ctx); err != nil {
		return err
	}
	c := byPool("by-pool")
	c.scenario, c.variant = "observed", figures.Observed[which]
	if _, err := w.round(ctx, c, closed(8), load.Limit{Count: 200}); err != nil { // warms up
		return err
	}
	if err := w.awaitIdle(ctx); err != nil {
		return err
	}
	if which > 0 {
		defer w.scraped(ctx, manager)()
	}
	before := to.Count()
	result, err := w.round(ctx, c, closed(8), load.Limit{For: either(w, 5*time.Second, 2*time.Second)})
	if err != nil {
		return err
	}
	series := w.report.Of(figures.Key{Scenario: c.scenario, Variant: c.variant, Shape: closed(8).String()})
	result.addTo(series)
	w.reportRound(series, len(series.Rounds)-1, len(series.Rounds))
	if err := manager.Stop(); err != nil { // it sends what it has recorded
		return err
	}
	if sent, creates := to.Count()-before, len(result.Latencies); which == 2 && sent < creates*fewestSpans {
		return fmt.Errorf("the collector has %d spans of %d creates, want %d at least: are some lost?", sent, creates, creates*fewestSpans)
	}
	return nil
}

// scraped scrapes a manager until the returned function is called.
func (w *World) scraped(ctx context.Context, manager *cluster.Manager) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var scraping sync.WaitGroup
	scraping.Go(func() {
		every := time.NewTicker(scrapedEvery)
		defer every.Stop()
		for ctx.Err() == nil {
			if _, err := w.scrape.fetch(ctx, manager); err != nil && ctx.Err() == nil {
				w.report.Note("a scrape failed: " + err.Error())
			}
			select {
			case <-every.C:
			case <-ctx.Done():
			}
		}
	})
	return func() {
		cancel()
		scraping.Wait()
	}
}
