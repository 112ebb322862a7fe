package migrate

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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
)

// playedMetal3 does what Metal3's manager does for the pool, as far as it matters here: it gives an
// address to every IPAddressClaim that names a pool of that name, of any API group; it hands out
// the first one of spec.pools that no IPAddress of the pool has, and that is not preallocated to a
// claim of another name; and it releases the address of a claim that is being deleted. A pause of
// the pool does not stop it.
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
		address = addressFor(claim, pool, metal3PoolName+"-"+strings.ReplaceAll(addr, ".", "-"), addr, metal3Address)
		address.Spec.PoolRef = ipamv1.IPPoolReference{APIGroup: metal3Group, Kind: "IPPool", Name: pool.GetName()} // the claim may name another group
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

func TestMetal3(t *testing.T) {
	n := size(t) / 2
	w := start(t)
	suite.Must(t, w.InstallMetal3(t.Context()))
	w.Namespace(metal3Namespace)
	pool := w.pool(metal3Version, "IPPool", metal3Namespace, metal3PoolName, map[string]any{
		"namePrefix": metal3PoolName, "prefix": int64(16), "gateway": "10.0.0.1",
		"pools":          []any{map[string]any{"start": "10.0.0.10", "end": "10.0.63.250"}},
		"preAllocations": map[string]any{"special": "10.0.63.7"},
	})
	w.handOut(metal3Namespace, pool, [2]string{metal3Claim, metal3Address}, addrs("m", "10.0.0.10", n))
	w.ownMetal3(pool)
	stop := playedMetal3{w}.start()
	defer func() { stop() }()
	w.witness()
	w.Created(build.AddressClaim(metal3Namespace, "made").From(metal3Group, "IPPool", metal3PoolName).Obj())
	made := client.ObjectKey{Namespace: metal3Namespace, Name: "made"}
	w.hasAddress(made)
	before := w.held()

	w.interrupted(migrate.Metal3, migrate.Options{Action: migrate.Apply}, 4, 8*n)
	if out := w.done(migrate.Metal3, migrate.Options{Action: migrate.Apply}); !strings.Contains(out, "2 IPClaims of ipam.metal3.io") {
		t.Errorf("Metal3's own claims are not listed:\n%s", out)
	}
	w.keptAddresses(before)
	w.allFrom(v1alpha1.GroupVersion.Group, metal3Claim)
	w.recorded()
	w.ready()

	// Neither side hands out the addresses of Metal3's own claims, nor the preallocated ones.
	local := &v1alpha1.LocalIPPool{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: metal3Namespace, Name: "hosts-cadastre"}, local))
	if got := fmt.Sprint(local.Spec.Reserved); got != "[10.0.63.7 10.0.63.100/31]" {
		t.Errorf("reserved is %s", got)
	}
	// Metal3 hands out nothing any more, also of the addresses of the moved claims.
	w.Created(build.AddressClaim(metal3Namespace, "old").From(metal3Group, "IPPool", metal3PoolName).Obj())
	w.Created(build.AddressClaim(metal3Namespace, "new").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "hosts-cadastre").Obj())
	fresh := client.ObjectKey{Namespace: metal3Namespace, Name: "new"}
	w.hasAddress(fresh) // of the new pool
	if got := w.held()[client.ObjectKey{Namespace: metal3Namespace, Name: "old"}]; got != "" {
		t.Errorf("Metal3 has handed out %s of a pool that is closed", got)
	}
	w.keptAddresses(before)

	// Its own claims go: their addresses are free, once the import is run again.
	w.releaseOwnMetal3()
	w.done(migrate.Metal3, migrate.Options{Action: migrate.Apply})
	suite.Must(t, w.Get(t.Context(), client.ObjectKeyFromObject(local), local))
	if got := fmt.Sprint(local.Spec.Reserved); got != "[10.0.63.7]" {
		t.Errorf("reserved is %s, after Metal3's own claims have gone", got)
	}
	w.rolledBackMetal3(before, fresh)
}

// ownMetal3 makes two claims of Metal3's own kind, with addresses.
func (w *world) ownMetal3(pool *unstructured.Unstructured) {
	for i := range 2 {
		name := fmt.Sprintf("own-%d", i)
		w.pool(metal3Version, "IPClaim", metal3Namespace, name, map[string]any{"pool": map[string]any{"name": pool.GetName()}})
		w.pool(metal3Version, "IPAddress", metal3Namespace, name, map[string]any{
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

func (w *world) rolledBackMetal3(before map[client.ObjectKey]string, fresh client.ObjectKey) {
	w.Helper()
	claim := &ipamv1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: fresh.Namespace, Name: fresh.Name}}
	w.Deleted(claim)
	w.Gone(claim)
	w.done(migrate.Metal3, migrate.Options{Action: migrate.Rollback})
	w.keptAddresses(before)
	w.allFrom(metal3Group, v1alpha1.FinalizerRelease)
	old := client.ObjectKey{Namespace: metal3Namespace, Name: "old"}
	w.hasAddress(old) // of Metal3's, again
	w.keptAddresses(before)
}
