package incluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// site is a world in which the in-cluster provider and Cadastre serve the same pool in turn.
type site struct {
	*world
	provider *cluster.Process
	random   *rand.Rand
}

// startSite starts the provider, with a pool, and two managers with some arguments that serve none of its
// pools.
func startSite(t *testing.T, seed uint64, args ...string) *site {
	w := &world{suite.Start(t, cluster.Options{ClusterAPI: true, ControllerManager: true, Managers: 2, ManagerArgs: args})}
	w.Patience = 5 * time.Minute
	w.Namespace("site")
	suite.Must(w, w.InstallInCluster(t.Context()))
	provider, err := w.NewInCluster()
	suite.Must(w, err)
	t.Cleanup(func() { suite.Must(t, provider.Kill()) })
	suite.Must(w, provider.Start(t.Context()))
	w.Created(pool("machines", 16, "10.0.1.0-10.0.40.255"))
	return &site{world: w, provider: provider, random: rand.New(rand.NewPCG(seed, 0))}
}

// toCadastre stops the provider, sometimes in the middle of its work, and has Cadastre serve its pools.
func (s *site) toCadastre() {
	s.Helper()
	if s.random.IntN(2) == 0 {
		suite.Must(s, s.provider.Kill())
	} else {
		suite.Must(s, s.provider.Stop())
	}
	suite.Must(s, s.Install(s.Context(), "config/in-cluster-pools"))
	for _, m := range s.Managers {
		m.Args = append(m.Args, "--in-cluster-pools")
		s.restart(m)
	}
}

// toProvider has Cadastre serve no pools of the provider, and starts that.
func (s *site) toProvider() {
	s.Helper()
	for _, m := range s.Managers {
		m.Args = m.Args[:len(m.Args)-1]
		s.restart(m)
	}
	suite.Must(s, s.InstallInCluster(s.Context()))
	suite.Must(s, s.provider.Start(s.Context()))
}

func (s *site) restart(m *cluster.Manager) {
	s.Helper()
	if s.random.IntN(2) == 0 {
		suite.Must(s, m.Kill())
	} else {
		suite.Must(s, m.Stop())
	}
	suite.Must(s, m.Start(s.Context()))
}

// load creates and deletes claims until it is stopped, and then waits until each has its address.
func (s *site) load(round int) (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var made []*ipamv1.IPAddressClaim
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			next := claim(fmt.Sprintf("load-%d-%d", round, i), "machines")
			if err := s.Create(ctx, next); err != nil && ctx.Err() == nil {
				s.Error(err)
			}
			if made = append(made, next); len(made) > 30 {
				if err := s.Delete(ctx, made[0]); err != nil && ctx.Err() == nil {
					s.Error(err)
				}
				made = made[1:]
			}
		}
	})
	return func() {
		s.Helper()
		cancel()
		done.Wait()
		s.served("all claims have their addresses")
	}
}

// served waits until each claim that is not being deleted has its address, and none is left that is.
func (s *site) served(what string) {
	s.Helper()
	s.Await(what, func(ctx context.Context) bool {
		claims := &ipamv1.IPAddressClaimList{}
		if s.List(ctx, claims, client.InNamespace("site")) != nil {
			return false
		}
		for _, c := range claims.Items {
			if c.Status.AddressRef.Name == "" || c.DeletionTimestamp != nil {
				return false
			}
		}
		return true
	})
}

// addresses returns the IPAddresses by name, and fails the test if two have the same address.
func (s *site) addresses() map[string]ipamv1.IPAddress {
	s.Helper()
	list := &ipamv1.IPAddressList{}
	suite.Must(s, s.List(s.Context(), list, client.InNamespace("site")))
	byName, holders := map[string]ipamv1.IPAddress{}, map[string]string{}
	for _, address := range list.Items {
		if other := holders[address.Spec.Address]; other != "" {
			s.Errorf("%s belongs to %s and to %s", address.Spec.Address, other, address.Name)
		}
		holders[address.Spec.Address] = address.Name
		address.ManagedFields, address.ResourceVersion = nil, ""
		byName[address.Name] = address
	}
	return byName
}

