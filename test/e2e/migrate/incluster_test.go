package migrate

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/migrate"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	inClusterVersion = "ipam.cluster.x-k8s.io/v1alpha2"
	inClusterGroup   = "ipam.cluster.x-k8s.io"
	releaseAddress   = "ipam.cluster.x-k8s.io/ReleaseAddress"
	protectAddress   = "ipam.cluster.x-k8s.io/ProtectAddress"
	inUse            = "example.com/in-use"
)

// site holds the objects that are moved in the test of the in-cluster provider: a pool of the
// namespace site, whose claims belong to the Cluster c1 or to none, and a pool for all namespaces.
type site struct {
	*world
	provider *cluster.Process
	// backlog is how long the provider takes until it answers a new claim after all of its
	// claims have changed. It lists all addresses of a pool for each of them, so this grows
	// with the square of their number.
	backlog time.Duration
}

// newSite makes n claims with addresses, some of them by the provider itself.
func newSite(t *testing.T, n int) *site {
	s := &site{world: start(t)}
	suite.Must(t, s.InstallInCluster(t.Context()))
	var err error
	s.provider, err = s.NewInCluster()
	suite.Must(t, err)
	t.Cleanup(func() { suite.Must(t, s.provider.Kill()) }) // it may be busy
	_, err = s.Kubectl(t.Context(), "apply", "-f", "test/e2e/clusterctl/testdata/infrastructure-crds.yaml")
	suite.Must(t, err)
	s.Namespace("site")
	s.Namespace("other")
	s.Created(&clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "c1"},
		Spec: clusterv1.ClusterSpec{
			Paused:            new(false),
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.example.com", Kind: "PlayedCluster", Name: "c1"},
		},
	})
	machines := s.pool(inClusterVersion, "InClusterIPPool", "site", "machines", map[string]any{
		"addresses": []any{"10.0.0.10-10.0.63.250"}, "excludedAddresses": []any{"10.0.60.1"}, "prefix": int64(16), "gateway": "10.0.0.1",
	})
	shared := s.pool(inClusterVersion, "GlobalInClusterIPPool", "", "shared", map[string]any{
		"addresses": []any{"10.0.64.0/20"}, "prefix": int64(16), "gateway": "10.0.0.1",
	})
	suite.Must(t, s.provider.Start(t.Context()))
	for i := range 10 {
		s.Created(s.claim(fmt.Sprintf("made-%d", i)).Cluster("c1").Label("a", "b").OwnedBy(metav1.OwnerReference{APIVersion: clusterv1.GroupVersion.String(), Kind: "Cluster", Name: "c1", UID: s.clusterUID()}).Obj())
	}
	s.Created(s.claim("going").Cluster("c1").Finalizer(inUse).Obj())
	s.Await("the provider has handed out addresses", func(context.Context) bool { return len(s.held()) == 11 })
	suite.Must(t, s.provider.Stop())
	finalizers := [2]string{releaseAddress, protectAddress}
	s.handOut("site", machines, finalizers, addrs("m", "10.0.1.1", n*4/5))
	s.handOut("other", shared, finalizers, addrs("s", "10.0.64.1", n/5))
	suite.Must(t, s.provider.Start(t.Context())) // it reconciles all claims for a while
	s.backlog = s.answers("first", 30*time.Minute)
	t.Logf("the provider answers a claim among %d after %s", n, s.backlog.Round(time.Second))
	return s
}

// answers makes a claim for the old pool, and returns how long it took until the provider has
// answered it, at most the given time.
func (s *site) answers(name string, within time.Duration) time.Duration {
	s.Helper()
	patient := *s.World
	patient.Patience = within
	began := time.Now()
	s.Created(s.claim(name).Obj())
	(&world{World: &patient}).hasAddress(client.ObjectKey{Namespace: "site", Name: name})
	return time.Since(began)
}

func (s *site) clusterUID() types.UID {
	c := &clusterv1.Cluster{}
	suite.Must(s, s.Get(s.Context(), client.ObjectKey{Namespace: "site", Name: "c1"}, c))
	return c.UID
}

// claim begins a claim for the old pool of the namespace.
func (s *site) claim(name string) *build.AddressClaimBuilder {
	return build.AddressClaim("site", name).From(inClusterGroup, "InClusterIPPool", "machines")
}

