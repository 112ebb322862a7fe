// Package hubs shows that no address has two holders in any of the clusters that get ranges from one hub,
// whatever fails: three control planes with the operator, a hub and two clusters with two processes of manager
// hub-provisioner each. Clients in both clusters compete for the ranges of the hub, while faults are drawn by
// a seed: links are cut, processes are killed and paused, and the hub is restored from an older snapshot by
// its runbook. The witness of the torture judges each cluster, and a judge all of them together.
package hubs

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/balancer"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/provisioner/hub"
	"github.com/cadastre-dev/cadastre/test/chaos/torture/witness"
)

// The classes of a cluster: leased gives its ranges back, spared keeps room.
const leased, spared = "leased", "spared"

// spoke holds a cluster that gets ranges from the hub.
type spoke struct {
	*suite.World
	name, uid    string
	link         *balancer.Balancer // to the hub
	hubAddress   string
	provisioners []*cluster.Process
	witness      *witness.Witness

	served, unserved atomic.Int64 // claims
}

// world holds all control planes of a test.
type world struct {
	*testing.T
	hub    *suite.World
	spokes []*spoke
	judge  *judge
	random *rand.Rand
	figures
}

// namespace of the claims of the cluster in the hub.
func (s *spoke) namespace() string { return "cluster-" + s.name }

// start starts the hub, which has one range, and the clusters.
func start(t *testing.T, seed uint64, names ...string) *world {
	t.Helper()
	w := &world{T: t, random: rand.New(rand.NewPCG(seed, 0)), figures: figures{Seed: seed, Faults: map[string]int{}}}
	w.judge = &judge{world: w, held: map[*spoke]map[string]*witness.Object{}}
	options := cluster.Options{Managers: suite.Sized(2, 1), OrphanGrace: 5 * time.Second}
	w.hub = suite.Start(t, options)
	w.hub.Patience = 2 * time.Minute
	w.hub.Created(build.Class("ranges").Obj())
	w.hub.Pools(build.Pool("a").CIDR("10.64.0.0/26").Classes("ranges").Obj())
	for _, name := range names {
		w.spokes = append(w.spokes, w.startSpoke(name, options))
	}
	w.judge.follow()
	return w
}

func (w *world) startSpoke(name string, options cluster.Options) *spoke {
	w.Helper()
	s := &spoke{World: suite.Start(w, options), name: name, witness: witness.New(func(time.Time) bool { return true })}
	s.Patience = w.hub.Patience
	w.hub.Namespace(s.namespace())
	system := &corev1.Namespace{}
	suite.Must(w, s.Get(w.Context(), client.ObjectKey{Name: "kube-system"}, system))
	s.uid = string(system.UID)

	config := w.hub.Config()
	address, err := url.Parse(config.Host)
	suite.Must(w, err)
	s.hubAddress = address.Host
	s.link, err = balancer.Start("127.0.0.1:0", s.hubAddress)
	suite.Must(w, err)
	w.Cleanup(func() { suite.Must(w, s.link.Stop()) })
	config.Host = "https://" + s.link.Addr().String()
	credentials := filepath.Join(w.TempDir(), "hub")
	suite.Must(w, cluster.WriteKubeconfig(credentials, config, "hub", s.namespace()))

	s.Created(newClass(leased, 28, 26, 0, "ranges"))
	for i := range 2 {
		p, err := s.NewHubProvisioner("provisioner-"+strconv.Itoa(i), "--hub-timeout=5s", "--resync=20s",
			"--hub-kubeconfig="+credentials, "--hub-namespace="+s.namespace(), "--cluster-name="+name)
		suite.Must(w, err)
		s.provisioners = append(s.provisioners, p)
		suite.Must(w, p.Start(w.Context()))
		w.Cleanup(func() { suite.Must(w, p.Stop()) })
	}
	return s
}

// newClass returns a class whose pools of a length are ranges of a class of the hub.
func newClass(name string, length int32, poolLength, spare int, hubClass string) *v1alpha1.IPClass {
	return build.Class(name).Length(length).With(func(spec *v1alpha1.IPClassSpec) {
		spec.Provisioner = "ipam.cadastre.dev/hub"
		spec.Parameters = map[string]string{"poolPrefixLength": strconv.Itoa(poolLength), "releaseAfter": "1s", "spare": strconv.Itoa(spare), hub.ParameterClass: hubClass}
	}).Obj()
}

// between returns a random duration.
func between(random *rand.Rand, from, to time.Duration) time.Duration {
	return from + time.Duration(random.Int64N(int64(to-from)))
}

// pass lets time pass for clients and faults, unless ctx is done.
func pass(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}

