package clusterctl

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gbytes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("clusterctl move", func() {
	It("keeps all addresses, and claims that arrive at the target while the pools are paused wait", func(ctx context.Context) {
		f := newFleet(ctx, source, "careful")
		f.pools(ctx, "10.210.0.0/26", "10.211.0.0/24")
		for _, name := range []string{"m0", "m1"} {
			machine := f.machine(ctx, name)
			f.claim(ctx, machine, f.asks(name+"-spec").Cluster(f.name))
			f.claim(ctx, machine, f.asks(name+"-label").ClusterLabel(f.name))
			f.claim(ctx, machine, f.asks(name+"-owner"))
			f.claim(ctx, machine, f.asks(name+"-class").Class(f.name))
		}
		network := f.network(ctx)
		before := source.answered(ctx, f.name, 8)

		By("claims wait at the target for a pool that does not exist yet")
		rush := rushInto(ctx, target, "careful-rush", f.name, 4)
		f.pausePools(ctx, source, true)
		f.move(ctx, target)
		f.pausePools(ctx, target, false)

		Expect(target.answered(ctx, f.name, 8)).To(Equal(before))
		expectDistinct(before, rush(ctx))
		Expect(target.holders(ctx, f.name)).To(HaveLen(6 + 4))
		moved := &v1alpha1.IPClaim{}
		Expect(target.Get(ctx, client.ObjectKeyFromObject(network), moved)).To(Succeed())
		Expect(moved.Spec.CIDR).To(Equal(network.Spec.CIDR))
		Expect(target.holders(ctx, f.name+"-networks")).To(HaveKeyWithValue(network.Spec.CIDR, f.name+"/"+network.Name))
		f.expectGone(ctx)
	})

	It("keeps all addresses of claims that name their Cluster also if nothing is paused", func(ctx context.Context) {
		f := newFleet(ctx, source, "quick")
		f.pools(ctx, "10.212.0.0/26", "10.213.0.0/24")
		machine := f.machine(ctx, "m0")
		for i := range 10 {
			f.claim(ctx, machine, f.asks(fmt.Sprint("spec-", i)).Cluster(f.name))
			f.claim(ctx, machine, f.asks(fmt.Sprint("label-", i)).ClusterLabel(f.name))
		}
		before := source.answered(ctx, f.name, 20)
		f.move(ctx, target)
		rush := rushInto(ctx, target, "quick-rush", f.name, 20)

		Expect(target.answered(ctx, f.name, 20)).To(Equal(before))
		expectDistinct(before, rush(ctx))
		Expect(target.holders(ctx, f.name)).To(HaveLen(40))
		f.expectGone(ctx)
	})

	It("takes the namespace's own pools along, also while blocks of theirs are retained", func(ctx context.Context) {
		f := newFleet(ctx, source, "local")
		source.Pools(build.Pool(f.name).CIDR("10.216.0.0/16").Obj())
		f.localPool("root", func(spec *v1alpha1.PoolSpec) { spec.CIDR, spec.AllowRetain = "10.217.0.0/26", true })
		f.localPool("child", func(spec *v1alpha1.PoolSpec) {
			spec.ParentRef, spec.PrefixLength = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: f.name}, new(int32(26))
			spec.AllowRetain = true
		})
		machine := f.machine(ctx, "m0")
		for i, pool := range []string{"root", "child", "root", "child"} {
			name := fmt.Sprint("c", i)
			f.claim(ctx, machine, f.asks(name).From(v1alpha1.GroupVersion.Group, "LocalIPPool", pool).Cluster(f.name).Annotation(v1alpha1.AnnotationSticky, name))
		}
		before := source.answered(ctx, f.name, 4)
		f.move(ctx, target)

		Expect(target.answered(ctx, f.name, 4)).To(Equal(before))
		pools := &v1alpha1.LocalIPPoolList{}
		Expect(source.List(ctx, pools, client.InNamespace(f.name))).To(Succeed())
		Expect(pools.Items).To(BeEmpty())
		By("the address of a sticky claim is kept for the next in both clusters, and nowhere in use")
		Eventually(func(g Gomega) {
			records := &v1alpha1.IPAllocationList{}
			g.Expect(source.List(ctx, records, client.InNamespace(f.name))).To(Succeed())
			for _, record := range records.Items {
				g.Expect(record.Spec.State).To(Equal(v1alpha1.AllocationRetained))
			}
		}).Should(Succeed())
	})

	It("takes the networks of a Cluster there and back, also those of the namespace's own pools", func(ctx context.Context) {
		f := &fleet{name: "networked", on: source}
		f.pools(ctx, "10.218.0.0/26", "10.219.0.0/24")
		source.Namespace(f.name)
		Expect(source.Create(ctx, build.Class("networked-own").LocalPools().Obj())).To(Succeed())
		source.Pools(build.Pool("own").CIDR("10.220.0.0/26").Classes("networked-own").In(f.name))
		f.cluster(ctx, networked("networked", "networked-own/28"))
		before := f.networks(ctx)
		rush := rushInto(ctx, source, "networked-rush", f.name+"-networks", 20)
		for _, to := range []*management{target, source} {
			f.move(ctx, to)
			f.expectGone(ctx)
			f.on = to
			f.provision(ctx)
			Expect(f.networks(ctx)).To(Equal(before))
		}
		rush(ctx)
		Expect(source.holders(ctx, f.name+"-networks")).To(HaveLen(2 + 20))
		Expect(source.holders(ctx, "own")).To(HaveLen(1))
	})

	It("names the network that the target cannot hold, and can be repeated", func(ctx context.Context) {
		for _, on := range []*management{source, target} {
			(&fleet{name: "taken", on: on}).pools(ctx, "10.221.0.0/26", "10.222.0.0/24")
		}
		f := newFleet(ctx, source, "taken", networked("taken", ""))
		f.localPool("own", func(spec *v1alpha1.PoolSpec) { spec.CIDR = "10.223.0.0/26" })
		machine := f.machine(ctx, "m0")
		f.claim(ctx, machine, f.asks("shared").Cluster(f.name))
		f.claim(ctx, machine, f.asks("own").From(v1alpha1.GroupVersion.Group, "LocalIPPool", "own").Cluster(f.name))
		addresses, networks := source.answered(ctx, f.name, 2), f.networks(ctx)
		target.Namespace("taken-rival")
		rival := build.Claim("taken-rival", "rival").Class("taken").CIDR(f.stored(ctx).Spec.ClusterNetwork.Pods.CIDRBlocks[0]).Obj()
		Expect(target.Create(ctx, rival)).To(Succeed())

		log, ended := gbytes.NewBuffer(), make(chan error, 1)
		moving, interrupt := context.WithCancel(ctx)
		go func() { ended <- f.tryMove(moving, target, log, "-v=5") }()
		Eventually(log).Should(gbytes.Say("cidr: %s is in use in pool taken-networks", rival.Spec.CIDR))
		interrupt()
		Eventually(ended).Should(Receive(HaveOccurred()))
		Expect(f.networks(ctx)).To(Equal(networks))

		Expect(target.Delete(ctx, rival)).To(Succeed())
		Eventually(target.holders).WithArguments(ctx, f.name+"-networks").ShouldNot(ContainElement("taken-rival/rival"))
		specs.Edited(ctx, source, f.stored(ctx), func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		f.move(ctx, target)
		f.expectGone(ctx)
		f.on = target
		f.provision(ctx)
		Expect(f.networks(ctx)).To(Equal(networks))
		Expect(target.answered(ctx, f.name, 2)).To(Equal(addresses))
	})

	It("leaves behind the objects of no Cluster, and the pools that it copied", func(ctx context.Context) {
		f := newFleet(ctx, source, "mixed")
		f.pools(ctx, "10.214.0.0/26", "10.215.0.0/24")
		f.claim(ctx, f.machine(ctx, "m0"), f.asks("goes").Cluster(f.name))
		Expect(source.Create(ctx, f.asks("stays").Obj())).To(Succeed())
		before := source.answered(ctx, f.name, 2)
		f.move(ctx, target)

		Expect(target.answered(ctx, f.name, 1)).To(HaveKeyWithValue("goes", before["goes"]))
		Expect(source.answered(ctx, f.name, 1)).To(HaveKeyWithValue("stays", before["stays"]))
		Expect(source.Get(ctx, client.ObjectKey{Name: f.name}, &v1alpha1.IPPool{})).To(Succeed())
		Eventually(source.holders).WithArguments(ctx, f.name).Should(HaveLen(1))
	})
})

