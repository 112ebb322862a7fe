package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// The pools of ranges share one subnet of sharedSize addresses. The rival holds those around the border of
// the others.
const (
	sharedSubnet = "10.70.0.0/26"
	sharedSize   = 64
	poolLeft     = "shared-left"
	poolRight    = "shared-right"
	poolRival    = "shared-rival"
)

func sharedPools() []string { return []string{poolLeft, poolRight, poolRival} }

func sharedName(intN func(int) int) string { return sharedPools()[intN(len(sharedPools()))] }

// rangesActor moves the borders of the pools that share a subnet, and deletes them and makes them again with
// other ranges. It edits all of them at one time, so that each takes over what another gives up, and
// several clients do so at once.
type rangesActor struct {
	*party
	random *rand.Rand
}

func newRangesActor(p *party, _ int, random *rand.Rand) actor { return &rangesActor{p, random} }

// act implements actor.
func (a *rangesActor) act(ctx context.Context) error {
	defer wait(ctx, between(a.random, 50*time.Millisecond, 500*time.Millisecond))
	if a.random.IntN(6) == 0 {
		pool := build.Pool(sharedName(a.random.IntN)).Obj()
		until(ctx, sharedWithin, func() bool { return a.clearPool(ctx, pool) })
	}
	from := 8 + a.random.IntN(sharedSize-24)
	to := from + 1 + a.random.IntN(8)
	corner := sharedSize - 1 - a.random.IntN(4) // the left pool has a part beyond the right one
	beyond := a.random.IntN(4)                  // the rival wants so many addresses of either
	wanted := map[string][]string{
		poolLeft:  {span(0, from-1), span(corner, sharedSize-1)},
		poolRight: {span(to+1, corner-1)},
		poolRival: {span(from-beyond, to+beyond)},
	}
	var editing sync.WaitGroup
	for name, ranges := range wanted {
		editing.Go(func() {
			untilEvery(ctx, sharedWithin, 50*time.Millisecond, func() bool { return a.setRanges(ctx, name, ranges) == nil })
		})
	}
	editing.Wait()
	return nil
}

// setRanges edits a pool, or makes it. An edit is refused while the view of a replica shows another holder of
// what it adds.
func (a *rangesActor) setRanges(ctx context.Context, name string, ranges []string) error {
	b := build.Pool(name).CIDR(sharedSubnet).Occupies(ranges...)
	what := fmt.Sprintf("IPPool %s %v", name, ranges)
	err := a.call(ctx, "edit "+what, func(ctx context.Context) error {
		return a.Patch(ctx, b.Obj(), build.Merge(fmt.Sprintf(`{"spec":{"ranges":["%s"]}}`, strings.Join(ranges, `","`))))
	}, nil)
	if apierrors.IsNotFound(err) {
		return a.create(ctx, "create "+what, b.Strategy(v1alpha1.StrategyRandom).Obj())
	}
	return err
}

// sharedWithin bounds the time in which one of these pools gets its ranges, or goes with its claims.
const sharedWithin = time.Second

func span(from, to int) string { return fmt.Sprintf("10.70.0.%d-10.70.0.%d", from, to) }
