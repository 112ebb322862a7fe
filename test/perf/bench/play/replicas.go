package play

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/cadastre-dev/cadastre/internal/testing/changes"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// severalReplicas compares one, two and three replicas.
func (w *World) severalReplicas(ctx context.Context) error {
	if err := w.afresh(ctx); err != nil {
		return err
	}
	rounds := either(w, 5, 1)
	for i := range rounds {
		for j := range managers {
			n := (i+j)%managers + 1
			if err := w.restingReplicas(ctx, n); err != nil {
				return err
			}
			c := byPool("replicas")
			c.scenario, c.variant = "replicas", fmt.Sprint(n)
			if _, err := w.round(ctx, c, closed(32), load.Limit{For: 500 * time.Millisecond}); err != nil { // warms up
				return err
			}
			for _, shape := range []load.Shape{closed(8), closed(32)} {
				if _, err := w.record(ctx, c, plan{shape, w.slice(), rounds, 0}, i); err != nil {
					return err
				}
			}
		}
	}
	return w.restingReplicas(ctx, 1)
}

// restingReplicas restarts so many replicas, and waits until one leads and all have seen
// everything.
func (w *World) restingReplicas(ctx context.Context, n int) error {
	if err := w.replicas(ctx, n); err != nil {
		return err
	}
	if err := w.awaitLeader(ctx); err != nil {
		return err
	}
	return w.awaitIdle(ctx)
}

func (w *World) awaitLeader(ctx context.Context) error {
	var last error // a manager may be ready before it serves its metrics
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		leader, err := w.leader(ctx)
		last = err
		return leader != nil, nil
	})
	if err != nil {
		return fmt.Errorf("waiting for a leader: %w", errors.Join(err, last))
	}
	return nil
}

// failover kills the leader of two while clients create claims. It measures how
// long it takes from then until the next claim is bound that needs a leader, and
// for how long none is created.
func (w *World) failover(ctx context.Context) error {
	c := byPool("replicas")
	if w.capi {
		c = addressClaim()
	} else {
		w.report.Note("failover: the kinds of Cluster API are not installed; measured is the next IPClaim whose status says Bound, which a leader writes")
	}
	series := w.report.Of(figures.Key{Scenario: "failover"})
	var longest time.Duration
	rounds := either(w, 5, 1)
	for i := range rounds {
		if err := w.restingReplicas(ctx, 2); err != nil {
			return err
		}
		next, gap, err := w.kill(ctx, c, series)
		if err != nil {
			return err
		}
		series.AddLatencies([]time.Duration{next})
		longest = max(longest, gap)
		series.Set("longestGapMillis", float64(longest.Milliseconds()))
		w.say("failover %d: next bound after %.2f s, no create for %d ms at most, %d creates failed so far", i+1, next.Seconds(), gap.Milliseconds(), series.Failures)
	}
	return w.restingReplicas(ctx, 1)
}

// kill kills the leader in the middle of creates, and returns the time until
// the next claim of c was bound, and the longest time without a created IPClaim.
func (w *World) kill(ctx context.Context, c contender, series *figures.Series) (next, gap time.Duration, err error) {
	leader, err := w.leader(ctx)
	if err != nil {
		return 0, 0, err
	}
	namespace, err := w.namespace(ctx)
	if err != nil {
		return 0, 0, err
	}
	path, seen, err := w.watched(ctx, c)
	if err != nil {
		return 0, 0, err
	}
	defer seen.stop()

	creating, stop := context.WithCancel(ctx)
	defer stop()
	created := &instants{}
	var working sync.WaitGroup
	working.Go(func() { w.create(creating, byPool("replicas"), namespace, created) })
	if err := created.await(ctx, 40); err != nil {
		return 0, 0, err
	}
	killed := time.Now()
	if err := leader.Kill(); err != nil {
		return 0, 0, err
	}
	at, err := w.nextBound(ctx, c, seen, path)
	if err != nil {
		return 0, 0, err
	}
	if err := created.await(ctx, 40); err != nil {
		return 0, 0, err
	}
	stop()
	working.Wait()
	series.Failures += len(created.errs)
	if len(created.errs) > 0 && series.Error == "" {
		series.Error = created.errs[0].Error()
	}
	w.held += len(created.at)
	return at.Sub(killed), created.longestGap(killed), nil
}

// nextBound creates claims until one can be created, waits for it, and returns when
// it was bound.
func (w *World) nextBound(ctx context.Context, c contender, seen *sightings, path string) (time.Time, error) {
	for n := 900000; ctx.Err() == nil; n++ {
		if _, err := w.wires[31].do(ctx, "POST", path, c.body(n)); err == nil {
			w.held++
			return seen.awaitName(ctx, fmt.Sprintf("c-%06d", n))
		}
	}
	return time.Time{}, ctx.Err()
}

// create creates claims with eight clients until ctx is done, each after the other as soon
// as it is answered.
func (w *World) create(ctx context.Context, c contender, namespace string, created *instants) {
	request := request(w.wires, c, fmt.Sprintf(c.collection, namespace))
	load.Run(ctx, closed(8), load.Limit{}, func(ctx context.Context, client, n int) error {
		err := request(ctx, client, n)
		if ctx.Err() == nil {
			created.note(err)
		}
		return err
	})
}

// instants holds the times of creates that succeeded, and the errors of the others.
type instants struct {
	mu   changes.Mutex
	at   []time.Time
	errs []error
}

func (i *instants) note(err error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if err != nil {
		i.errs = append(i.errs, err)
		return
	}
	i.at = append(i.at, time.Now())
	i.mu.Changed()
}

// await waits for so many more.
func (i *instants) await(ctx context.Context, more int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	i.mu.Lock()
	target := len(i.at) + more
	i.mu.Unlock()
	if !i.mu.Await(ctx, func() bool { return len(i.at) >= target }) {
		return ctx.Err()
	}
	return nil
}

// longestGap returns the longest time between two creates, from an instant on.
func (i *instants) longestGap(from time.Time) time.Duration {
	i.mu.Lock()
	defer i.mu.Unlock()
	longest, last := time.Duration(0), from
	for _, at := range slices.SortedFunc(slices.Values(i.at), time.Time.Compare) {
		if at.After(from) {
			longest, last = max(longest, at.Sub(last)), at
		}
	}
	return longest
}
