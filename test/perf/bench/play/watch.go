package play

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/internal/testing/changes"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/collector"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// object holds the fields that the scenarios read in any object.
type object struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Status struct {
		Phase      string `json:"phase"`
		AddressRef struct {
			Name string `json:"name"`
		} `json:"addressRef"`
	} `json:"status"`
}

// done reports whether an object has all that its maker wanted.
type done func(*object) bool

func bound(o *object) bool { return o.Status.Phase == "Bound" }

func addressed(o *object) bool { return o.Status.AddressRef.Name != "" }

// sightings watches the objects of a collection and notes when each was first
// seen done.
type sightings struct {
	test done
	stop func()

	mu  changes.Mutex
	at  map[string]time.Time
	err error
}

// awaitAtMost bounds the wait for what follows from a round.
const awaitAtMost = 2 * time.Minute

// sight begins to watch a collection. The API server begins a watch with all
// existing objects; so a watch that ends, such as one of a kind that was just defined, is
// begun again and misses nothing.
func (w *World) sight(ctx context.Context, path string, test done) (*sightings, error) {
	ctx, cancel := context.WithCancel(ctx)
	body, err := w.events(ctx, path)
	if err != nil {
		cancel()
		return nil, err
	}
	s := &sightings{test: test, at: map[string]time.Time{}, stop: cancel}
	go func() {
		for s.read(ctx, body); ctx.Err() == nil; s.read(ctx, body) {
			if body, err = w.events(ctx, path); err != nil {
				s.note(func() { s.err = err })
				return
			}
		}
	}()
	return s, nil
}

// events begins a watch, as soon as the API server lets it: it does not while it
// prepares for a kind that was just defined.
func (w *World) events(ctx context.Context, path string) (body io.ReadCloser, err error) {
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, awaitAtMost, true, func(ctx context.Context) (bool, error) {
		// The poll's own context ends with it, the watch's does not.
		response, err := w.watch.open(context.WithoutCancel(ctx), "application/json", http.MethodGet, path+"?watch=true", nil)
		switch {
		case err != nil:
			return false, err
		case response.StatusCode == http.StatusOK:
			body = response.Body
			return true, nil
		}
		_ = response.Body.Close()
		if response.StatusCode == http.StatusTooManyRequests {
			return false, nil
		}
		return false, fmt.Errorf("watching %s: %s", path, response.Status)
	})
	return body, err
}

// read notes the objects of a watch, until it ends or ctx is done.
func (s *sightings) read(ctx context.Context, body io.ReadCloser) {
	defer context.AfterFunc(ctx, func() { _ = body.Close() })()
	defer func() { _ = body.Close() }()
	for events := json.NewDecoder(body); ; {
		var event struct{ Object object }
		if err := events.Decode(&event); err != nil {
			return
		}
		name := event.Object.Metadata.Name
		if name == "" || !s.test(&event.Object) {
			continue
		}
		s.note(func() {
			if _, ok := s.at[name]; !ok {
				s.at[name] = time.Now()
			}
		})
	}
}

// note changes what was seen, and wakes the waiter.
func (s *sightings) note(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.mu.Changed()
}

// await waits until so many are done and returns when the last one was.
func (s *sightings) await(ctx context.Context, count int) (time.Time, error) {
	return s.until(ctx, fmt.Sprintf("%d objects", count), func() (last time.Time, done bool) {
		for _, at := range s.at {
			if at.After(last) {
				last = at
			}
		}
		return last, len(s.at) >= count
	})
}

// awaitName waits until one object is done and returns when it was.
func (s *sightings) awaitName(ctx context.Context, name string) (time.Time, error) {
	return s.until(ctx, name, func() (time.Time, bool) {
		at, done := s.at[name]
		return at, done
	})
}

// until waits until a condition on what was seen is true, and returns its time.
func (s *sightings) until(ctx context.Context, what string, done func() (time.Time, bool)) (at time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, awaitAtMost)
	defer cancel()
	var seen int
	var ok bool
	if !s.mu.Await(ctx, func() bool {
		at, ok = done()
		seen, err = len(s.at), s.err
		return ok || err != nil
	}) {
		return at, fmt.Errorf("waiting until %s are done (%d are): %w", what, seen, ctx.Err())
	}
	if ok {
		return at, nil
	}
	return at, err
}

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
	// The flags of their variants in figures.Observed.
	without, traced := w.cluster.Managers[0], w.cluster.Managers[2]
	without.Args = append(without.Args, "--metrics-bind-address=0")
	traced.Args = append(traced.Args, "--tracing-endpoint=http://"+to.Address)
	for _, wire := range w.wires {
		wire.traced = true
	}
	for i := range either(w, 9, 2) {
		for j := range figures.Observed {
			if err := w.observedRound(ctx, (i+j)%len(figures.Observed), i, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// observedRound runs one manager alone for a round.
func (w *World) observedRound(ctx context.Context, which, round int, to *collector.Collector) error {
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
	limit := load.Limit{For: either(w, 5*time.Second, 2*time.Second)}
	result, err := w.record(ctx, c, plan{closed(8), limit, either(w, 9, 2), 0}, round)
	if err != nil {
		return err
	}
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
			if _, err := w.metrics(ctx, manager); err != nil && ctx.Err() == nil {
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
