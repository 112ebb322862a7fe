package torture

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// quietWithin bounds how long it takes until all is as required when nothing happens any more.
const quietWithin = orphanGrace + 40*time.Second

// quiet waits until the witness has no complaint.
func (w *world) quiet(ctx context.Context, when string) error {
	var open []string
	w.letGoOfAll(ctx)
	settled := untilEvery(ctx, quietWithin, 500*time.Millisecond, func() bool {
		open = w.witness.Unsettled()
		return len(open) == 0
	})
	if settled || ctx.Err() != nil {
		return ctx.Err()
	}
	return w.broken("%s, this is still wrong after %s:\n  %s", when, quietWithin, strings.Join(open[:min(20, len(open))], "\n  "))
}

// broken returns the error for a promise that the end found broken.
func (w *world) broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrViolated, fmt.Sprintf(format, args...))
}

// letGoOfAll removes the finalizers of others from claims that are being deleted.
func (w *world) letGoOfAll(ctx context.Context) {
	n := &nemesis{party: &party{world: w, who: "end", Client: w.admin}}
	for ns := range namespaces {
		n.letGoOfClaims(ctx, namespaceName(ns))
	}
	n.letGoOfClaims(ctx, siteNamespace)
	n.letGoOfAddresses(ctx, "", never)
}

// inLine is the number of claims that are made to wait at the end: as many as fit into the tight
// pool, and as many again that wait for these.
const inLine = 16

// serveInOrder makes claims wait in the tight pool and releases its blocks one after the other. The
// witness judges whether waiting claims are served in order: no fault excuses the treatment of
// claims that came after the last.
func (w *world) serveInOrder(ctx context.Context) error {
	p := &party{world: w, who: "end", Client: w.admin}
	for i := range inLine {
		claim := build.Claim(namespaceName(0), fmt.Sprintf("end-%02d", i)).Pool(poolTight).Length(29).Obj()
		if err := p.try(ctx, attempt{what: said("create", claim), obj: claim, do: func(ctx context.Context) error { return p.Create(ctx, claim) }}); err != nil {
			return fmt.Errorf("making claims wait: %w", err)
		}
	}
	countWaiting := func() int { return w.witness.Waiting(poolTight) }
	countReported := func() int { return w.witness.CountReported(poolTight, time.Now()) }
	if !until(ctx, quietWithin, func() bool { return countReported() == countWaiting() }) {
		return w.broken("of %d claims that wait, only %d are reported as waiting", countWaiting(), countReported())
	}
	if countWaiting() == 0 {
		return errors.New("making claims wait: all of them were served")
	}
	inTight := func(c *v1alpha1.IPClaim) bool {
		return c.Spec.PoolRef != nil && c.Spec.PoolRef.Name == poolTight && c.Spec.AllocationName != ""
	}
	for left := 1; left > 0 && countWaiting() > 0 && ctx.Err() == nil; {
		before := countWaiting()
		left = w.endSome(ctx, p, 1, inTight)
		until(ctx, servedWithin, func() bool { return countWaiting() < before }) // a block may be too small for the first
	}
	return w.endClaims(ctx, p, inTight)
}

// servedWithin bounds the wait for the first claim to be served, before another block is released.
const servedWithin = time.Second

// endClaims deletes the selected claims, those that are made to wait included as they are served,
// until none is left.
func (w *world) endClaims(ctx context.Context, p *party, meant func(*v1alpha1.IPClaim) bool) error {
	done := untilEvery(ctx, 2*quietWithin, 300*time.Millisecond, func() bool {
		left := w.endSome(ctx, p, math.MaxInt, meant)
		return left == 0 && w.witness.Waiting(poolTight) == 0
	})
	if !done && ctx.Err() == nil {
		return w.broken("%d claims still wait in pool %s, though all its blocks were given back", w.witness.Waiting(poolTight), poolTight)
	}
	return ctx.Err()
}

// endSome deletes at most so many of the selected claims, and returns how many of them there were.
func (w *world) endSome(ctx context.Context, p *party, most int, meant func(*v1alpha1.IPClaim) bool) int {
	claims := &v1alpha1.IPClaimList{}
	if err := p.List(ctx, claims); err != nil {
		return math.MaxInt // not known
	}
	count := 0
	for i := range claims.Items {
		if !meant(&claims.Items[i]) {
			continue
		}
		if count++; count <= most {
			_ = p.remove(ctx, &claims.Items[i])
		}
	}
	w.letGoOfAll(ctx)
	return count
}

// giveBack deletes everything, after which nothing may be left, and every pool must be as free as before.
func (w *world) giveBack(ctx context.Context) error {
	p := &party{world: w, who: "end", Client: w.admin}
	if err := w.endClaims(ctx, p, func(*v1alpha1.IPClaim) bool { return true }); err != nil {
		return err
	}
	if !untilEvery(ctx, quietWithin, 500*time.Millisecond, func() bool { return p.endAddresses(ctx) }) {
		return w.broken("IPAddressClaims do not go away:\n  %s", strings.Join(w.witness.Left(), "\n  "))
	}
	ended := make([]string, 0, children+2*sites)
	for i := range children {
		ended = append(ended, fmt.Sprintf("child-%d", i))
	}
	for i := range sites {
		ended = append(ended, siteName(i, 0), siteName(i, 1))
	}
	for _, name := range ended {
		pool := build.Pool(name).Obj()
		if !until(ctx, quietWithin, func() bool { return client.IgnoreNotFound(p.remove(ctx, pool)) == nil }) {
			return w.broken("pool %s cannot be deleted, though it has no claims", pool.Name)
		}
	}
	if err := w.quiet(ctx, "when everything was given back"); err != nil {
		return err
	}
	if left := w.witness.Left(); len(left) > 0 {
		return w.broken("these are left when everything was given back:\n  %s", strings.Join(left, "\n  "))
	}
	return nil
}
