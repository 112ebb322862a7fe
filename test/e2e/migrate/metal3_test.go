package migrate

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/migrate"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

const (
	metal3Version   = "ipam.metal3.io/v1alpha1"
	metal3Group     = "ipam.metal3.io"
	metal3Claim     = "ipam.metal3.io/ipaddressclaim"
	metal3Address   = "ipam.metal3.io/ipaddress"
	metal3PoolName  = "hosts"
	metal3Namespace = "metal"
	inUse           = "example.com/in-use"
)

// playedMetal3 does what Metal3's manager does for the pool, as far as it matters here: it gives an
// address to every IPAddressClaim that names a pool of that name, of any API group; it hands out
// the first one of spec.pools that no IPAddress of the pool has, and that is not preallocated to a
// claim of another name; and it releases the address of a claim that is being deleted, when only its
// own finalizer is left. A pause of the pool does not stop it.
type playedMetal3 struct{ *world }

func (m playedMetal3) start() (stop func()) {
	ctx, cancel := context.WithCancel(m.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if err := m.reconcile(ctx); err != nil && ctx.Err() == nil {
				m.Logf("Metal3: %v", err) // another writer was faster, as a rule
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func (m playedMetal3) reconcile(ctx context.Context) error {
	pool := &unstructured.Unstructured{}
	pool.SetGroupVersionKind(schema.FromAPIVersionAndKind(metal3Version, "IPPool"))
	if err := m.Get(ctx, client.ObjectKey{Namespace: metal3Namespace, Name: metal3PoolName}, pool); err != nil {
		return err
	}
	addresses, claims, own := &ipamv1.IPAddressList{}, &ipamv1.IPAddressClaimList{}, &unstructured.UnstructuredList{}
	own.SetGroupVersionKind(schema.FromAPIVersionAndKind(metal3Version, "IPAddressList"))
	for _, list := range []client.ObjectList{addresses, claims, own} {
		if err := m.List(ctx, list, client.InNamespace(metal3Namespace)); err != nil {
			return err
		}
	}
	taken := map[string]string{}
	preallocated, _, _ := unstructured.NestedStringMap(pool.Object, "spec", "preAllocations")
	for claim, address := range preallocated {
		taken[address] = claim
	}
	for _, address := range own.Items {
		text, _, _ := unstructured.NestedString(address.Object, "spec", "address")
		taken[text] = "-"
	}
	byClaim := map[string]*ipamv1.IPAddress{}
	for i := range addresses.Items {
		if address := &addresses.Items[i]; address.Spec.PoolRef.Name == metal3PoolName {
			taken[address.Spec.Address], byClaim[address.Spec.ClaimRef.Name] = "-", address
		}
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		if claim.Spec.PoolRef.Name != metal3PoolName {
			continue
		}
		if err := m.reconcileClaim(ctx, pool, claim, byClaim[claim.Name], taken); err != nil {
			return err
		}
	}
	return nil
}

func (m playedMetal3) reconcileClaim(ctx context.Context, pool *unstructured.Unstructured, claim *ipamv1.IPAddressClaim, address *ipamv1.IPAddress, taken map[string]string) error {
	before := claim.DeepCopy()
	if !claim.DeletionTimestamp.IsZero() {
		if controllerutil.ContainsFinalizer(claim, inUse) {
			return nil
		}
		if address != nil {
			was := address.DeepCopy()
			controllerutil.RemoveFinalizer(address, metal3Address)
			if err := m.Patch(ctx, address, client.MergeFrom(was)); err != nil {
				return err
			}
			if err := client.IgnoreNotFound(m.Delete(ctx, address)); err != nil {
				return err
			}
		}
		controllerutil.RemoveFinalizer(claim, metal3Claim)
		return m.Patch(ctx, claim, client.MergeFrom(before))
	}
	if claim.Status.AddressRef.Name != "" {
		return nil
	}
	if address == nil {
		addr, ok := free(pool, claim.Name, taken)
		if !ok {
			return nil
		}
		address = addressFor(claim, pool, addr)
		if err := m.Create(ctx, address); err != nil {
			return err
		}
		taken[addr] = "-"
	}
	controllerutil.AddFinalizer(claim, metal3Claim)
	if err := m.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return err
	}
	before = claim.DeepCopy()
	claim.Status.AddressRef.Name = address.Name
	return m.Status().Patch(ctx, claim, client.MergeFrom(before))
}

// free returns the first address of a pool that a claim may have.
func free(pool *unstructured.Unstructured, claim string, taken map[string]string) (string, bool) {
	parts, _, _ := unstructured.NestedSlice(pool.Object, "spec", "pools")
	for _, part := range parts {
		fields := part.(map[string]any)
		first, last := netip.MustParseAddr(fields["start"].(string)), netip.MustParseAddr(fields["end"].(string))
		for addr := first; !last.Less(addr); addr = addr.Next() {
			if of, isTaken := taken[addr.String()]; !isTaken || of == claim {
				return addr.String(), true
			}
		}
	}
	return "", false
}

// oldClaim begins a claim for Metal3's pool.
func oldClaim(name string) *build.AddressClaimBuilder {
	return build.AddressClaim(metal3Namespace, name).From(metal3Group, "IPPool", metal3PoolName)
}

// newClaims creates claims for Metal3's pool until it is stopped, up to 100.
func (w *world) newClaims() (stop func()) {
	ctx, cancel := context.WithCancel(w.Context())
	var done sync.WaitGroup
	done.Go(func() {
		for i := 0; ctx.Err() == nil && i < 100; i++ {
			if err := w.Create(ctx, oldClaim(fmt.Sprintf("new-%d", i)).Obj()); err != nil && ctx.Err() == nil {
				w.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() { cancel(); done.Wait() }
}

func TestMetal3(t *testing.T) {
	n := size(t) / 2
	w := start(t)
	suite.Must(t, w.InstallMetal3(t.Context()))
	_, err := w.Kubectl(t.Context(), "apply", "-f", "test/e2e/clusterctl/testdata/infrastructure-crds.yaml")
	suite.Must(t, err)
	w.Namespace(metal3Namespace)
	w.Created(&clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: metal3Namespace, Name: "c1"},
		Spec: clusterv1.ClusterSpec{
			Paused:            new(false),
			InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.example.com", Kind: "PlayedCluster", Name: "c1"},
		},
	})
	pool := w.metal3Pool(metal3Namespace, metal3PoolName, "10.0.0.10", "10.0.63.250", map[string]any{"special": "10.0.63.7"})
	w.handOut(pool, addrs("m", "10.0.0.10", n))
	w.ownMetal3(pool)
	stop := playedMetal3{w}.start()
	defer func() { stop() }()
	w.witness()
	w.Created(oldClaim("made").Cluster("c1").Obj(), oldClaim("going").Finalizer(inUse).Obj())
	w.hasAddress(client.ObjectKey{Namespace: metal3Namespace, Name: "made"})
	w.hasAddress(client.ObjectKey{Namespace: metal3Namespace, Name: "going"})

	// A plan changes nothing, and reports the obstacles.
	w.refused(migrate.Metal3, migrate.Options{}, "Cluster metal/c1")
	w.pauseCluster(metal3Namespace, "c1", true)
	w.Deleted(oldClaim("going").Obj())
	before := w.held()
	w.done(migrate.Metal3, migrate.Options{})

	// Clients ask Metal3 for addresses, and the import is killed.
	stopClaims := w.newClaims()
	w.interrupted(migrate.Metal3, migrate.Options{Action: migrate.Apply}, 4, 8*n)
	stopClaims()
	maps.Copy(before, w.held()) // with the addresses that Metal3 has handed out until its pool was closed
	if out := w.done(migrate.Metal3, migrate.Options{Action: migrate.Apply}); !strings.Contains(out, "2 IPClaims of ipam.metal3.io") {
		t.Errorf("Metal3's own claims are not listed:\n%s", out)
	}
	w.keptAddresses(before)
	w.allFrom(v1alpha1.GroupVersion.Group, metal3Claim)
	w.recorded()
	w.noJournals()
	w.pauseCluster(metal3Namespace, "c1", false)
	w.ready()
	w.keptAddresses(before)
	w.goes()
	delete(before, client.ObjectKey{Namespace: metal3Namespace, Name: "going"})

	// Neither side hands out the addresses of Metal3's own claims, nor the preallocated ones.
	local := &v1alpha1.LocalIPPool{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: metal3Namespace, Name: "hosts-cadastre"}, local))
	if got := fmt.Sprint(local.Spec.Reserved); got != "[10.0.63.7 10.0.63.100/31]" {
		t.Errorf("reserved is %s", got)
	}
	// Metal3 hands out nothing any more, also of the addresses of the moved claims.
	w.Created(oldClaim("old").Obj())
	w.Created(build.AddressClaim(metal3Namespace, "fresh").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "hosts-cadastre").Obj())
	fresh := client.ObjectKey{Namespace: metal3Namespace, Name: "fresh"}
	w.hasAddress(fresh) // of the new pool
	if got := w.held()[client.ObjectKey{Namespace: metal3Namespace, Name: "old"}]; got != "" {
		t.Errorf("Metal3 has handed out %s of a pool that is closed", got)
	}
	w.keptAddresses(before)

	// Its own claims go: their addresses are free, once the import is run again.
	w.pauseCluster(metal3Namespace, "c1", true)
	w.releaseOwnMetal3()
	w.done(migrate.Metal3, migrate.Options{Action: migrate.Apply})
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(local), local))
	if got := fmt.Sprint(local.Spec.Reserved); got != "[10.0.63.7]" {
		t.Errorf("reserved is %s, after Metal3's own claims have gone", got)
	}
	w.rolledBackMetal3(before, fresh, 8*n)
	w.poolsOfOneSubnet()
}

