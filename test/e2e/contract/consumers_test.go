package contract

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// machine creates a substitute for a provider's object that owns claims.
func machine(ctx context.Context, namespace, name string) *corev1.ConfigMap {
	return specs.Created(ctx, k8s, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})
}

func owner(configMap *corev1.ConfigMap, controller *bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: configMap.Name, UID: configMap.UID, Controller: controller, BlockOwnerDeletion: controller}
}

var _ = Describe("Consumers", Ordered, func() {
	It("CAPV: label alone, owner that is no controller, own finalizer until the VM is gone, several claims a machine", func(ctx context.Context) {
		const finalizer = "vspherevm.infrastructure.cluster.x-k8s.io/ip-claim-protection"
		team := specs.Namespace(ctx, k8s, "capv")
		capiCluster(ctx, team, "capv", false)
		specs.Pool(ctx, k8s, build.Pool("capv").CIDR("10.20.0.0/24").Network(24, "10.20.0.1").Obj())
		vm := machine(ctx, team, "vm-0")
		var claims []*ipamv1.IPAddressClaim
		var addresses []*ipamv1.IPAddress
		for device := range 2 {
			for pool := range 2 {
				claims = append(claims, specs.Created(ctx, k8s, build.AddressClaim(team, fmt.Sprintf("vm-0-%d-%d", device, pool)).
					Pool("capv").ClusterLabel("capv").OwnedBy(owner(vm, nil)).Finalizer(finalizer).Obj()))
			}
		}
		distinct := map[string]bool{}
		for _, claim := range claims {
			address := served(ctx, claim)
			addresses = append(addresses, address)
			distinct[address.Spec.Address] = true
			Expect(address.Spec.Gateway).To(Equal("10.20.0.1"), "those of one family are the same")
			Expect(netip.MustParseAddr(address.Spec.Gateway).Is4()).To(BeTrue())
		}
		Expect(distinct).To(HaveLen(4))

		By("deleting the VM object: the garbage collector deletes the claims, the VM is still up")
		Expect(k8s.Delete(ctx, vm)).To(Succeed())
		for _, claim := range claims {
			Eventually(func() bool { return specs.Stored(ctx, k8s, claim).DeletionTimestamp.IsZero() }).Should(BeFalse())
		}
		passed(ctx, team, "after-vm", "capv")
		for _, address := range addresses {
			Expect(specs.Stored(ctx, k8s, address).DeletionTimestamp.IsZero()).To(BeTrue())
		}
		By("the VM is gone")
		for _, claim := range claims {
			specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = []string{v1alpha1.FinalizerRelease} })
		}
		for _, claim := range claims {
			Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
			Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "capv", claim.Name) }).Should(BeEmpty())
		}
	})

	It("CAPM3: controlling owner, its own labels, finalizer removed with the deletion", func(ctx context.Context) {
		const finalizer = "metal3data.infrastructure.cluster.x-k8s.io"
		team := specs.Namespace(ctx, k8s, "capm3")
		specs.Pool(ctx, k8s, build.Pool("capm3").CIDR("10.21.0.0/24").Obj())
		data := machine(ctx, team, "data-0")
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "data-0-capm3").Pool("capm3").
			Label("infrastructure.cluster.x-k8s.io/data-name", "data-0").Label("infrastructure.cluster.x-k8s.io/pool-name", "capm3").
			OwnedBy(owner(data, new(true))).Finalizer(finalizer).Obj())
		served(ctx, claim)
		Expect(claim.OwnerReferences).To(Equal([]metav1.OwnerReference{owner(data, new(true))}))
		specs.Edited(ctx, k8s, claim, func(c *ipamv1.IPAddressClaim) { c.Finalizers = []string{v1alpha1.FinalizerRelease} })
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
	})

	It("a claim without Cluster is bound in far less than 30 s", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "lone")
		specs.Pool(ctx, k8s, build.Pool("lone").CIDR("10.22.0.0/24").Obj())
		began := time.Now()
		served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "lone").Pool("lone").Obj()))
		AddReportEntry("served after", time.Since(began).String())
		Expect(time.Since(began)).To(BeNumerically("<", 5*time.Second))
	})
})

