package play

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

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
	create := w.request(c, fmt.Sprintf(c.collection, namespace))
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
	namespace, err := w.namespace(ctx)
	if err != nil {
		return err
	}
	c := byPool("awaited") // one /28: the whole pool
	path := fmt.Sprintf(c.collection, namespace)
	seen, err := w.sight(ctx, path, bound)
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
