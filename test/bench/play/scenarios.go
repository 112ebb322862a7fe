package play

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/cadastre-dev/cadastre/test/bench/load"
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
		{"ablation", w.ablation}, // which changes what is installed: the last
	} {
		asked := slices.Contains(w.options.Only, scenario.name)
		if !asked && (len(w.options.Only) > 0 || scenario.name == "ablation") {
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

// shapes are those that everything is measured in.
func (w *World) shapes() []load.Shape {
	return either(w,
		[]load.Shape{closed(1), closed(8), closed(32), open(100), open(150), open(300)},
		[]load.Shape{closed(8), closed(32), open(100), open(150)})
}

// a slice is how long a round takes.
func (w *World) slice() load.Limit {
	return load.Limit{For: either(w, 2500*time.Millisecond, 1500*time.Millisecond)}
}

// rates are those of plain creates, of what a claim writes, of claims and of Services.
func (w *World) rates(ctx context.Context) error {
	// The first requests to a control plane that has just started are slow.
	if _, err := w.round(ctx, bare(), closed(8), load.Limit{For: time.Second}); err != nil {
		return err
	}
	if _, err := w.round(ctx, byPool("by-pool"), closed(8), load.Limit{For: time.Second}); err != nil {
		return err
	}
	contenders := either(w,
		[]contender{bare(), twoWrites(), byPool("by-pool"), service()},
		[]contender{bare(), twoWrites(), byPool("by-pool"), service()})
	for _, shape := range w.shapes() {
		if err := w.measure(ctx, contenders, plan{shape, w.slice(), either(w, 5, 2), 0}); err != nil {
			return err
		}
	}
	return nil
}

// variants are the other ways to claim.
func (w *World) variants(ctx context.Context) error {
	for _, shape := range either(w, w.shapes(), []load.Shape{closed(8)}) {
		if err := w.measure(ctx, variants(), plan{shape, either(w, w.slice(), load.Limit{For: time.Second}), either(w, 2, 1), 0}); err != nil {
			return err
		}
	}
	return nil
}