// load adds five ranges to the hub, and runs clients in each cluster until stop is called. Now and then all of a
// cluster pause for longer than an empty pool is kept, so that its ranges are returned.
func (w *world) load(clients int) (stop func()) {
	w.Helper()
	w.hub.Pools(build.Pool("b").CIDR("10.64.1.0/24").Classes("ranges").Obj(), build.Pool("c").CIDR("10.64.2.0/26").Classes("ranges").Obj())
	ctx, cancel := context.WithCancel(w.Context())
	var working sync.WaitGroup
	begin := time.Now()
	for i, s := range w.spokes {
		s.Created(newClass(spared, 32, 26, 16, "ranges"))
		for n := range clients {
			random := rand.New(rand.NewPCG(w.Seed, uint64(1+i*clients+n)))
			working.Go(func() {
				for serial := 0; ctx.Err() == nil; serial++ {
					if (int(time.Since(begin)/(12*time.Second))+i)%3 == 0 {
						pass(ctx, 100*time.Millisecond)
						continue
					}
					s.use(ctx, random, fmt.Sprintf("client-%d-%d", n, serial))
				}
			})
		}
	}
	return func() { cancel(); working.Wait() }
}

// use creates a claim, holds its block for a while, and deletes it. Errors are faults that can be felt.
func (s *spoke) use(ctx context.Context, random *rand.Rand, name string) {
	class, length := leased, int32(28)
	if random.IntN(3) == 0 {
		class, length = spared, 32
	}
	claim := build.Claim("default", name).Class(class).Length(length).Obj()
	if s.Create(ctx, claim) != nil {
		pass(ctx, 200*time.Millisecond)
		return
	}
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 4*time.Second, true, func(ctx context.Context) (bool, error) {
		return claim.Status.Phase == v1alpha1.ClaimBound || s.Get(ctx, client.ObjectKeyFromObject(claim), claim) == nil && claim.Status.Phase == v1alpha1.ClaimBound, nil
	})
	if err != nil {
		s.unserved.Add(1)
	} else {
		s.served.Add(1)
		pass(ctx, between(random, 100*time.Millisecond, 2*time.Second))
	}
	for ctx.Err() == nil && client.IgnoreNotFound(s.Delete(ctx, claim)) != nil {
		pass(ctx, 200*time.Millisecond)
	}
}

// giveBack deletes all claims, and the class that keeps room, and waits until every range is returned and
// no record is left.
func (w *world) giveBack() {
	w.Helper()
	for _, s := range w.spokes {
		s.Await("the deletion of all claims", func(ctx context.Context) bool {
			return s.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace("default")) == nil
		})
		s.Deleted(build.Class(spared).Obj())
	}
	for _, s := range w.spokes {
		s.Await("the return of all ranges", func(ctx context.Context) bool { return len(w.left(ctx, s)) == 0 })
		s.Await("all is quiet", func(context.Context) bool { return len(s.witness.Unsettled()) == 0 })
	}
}

// left returns the objects that must be gone when no cluster needs an address.
func (w *world) left(ctx context.Context, s *spoke) (found []string) {
	claims, pools, keys, records := &v1alpha1.IPClaimList{}, &v1alpha1.IPPoolList{}, &corev1.ConfigMap{}, &v1alpha1.IPAllocationList{}
	suite.Must(w, w.hub.List(ctx, claims))
	suite.Must(w, s.List(ctx, pools))
	suite.Must(w, client.IgnoreNotFound(s.Get(ctx, keysOf, keys)))
	suite.Must(w, s.List(ctx, records))
	for _, c := range claims.Items {
		found = append(found, "claim in the hub: "+c.Name)
	}
	for _, p := range pools.Items {
		found = append(found, "pool: "+p.Name)
	}
	for key := range keys.Data {
		found = append(found, "key: "+key)
	}
	for _, r := range records.Items {
		found = append(found, "record: "+r.Name)
	}
	suite.Must(w, w.hub.List(ctx, records))
	for _, r := range records.Items {
		if r.Spec.ClaimRef.Kind != string(v1alpha1.PoolKindIPPool) {
			found = append(found, "record in the hub: "+r.Name)
		}
	}
	return found
}

// keysOf names the ConfigMap with the keys of a cluster.
var keysOf = client.ObjectKey{Namespace: cluster.Namespace, Name: "provisioner-ipam.cadastre.dev.hub"}

// poolOf returns the pool of the cluster that a claim of the hub is for.
func (s *spoke) poolOf(claim v1alpha1.IPClaim) string {
	return strings.TrimPrefix(claim.Name, s.uid+".")
}
