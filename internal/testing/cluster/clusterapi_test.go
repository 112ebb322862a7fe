package cluster

import (
	"os"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1" //nolint:staticcheck // deprecated, but served until it is removed
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// TestClusterAPI installs the CRDs alone at first, and then the core manager.
func TestClusterAPI(t *testing.T) {
	c, err := Start(t.Context(), Options{ClusterAPICRDs: true, Progress: t.Output()})
	must.Succeed(t, err)
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
		if c.ClusterAPI != nil && c.ClusterAPI.Running() {
			t.Error("the core manager runs after Stop")
		}
	})
	k8s, err := NewClient(c.Config())
	must.Succeed(t, err)
	name := metav1.ObjectMeta{Namespace: "default", Name: "early"}
	must.Succeed(t, k8s.Create(t.Context(), &ipamv1.IPAddressClaim{ObjectMeta: name, Spec: ipamv1.IPAddressClaimSpec{PoolRef: pool()}}))
	if err := k8s.List(t.Context(), &ipamv1beta1.IPAddressClaimList{}); !meta.IsNoMatchError(err) {
		t.Errorf("v1beta1 is served without a conversion: %v", err)
	}

	must.Succeed(t, c.StartClusterAPI(t.Context()))
	if k8s, err = NewClient(c.Config()); err != nil {
		t.Fatal(err)
	}
	t.Run("versions are converted", func(t *testing.T) { converts(t, k8s) })
	t.Run("addresses are validated", func(t *testing.T) { validates(t, k8s) })
	t.Run("a second start is refused", func(t *testing.T) {
		if err := c.StartClusterAPI(t.Context()); err == nil {
			t.Error("it was started twice")
		}
	})
}

func TestClusterAPIWithoutBinaryIsRefused(t *testing.T) {
	_, err := Start(t.Context(), Options{ClusterAPI: true, ClusterAPIBinary: os.DevNull + "/manager"})
	if err == nil || !strings.Contains(err.Error(), "make capi") {
		t.Errorf("the error does not name the command to run: %v", err)
	}
}

func pool() ipamv1.IPPoolReference {
	return ipamv1.IPPoolReference{APIGroup: "example.com", Kind: "Pool", Name: "pool"}
}

// converts reads through v1beta1 the objects that were written before, and the other way round with
// a field that has another shape there.
func converts(t *testing.T, k8s client.Client) {
	key := client.ObjectKey{Namespace: "default", Name: "early"}
	old := &ipamv1beta1.IPAddressClaim{}
	must.Succeed(t, k8s.Get(t.Context(), key, old))
	if old.Spec.PoolRef.Name != "pool" || old.Spec.PoolRef.APIGroup == nil {
		t.Errorf("v1beta1 has %+v", old.Spec)
	}
	group := "example.com"
	late := &ipamv1beta1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"}}
	late.Spec.ClusterName = "cluster"
	late.Spec.PoolRef.APIGroup, late.Spec.PoolRef.Kind, late.Spec.PoolRef.Name = &group, "Pool", "pool"
	must.Succeed(t, k8s.Create(t.Context(), late))
	now := &ipamv1.IPAddressClaim{}
	must.Succeed(t, k8s.Get(t.Context(), client.ObjectKeyFromObject(late), now))
	if now.Spec.PoolRef != pool() || now.Spec.ClusterName != "cluster" {
		t.Errorf("v1beta2 has %+v", now.Spec)
	}
}

func validates(t *testing.T, k8s client.Client) {
	prefix := int32(24)
	address := &ipamv1.IPAddress{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "early"},
		Spec: ipamv1.IPAddressSpec{
			ClaimRef: ipamv1.IPAddressClaimReference{Name: "early"}, PoolRef: pool(),
			Address: "10.0.0.300", Prefix: &prefix,
		},
	}
	err := k8s.Create(t.Context(), address)
	if err == nil || !strings.Contains(err.Error(), "admission webhook") {
		t.Errorf("10.0.0.300 passes for an address, or it was not a webhook that refused it: %v", err)
	}
	address.Spec.Address = "10.0.0.30"
	if err := k8s.Create(t.Context(), address); err != nil {
		t.Error(err)
	}
}
