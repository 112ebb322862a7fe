package integration

import (
	"context"
	"net/netip"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// recordOf returns the record of a pool's own CIDR.
func recordOf(ctx context.Context, pool string) *v1alpha1.IPAllocation {
	GinkgoHelper()
	record := &v1alpha1.IPAllocation{}
	Expect(k8s.Get(ctx, client.ObjectKey{Namespace: cluster.Namespace, Name: "ippool." + pool}, record)).To(Succeed())
	return record
}

// unwanted requests an object's deletion, again and again while it is refused, until the object is
// gone.
func unwanted(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	gone := specs.IsGone(ctx, k8s, obj)
	Eventually(func() bool {
		err := k8s.Delete(ctx, obj)
		if !apierrors.IsConflict(err) {
			Expect(client.IgnoreNotFound(err)).To(Succeed())
		}
		return gone()
	}).Should(BeTrue())
}

// This topic has two separate routing domains.
var _ = Describe("pool-hierarchy", Ordered, func() {
	const team = "pool-hierarchy"
	var tree []*v1alpha1.IPPool // leaves last

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	It("gives each child its block in the create response, at any depth and with no waiting in between", func(ctx context.Context) {
		root := specs.Created(ctx, k8s, build.Pool("world").Domain("pool-hierarchy").CIDR("10.0.0.0/8").Obj())
		tree = append(tree, root)
		for _, step := range []struct {
			name, parent string
			length       int32
			cidr         string
		}{
			{"east", "world", 12, "10.0.0.0/12"},
			{"west", "world", 12, "10.16.0.0/12"},
			{"east-1", "east", 16, "10.0.0.0/16"},
			{"east-2", "east", 16, "10.1.0.0/16"},
			{"west-1", "west", 16, "10.16.0.0/16"},
			{"east-1-a", "east-1", 24, "10.0.0.0/24"},
			{"east-1-b", "east-1", 24, "10.0.1.0/24"},
			{"west-1-a", "west-1", 24, "10.16.0.0/24"},
		} {
			pool := specs.Created(ctx, k8s, build.Pool(step.name).Child(step.parent, step.length).Obj())
			Expect(pool.Spec.CIDR).To(Equal(step.cidr), step.name)
			Expect(pool.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
			Expect(pool.Spec.RoutingDomain).To(BeEmpty())
			Expect(pool.Finalizers).To(ConsistOf(v1alpha1.FinalizerPool))
			tree = append(tree, pool)
		}
		for _, pool := range tree {
			specs.Ready(ctx, k8s, pool)
			Expect(pool.Status.AllocatedCIDR).To(Equal(pool.Spec.CIDR))
			Expect(reasons(pool.Status.Conditions)).To(Equal(map[string]string{
				"Ready": "True/Ready", "Allocated": "True/Recorded", "Exhausted": "False/HasRoom",
			}))
		}
	})

	It("records each pool in its home: a root in its routing domain, a child in its parent", func(ctx context.Context) {
		root := recordOf(ctx, "world")
		Expect(root.Spec.PoolRef).To(BeNil())
		Expect(root.Spec.RoutingDomain).To(Equal("pool-hierarchy"))
		Expect(root.Spec.CIDR).To(Equal("10.0.0.0/8"))
		child := recordOf(ctx, "east-1-a")
		Expect(child.Spec.PoolRef).To(Equal(&v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "east-1"}))
		Expect(child.Spec.RoutingDomain).To(BeEmpty())
		Expect(child.Spec.CIDR).To(Equal("10.0.0.0/24"))
		Expect(child.Spec.Purpose).To(Equal(v1alpha1.PurposePool))
		Expect(child.Spec.ClaimRef.Kind).To(Equal("IPPool"))
		Expect(child.Spec.ClaimRef.Name).To(Equal("east-1-a"))
		Expect(child.Finalizers).To(Equal([]string{v1alpha1.FinalizerHeld}))
		for _, pool := range tree {
			Eventually(func() string { return string(recordOf(ctx, pool.Name).Spec.ClaimRef.UID) }).Should(Equal(string(pool.UID)))
		}
	})

	It("counts children as the blocks that they hold", func(ctx context.Context) {
		world := build.Pool("world").Obj()
		Eventually(func() int64 { return specs.Stored(ctx, k8s, world).Status.Allocations }).Should(Equal(int64(2)))
		Expect(world.Status.Capacity).To(Equal(&v1alpha1.Capacity{
			Total: "16777216", Allocated: "2097152", Available: "14680064", Withheld: "0", OutOfRange: "0",
		})) // 2^24 is 2 * 2^20 and the rest
		Expect(world.Status.UtilizationPercent).To(Equal(int32(12)))
		Expect(world.Status.LargestFreePrefix).To(Equal("/9"))
		Eventually(available(ctx, "east-1")).Should(Equal("65024")) // 2^16 - 2 * 2^8
		Eventually(available(ctx, "east-1-a")).Should(Equal("256"))
	})

	It("hands out disjoint blocks of disjoint regions", func(ctx context.Context) {
		east := specs.Created(ctx, k8s, build.Claim(team, "east").Pool("east-1-a").Length(28).Obj())
		west := specs.Created(ctx, k8s, build.Claim(team, "west").Pool("west-1-a").Length(28).Obj())
		Expect(east.Spec.CIDR).To(Equal("10.0.0.0/28"))
		Expect(west.Spec.CIDR).To(Equal("10.16.0.0/28"))
		Eventually(phase(ctx, east)).Should(Equal(v1alpha1.ClaimBound))
		Eventually(phase(ctx, west)).Should(Equal(v1alpha1.ClaimBound))
	})

	It("hands out the blocks of a pool that its children do not have", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "between").Pool("east-1").Length(24).Obj())
		Expect(claim.Spec.CIDR).To(Equal("10.0.2.0/24"))
		deleted(ctx, claim)
	})

	It("gives a child exactly the block that it asks for, if that is free", func(ctx context.Context) {
		child := specs.Created(ctx, k8s, build.Pool("east-exact").With(func(s *v1alpha1.IPPoolSpec) {
			s.ParentRef = &v1alpha1.PoolReference{Name: "east"}
		}).CIDR("10.9.0.0/16").Obj())
		Expect(child.Spec.CIDR).To(Equal("10.9.0.0/16"))
		tree = append(tree, specs.Ready(ctx, k8s, child))
		refusal{code: 409, field: "spec.cidr", value: "10.9.128.0/17 conflicts with 10.9.0.0/16", remedy: "IPPool east-exact"}.expect(
			k8s.Create(ctx, build.Pool("east-inexact").With(func(s *v1alpha1.IPPoolSpec) {
				s.ParentRef = &v1alpha1.PoolReference{Name: "east"}
			}).CIDR("10.9.128.0/17").Obj()))
	})

	It("answers a dry run with the block that a child would get, and records nothing", func(ctx context.Context) {
		pool := build.Pool("east-dry").Child("east-1", 24).Obj()
		Expect(k8s.Create(ctx, pool, client.DryRunAll)).To(Succeed())
		Expect(pool.Spec.CIDR).To(Equal("10.0.2.0/24"))
		Expect(specs.RecordsIn(ctx, k8s, "east-1")).To(HaveLen(2))
	})

	It("keeps a parent for as long as a leaf of it lives", func(ctx context.Context) {
		claim := specs.Stored(ctx, k8s, build.Claim(team, "east").Obj())
		for _, name := range []string{"world", "east", "east-1", "east-1-a"} {
			err := k8s.Delete(ctx, build.Pool(name).Obj())
			Expect(err).To(Or(BeNil(), Satisfy(apierrors.IsConflict)), name)
		}
		Consistently(func() string {
			specs.Stored(ctx, k8s, build.Pool("world").Obj())
			specs.Stored(ctx, k8s, build.Pool("east").Obj())
			specs.Stored(ctx, k8s, build.Pool("east-1").Obj())
			specs.Stored(ctx, k8s, build.Pool("east-1-a").Obj())
			return string(specs.Stored(ctx, k8s, claim).Status.Phase) + " " + claim.Spec.CIDR
		}, "1s").Should(Equal("Bound 10.0.0.0/28"))
		Expect(recordOf(ctx, "east-1-a").DeletionTimestamp.IsZero()).To(BeTrue())
	})

	It("allows the deletion of a tree from its leaves once they are released", func(ctx context.Context) {
		Expect(k8s.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace(team))).To(Succeed())
		for _, pool := range slices.Backward(tree) {
			unwanted(ctx, pool)
		}
		for _, pool := range tree {
			record := &v1alpha1.IPAllocation{}
			record.Namespace, record.Name = cluster.Namespace, "ippool."+pool.Name
			Eventually(specs.IsGone(ctx, k8s, record)).Should(BeTrue(), pool.Name)
		}
		again := specs.Created(ctx, k8s, build.Pool("world-again").Domain("pool-hierarchy").CIDR("10.0.0.0/8").Obj())
		specs.Ready(ctx, k8s, again)
		Eventually(available(ctx, "world-again")).Should(Equal("16777216"))
	})

	It("does the same for IPv6, whose counts no 64 bits can hold", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("six").Domain("pool-hierarchy").CIDR("2001:db8::/32").Obj())
		Expect(specs.Created(ctx, k8s, build.Pool("six-1").Child("six", 40).Obj()).Spec.CIDR).To(Equal("2001:db8::/40"))
		Expect(specs.Created(ctx, k8s, build.Pool("six-2").Child("six", 40).Obj()).Spec.CIDR).To(Equal("2001:db8:100::/40"))
		leaf := specs.Created(ctx, k8s, build.Pool("six-2-a").Child("six-2", 48).Obj())
		Expect(leaf.Spec.CIDR).To(Equal("2001:db8:100::/48"))
		Expect(leaf.Spec.IPFamily).To(Equal(v1alpha1.IPv6))
		claim := specs.Created(ctx, k8s, build.Claim(team, "six").Pool("six-2-a").Length(64).Obj())
		Expect(netip.MustParsePrefix(claim.Spec.CIDR)).To(Equal(netip.MustParsePrefix("2001:db8:100::/64")))
		Eventually(available(ctx, "six")).Should(Equal("78609192494621647456094388224")) // 2^96 - 2 * 2^88
	})
})
