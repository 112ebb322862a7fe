// Package contract checks Cadastre against Cluster API's IPAM contract (v1beta2, Cluster API 1.14,
// docs/book/src/developer/providers/contracts/ipam.md in its module): a spec a clause, quoted.
// Without -short Cluster API's own core manager runs beside it, so that its validation, its
// defaults and its conversion are in force.
package contract

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// orphanGrace is short here: tests wait for it.
const orphanGrace = 3 * time.Second

var (
	running *suite.World
	k8s     client.WithWatch
)

func TestContract(t *testing.T) {
	specs.Run(t, "Cluster API's IPAM contract", 20*time.Second, 20*time.Millisecond)
}

var _ = BeforeSuite(func(ctx context.Context) {
	running = suite.Start(GinkgoTB(), cluster.Options{
		ClusterAPI: !testing.Short(), ClusterAPICRDs: testing.Short(), ControllerManager: true, Managers: 2, OrphanGrace: orphanGrace,
	})
	k8s = running
	awaitGarbageCollector(ctx)
})

// awaitGarbageCollector waits until the garbage collector has discovered Cluster API's kinds, for
// which it looks every 30 s: an owner's deletion deletes a claim.
func awaitGarbageCollector(ctx context.Context) {
	GinkgoHelper()
	of := created(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}})
	claim := build.AddressClaim("default", "owned").From("example.com", "NobodysPool", "none").OwnedBy(metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: of.Name, UID: of.UID,
	}).Obj()
	created(ctx, claim)
	Expect(k8s.Delete(ctx, of)).To(Succeed())
	Eventually(gone(ctx, claim)).WithTimeout(2 * time.Minute).Should(BeTrue())
}

// namespace makes a namespace for a topic.
func namespace(ctx context.Context, name string) string {
	GinkgoHelper()
	Expect(k8s.Create(ctx, build.Namespace(name))).To(Succeed())
	return name
}

// created creates an object and returns the answer of the API server.
func created[T client.Object](ctx context.Context, obj T) T {
	GinkgoHelper()
	Expect(k8s.Create(ctx, obj)).To(Succeed())
	return obj
}

// fresh reads an object again.
func fresh[T client.Object](ctx context.Context, obj T) T {
	GinkgoHelper()
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	return obj
}

// edited changes an object, and retries if another client has changed it.
func edited[T client.Object](ctx context.Context, obj T, edit func(T)) T {
	GinkgoHelper()
	Eventually(func() error {
		fresh(ctx, obj)
		edit(obj)
		return k8s.Update(ctx, obj)
	}).Should(Succeed())
	return obj
}

// gone reports whether an object does not exist any more.
func gone(ctx context.Context, obj client.Object) func() bool {
	return func() bool {
		return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(obj), obj))
	}
}

// ready waits until a pool hands out addresses.
func ready[T v1alpha1.Pool](ctx context.Context, pool T) T {
	GinkgoHelper()
	Eventually(func() v1alpha1.PoolPhase { return fresh(ctx, pool).PoolStatus().Phase }).Should(Equal(v1alpha1.PoolReady))
	return pool
}

// reason returns the reason of a claim's condition Ready, with its status.
func reason(ctx context.Context, claim *ipamv1.IPAddressClaim) func() string {
	return func() string {
		ready := conditions.Get(fresh(ctx, claim), ipamv1.IPAddressClaimReadyCondition)
		if ready == nil {
			return ""
		}
		return string(ready.Status) + "/" + ready.Reason
	}
}

// message returns the message of a claim's condition Ready, as it was last read.
func message(claim *ipamv1.IPAddressClaim) string {
	return conditions.GetMessage(claim, ipamv1.IPAddressClaimReadyCondition)
}

// served waits until a claim has its address, and reads the IPAddress.
func served(ctx context.Context, claim *ipamv1.IPAddressClaim) *ipamv1.IPAddress {
	GinkgoHelper()
	Eventually(reason(ctx, claim)).Should(Equal("True/AddressAllocated"))
	Expect(claim.Status.AddressRef.Name).To(Equal(claim.Name))
	return addressOf(ctx, claim)
}

func addressOf(ctx context.Context, claim *ipamv1.IPAddressClaim) *ipamv1.IPAddress {
	GinkgoHelper()
	address := &ipamv1.IPAddress{}
	Expect(k8s.Get(ctx, client.ObjectKeyFromObject(claim), address)).To(Succeed())
	return address
}

// recordsIn returns the allocations of a pool.
func recordsIn(ctx context.Context, pool string) []v1alpha1.IPAllocation {
	GinkgoHelper()
	list := &v1alpha1.IPAllocationList{}
	Expect(k8s.List(ctx, list, client.MatchingFields{"spec.poolRef.name": pool})).To(Succeed())
	return list.Items
}

// capiCluster makes a Cluster, which no infrastructure provider looks after.
func capiCluster(ctx context.Context, namespace, name string, paused bool) *clusterv1.Cluster {
	GinkgoHelper()
	obj := &clusterv1.Cluster{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	obj.Spec.Paused = &paused
	obj.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{APIGroup: "infrastructure.cluster.x-k8s.io", Kind: "NobodysCluster", Name: name}
	return created(ctx, obj)
}

// passed waits until the controller has certainly seen the earlier changes: claims that were made
// afterwards, of the same pool, are served.
func passed(ctx context.Context, namespace, name, pool string) {
	GinkgoHelper()
	served(ctx, created(ctx, marker(namespace, name, pool)))
}