// newClaims creates claims for the old pool until it is stopped, up to 300.
func (s *site) newClaims() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ctx.Err() == nil && i < 300; i++ {
			if err := s.Create(ctx, s.claim(fmt.Sprintf("new-%d", i)).Obj()); err != nil && ctx.Err() == nil {
				s.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func TestInCluster(t *testing.T) {
	n := size(t)
	s := newSite(t, n)
	s.witness()

	// A plan changes nothing, and reports the obstacles.
	s.refused(migrate.InCluster, migrate.Options{}, "Cluster site/c1")
	s.pauseCluster("site", "c1", true)
	s.Created(s.claim("late").Cluster("c1").Obj()) // has no address
	s.Deleted(s.claim("going").Obj())
	before := s.held()
	s.done(migrate.InCluster, migrate.Options{})

	// The provider runs, clients ask it for addresses, and the import is killed.
	stop := s.newClaims()
	s.interrupted(migrate.InCluster, migrate.Options{Action: migrate.Apply}, 6, 8*n)
	stop()
	maps.Copy(before, s.held()) // with the addresses that the provider has handed out until it was closed
	s.done(migrate.InCluster, migrate.Options{Action: migrate.Apply})
	s.keptAddresses(before)
	s.allFrom(v1alpha1.GroupVersion.Group, "") // the provider, which runs, may put its finalizer on them
	s.recorded()
	s.noJournals()

	// All continue: claims that waited are served, and one that is being deleted is released.
	s.pauseCluster("site", "c1", false)
	s.ready()
	s.keptAddresses(before)
	s.recorded()
	s.goes()
	delete(before, client.ObjectKey{Namespace: "site", Name: "going"})

	s.rolledBack(before, n)

	// The provider is stopped.
	suite.Must(t, s.provider.Kill())
	s.pauseCluster("site", "c1", true)
	before = s.held()
	s.done(migrate.InCluster, migrate.Options{Action: migrate.Apply})
	s.keptAddresses(before)
	s.allFrom(v1alpha1.GroupVersion.Group, releaseAddress)
	s.recorded()
	if out := s.done(migrate.InCluster, migrate.Options{Action: migrate.Apply}); strings.Contains(out, "Moved") {
		t.Errorf("once more: %s", out)
	}
}

// goes removes the finalizer of the claim that is being deleted, and waits until its address is
// released.
func (s *site) goes() {
	s.Helper()
	claim := &ipamv1.IPAddressClaim{}
	suite.Must(s, s.Get(s.Context(), client.ObjectKey{Namespace: "site", Name: "going"}, claim))
	if claim.DeletionTimestamp.IsZero() || claim.Status.AddressRef.Name == "" {
		s.Fatalf("the claim that was being deleted is %v", claim)
	}
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, inUse)
	suite.Must(s, s.Patch(s.Context(), claim, client.MergeFrom(before)))
	s.Gone(claim, &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "going"}})
}

// rolledBack rolls the import back, which is refused while there is a new claim.
func (s *site) rolledBack(before map[client.ObjectKey]string, n int) {
	s.Helper()
	s.pauseCluster("site", "c1", true)
	fresh := build.AddressClaim("other", "fresh").Pool("shared").Obj()
	s.Created(fresh)
	s.ready()
	s.refused(migrate.InCluster, migrate.Options{Action: migrate.Rollback}, "IPAddressClaim other/fresh")
	s.keptAddresses(before)
	s.allFrom(v1alpha1.GroupVersion.Group, "")
	// The provider puts its finalizer on all claims of a Cluster whose pause ends, also of other
	// pools. None of them hangs for that.
	late := s.claim("late").Obj()
	suite.Must(s, s.Get(s.Context(), client.ObjectKeyFromObject(late), late))
	if !controllerutil.ContainsFinalizer(late, releaseAddress) {
		s.Logf("the provider did not put its finalizer on %s", late.Name)
	}
	s.pauseCluster("site", "c1", false)
	s.Deleted(fresh, late)
	s.Gone(fresh, late)
	s.pauseCluster("site", "c1", true)
	s.interrupted(migrate.InCluster, migrate.Options{Action: migrate.Rollback}, 4, 8*n)
	s.done(migrate.InCluster, migrate.Options{Action: migrate.Rollback})
	s.keptAddresses(before)
	s.allFrom(inClusterGroup, v1alpha1.FinalizerRelease)
	s.noJournals()
	s.Gone(&v1alpha1.LocalIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: "site", Name: "machines"}}, &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "shared"}})
	s.pauseCluster("site", "c1", false)
	// The provider answers again, with all claims before this one as at the beginning. Other
	// processes may have changed the speed of the machine since.
	took := s.answers("again", s.Patience+5*s.backlog)
	s.Logf("the provider answers again after %s", took.Round(time.Second))
	s.keptAddresses(before)
}
