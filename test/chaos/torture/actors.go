package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// actor represents a client of one kind. Its methods are called from one goroutine.
type actor interface {
	// act makes one or a few calls. An error means only that it did not go well.
	act(ctx context.Context) error
}

// role makes actors of one kind.
type role struct {
	name string
	// share is the percentage of clients that have it.
	share int
	make  func(*party, int, *rand.Rand) actor
}

// roles returns the kinds of clients. The first are made first, so that also a small cast has one
// of each.
func roles() []role {
	return []role{
		{"pools", 8, newPoolActor},
		{"addresses", 20, newAddressActor},
		{"claims", 72, newClaimActor},
	}
}

// cast returns the role of each of the clients.
func cast(clients int) []role {
	var all []role
	left := clients
	for i, r := range roles() {
		n := max(2, clients*r.share/100)
		if i == len(roles())-1 {
			n = left
		}
		for range n {
			all = append(all, r)
		}
		left -= n
	}
	return all
}

// perform lets an actor act until ctx is done. After an error it pauses, as a well-behaved client
// does.
func (w *world) perform(ctx context.Context, r role, n int) error {
	c, err := cluster.NewClient(w.tenant)
	if err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(w.config.Seed, uint64(n)+1))
	a := r.make(&party{world: w, who: fmt.Sprintf("%s-%d", r.name, n), Client: c}, n, random)
	for ctx.Err() == nil {
		if a.act(ctx) != nil && !wait(ctx, between(random, 10*time.Millisecond, 150*time.Millisecond)) {
			return nil
		}
	}
	return nil
}
