package play

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// Run plays the scenarios.
func (w *World) Run(ctx context.Context) error {
	for _, scenario := range []struct {
		name string
		play func(context.Context) error
	}{
		{"rates", w.rates},
		{"variants", w.variants},
		{"deny", w.deny},
		{"release", w.release},
		{"replicas", w.severalReplicas},
		{"failover", w.failover},
		{"capi", w.addressClaims},
		{"fill", w.fill},
		{"restart", w.restart},
		{"profile", w.profile},
		{"observed", w.observed}, // which changes the flags of the managers
		{"ablation", w.ablation}, // which changes what is installed: the last
	} {
		asked := slices.Contains(w.options.Only, scenario.name)
		if !asked && (len(w.options.Only) > 0 || scenario.name == "observed" || scenario.name == "ablation") {
			continue
		}
		w.say("%s", scenario.name)
		if err := scenario.play(ctx); err != nil {
			return fmt.Errorf("%s: %w", scenario.name, err)
		}
	}
	return nil
}

func closed(clients int) load.Shape { return load.Shape{Clients: clients} }

func open(perSecond int) load.Shape { return load.Shape{PerSecond: perSecond} }

// shapes returns the shapes of load for all measurements.
func (w *World) shapes() []load.Shape {
	return either(w,
		[]load.Shape{closed(1), closed(8), closed(32), open(100), open(150), open(300)},
		[]load.Shape{closed(8), closed(32), open(100), open(150)})
}

// slice returns the length of a round.
func (w *World) slice() load.Limit {
	return load.Limit{For: either(w, 2500*time.Millisecond, 1500*time.Millisecond)}
}

// rates measures the rates of plain creates, of a claim's writes, of claims and of Services.
func (w *World) rates(ctx context.Context) error {
	contenders := []contender{bare(), twoWrites(), byPool("by-pool"), service()}
	return w.inAllShapes(ctx, w.shapes(), contenders, either(w, 5, 2), w.slice())
}

// variants measures the other ways to claim.
func (w *World) variants(ctx context.Context) error {
	return w.inAllShapes(ctx, either(w, w.shapes(), []load.Shape{closed(8)}), variants(),
		either(w, 2, 1), either(w, w.slice(), load.Limit{For: time.Second}))
}

// inAllShapes measures contenders in one shape of load after the other, in a full run each
// in a new cluster: the objects of earlier ones make the API server's garbage
// collections longer, and each Service slower.
func (w *World) inAllShapes(ctx context.Context, shapes []load.Shape, contenders []contender, rounds int, limit load.Limit) error {
	for i, shape := range shapes {
		if i == 0 || !w.options.Quick {
			if err := w.afresh(ctx, contenders...); err != nil {
				return err
			}
		}
		if err := w.measure(ctx, contenders, plan{shape, limit, rounds, 0}); err != nil {
			return err
		}
	}
	return nil
}

// afresh starts a cluster with nothing claimed in it, except in a quick run, and lets each
// contender create for a second: the first requests for a kind are slow.
func (w *World) afresh(ctx context.Context, contenders ...contender) error {
	if !w.options.Quick {
		if err := w.restartCluster(ctx); err != nil {
			return err
		}
	}
	for _, c := range contenders {
		if _, err := w.round(ctx, c, closed(8), load.Limit{For: time.Second}); err != nil {
			return err
		}
	}
	return nil
}