// pools makes a pool of addresses of the fleet's name, a class of that name, and a
// pool of networks, which backs the class.
func (f *fleet) pools(ctx context.Context, addresses, networks string) {
	GinkgoHelper()
	Expect(f.on.Create(ctx, build.Class(f.name).Obj())).To(Succeed())
	f.on.Pools(
		build.Pool(f.name).CIDR(addresses).Network(26, "").Obj(),
		build.Pool(f.name+"-networks").CIDR(networks).Classes(f.name).Obj(),
	)
}

// localPool makes a pool in the namespace of the fleet.
func (f *fleet) localPool(name string, edit func(*v1alpha1.PoolSpec)) {
	GinkgoHelper()
	pool := &v1alpha1.LocalIPPool{ObjectMeta: f.meta(name)}
	pool.Labels = map[string]string{clusterv1.ClusterNameLabel: f.name}
	edit(&pool.Spec.PoolSpec)
	f.on.Pools(pool)
}

func (f *fleet) pausePools(ctx context.Context, on *management, paused bool) {
	GinkgoHelper()
	for _, name := range []string{f.name, f.name + "-networks"} {
		pool := &v1alpha1.IPPool{}
		Expect(on.Get(ctx, client.ObjectKey{Name: name}, pool)).To(Succeed())
		before := pool.DeepCopy()
		delete(pool.Annotations, v1alpha1.AnnotationPaused)
		if paused {
			pool.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""}
		}
		Expect(on.Patch(ctx, pool, client.MergeFrom(before))).To(Succeed())
	}
}

