package clusterctl

import (
	"context"
	"fmt"
	"io"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// infrastructureGroup is the API group of the provider that is played.
const infrastructureGroup = "infrastructure.example.com"

// fleet holds a namespace with one Cluster of its name, as clusterctl moves them.
type fleet struct {
	name string
	on   *management
}

// newFleet makes the namespace and a Cluster that is up.
func newFleet(ctx context.Context, on *management, name string, edits ...func(*clusterv1.Cluster)) *fleet {
	GinkgoHelper()
	f := &fleet{name: name, on: on}
	on.Namespace(name)
	f.cluster(ctx, edits...)
	return f
}

// cluster makes the Cluster, and waits until it can be moved.
func (f *fleet) cluster(ctx context.Context, edits ...func(*clusterv1.Cluster)) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{ObjectMeta: f.meta(f.name)}
	infrastructure := f.played("PlayedCluster", f.name)
	Expect(unstructured.SetNestedField(infrastructure.Object, true, "status", "initialization", "provisioned")).To(Succeed())
	Expect(f.on.Create(ctx, infrastructure)).To(Succeed())
	cluster.Spec.InfrastructureRef = clusterv1.ContractVersionedObjectReference{
		APIGroup: infrastructureGroup, Kind: infrastructure.GetKind(), Name: f.name,
	}
	for _, edit := range edits {
		edit(cluster)
	}
	Expect(f.on.Create(ctx, cluster)).To(Succeed())
	f.provision(ctx)
}

// stored returns the Cluster.
func (f *fleet) stored(ctx context.Context) *clusterv1.Cluster {
	GinkgoHelper()
	return specs.Stored(ctx, f.on, &clusterv1.Cluster{ObjectMeta: f.meta(f.name)})
}

// provision waits until the Cluster can be moved. Without machines it would wait forever for its control
// plane.
func (f *fleet) provision(ctx context.Context) {
	GinkgoHelper()
	on, cluster := f.on, &clusterv1.Cluster{ObjectMeta: f.meta(f.name)}
	Eventually(func(g Gomega) {
		g.Expect(on.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
		before := cluster.DeepCopy()
		meta.SetStatusCondition(&cluster.Status.Conditions, metav1.Condition{
			Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: "Played",
		})
		g.Expect(on.Status().Patch(ctx, cluster, client.MergeFrom(before))).To(Succeed())
		g.Expect(cluster.Status.Initialization.InfrastructureProvisioned).To(HaveValue(BeTrue()))
	}).Should(Succeed())
}

func (f *fleet) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: f.name, Name: name}
}

// played returns an object of the infrastructure provider.
func (f *fleet) played(kind, name string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: infrastructureGroup, Version: "v1", Kind: kind})
	object.SetNamespace(f.name)
	object.SetName(name)
	return object
}

// machine makes a machine that belongs to the Cluster, for claims to belong to.
func (f *fleet) machine(ctx context.Context, name string) *unstructured.Unstructured {
	GinkgoHelper()
	cluster := f.stored(ctx)
	machine := f.played("PlayedMachine", name)
	machine.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))})
	Expect(f.on.Create(ctx, machine)).To(Succeed())
	return machine
}

// asks begins a claim of the fleet for an address of its pool.
func (f *fleet) asks(name string) *build.AddressClaimBuilder {
	return build.AddressClaim(f.name, name).Pool(f.name)
}

// claim makes one of a machine's claims.
func (f *fleet) claim(ctx context.Context, machine *unstructured.Unstructured, claim *build.AddressClaimBuilder) {
	GinkgoHelper()
	owner := metav1.NewControllerRef(machine, machine.GroupVersionKind())
	Expect(f.on.Create(ctx, claim.OwnedBy(*owner).Obj())).To(Succeed())
}

// move moves the namespace to another management cluster.
func (f *fleet) move(ctx context.Context, to *management) {
	GinkgoHelper()
	Expect(f.tryMove(ctx, to, GinkgoWriter)).To(Succeed())
}

// tryMove writes the log of clusterctl, and returns its error.
func (f *fleet) tryMove(ctx context.Context, to *management, log io.Writer, args ...string) error {
	return repository.try(ctx, log, append(args, "move", "--namespace="+f.name, "--kubeconfig="+f.on.Kubeconfig(), "--to-kubeconfig="+to.Kubeconfig())...)
}

// answered waits until so many claims of a namespace are ready, and returns the
// addresses by claim: those of IPAddresses that belong to the claim and a pool.
func (m *management) answered(ctx context.Context, namespace string, count int) map[string]string {
	GinkgoHelper()
	var addresses map[string]string
	Eventually(func(g Gomega) {
		addresses = map[string]string{}
		claims := &ipamv1.IPAddressClaimList{}
		g.Expect(m.List(ctx, claims, client.InNamespace(namespace))).To(Succeed())
		for _, claim := range claims.Items {
			g.Expect(meta.IsStatusConditionTrue(claim.Status.Conditions, clusterv1.ReadyCondition)).To(BeTrue(), "%s: %+v", claim.Name, claim.Status)
			g.Expect(claim.Status.AddressRef.Name).To(Equal(claim.Name))
			address := &ipamv1.IPAddress{}
			g.Expect(m.Get(ctx, client.ObjectKeyFromObject(&claim), address)).To(Succeed())
			g.Expect(metav1.GetControllerOf(address).UID).To(Equal(claim.UID))
			g.Expect(address.OwnerReferences).To(HaveLen(2))
			addresses[claim.Name] = address.Spec.Address
		}
		g.Expect(addresses).To(HaveLen(count))
	}).Should(Succeed())
	return addresses
}

// holders returns the holders of all records, by block. There must be one a block.
func (m *management) holders(ctx context.Context, pool string) map[string]string {
	GinkgoHelper()
	records := &v1alpha1.IPAllocationList{}
	Expect(m.List(ctx, records)).To(Succeed())
	holders := map[string]string{}
	for _, record := range records.Items {
		if record.Spec.PoolRef == nil || record.Spec.PoolRef.Name != pool {
			continue
		}
		Expect(holders).NotTo(HaveKey(record.Spec.CIDR))
		holders[record.Spec.CIDR] = fmt.Sprintf("%s/%s", record.Namespace, record.Spec.ClaimRef.Name)
	}
	return holders
}
