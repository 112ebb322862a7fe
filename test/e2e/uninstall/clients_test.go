package uninstall

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// refusal is the answer while the operator is removed.
const refusal = "Cadastre is being removed: nothing new is handed out"

// claimants continue to claim by both kinds of claims, until the test ends.
type claimants struct {
	*world
	mu sync.Mutex
	// stored and refused count claims by kind.
	stored, refused map[string]int
	// changed is closed and replaced whenever a count has changed.
	changed chan struct{}
}

// keepClaiming starts a client for each kind of claim.
func (w *world) keepClaiming() *claimants {
	w.Helper()
	c := &claimants{world: w, stored: map[string]int{}, refused: map[string]int{}, changed: make(chan struct{})}
	cfg := cluster.NoRetry(w.Config())
	cfg.QPS, cfg.Burst = 20, 1
	k8s, err := client.New(cfg, client.Options{Scheme: w.Scheme()})
	suite.Must(w, err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	w.Cleanup(func() {
		stop()
		running.Wait()
	})
	for kind, claim := range map[string]func(string) client.Object{
		"IPClaim": func(name string) client.Object { return build.Claim("tenant", name).Pool("busy").Length(32).Obj() },
		"IPAddressClaim": func(name string) client.Object {
			return build.AddressClaim("tenant", name).Pool("busy").Obj()
		},
	} {
		running.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				c.count(kind, k8s.Create(ctx, claim(fmt.Sprint("client-", n))))
			}
		})
	}
	return c
}

func (c *claimants) count(kind string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.stored[kind]++
	case strings.Contains(err.Error(), refusal):
		c.refused[kind]++
	default:
		return
	}
	close(c.changed)
	c.changed = make(chan struct{})
}

// awaitStored waits until claims of both kinds have been stored.
func (c *claimants) awaitStored() { c.await(c.stored) }

// awaitRefused waits until claims of both kinds have been refused, with the reason.
func (c *claimants) awaitRefused() { c.await(c.refused) }

func (c *claimants) await(counts map[string]int) {
	c.Helper()
	for {
		c.mu.Lock()
		both, changed := len(counts) == 2, c.changed
		c.mu.Unlock()
		if both {
			return
		}
		select {
		case <-changed:
		case <-c.Context().Done():
			c.Fatal("the test has ended before")
		}
	}
}