// crowd makes claims at once by several clients, and returns the claims.
func crowd[T client.Object](ctx context.Context, clients, each int, newObject func(client, i int) T) []T {
	GinkgoHelper()
	made := make([]T, clients*each)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			defer GinkgoRecover()
			own := running.Client(running.Config())
			for i := range each {
				obj := newObject(c, i)
				Expect(own.Create(ctx, obj)).To(Succeed())
				made[c*each+i] = obj
			}
		})
	}
	all.Wait()
	return made
}

// distinctIn checks that no two records of a pool overlap, and counts them.
func distinctIn(ctx context.Context, pool string) int {
	GinkgoHelper()
	records := specs.RecordsIn(ctx, k8s, pool)
	blocks := make([]netip.Prefix, len(records))
	for i, record := range records {
		blocks[i] = netip.MustParsePrefix(record.Spec.CIDR)
		for _, other := range blocks[:i] {
			Expect(other.Overlaps(blocks[i])).To(BeFalse(), "%v and %v", other, blocks[i])
		}
	}
	return len(records)
}

// allServed waits until every claim of a namespace has an address, and checks that
// no two have the same.
func allServed(ctx context.Context, team string, claims int) {
	GinkgoHelper()
	Eventually(func() int {
		list := &ipamv1.IPAddressClaimList{}
		Expect(k8s.List(ctx, list, client.InNamespace(team))).To(Succeed())
		count := 0
		for _, claim := range list.Items {
			if claim.Status.AddressRef.Name != "" {
				count++
			}
		}
		return count
	}).WithTimeout(2 * time.Minute).WithPolling(500 * time.Millisecond).Should(Equal(claims)) // a list of all of them is work, too
	addresses := &ipamv1.IPAddressList{}
	Expect(k8s.List(ctx, addresses, client.InNamespace(team))).To(Succeed())
	distinct := sets.New[string]()
	for _, address := range addresses.Items {
		distinct.Insert(address.Spec.Address)
	}
	Expect(distinct).To(HaveLen(claims))
}

var _ = Describe("A crowd", Ordered, func() {
	// each of 10 clients makes so many claims.
	each := suite.Sized(100, 20)

	It("of 10 clients makes claims: all are served, with distinct addresses", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "crowd")
		specs.Pool(ctx, k8s, build.Pool("crowd").CIDR("10.23.0.0/20").Obj())
		began := time.Now()
		crowd(ctx, 10, each, func(c, i int) *ipamv1.IPAddressClaim {
			return build.AddressClaim(team, fmt.Sprintf("c%d-%03d", c, i)).Pool("crowd").Obj()
		})
		allServed(ctx, team, 10*each)
		AddReportEntry("served after", time.Since(began).String())
		Expect(distinctIn(ctx, "crowd")).To(Equal(10 * each))
	})

	It("mixed with IPClaims on one pool, and with finalizers like Metal3's", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "mixed")
		specs.Pool(ctx, k8s, build.Pool("mixed").CIDR("10.24.0.0/20").Obj())
		var both sync.WaitGroup
		both.Go(func() {
			defer GinkgoRecover()
			crowd(ctx, 5, 40, func(c, i int) *v1alpha1.IPClaim {
				return build.Claim(team, fmt.Sprintf("ours-%d-%d", c, i)).Pool("mixed").Length(int32(30 + i%3)).Obj()
			})
		})
		crowd(ctx, 10, each, func(c, i int) *ipamv1.IPAddressClaim {
			return build.AddressClaim(team, fmt.Sprintf("theirs-%d-%d", c, i)).Pool("mixed").
				Finalizer("metal3data.infrastructure.cluster.x-k8s.io").Obj()
		})
		both.Wait()
		allServed(ctx, team, 10*each)
		// The pool has no plenty: an IPClaim waits while an older IPAddressClaim does.
		Eventually(func() int { return distinctIn(ctx, "mixed") }).Should(Equal(200 + 10*each))
	})
})