// keeps fails the test unless all IPAddresses of before that still exist are as they were. The provider
// writes owners in the version of the API that it uses, which is ignored if it has run since.
func (s *site) keeps(before map[string]ipamv1.IPAddress, fixed int, options ...cmp.Option) {
	s.Helper()
	now := s.addresses()
	for name, address := range before {
		current, ok := now[name]
		if ok && current.UID == address.UID {
			if diff := cmp.Diff(address, current, options...); diff != "" {
				s.Fatalf("IPAddress %s has changed:\n%s", name, diff)
			}
		}
	}
	for i := range fixed {
		if name := fmt.Sprintf("fixed-%d", i); now[name].UID != before[name].UID {
			s.Fatalf("IPAddress %s is not the same", name)
		}
	}
}

// TestMoveOver has the in-cluster provider and Cadastre serve the same pool in turn, while claims come and
// go: no IPAddress changes, and none is handed out twice.
func TestMoveOver(t *testing.T) {
	seed := suite.Seed(t, "SEED", 1)
	n, rounds := suite.Sized(1000, 100), suite.Sized(10, 2)
	t.Logf("SEED=%d, %d addresses, over and back %d times", seed, n, rounds)
	s := startSite(t, seed, "--orphan-grace=5s")
	s.createAll("fixed", n)
	s.served("the provider has handed out addresses")
	for round := range rounds {
		began := time.Now()
		stop := s.load(round)
		before := s.addresses()
		s.toCadastre()
		stop()
		s.keeps(before, n)
		s.prints("pools", "InClusterIPPool site/machines")
		s.agrees()
		there := time.Now()
		stop = s.load(rounds + round)
		before = s.addresses()
		s.toProvider()
		stop()
		s.keeps(before, n, cmpopts.IgnoreFields(metav1.OwnerReference{}, "APIVersion"))
		s.agrees() // what the provider has handed out since is not recorded
		t.Logf("round %d: over %s, back %s", round, there.Sub(began).Round(time.Second), time.Since(there).Round(time.Second))
	}
}

// createAll creates claims at the same time.
func (w *world) createAll(prefix string, n int) {
	w.Helper()
	group, ctx := errgroup.WithContext(w.Context())
	group.SetLimit(32)
	for i := range n {
		group.Go(func() error { return w.Create(ctx, claim(fmt.Sprintf("%s-%d", prefix, i), "machines")) })
	}
	suite.Must(w, group.Wait())
}

// TestRate measures how long the in-cluster provider, and then Cadastre, takes for 300 claims at once.
func TestRate(t *testing.T) {
	n := suite.Sized(300, 50)
	s := startSite(t, 1)
	measure := func(prefix string) time.Duration {
		s.createAll(prefix+"-warm", 1)
		s.served("the first claim is served")
		began := time.Now()
		s.createAll(prefix, n)
		s.served("all claims are served")
		took := time.Since(began)
		suite.Must(s, s.DeleteAllOf(t.Context(), &ipamv1.IPAddressClaim{}, client.InNamespace("site")))
		s.Await("the claims are gone", func(context.Context) bool { return len(s.addresses()) == 0 })
		return took
	}
	var sum struct{ theirs, ours time.Duration }
	for range suite.Sized(3, 1) {
		theirs := measure("theirs")
		s.toCadastre()
		ours := measure("ours")
		s.toProvider()
		t.Logf("%d claims at once: the provider %.0f/s, Cadastre %.0f/s, %.1f times as many", n, rate(n, theirs), rate(n, ours), theirs.Seconds()/ours.Seconds())
		sum.theirs, sum.ours = sum.theirs+theirs, sum.ours+ours
	}
	if sum.ours*2 > sum.theirs && !testing.Short() {
		t.Errorf("Cadastre takes %s, more than half of the provider's %s", sum.ours, sum.theirs)
	}
}

func rate(n int, took time.Duration) float64 { return float64(n) / took.Seconds() }
