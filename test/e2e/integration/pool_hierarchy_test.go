package integration

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		Expect(child.Spec.PoolRef).To(Equal(&v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "east-1"}))
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
		claim := answered(ctx, build.Claim(team, "between").Pool("east-1").Length(24).Obj(), "10.0.2.0/24")
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

// This topic has 10.36.0.0/16 and 2001:db8:36::/48 of a separate routing domain.
var _ = Describe("pools at the edges", Ordered, ContinueOnFailure, func() {
	const team = "pool-edges"
	var wire *witness

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		wire = newWitness()
	})

	message := func(ctx context.Context, pool *v1alpha1.IPPool) func() string {
		return func() string {
			ready := meta.FindStatusCondition(specs.Stored(ctx, k8s, pool).Status.Conditions, v1alpha1.ConditionReady)
			if ready == nil {
				return ""
			}
			return fmt.Sprintf("%s/%s: %s", ready.Status, ready.Reason, ready.Message)
		}
	}
	pending := func(ctx context.Context, claim *v1alpha1.IPClaim) func() string {
		return func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }
	}
	// many returns entries for so many single addresses, every other one from a number on.
	many := func(prefix string, from, count int) (entries []string) {
		for i := range count {
			entries = append(entries, fmt.Sprintf("%s:%x", prefix, from+2*i))
		}
		return entries
	}

	It("have 1,024 ranges and as many reserved ones, and no more", func(ctx context.Context) {
		pool := build.Pool("edges-many").Domain("edges").CIDR("2001:db8:36::/64").
			Ranges(many("2001:db8:36:", 2, 1024)...).Reserved(many("2001:db8:36:", 2, 1023)...).Obj()
		specs.Pool(ctx, k8s, pool)
		answered(ctx, build.Claim(team, "last").Pool("edges-many").Length(128).Obj(), "2001:db8:36::800/128")
		Expect(patched(ctx, pool, `{reserved: null}`)).To(Succeed())
		Eventually(func() string { return specs.Stored(ctx, k8s, pool).Status.Capacity.Available }).Should(Equal("1023"))
		tooMany := build.Pool("edges-too-many").Domain("edges").CIDR("2001:db8:36:1::/64").Ranges(many("2001:db8:36:1:", 2, 1025)...).Obj()
		Expect(k8s.Create(ctx, tooMany)).To(MatchError(ContainSubstring("spec.ranges: Too many: 1025: must have at most 1024 items")))
	})

	It("report CannotFit for a claim that even an empty pool could not serve, and let others pass", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-fit").Domain("edges").CIDR("10.36.0.0/24").Ranges("10.36.0.64/26").Obj())
		large := specs.Created(ctx, k8s, build.Claim(team, "large").Pool("edges-fit").Length(24).Obj())
		Eventually(pending(ctx, large)).Should(Equal("True/CannotFit"))
		Expect(meta.FindStatusCondition(large.Status.Conditions, "Pending").Message).To(Equal(
			"no /24 can be handed out: the ranges and reserved addresses of pool edges-fit (10.36.0.0/24) leave a /26 at most, even when it is empty: ask for a smaller block, or change them"))
		answered(ctx, build.Claim(team, "small").Pool("edges-fit").Length(27).Obj(), "10.36.0.64/27")
		child := specs.Created(ctx, k8s, build.Pool("edges-fit-child").Child("edges-fit", 25).Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions)["Allocated"] }).Should(Equal("False/CannotFit"))

		By("serving it once the pool is changed")
		deleted(ctx, &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "small"}})
		Expect(patched(ctx, pool, `{ranges: null}`)).To(Succeed())
		Eventually(func() string {
			return specs.Stored(ctx, k8s, large).Status.AllocatedCIDR + specs.Stored(ctx, k8s, child).Status.AllocatedCIDR
		}).ShouldNot(BeEmpty())
	})

	It("refuse it with 422 if they are set to reject", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("edges-refuse").Domain("edges").CIDR("10.36.1.0/24").Reserved("10.36.1.0").Rejects().Obj())
		Expect(wire.Create(ctx, build.Claim(team, "refused").Pool("edges-refuse").Length(24).Obj())).To(
			MatchError(ContainSubstring("spec.prefixLength: Invalid value: 24: the ranges and reserved addresses of pool edges-refuse (10.36.1.0/24) leave a /25 at most")))
		Expect(wire.code()).To(Equal(http.StatusUnprocessableEntity))
	})

	It("report that they are full, and which blocks are held out of range", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-full").Domain("edges").CIDR("10.36.2.0/30").Obj())
		for i := range 4 {
			specs.Created(ctx, k8s, build.Claim(team, fmt.Sprintf("full-%d", i)).Pool("edges-full").Length(32).Obj())
		}
		Eventually(message(ctx, pool)).Should(Equal("True/Full: the pool is full: wait until a block is released, or add a pool"))
		deleted(ctx, &v1alpha1.IPClaim{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "full-3"}})
		Eventually(message(ctx, pool)).Should(Equal("True/Ready: the pool hands out blocks"))
		Expect(patched(ctx, pool, `{reserved: [10.36.2.0-10.36.2.2]}`)).To(Succeed())
		Eventually(func() string { return specs.Stored(ctx, k8s, pool).Status.Capacity.OutOfRange }).Should(Equal("3"))
		Expect(pool.Status.UtilizationPercent).To(BeEquivalentTo(75))
	})

	It("are paused by an annotation, with any value", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-paused").Domain("edges").CIDR("10.36.3.0/24").Obj())
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: "false"} })
		Eventually(func() v1alpha1.PoolPhase { return specs.Stored(ctx, k8s, pool).Status.Phase }).Should(Equal(v1alpha1.PoolPaused))
		Expect(message(ctx, pool)()).To(Equal("False/Paused: the annotation ipam.cadastre.dev/paused pauses the pool, whatever its value: remove it to hand out blocks again"))
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
		specs.Ready(ctx, k8s, pool)
	})

	It("get back a removed finalizer, unless they are paused", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("edges-finalizer").Domain("edges").CIDR("10.36.4.0/24").Obj())
		specs.Created(ctx, k8s, build.Claim(team, "held").Pool("edges-finalizer").Length(32).Obj())
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Finalizers = nil })
		Eventually(func() []string { return specs.Stored(ctx, k8s, pool).Finalizers }).Should(ContainElement(v1alpha1.FinalizerPool))
	})

	It("have a gateway that is link-local", func(ctx context.Context) {
		pool := build.Pool("edges-gateway").Domain("edges").CIDR("2001:db8:36:2::/64").Network(64, "fe80::1").Obj()
		pool = specs.Pool(ctx, k8s, pool)
		Expect(pool.Status.Capacity.Withheld).To(Equal("1")) // the subnet-router anycast address
	})

	It("warn of class names that have no effect", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("edges-six").V6().Obj())
		Eventually(func() []string { // the class may not have been seen yet
			Expect(wire.Create(ctx, build.Pool("edges-classes").Domain("edges").CIDR("10.36.5.0/24").Classes("edges-none", "edges-six").Obj(), client.DryRunAll)).To(Succeed())
			return wire.takeWarnings()
		}).Should(Equal([]string{
			`spec.classNames: there is no IPClass "edges-none": create it, or correct the name`,
			`spec.classNames: IPClass "edges-six" does not hand out IPv4, the family of this pool: remove it, as it is not served from here`,
		}))
	})

	It("name the holders and the records that keep them, and how to release those", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("edges-retain").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj())
		pool := specs.Pool(ctx, k8s, build.Pool("edges-kept").Domain("edges").CIDR("10.36.6.0/24").Classes("edges-retain").Obj())
		claim := specs.Bound(ctx, k8s, build.Claim(team, "kept").Class("edges-retain").Obj())
		Expect(k8s.Delete(ctx, pool)).To(MatchError(ContainSubstring("pool edges-kept is in use by 1 allocation (IPClaim pool-edges/kept): delete it first")))
		deleted(ctx, claim)
		record := specs.RecordOf(claim)
		Eventually(func() v1alpha1.AllocationState { return specs.Stored(ctx, k8s, record).Spec.State }).Should(Equal(v1alpha1.AllocationRetained))
		Eventually(func() error { return k8s.Delete(ctx, pool, client.DryRunAll) }).Should(MatchError(And(
			ContainSubstring("pool edges-kept is in use by 1 allocation: IPAllocation pool-edges/"+record.Name+" is retained"),
			ContainSubstring(": delete it to release the block"))))
	})
})
