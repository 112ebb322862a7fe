package play

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cadastre-dev/cadastre/test/perf/bench/causes"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// causes measures what CPU time is spent on for each create, and how much memory the API server allocates for it, with
// nothing and with many blocks in use, and the memory that these take. The profiles are kept. It is not part of a full run.
func (w *World) causes(ctx context.Context) error {
	contenders := []contender{bare(), twoWrites(), byPool("by-pool"), byClass(), addressClaim(), service()}
	if err := w.afresh(ctx, contenders...); err != nil {
		return err
	}
	many := either(w, 60000, 1500)
	for _, at := range []int{0, many} {
		if at > 0 {
			if err := w.weigh(ctx, at); err != nil {
				return err
			}
		}
		for _, c := range contenders {
			if err := w.cause(ctx, c, at); err != nil {
				return err
			}
		}
	}
	return nil
}

// title returns the name of a contender in a report.
func title(c contender) string { return strings.TrimSuffix(c.scenario+", "+c.variant, ", ") }

// weight measures the memory of claims.
func (w *World) weight(ctx context.Context) error {
	if err := w.afresh(ctx, byPool("by-pool")); err != nil {
		return err
	}
	return w.weigh(ctx, either(w, 60000, 1500))
}

// weigh notes the memory before and after claims are made, with nothing else beside them.
func (w *World) weigh(ctx context.Context, claims int) error {
	if err := w.memory(ctx, figures.BeforeClaims); err != nil {
		return err
	}
	if err := w.fillAlone(ctx, "fill", claims); err != nil {
		return err
	}
	return w.memory(ctx, figures.AfterClaims)
}

// fillAlone creates claims of a pool.
func (w *World) fillAlone(ctx context.Context, pool string, claims int) error {
	for made := 0; made < claims; {
		measured, err := w.round(ctx, byPool(pool), closed(8), load.Limit{Count: min(claims-made, 5000)})
		if err != nil {
			return err
		}
		made += len(measured.Latencies)
	}
	return nil
}

// cause measures a contender, with profiles, and with the memory that the API server allocates.
func (w *World) cause(ctx context.Context, c contender, at int) error {
	const lasts = 14 * time.Second
	c.variant, c.scenario = title(c), "causes"
	before, err := w.apiServerMetrics(ctx)
	if err != nil {
		return err
	}
	var result outcome
	var taking errgroup.Group
	taking.Go(func() (err error) {
		result, err = w.record(ctx, c, plan{closed(8), load.Limit{For: lasts}, 1, at}, 0)
		return err
	})
	var apiServer, manager []byte
	const path = "/debug/pprof/profile?seconds=10"
	taking.Go(func() (err error) { apiServer, err = w.watch.do(ctx, http.MethodGet, path, nil); return err })
	taking.Go(func() (err error) { manager, err = w.askManager(ctx, w.cluster.Managers[0], path); return err })
	if err := taking.Wait(); err != nil {
		return err
	}
	after, err := w.apiServerMetrics(ctx)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(w.options.Profiles, 0o755); err != nil {
		return err
	}
	profiles := map[string][]byte{"apiserver": apiServer, "managers": manager}
	rules := map[string][]causes.Rule{"apiserver": causes.APIServer(), "managers": causes.Manager()}
	series := w.report.Of(figures.Key{Scenario: c.scenario, Variant: c.variant, Shape: closed(8).String(), At: at})
	const allocated = "go_memstats_alloc_bytes_total"
	series.Set(allocated, (after[allocated]-before[allocated])/float64(len(result.Latencies)))
	for part, text := range profiles {
		shares, err := causes.Shares(text, rules[part])
		if err != nil {
			return err
		}
		for cause, share := range shares {
			series.Set(part+": "+cause, share*result.cpu[part])
		}
		name := fmt.Sprintf("%s-%s-%d.pprof", part, strings.NewReplacer(", ", "-", " ", "-").Replace(c.variant), at)
		if err := os.WriteFile(filepath.Join(w.options.Profiles, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
