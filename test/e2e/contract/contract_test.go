package contract

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1beta1 "sigs.k8s.io/cluster-api/api/ipam/v1beta1" //nolint:staticcheck // deprecated, but served until it is removed
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("Normal IPAddressClaim", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "normal")
		specs.Pool(ctx, k8s, build.Pool("normal").CIDR("10.2.0.0/24").Network(22, "10.2.3.254").Obj())
	})

	It("2. reports the Cluster that a claim waits for, allocates nothing, and labels the address with it", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "waits").Pool("normal").Cluster("waited-for").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/ClusterNotFound"))
		cluster := capiCluster(ctx, team, "waited-for", true)
		Eventually(reason(ctx, claim)).Should(Equal("False/Paused"))
		Expect(recordsOf(ctx, "normal", claim.Name)).To(BeEmpty())
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Expect(served(ctx, claim).Labels).To(HaveKeyWithValue(clusterv1.ClusterNameLabel, "waited-for"))
	})

	It("2. pauses by the annotation on the claim, and on the pool, and continues", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "paused-itself").Pool("normal").Annotation(clusterv1.PausedAnnotation, "").Obj())
		passed(ctx, team, "after-paused-itself", "normal")
		Eventually(reason(ctx, claim)).Should(Equal("False/Paused"))
		specs.Edited(ctx, k8s, claim, goOn)
		served(ctx, claim)

		pool := specs.Pool(ctx, k8s, build.Pool("paused").CIDR("10.2.4.0/24").Obj())
		specs.Edited(ctx, k8s, pool, pause)
		Eventually(func() bool {
			return meta.IsStatusConditionTrue(specs.Stored(ctx, k8s, pool).Status.Conditions, "Ready")
		}).Should(BeFalse())
		held := specs.Created(ctx, k8s, build.AddressClaim(team, "of-paused-pool").Pool("paused").Obj())
		passed(ctx, team, "after-of-paused-pool", "normal")
		Eventually(reason(ctx, held)).Should(Equal("False/PoolNotReady"))
		Expect(specs.RecordsIn(ctx, k8s, "paused")).To(BeEmpty())
		specs.Edited(ctx, k8s, pool, goOn)
		served(ctx, held)
	})

	It(`3. "Add any required provider-specific finalizers": at admission`, func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "finalizer").Pool("normal").Obj())
		Expect(claim.Finalizers).To(ContainElement(v1alpha1.FinalizerRelease), "in the answer to the create call")
		By("and by patch if it is missing")
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = nil })
		Eventually(func() []string { return specs.Stored(ctx, k8s, claim).Finalizers }).Should(ContainElement(v1alpha1.FinalizerRelease))
	})

	It("5. gives the prefix and the gateway of the pool's network, and keeps an IPAddress that is deleted", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "address").Pool("normal").Obj())
		address := served(ctx, claim)
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(22)))
		Expect(address.Spec.Gateway).To(Equal("10.2.3.254"))
		Expect(k8s.Delete(ctx, address)).To(Succeed())
		passed(ctx, team, "after-address", "normal")
		Expect(addressOf(ctx, claim).UID).To(Equal(address.UID))
	})

	It(`5. gives no gateway and the pool's own length where the pool has no network`, func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("plain").CIDR("2001:db8:2::/64").Obj())
		address := served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "plain").Pool("plain").Obj()))
		Expect(address.Spec.Address).To(Equal("2001:db8:2::"))
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(64)))
		Expect(address.Spec.Gateway).To(BeEmpty())
	})

	It(`6. "Set the status.addressRef on the IPAddressClaim to the created IPAddress", together with Ready`, func(ctx context.Context) {
		watch, err := k8s.Watch(ctx, &ipamv1.IPAddressClaimList{}, client.InNamespace(team), client.MatchingFields{"metadata.name": "together"})
		Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		specs.Created(ctx, k8s, build.AddressClaim(team, "together").Pool("normal").Obj())
		for event := range watch.ResultChan() {
			claim := event.Object.(*ipamv1.IPAddressClaim)
			isReady := meta.IsStatusConditionTrue(claim.Status.Conditions, "Ready")
			Expect(isReady).To(Equal(claim.Status.AddressRef.Name != ""), "one exists without the other")
			if isReady {
				break
			}
		}
	})

	It("serves claims that are made through v1beta1", func(ctx context.Context) {
		if testing.Short() {
			Skip("Cluster API's manager converts between the versions")
		}
		group := v1alpha1.GroupVersion.Group
		old := &ipamv1beta1.IPAddressClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "v1beta1"}}
		old.Spec.PoolRef.APIGroup, old.Spec.PoolRef.Kind, old.Spec.PoolRef.Name = &group, "IPPool", "normal"
		specs.Created(ctx, k8s, old)
		Expect(old.Finalizers).To(ContainElement(v1alpha1.FinalizerRelease))
		Eventually(func() string { return specs.Stored(ctx, k8s, old).Status.AddressRef.Name }).Should(Equal("v1beta1"))
		address := &ipamv1beta1.IPAddress{}
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(old), address)).To(Succeed())
		Expect(address.Spec.Prefix).To(Equal(22))
	})
})

func pause[T client.Object](obj T) {
	obj.SetAnnotations(map[string]string{clusterv1.PausedAnnotation: ""})
}

func goOn[T client.Object](obj T) { obj.SetAnnotations(nil) }

var _ = Describe("Deleted IPAddressClaim", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "deleted")
		specs.Pool(ctx, k8s, build.Pool("deleted").CIDR("10.3.0.0/24").Obj())
	})

	It("1. does not wait for a Cluster that is gone", func(ctx context.Context) {
		cluster := capiCluster(ctx, team, "going", false)
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "going").Pool("deleted").Cluster("going").Obj())
		served(ctx, claim)
		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Finalizers = nil })
		Expect(k8s.Delete(ctx, cluster)).To(Succeed())
		Eventually(func() bool {
			if err := k8s.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err == nil && len(cluster.Finalizers) > 0 {
				cluster.Finalizers = nil // that of Cluster API, which waits for infrastructure that does not exist
				_ = k8s.Update(ctx, cluster)
			}
			return specs.IsGone(ctx, k8s, cluster)()
		}).Should(BeTrue())
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
	})

	It("2. works in the foreground as well", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "foreground").Pool("deleted").Obj())
		address := served(ctx, claim)
		Expect(k8s.Delete(ctx, claim, client.PropagationPolicy(metav1.DeletePropagationForeground))).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
		Eventually(specs.IsGone(ctx, k8s, address)).Should(BeTrue())
	})

	It("2. gives back the addresses of a deleted namespace", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "deleted-whole")
		served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "inside").Pool("deleted").Obj()))
		ns := build.Namespace(team)
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, ns)).WithTimeout(time.Minute).Should(BeTrue())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "deleted", "inside") }).Should(BeEmpty())
	})
})