// network claims a block for the whole Cluster.
func (f *fleet) network(ctx context.Context) *v1alpha1.IPClaim {
	GinkgoHelper()
	cluster := f.stored(ctx)
	claim := build.Claim(f.name, "network").Pool(f.name + "-networks").Length(28).Obj()
	claim.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(cluster, clusterv1.GroupVersion.WithKind("Cluster"))}
	Expect(f.on.Create(ctx, claim)).To(Succeed())
	Expect(claim.Spec.CIDR).NotTo(BeEmpty())
	return claim
}

// networked has the pods, the endpoint and, if its class is not empty, the services of a Cluster filled in.
func networked(class, services string) func(*clusterv1.Cluster) {
	return func(c *clusterv1.Cluster) {
		build.Networked(c, map[string]string{
			v1alpha1.AnnotationPods: class + "/28", v1alpha1.AnnotationServices: services, v1alpha1.AnnotationControlPlaneEndpoint: class + "/32:443",
		})
	}
}

// networks waits until the Cluster owns the claims of its networks, and returns their blocks and what the
// Cluster has.
func (f *fleet) networks(ctx context.Context) map[string]string {
	GinkgoHelper()
	cluster := f.stored(ctx)
	var networks map[string]string
	Eventually(func(g Gomega) {
		claims := &v1alpha1.IPClaimList{}
		g.Expect(f.on.List(ctx, claims, client.InNamespace(f.name))).To(Succeed())
		g.Expect(claims.Items).To(HaveLen(strings.Count(cluster.Annotations[v1alpha1.AnnotationNetworksFilled], "@")))
		networks = map[string]string{}
		for _, claim := range claims.Items {
			g.Expect(claim.OwnerReferences).To(ConsistOf(HaveField("UID", cluster.UID)))
			g.Expect(claim.Finalizers).To(ConsistOf(v1alpha1.FinalizerClusterNetwork))
			g.Expect(claim.Status.Phase).To(Equal(v1alpha1.ClaimBound))
			networks[claim.Name] = claim.Status.AllocatedCIDR
		}
	}).Should(Succeed())
	networks["pods"], networks["services"] = fmt.Sprint(cluster.Spec.ClusterNetwork.Pods.CIDRBlocks), fmt.Sprint(cluster.Spec.ClusterNetwork.Services.CIDRBlocks)
	networks["endpoint"] = cluster.Spec.ControlPlaneEndpoint.Host
	return networks
}

// rushInto makes claims of a pool at once, and returns a function that waits for their addresses.
func rushInto(ctx context.Context, on *management, namespace, pool string, count int) func(context.Context) map[string]string {
	GinkgoHelper()
	on.Namespace(namespace)
	for i := range count {
		Expect(on.Create(ctx, build.AddressClaim(namespace, fmt.Sprint("rush-", i)).Pool(pool).Obj())).To(Succeed())
	}
	return func(ctx context.Context) map[string]string { return on.answered(ctx, namespace, count) }
}

func expectDistinct(some, others map[string]string) {
	GinkgoHelper()
	all := append(slices.Collect(maps.Values(some)), slices.Collect(maps.Values(others))...)
	Expect(sets.New(all...)).To(HaveLen(len(all)), "an address has two holders")
}

// expectGone fails while objects of the fleet are left in the source, except its pools and class.
func (f *fleet) expectGone(ctx context.Context) {
	GinkgoHelper()
	cluster := &clusterv1.Cluster{}
	err := f.on.Get(ctx, client.ObjectKey{Namespace: f.name, Name: f.name}, cluster)
	Expect(apierrors.IsNotFound(err)).To(BeTrue())
	Eventually(func(g Gomega) {
		for _, list := range []client.ObjectList{
			&ipamv1.IPAddressClaimList{}, &ipamv1.IPAddressList{}, &v1alpha1.IPClaimList{}, &v1alpha1.IPAllocationList{}, &v1alpha1.LocalIPPoolList{},
		} {
			g.Expect(f.on.List(ctx, list, client.InNamespace(f.name))).To(Succeed())
			g.Expect(list).To(HaveField("Items", BeEmpty()))
		}
	}).Should(Succeed())
	Expect(f.on.holders(ctx, f.name)).To(BeEmpty())
}
