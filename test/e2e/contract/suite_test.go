// Package contract checks Cadastre against Cluster API's IPAM contract (v1beta2, Cluster API 1.14) by
// the kit of clusterapi/conformance, and checks what Cadastre does beyond it for claims of Cluster API.
// Without -short Cluster API's own core manager runs beside it, so that its validation, its
// defaults and its conversion are in force.
package contract

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	served(ctx, specs.Created(ctx, k8s, build.AddressClaim(namespace, name).Pool(pool).Obj()))
}

var _ = Describe("Without Cluster API", Ordered, func() {
	It("the operator runs, and serves its claims when it comes, which it logs once", func(ctx context.Context) {
		dir := GinkgoT().TempDir()
		bare := suite.Start(GinkgoTB(), cluster.Options{Managers: 1, Dir: dir})
		shared := k8s
		k8s = bare
		DeferCleanup(func() { k8s = shared })

		team := specs.Namespace(ctx, k8s, "arrival")
		specs.Pool(ctx, k8s, build.Pool("arrival").CIDR("10.30.0.0/24").Obj())
		Expect(specs.Created(ctx, k8s, build.Claim(team, "ours").Pool("arrival").Length(32).Obj()).Spec.CIDR).To(Equal("10.30.0.0/32"))
		Expect(said(dir, "Cluster API is not installed")).To(Equal(1))

		Expect(bare.InstallClusterAPICRDs(ctx)).To(Succeed())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "theirs").Pool("arrival").Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.30.0.1"))
		Expect(said(dir, "Cluster API is installed")).To(Equal(1))
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "arrival", "theirs") }).Should(BeEmpty())
	})
})

// said counts the log lines of the managers of a cluster that contain a text.
func said(dir, what string) int {
	GinkgoHelper()
	logs, err := filepath.Glob(filepath.Join(dir, "logs", "manager*.log"))
	Expect(err).NotTo(HaveOccurred())
	Expect(logs).NotTo(BeEmpty())
	count := 0
	for _, log := range logs {
		text, err := os.ReadFile(log)
		Expect(err).NotTo(HaveOccurred())
		count += strings.Count(string(text), what)
	}
	return count
}

var _ = Describe("A LocalIPPool", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "local")
		specs.Pool(ctx, k8s, build.Pool("lab").CIDR("10.40.0.0/24").Network(24, "10.40.0.1").In(team))
	})
	asking := func(in, name, pool string) *build.AddressClaimBuilder {
		return build.AddressClaim(in, name).From(v1alpha1.GroupVersion.Group, "LocalIPPool", pool)
	}

	It("serves claims of its namespace by reference", func(ctx context.Context) {
		address := served(ctx, specs.Created(ctx, k8s, asking(team, "by-reference", "lab").Obj()))
		Expect(address.Spec.Address).To(Equal("10.40.0.2"))
		Expect(address.Spec.Gateway).To(Equal("10.40.0.1"))
		Expect(address.OwnerReferences).To(ContainElement(And(HaveField("Kind", "LocalIPPool"), HaveField("Name", "lab"))))
		Expect(address.Labels).To(HaveKeyWithValue(v1alpha1.LabelPoolKind, "LocalIPPool"))
	})

	It("serves no claim of another", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, asking(specs.Namespace(ctx, k8s, "local-other"), "stranger", "lab").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/PoolNotFound"))
	})

	It("comes before the platform's by class", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("local").LocalPools().Obj())
		specs.Pool(ctx, k8s, build.Pool("local-platform").CIDR("10.41.0.0/24").Classes("local").Obj())
		specs.Pool(ctx, k8s, build.Pool("zz-own").CIDR("10.42.0.0/32").Classes("local").In(team))
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "class-a").Class("local").Obj())).Spec.Address).To(Equal("10.42.0.0"))
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "class-b").Class("local").Obj())).Spec.Address).To(Equal("10.41.0.0"))
	})

	It("of a Cluster hands out nothing while that is missing or paused, but records addresses in use", func(ctx context.Context) {
		pool := build.Pool("moving").CIDR("10.43.0.0/24").In(team)
		pool.Labels = map[string]string{v1alpha1.LabelCluster: "moving"}
		specs.Created(ctx, k8s, pool)
		waits := specs.Created(ctx, k8s, asking(team, "waits", "moving").Obj())
		Eventually(reason(ctx, waits)).Should(Equal("False/PoolNotReady"))
		ours := build.Claim(team, "ours").LocalPool("moving").Length(32).Obj()
		Expect(specs.Created(ctx, k8s, ours).Spec.CIDR).To(BeEmpty())

		cluster := capiCluster(ctx, team, "moving", true)
		passed(ctx, team, "after-moving", "local-platform")
		Expect(reason(ctx, waits)()).To(Equal("False/PoolNotReady"))
		moved := asking(team, "moved", "moving").Cluster("moving").Obj()
		specs.Created(ctx, k8s, addressFor(moved, "10.43.0.0", 24))
		specs.Created(ctx, k8s, moved)
		Expect(recordsOf(ctx, "moving", "moved")).To(HaveLen(1))

		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Expect(served(ctx, moved).Spec.Address).To(Equal("10.43.0.0"))
		Expect(served(ctx, waits).Spec.Address).NotTo(Equal("10.43.0.0"))
		Eventually(func() string { return specs.Stored(ctx, k8s, ours).Spec.CIDR }).ShouldNot(BeEmpty())
	})

	It("goes with its namespace, with all claims and addresses", func(ctx context.Context) {
		doomed := specs.Namespace(ctx, k8s, "local-doomed")
		specs.Pool(ctx, k8s, build.Pool("lab").CIDR("10.44.0.0/24").In(doomed))
		a, b := specs.Created(ctx, k8s, asking(doomed, "a", "lab").Obj()), specs.Created(ctx, k8s, asking(doomed, "b", "lab").Obj())
		served(ctx, a)
		served(ctx, b)
		ns := build.Namespace(doomed)
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, ns)).WithTimeout(time.Minute).Should(BeTrue())
	})
})

// topologyOf returns a Cluster with the topology of testdata/topology.yaml.
func topologyOf(cluster *clusterv1.Cluster) *clusterv1.Cluster {
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{}
	cluster.Spec.Topology = clusterv1.Topology{ClassRef: clusterv1.ClusterClassRef{Name: "networked"}, Version: "v1.34.0"}
	return cluster
}

// upgrade upgrades a Cluster with that topology, whose control plane is up, and waits for the topology controller.
func upgrade(ctx context.Context, cluster *clusterv1.Cluster) {
	GinkgoHelper()
	planes := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": "controlplane.cluster.x-k8s.io/v1beta2", "kind": "NetControlPlaneList"}}
	Expect(k8s.List(ctx, planes, client.InNamespace(cluster.Namespace))).To(Succeed())
	Expect(k8s.Status().Patch(ctx, &planes.Items[0], build.Merge(`{"status":{"version":"v1.34.0","replicas":1,"upToDateReplicas":1,"readyReplicas":1,"availableReplicas":1}}`))).To(Succeed())
	specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.Topology.Version = "v1.35.0" })
	Eventually(func() *metav1.Condition {
		return conditions.Get(specs.Stored(ctx, k8s, cluster.DeepCopy()), clusterv1.ClusterTopologyReconciledCondition)
	}).Should(HaveField("ObservedGeneration", cluster.Generation))
}
