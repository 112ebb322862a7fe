package ipaddressclaim

import (
	"testing"

	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/adapt"
)

// TestAClaimIsLookedAtAgainWhoseRecordIsNotSeenYet has the caches show a claim and its
// IPAddress before the picture shows their record, as after a restore of etcd. That
// the record turns up is no news: it is as this controller makes them.
func TestAClaimIsLookedAtAgainWhoseRecordIsNotSeenYet(t *testing.T) {
	s, record := servedClaim()
	s.address.Annotations = map[string]string{v1alpha1.AnnotationAllocation: record.Name.Name}
	scheme := schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)
	other := record
	other.Name.Name, other.Holder.Name = "b-12345678", "b"
	for name, objects := range map[string][]client.Object{
		"a claim":                        {s.claim, s.address, adapt.Allocation(record)},
		"an IPAddress that has no claim": {s.address, adapt.Allocation(record)},
	} {
		t.Run(name, func(t *testing.T) {
			there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			c := &Controller{Client: there, Live: there, Allocator: allocatorWith(t, other)}
			result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)})
			if err != nil || result.RequeueAfter <= 0 {
				t.Errorf("got %v, %v: want another look soon", result, err)
			}
		})
	}
}
