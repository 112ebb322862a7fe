package hub

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/provisioner"
)

// TestRestoredClusterLosesReturnedRanges restores a cluster by the runbook in docs/provisioners.md. After the
// snapshot it has returned a range, which another cluster has now, and has taken one.
func TestRestoredClusterLosesReturnedRanges(t *testing.T) {
	h, w := startHub(t, "10.32.0.0/22"), startCluster(t)
	credentials, allowed := filepath.Join(t.TempDir(), "kubeconfig"), rest.AnonymousClientConfig(h.Config())
	allowed.BearerToken = tenant(h)
	suite.Must(t, cluster.WriteKubeconfig(credentials, allowed, "hub", namespace))
	kill := runCommand(t, w, credentials)
	class := leased(24)
	w.Created(class)
	claimed := func(name string) *v1alpha1.IPClaim {
		claim := build.Claim("default", name).Class("leased").Obj()
		w.Created(claim)
		w.Bound(claim)
		return claim
	}
	kept, returned := claimed("kept"), claimed("returned")
	snapshot := filepath.Join(t.TempDir(), "snapshot.db")
	suite.Must(t, w.SnapshotEtcd(t.Context(), snapshot))
	w.Deleted(returned)
	h.Await("the range is returned", func(ctx context.Context) bool { return len(ranges(ctx, h)) == 1 })
	other := build.Claim(namespace, "other").Class("ranges").CIDR(returned.Status.AllocatedCIDR).Obj()
	h.Created(other)
	h.Bound(other)
	late := claimed("late")

	kill()
	suite.Must(t, w.Managers[0].Stop())
	suite.Must(t, w.RestoreEtcd(t.Context(), snapshot))
	pools := &v1alpha1.IPPoolList{}
	suite.Must(t, w.List(t.Context(), pools, client.HasLabels{provisioner.LabelProvisioner}))
	pause := func(pool *v1alpha1.IPPool, value string) {
		suite.Must(t, w.Patch(t.Context(), pool, build.Merge(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationPaused+`":`+value+`}}}`)))
	}
	for i := range pools.Items {
		pause(&pools.Items[i], `"restored"`)
	}
	suite.Must(t, w.Managers[0].Start(t.Context()))
	runCommand(t, w, credentials)
	awaitFailure(w, class, provisioner.ReasonRangeLost, returned.Status.AllocatedCIDR)
	for i := range pools.Items {
		if pool := &pools.Items[i]; pool.Spec.CIDR != returned.Status.AllocatedCIDR {
			pause(pool, "null")
		} else {
			w.Deleted(build.Claim("default", "returned").Obj(), pool)
			w.Gone(pool)
		}
	}
	keys := &corev1.ConfigMap{}
	suite.Must(t, w.Get(t.Context(), client.ObjectKey{Namespace: "cadastre-system", Name: "provisioner-ipam.cadastre.dev.hub"}, keys))
	for pool, claim := range ranges(t.Context(), h) {
		if _, ok := keys.Data[pool]; !ok {
			if claim.Status.AllocatedCIDR != late.Status.AllocatedCIDR {
				t.Errorf("the key of %s is lost", claim.Status.AllocatedCIDR)
			}
			h.Deleted(&claim)
		}
	}
	h.Await("only the range in use is held", func(ctx context.Context) bool { return len(ranges(ctx, h)) == 1 })
	w.Bound(kept)
	for _, claim := range []*v1alpha1.IPClaim{claimed("next"), claimed("last")} {
		for _, held := range []*v1alpha1.IPClaim{kept, other} {
			if claim.Status.AllocatedCIDR == held.Status.AllocatedCIDR {
				t.Errorf("%s and %s have %s", claim.Name, held.Name, held.Status.AllocatedCIDR)
			}
		}
	}
	h.Bound(other)
}

// ranges returns the claims of the cluster in the hub by the name of the pool.
func ranges(ctx context.Context, h *suite.World) map[string]v1alpha1.IPClaim {
	h.Helper()
	claims, byPool := &v1alpha1.IPClaimList{}, map[string]v1alpha1.IPClaim{}
	suite.Must(h, h.List(ctx, claims, client.MatchingLabels{v1alpha1.LabelHubCluster: "east"}))
	for _, claim := range claims.Items {
		_, pool, _ := strings.Cut(claim.Name, ".")
		byPool[pool] = claim
	}
	return byPool
}
