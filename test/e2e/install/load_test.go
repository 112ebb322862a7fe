package install

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// The namespace and the pool of the load, whose clients continue to claim while the operator is
// upgraded.
const (
	team    = "team"
	pool    = "load"
	clients = 3
)

// load represents clients that create claims, and delete every fourth of them.
type load struct {
	w    *world
	end  context.CancelFunc
	done sync.WaitGroup

	mu      sync.Mutex
	held    map[string]string // blocks of claims, by name
	stored  int               // creates that were answered
	without int               // of those, without a block
	cut     int               // attempts whose connection was cut
	refused []error
	last    time.Time     // when a create was answered
	longest time.Duration // without an answered create
	changed chan struct{} // closed when a create was answered since
}

// begin starts clients that claim until stop. prefix makes the names of their claims unique.
func (w *world) begin(prefix string) *load {
	w.Helper()
	ctx, end := context.WithCancel(w.Context())
	l := &load{w: w, end: end, held: map[string]string{}, changed: make(chan struct{}), last: time.Now()}
	config := cluster.NoRetry(w.Config())
	config.QPS, config.Burst = 15, 1 // for each client, so that the processors are left to the upgrade
	for n := range clients {
		as, err := client.New(config, client.Options{Scheme: w.Scheme()})
		suite.Must(w, err)
		l.done.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				claim := build.Claim(team, fmt.Sprintf("%s-%d-%d", prefix, n, i)).Pool(pool).Length(32).Obj()
				if l.count(ctx, claim, l.create(ctx, as, claim)) && i%4 == 0 {
					l.release(ctx, as, claim)
				}
			}
		})
	}
	w.Cleanup(l.stop)
	return l
}

func (l *load) stop() {
	l.end()
	l.done.Wait()
}

// create creates a claim, and tries again, as client-go does, if a connection was cut.
func (l *load) create(ctx context.Context, as client.Client, claim *v1alpha1.IPClaim) error {
	err := as.Create(ctx, claim)
	for range 2 {
		if ctx.Err() != nil || !suite.IsCut(err) {
			break
		}
		l.mu.Lock()
		l.cut++
		l.mu.Unlock()
		if err = as.Create(ctx, claim); apierrors.IsAlreadyExists(err) {
			err = as.Get(ctx, client.ObjectKeyFromObject(claim), claim)
		}
	}
	return err
}

// count records the result of a create, and reports whether the claim is stored.
func (l *load) count(ctx context.Context, claim *v1alpha1.IPClaim, err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		l.refused = append(l.refused, fmt.Errorf("%s: %w", claim.Name, err))
		return false
	}
	l.stored++
	if claim.Status.AllocatedCIDR == "" {
		l.without++
	}
	l.held[claim.Name] = claim.Status.AllocatedCIDR
	l.longest, l.last = max(l.longest, time.Since(l.last)), time.Now()
	close(l.changed)
	l.changed = make(chan struct{})
	return true
}

// release deletes a claim. A delete that is cut may have happened.
func (l *load) release(ctx context.Context, as client.Client, claim *v1alpha1.IPClaim) {
	err := as.Delete(ctx, claim)
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, claim.Name)
	if err != nil && ctx.Err() == nil && !suite.IsCut(err) {
		l.refused = append(l.refused, fmt.Errorf("deleting %s: %w", claim.Name, err))
	}
}

// creates waits until so many more creates were answered.
func (l *load) creates(more int) {
	l.w.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for want := l.stored + more; l.stored < want; {
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-l.w.Context().Done():
			l.w.Fatalf("the test ended before so many claims were answered: %v", l.refused[:min(3, len(l.refused))])
		}
		l.mu.Lock()
	}
}

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("%d claims stored, %d of them without a block, %d attempts cut, %d refused %v, %v the longest without an answered create",
		l.stored, l.without, l.cut, len(l.refused), l.refused[:min(3, len(l.refused))], l.longest.Round(time.Millisecond))
}
