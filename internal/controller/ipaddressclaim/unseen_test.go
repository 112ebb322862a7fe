package ipaddressclaim

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/convert"
)

// TestClaimWithUnseenRecordIsRequeued lets the caches show a claim and its IPAddress
// before the view shows their record, as after a restore of etcd. The record's arrival enqueues
// nothing: it is as this controller makes them.
func TestClaimWithUnseenRecordIsRequeued(t *testing.T) {
	s, record := servedClaim()
	s.address.Annotations = map[string]string{v1alpha1.AnnotationAllocation: record.Name.Name}
	scheme := schemeOf(t, ipamv1.AddToScheme, v1alpha1.AddToScheme)
	other := record
	other.Name.Name, other.Holder.Name = "b-12345678", "b"
	for name, objects := range map[string][]client.Object{
		"a claim":                        {s.claim, s.address, convert.Allocation(record)},
		"an IPAddress that has no claim": {s.address, convert.Allocation(record)},
	} {
		t.Run(name, func(t *testing.T) {
			there := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
			c := attachReplica(allocatorWith(t, other), &Controller{Client: there, Live: there})
			result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)})
			if err != nil || result.RequeueAfter <= 0 {
				t.Errorf("got %v, %v: want another look soon", result, err)
			}
		})
	}
}

// TestIPAddressFinalizerIsRemovedOnce makes a second pass with the version that the cache
// still shows.
func TestIPAddressFinalizerIsRemovedOnce(t *testing.T) {
	s, _ := servedClaim()
	s.address.Finalizers, s.address.DeletionTimestamp = []string{v1alpha1.FinalizerProtect}, &metav1.Time{Time: time.Now()}
	patches := 0
	there := fake.NewClientBuilder().WithScheme(schemeOf(t, ipamv1.AddToScheme)).WithObjects(s.address).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			patches++
			return nil
		},
	}).Build()
	now := clocktesting.NewFakePassiveClock(time.Now())
	c := attachReplica(emptyAllocator(t), &Controller{Client: there, Live: there, Clock: now})
	pass := func(wantPatches int, wantAgain time.Duration) {
		t.Helper()
		result, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s.address)})
		if err != nil || patches != wantPatches || result.RequeueAfter != wantAgain {
			t.Errorf("%d patches, again after %v, %v; want %d, %v", patches, result.RequeueAfter, err, wantPatches, wantAgain)
		}
	}
	pass(1, 0)
	pass(1, cacheTimeout)
	now.SetTime(now.Now().Add(cacheTimeout))
	pass(2, 0)
	c.addresses().Delete(t.Context(), event.DeleteEvent{Object: s.address}, newQueue(t))
	pass(3, 0)
}
