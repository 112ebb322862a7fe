package integration

import (
	"context"
	"net/netip"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("claim-lifecycle", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "claim-lifecycle")
		specs.Pool(ctx, k8s, build.Pool("lifecycle").CIDR("10.10.0.0/16").Obj())
	})

	It("answers each create call with a block, all of them disjoint and contained", func(ctx context.Context) {
		pool := netip.MustParsePrefix("10.10.0.0/16")
		var blocks []netip.Prefix
		for _, bits := range []int32{24, 28, 20, 32, 24} {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("size-").Pool("lifecycle").Length(bits).Obj())
			block := netip.MustParsePrefix(claim.Spec.CIDR)
			Expect(block.Bits()).To(Equal(int(bits)))
			Expect(pool.Contains(block.Addr())).To(BeTrue())
			for _, other := range blocks {
				Expect(block.Overlaps(other)).To(BeFalse(), "%s and %s", block, other)
			}
			blocks = append(blocks, block)
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		}
		Eventually(available(ctx, "lifecycle")).Should(Equal("60911")) // 65536 - 256 - 16 - 4096 - 1 - 256
	})

	It("shows the held block in the status", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "status").Pool("lifecycle").Length(32).Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(claim.Status.AllocatedCIDR).To(Equal(claim.Spec.CIDR))
		Expect(claim.Status.Address + "/32").To(Equal(claim.Spec.CIDR))
		Expect(claim.Status.PoolRef).To(Equal(&v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "lifecycle"}))
		Expect(claim.Status.BoundAllocationRef.Name).To(Equal(claim.Spec.AllocationName))
		Expect(reasons(claim.Status.Conditions)).To(Equal(map[string]string{
			"Ready": "True/Bound", "Bound": "True/Bound", "Pending": "False/Bound", "Exhausted": "False/Bound",
		}))
		Expect(recordsOf(ctx, claim)).To(ConsistOf(team + "/" + claim.Spec.AllocationName))
		record := &v1alpha1.IPAllocation{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: team, Name: claim.Spec.AllocationName}, record)).To(Succeed())
		Expect(record.Spec.CIDR).To(Equal(claim.Spec.CIDR))
		Expect(record.Spec.ClaimRef.Name).To(Equal("status"))
		Expect(record.Spec.RequestedBy).NotTo(BeEmpty())
		Expect(record.Finalizers).To(Equal([]string{v1alpha1.FinalizerHeld}))
	})

	It("releases deleted claims, to the last address", func(ctx context.Context) {
		Expect(k8s.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace(team))).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "lifecycle") }).Should(BeEmpty())
		Eventually(available(ctx, "lifecycle")).Should(Equal("65536"))
	})

	It("supports delete-then-create on a full pool", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("lifecycle-one").CIDR("10.11.0.0/32").Obj())
		atOnce := 0
		for range 50 {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("only-").Pool("lifecycle-one").Length(32).Obj())
			if claim.Spec.CIDR != "" {
				atOnce++
			}
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
			Expect(claim.Spec.CIDR).To(Equal("10.11.0.0/32"))
			deleted(ctx, claim)
		}
		// The test does not wait for a release that takes longer than 250 ms, on a machine that is
		// busy.
		Expect(atOnce).To(BeNumerically(">", 25), "the release that is on its way is waited for")
	})

	It("keeps the block of a deleted claim for as long as a foreign finalizer holds it", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("lifecycle-vm").CIDR("10.12.0.0/32").Obj())
		vm := specs.Created(ctx, k8s, build.Claim(team, "vm").Pool("lifecycle-vm").Length(32).Finalizer("example.com/vm").Obj())
		deleted(ctx, vm)
		next := specs.Created(ctx, k8s, build.Claim(team, "next").Pool("lifecycle-vm").Length(32).Obj())
		Expect(next.Spec.CIDR).To(BeEmpty())
		Expect(specs.RecordsIn(ctx, k8s, "lifecycle-vm")).To(HaveLen(1))
		specs.Edited(ctx, k8s, vm, func(c *v1alpha1.IPClaim) { c.Finalizers = nil })
		Eventually(phase(ctx, next)).Should(Equal(v1alpha1.ClaimBound))
		Expect(next.Spec.CIDR).To(Equal("10.12.0.0/32"))
	})

	It("answers a dry run with the block that it would give, and records nothing", func(ctx context.Context) {
		claim := build.Claim(team, "dry").Pool("lifecycle").Length(24).Obj()
		Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
		Expect(claim.Spec.CIDR).To(Equal("10.10.0.0/24"))
		Expect(specs.RecordsIn(ctx, k8s, "lifecycle")).To(BeEmpty())
	})

	It("keeps the block when an update leaves it out", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "replaced").Pool("lifecycle").Length(24).Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		before := claim.Spec
		specs.Edited(ctx, k8s, claim, func(c *v1alpha1.IPClaim) {
			c.Spec = build.Claim(team, "replaced").Pool("lifecycle").Length(24).Obj().Spec
		})
		Expect(claim.Spec).To(Equal(before))
	})
})
