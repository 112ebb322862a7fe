package play

import (
	"context"
	"fmt"
	"time"

	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// addressClaims measures Cluster API's claims, each until it has its address,
// with more and more addresses in use, beside plain creates.
func (w *World) addressClaims(ctx context.Context) error {
	if !w.capi {
		w.report.Note("capi: left out, because the kinds of Cluster API are not installed or not served")
		w.say("capi     left out: IPAddressClaims are not served")
		return nil
	}
	if err := w.afresh(ctx, bare(), addressClaim()); err != nil {
		return err
	}
	used := 0
	for _, level := range either(w, []int{0, 1000, 4000, 16000}, []int{0, 300}) {
		for used < level {
			measured, err := w.round(ctx, addressClaim(), closed(32), load.Limit{Count: min(level-used, 3000)})
			if err != nil {
				return err
			}
			used += len(measured.Latencies)
		}
		for range either(w, 3, 1) {
			before := w.held
			if err := w.measure(ctx, []contender{bare(), addressClaim()}, plan{closed(32), w.slice(), 1, level}); err != nil {
				return err
			}
			used += w.held - before
		}
	}
	return nil
}

// installClusterAPI installs the kinds of Cluster API that a provider of addresses
// deals with.
func (w *World) installClusterAPI(ctx context.Context) error {
	return w.cluster.InstallClusterAPICRDs(ctx)
}

// serves reports whether a controller gives an IPAddressClaim its address.
func (w *World) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	namespace, err := w.namespace(ctx)
	if err != nil {
		return false
	}
	c := addressClaim()
	path := fmt.Sprintf(c.collection, namespace)
	seen, err := w.sight(ctx, path, c.done)
	if err != nil {
		return false
	}
	defer seen.stop()
	if _, err := w.watch.do(ctx, "POST", path, c.body(0)); err != nil {
		return false
	}
	_, err = seen.awaitName(ctx, "c-000000")
	return err == nil
}
