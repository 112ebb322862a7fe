package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has 10.35.0.0/16 of a separate routing domain.
var _ = Describe("drain", Ordered, ContinueOnFailure, func() {
	const team = "drain"

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	// expectCapacity waits until a pool's status has these counts.
	expectCapacity := func(ctx context.Context, pool *v1alpha1.IPPool, allocated, available, withheld, outOfRange string) {
		GinkgoHelper()
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, pool).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "256", Allocated: allocated, Available: available, Withheld: withheld, OutOfRange: outOfRange})))
	}
	// held makes claims for the next blocks of 16 addresses of a pool.
	held := func(ctx context.Context, pool string, want ...string) []*v1alpha1.IPClaim {
		GinkgoHelper()
		claims := make([]*v1alpha1.IPClaim, len(want))
		for i, cidr := range want {
			claims[i] = specs.Created(ctx, k8s, build.Claim(team, "").Generated(pool+"-").Pool(pool).Length(28).Obj())
			Expect(claims[i].Spec.CIDR).To(Equal(cidr))
			Eventually(phase(ctx, claims[i])).Should(Equal(v1alpha1.ClaimBound))
		}
		return claims
	}

	It("keeps a block that becomes reserved, counts it, and does not hand it out again", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-reserved").Domain("drain").CIDR("10.35.0.0/24").Obj())
		claims := held(ctx, "drain-reserved", "10.35.0.0/28", "10.35.0.16/28", "10.35.0.32/28")
		expectCapacity(ctx, pool, "48", "208", "0", "0")

		Expect(patched(ctx, pool, `{reserved: [10.35.0.16/28]}`)).To(Succeed())
		expectCapacity(ctx, pool, "48", "208", "16", "16")
		Expect(pool.Status.Allocations).To(Equal(int64(3)))
		Expect(specs.Stored(ctx, k8s, claims[1]).Status.Phase).To(Equal(v1alpha1.ClaimBound))
		Expect(claims[1].Spec.CIDR).To(Equal("10.35.0.16/28"))
		held(ctx, "drain-reserved", "10.35.0.48/28")
		expectCapacity(ctx, pool, "64", "192", "16", "16")

		deleted(ctx, claims[1])
		expectCapacity(ctx, pool, "48", "192", "16", "0")
		held(ctx, "drain-reserved", "10.35.0.64/28")

		Expect(patched(ctx, pool, `{reserved: null}`)).To(Succeed())
		expectCapacity(ctx, pool, "64", "192", "0", "0")
		held(ctx, "drain-reserved", "10.35.0.16/28")
	})

	It("does so with blocks that changed ranges leave out", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-ranges").Domain("drain").CIDR("10.35.1.0/24").Obj())
		claims := held(ctx, "drain-ranges", "10.35.1.0/28", "10.35.1.16/28")
		Expect(patched(ctx, pool, `{ranges: [10.35.1.128-10.35.1.255]}`)).To(Succeed())
		expectCapacity(ctx, pool, "32", "128", "128", "32")
		Expect(pool.Status.LargestFreePrefix).To(Equal("/25"))
		Expect(pool.Status.UtilizationPercent).To(Equal(int32(20)), "32 of 160 addresses that are held or free")
		inside := held(ctx, "drain-ranges", "10.35.1.128/28")
		expectCapacity(ctx, pool, "48", "112", "128", "32")

		Expect(patched(ctx, pool, `{ranges: [10.35.1.0/26]}`)).To(Succeed())
		expectCapacity(ctx, pool, "48", "32", "192", "16")
		deleted(ctx, claims[0])
		expectCapacity(ctx, pool, "32", "48", "192", "16")
		deleted(ctx, inside[0])
		expectCapacity(ctx, pool, "16", "48", "192", "0")
		held(ctx, "drain-ranges", "10.35.1.0/28", "10.35.1.32/28", "10.35.1.48/28")
		expectCapacity(ctx, pool, "64", "0", "192", "0")
		Expect(pool.Status.Phase).To(Equal(v1alpha1.PoolExhausted))
	})

	It("counts a partly reserved block to the address, and hands out the rest of it", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-parts").Domain("drain").CIDR("10.35.2.0/24").Obj())
		claims := held(ctx, "drain-parts", "10.35.2.0/28", "10.35.2.16/28")
		Expect(patched(ctx, pool, `{reserved: [10.35.2.8-10.35.2.23, 10.35.2.200]}`)).To(Succeed())
		expectCapacity(ctx, pool, "32", "223", "17", "16") // 8 of each block, and one that is free
		deleted(ctx, claims[0])
		expectCapacity(ctx, pool, "16", "231", "17", "8")
		half := specs.Created(ctx, k8s, build.Claim(team, "half").Pool("drain-parts").Length(29).Obj())
		Expect(half.Spec.CIDR).To(Equal("10.35.2.0/29"))
		expectCapacity(ctx, pool, "24", "223", "17", "8")
		deleted(ctx, claims[1])
		expectCapacity(ctx, pool, "8", "231", "17", "0")
		Expect(specs.Created(ctx, k8s, build.Claim(team, "half-2").Pool("drain-parts").Length(29).Obj()).Spec.CIDR).To(Equal("10.35.2.24/29"))
	})

	It("drains a pool altogether", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-all").Domain("drain").CIDR("10.35.3.0/24").Obj())
		claims := held(ctx, "drain-all", "10.35.3.0/28", "10.35.3.16/28")
		Expect(patched(ctx, pool, `{reserved: [10.35.3.0/24]}`)).To(Succeed())
		expectCapacity(ctx, pool, "32", "0", "256", "32")
		Eventually(func() v1alpha1.PoolPhase { return specs.Stored(ctx, k8s, pool).Status.Phase }).Should(Equal(v1alpha1.PoolExhausted))
		waits := specs.Created(ctx, k8s, build.Claim(team, "waits").Pool("drain-all").Length(28).Obj())
		pending := func() string { return reasons(specs.Stored(ctx, k8s, waits).Status.Conditions)["Pending"] }
		Eventually(pending).Should(Equal("True/CannotFit")) // no release would help
		deleted(ctx, claims[0])
		deleted(ctx, claims[1])
		expectCapacity(ctx, pool, "0", "0", "256", "0")
		Expect(pending()).To(Equal("True/CannotFit"))
		Expect(patched(ctx, pool, `{reserved: [10.35.3.0/25]}`)).To(Succeed())
		expectBound(ctx, waits, "10.35.3.128/28")
	})

	It("keeps a child pool whose block becomes reserved in its parent", func(ctx context.Context) {
		parent := specs.Pool(ctx, k8s, build.Pool("drain-parent").Domain("drain").CIDR("10.35.4.0/24").Obj())
		child := specs.Pool(ctx, k8s, build.Pool("drain-child").Child("drain-parent", 26).Obj())
		Expect(patched(ctx, parent, `{reserved: [10.35.4.0/26]}`)).To(Succeed())
		expectCapacity(ctx, parent, "64", "192", "64", "64")
		Expect(specs.Stored(ctx, k8s, child).Status.Phase).To(Equal(v1alpha1.PoolReady))
		Expect(specs.Created(ctx, k8s, build.Claim(team, "of-child").Pool("drain-child").Length(28).Obj()).Spec.CIDR).To(Equal("10.35.4.0/28"))
	})
})