// poolsOfOneSubnet imports two pools whose ranges have no borders of CIDR blocks. One has given out an
// address outside of its range.
func (w *world) poolsOfOneSubnet() {
	w.Helper()
	const namespace = "lab"
	w.Namespace(namespace)
	for name, span := range map[string][2]string{"nodes": {"10.0.200.10", "10.0.200.50"}, "vips": {"10.0.200.51", "10.0.200.99"}} {
		pool := w.metal3Pool(namespace, name, span[0], span[1], nil)
		w.handOut(pool, addrs(name, span[0], 3))
		if name == "vips" {
			w.handOut(pool, addrs("outside", "10.0.200.200", 1))
		}
	}
	before := w.held()
	w.done(migrate.Metal3, migrate.Options{Namespace: namespace, Action: migrate.Apply})
	w.keptAddresses(before)
	claim := build.AddressClaim(namespace, "fresh").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "vips-cadastre").Obj()
	w.Created(claim)
	key := client.ObjectKeyFromObject(claim)
	w.hasAddress(key)
	if got := w.held()[key]; got != "10.0.200.54" {
		w.Errorf("a new claim got %s, want the first free address of its pool", got)
	}
	w.Deleted(claim)
	w.Gone(claim)
	w.done(migrate.Metal3, migrate.Options{Namespace: namespace, Action: migrate.Rollback})
	w.keptAddresses(before)
}

