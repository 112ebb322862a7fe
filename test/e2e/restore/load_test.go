// Package restore brings a cluster back: from a snapshot of etcd that was taken under load, from a
// dump without IPAllocations, and, while claims arrive, from the previous build of the operator to
// this one. The results are read from the API server alone.
package restore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/changes"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// The pools of the load.
const (
	claimsPool = "claims" // of IPClaims, child pools and Clusters
	hostsPool  = "hosts"  // of IPAddressClaims
)

// pools makes the pools of the load.
func (w *world) pools() {
	w.Helper()
	claims, hosts := build.Pool(claimsPool).CIDR("10.0.0.0/12").Classes(networks).Obj(), build.Pool(hostsPool).CIDR("10.16.0.0/16").Network(16, "").Obj()
	w.Created(build.Class(networks).Length(29).Obj())
	w.Pools(claims, hosts)
}

// load represents clients that create and delete.
type load struct {
	w    *world
	seed uint64
	end  context.CancelFunc
	done sync.WaitGroup

	mu                    changes.Mutex
	created, deleted, cut int
	lost                  int // creates that were cut at each attempt
	refused               []error
}

// begin starts so many clients that create and delete until stop.
func (w *world) begin(name string, clients int, seed uint64) *load {
	ctx, end := context.WithCancel(w.Context())
	l := &load{w: w, seed: seed, end: end}
	for n := range clients {
		random := rand.New(rand.NewPCG(seed, uint64(n)))
		as := w.Client(w.Config())
		l.done.Go(func() {
			var mine []client.Object
			for i := 0; ctx.Err() == nil; i++ {
				mine = l.act(ctx, as, random, mine, fmt.Sprintf("%s-%d-%d", name, n, i))
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

// act creates an object, or deletes one of the client's own.
func (l *load) act(ctx context.Context, as client.Client, random *rand.Rand, mine []client.Object, name string) []client.Object {
	if n := len(mine); n > 40 || n > 0 && random.IntN(5) < 2 {
		i := random.IntN(n)
		l.count(ctx, as.Delete(ctx, mine[i]), &l.deleted)
		return append(mine[:i], mine[i+1:]...)
	}
	var obj client.Object
	switch kind := random.IntN(15); {
	case kind == 0:
		obj = build.Pool(name).Child(claimsPool, 24).Obj()
	case kind < 4 && l.w.fills:
		obj = asking(name)
	case kind < 7:
		obj = build.AddressClaim(team, name).Pool(hostsPool).Obj()
	default:
		obj = build.Claim(team, name).Pool(claimsPool).Length(int32(25 + random.IntN(8))).Obj()
	}
	err := as.Create(ctx, obj)
	for range 2 { // the client's own retry, which hides it
		if !isCut(err) {
			break
		}
		l.count(ctx, err, nil)
		if err = as.Create(ctx, obj); apierrors.IsAlreadyExists(err) {
			err = as.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		}
	}
	l.count(ctx, err, &l.created)
	if ctx.Err() == nil && isCut(err) {
		l.mu.Lock()
		l.lost++
		l.mu.Unlock()
	}
	if err == nil {
		mine = append(mine, obj)
		if claim, ok := obj.(*v1alpha1.IPClaim); ok && claim.Spec.CIDR == "" {
			l.count(ctx, fmt.Errorf("%s was answered without a block: %+v", name, claim.Status.Conditions), nil)
		}
	}
	return mine
}

func (l *load) count(ctx context.Context, err error, done *int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ctx.Err() != nil:
	case err == nil:
		*done++
		l.mu.Changed()
	case isCut(err):
		l.cut++
	case apierrors.IsNotFound(err) && done == &l.deleted: // it was, before the restore
	default:
		l.refused = append(l.refused, err)
	}
}

// isCut reports whether a connection was cut in mid-request, or the network failed otherwise: the
// next attempt of the client hides it.
func isCut(err error) bool {
	var operation *net.OpError
	return errors.As(err, &operation) || suite.IsCut(err)
}

// creates waits until so many more objects were created.
func (l *load) creates(more int) {
	l.w.Helper()
	l.mu.Lock()
	want := l.created + more
	l.mu.Unlock()
	if !l.mu.Await(l.w.Context(), func() bool { return l.created >= want }) {
		l.w.Fatal("the load ended")
	}
}

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprintf("seed %d: %d created, %d deleted, %d connections cut, %d creates lost, %d refused %v", l.seed, l.created, l.deleted, l.cut, l.lost, len(l.refused), l.refused[:min(3, len(l.refused))])
}

// orphanGrace is short here: tests wait for it.
const orphanGrace = 4 * time.Second

// team is the namespace of all claims.
const team = "team"

// world holds a cluster with a client, for one test.
type world struct {
	*suite.World
	*WithT
	// fills reports whether the first build fills in the networks of Clusters.
	fills bool
}

func start(t *testing.T, options cluster.Options) *world {
	t.Helper()
	options.ClusterAPICRDs = true
	options.OrphanGrace = orphanGrace
	w := &world{World: suite.Start(t, options), WithT: newGomega(t), fills: options.ManagerBinary == ""}
	w.Namespace(team)
	return w
}

func newGomega(t *testing.T) *WithT {
	g := NewWithT(t)
	g.SetDefaultEventuallyTimeout(30 * time.Second)
	g.SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	return g
}

// agrees waits until all stored objects agree.
func (w *world) agrees() {
	w.Helper()
	begin := time.Now()
	w.Eventually(func() ([]string, error) { return w.wrong(w.Context(), nil) }).Should(BeEmpty())
	w.Logf("all agrees after %v", time.Since(begin).Round(time.Millisecond))
}

// serves creates claims and expects that they are served, with blocks that no other claim has.
func (w *world) serves(prefix string) {
	w.Helper()
	for i := range 30 {
		claim := build.Claim(team, fmt.Sprintf("%s-%d", prefix, i)).Pool(claimsPool).Length(int32(26 + i%7)).Obj()
		w.Created(claim, build.AddressClaim(team, claim.Name).Pool(hostsPool).Obj())
		w.Expect(claim.Spec.CIDR).NotTo(BeEmpty(), "%s is %s and says %+v", claim.Name, claim.Status.Phase, claim.Status.Conditions)
	}
	w.agrees()
}

// list calls List, and fails the test in no other way than by its error.
func (w *world) list(ctx context.Context, lists ...client.ObjectList) error {
	for _, l := range lists {
		if err := w.List(ctx, l); err != nil {
			return err
		}
	}
	return nil
}
