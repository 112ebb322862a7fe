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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
	configMap := specs.Created(ctx, k8s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "owner"}})
	claim := build.AddressClaim("default", "owned").From("example.com", "NobodysPool", "none").OwnedBy(metav1.OwnerReference{
		APIVersion: "v1", Kind: "ConfigMap", Name: configMap.Name, UID: configMap.UID,
	}).Obj()
	specs.Created(ctx, k8s, claim)
	Expect(k8s.Delete(ctx, configMap)).To(Succeed())
	Eventually(specs.IsGone(ctx, k8s, claim)).WithTimeout(2 * time.Minute).Should(BeTrue())
}

// reason returns the reason of a claim's condition Ready, with its status.
func reason(ctx context.Context, claim *ipamv1.IPAddressClaim) func() string {
	return func() string {
		ready := conditions.Get(specs.Stored(ctx, k8s, claim), ipamv1.IPAddressClaimReadyCondition)
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

// capiCluster makes a Cluster, which no infrastructure provider looks after.
func capiCluster(ctx context.Context, namespace, name string, paused bool) *clusterv1.Cluster {
	GinkgoHelper()
	obj := build.Cluster(namespace, name)
	obj.Spec.Paused = &paused
	return specs.Created(ctx, k8s, obj)
}

// passed waits until the controller has certainly seen the earlier changes: claims that were made
// afterwards, of the same pool, are served.
func passed(ctx context.Context, namespace, name, pool string) {
	GinkgoHelper()
	served(ctx, specs.Created(ctx, k8s, marker(namespace, name, pool)))
}