// goes removes the finalizer of the claim that is being deleted, and waits until its address is
// released.
func (w *world) goes() {
	w.Helper()
	claim := &ipamv1.IPAddressClaim{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Namespace: metal3Namespace, Name: "going"}, claim))
	if claim.DeletionTimestamp.IsZero() || claim.Status.AddressRef.Name == "" {
		w.Fatalf("the claim that was being deleted is %v", claim)
	}
	before := claim.DeepCopy()
	controllerutil.RemoveFinalizer(claim, inUse)
	suite.Must(w, w.Patch(w.Context(), claim, client.MergeFrom(before)))
	w.Gone(claim, &ipamv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Namespace: metal3Namespace, Name: "going"}})
}

// ownMetal3 makes two claims of Metal3's own kind, with addresses.
func (w *world) ownMetal3(pool *unstructured.Unstructured) {
	for i := range 2 {
		name := fmt.Sprintf("own-%d", i)
		w.metal3Object("IPClaim", metal3Namespace, name, map[string]any{"pool": map[string]any{"name": pool.GetName()}})
		w.metal3Object("IPAddress", metal3Namespace, name, map[string]any{
			"pool": map[string]any{"name": pool.GetName()}, "claim": map[string]any{"name": name}, "address": fmt.Sprintf("10.0.63.10%d", i),
		})
	}
}

func (w *world) releaseOwnMetal3() {
	for _, kind := range []string{"IPAddress", "IPClaim"} {
		for i := range 2 {
			obj := &unstructured.Unstructured{}
			obj.SetGroupVersionKind(schema.FromAPIVersionAndKind(metal3Version, kind))
			obj.SetNamespace(metal3Namespace)
			obj.SetName(fmt.Sprintf("own-%d", i))
			w.Deleted(obj)
		}
	}
}

// rolledBackMetal3 rolls the import back, which is refused while there is a new claim.
func (w *world) rolledBackMetal3(before map[client.ObjectKey]string, fresh client.ObjectKey, writes int) {
	w.Helper()
	w.refused(migrate.Metal3, migrate.Options{Action: migrate.Rollback}, "IPAddressClaim "+fresh.String())
	w.keptAddresses(before)
	claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: fresh.Namespace, Name: fresh.Name}}
	w.Deleted(claim)
	w.Gone(claim)
	w.interrupted(migrate.Metal3, migrate.Options{Action: migrate.Rollback}, 4, writes)
	w.done(migrate.Metal3, migrate.Options{Action: migrate.Rollback})
	w.keptAddresses(before)
	w.allFrom(metal3Group, v1alpha1.FinalizerRelease)
	w.noJournals()
	w.Gone(&v1alpha1.LocalIPPool{ObjectMeta: metav1.ObjectMeta{Namespace: metal3Namespace, Name: "hosts-cadastre"}})
	w.hasAddress(client.ObjectKey{Namespace: metal3Namespace, Name: "old"}) // of Metal3's, again
	w.keptAddresses(before)
}
