package allocator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/convert"
	"github.com/cadastre-dev/cadastre/internal/ipam"
)

// loadedServer implements an API server whose calls take longer the more calls it has.
type loadedServer struct {
	*steady
	each time.Duration

	mu   sync.Mutex
	free time.Time // the time at which all calls so far are done
	most int
	now  int
}

// Create implements client.Writer.
func (c *loadedServer) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	if now := time.Now(); c.free.Before(now) {
		c.free = now
	}
	c.free = c.free.Add(c.each)
	done := c.free
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	<-time.After(time.Until(done))
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return c.steady.Create(ctx, obj, opts...)
}

// newcomer returns the order of a claim that does not exist yet.
func newcomer(n int) Order {
	holder := convert.HolderOfClaim(ipam.Name{Namespace: "team", Name: fmt.Sprintf("c-%d", n)})
	order := Order{Holder: holder, Record: newAttempt(holder)}
	order.Terms = ipam.Terms{Family: ipam.IPv4, Length: 28, Reclaim: ipam.ReclaimDelete}
	order.Pools = []ipam.Pool{parent()}
	return order
}

// TestCrowdIsServedAtAPIServerSpeed sends several times as many claims as can be recorded
// in the time that each has. Each recorded claim is confirmed; a refused claim has cost nothing.
func TestCrowdIsServedAtAPIServerSpeed(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		slow := &loadedServer{steady: api, each: 20 * time.Millisecond}
		a.client = slow
		const crowd = 1000
		var served, refused, failed int
		var mu sync.Mutex
		var all sync.WaitGroup
		began := time.Now()
		for n := range crowd {
			all.Go(func() {
				_, err := a.Allocate(t.Context(), newcomer(n))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					served++
				case errors.Is(err, ipam.ErrCrowded):
					refused++
				default:
					failed++
				}
			})
		}
		all.Wait()
		took := time.Since(began)
		if slow.most != MaxConcurrentAttempts {
			t.Errorf("%d records were made at once, want %d", slow.most, MaxConcurrentAttempts)
		}
		if failed > 0 || served+refused != crowd {
			t.Errorf("%d served, %d refused, %d failed", served, refused, failed)
		}
		// It is never idle: what it can do in the time is done.
		if can := int(took / slow.each); served < can-1 {
			t.Errorf("%d served in %v, the API server can store %d", served, took, can)
		}
		synctest.Wait()
		if stored := len(api.server.records()); stored != served {
			t.Errorf("%d records are stored for %d claims", stored, served)
		}
	})
}

// TestExistingClaimDoesNotQueueBehindCrowd covers controllers.
func TestExistingClaimDoesNotQueueBehindCrowd(t *testing.T) {
	runOnReplica(t, func(t *testing.T, a *Allocator, api *steady) {
		a.client = &loadedServer{steady: api, each: 20 * time.Millisecond}
		var all sync.WaitGroup
		for n := range 1000 {
			all.Go(func() { _, _ = a.Allocate(t.Context(), newcomer(n)) })
		}
		synctest.Wait()
		order := newcomer(1000)
		order.existsAs("uid")
		began := time.Now()
		if _, err := a.Allocate(t.Context(), order); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > attemptTimeout {
			t.Errorf("it took %v", took)
		}
		all.Wait()
	})
}
