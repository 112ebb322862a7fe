package integration

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has separate routing domains.
var _ = Describe("strategies", Ordered, ContinueOnFailure, func() {
	const team = "strategies"

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	// fragmented makes a pool in which these are free, and everything else held:
	//
	//	   0        32        64  80  96        128                            255
	//	   |  held   | free /27 |held|/28|  held   |           free /25           |
	fragmented := func(ctx context.Context, name string, strategy v1alpha1.Strategy) *v1alpha1.IPPool {
		GinkgoHelper()
		pool := specs.Pool(ctx, k8s, build.Pool(name).Domain(name).CIDR("10.36.0.0/24").Strategy(strategy).Obj())
		for _, cidr := range []string{"10.36.0.0/27", "10.36.0.64/28", "10.36.0.96/27"} {
			specs.Created(ctx, k8s, build.Claim(team, "").Generated("held-").Pool(name).CIDR(cidr).Obj())
		}
		return pool
	}

	DescribeTable("hand out, of a pool with holes,", func(ctx context.Context, strategy v1alpha1.Strategy, want ...string) {
		pool := fragmented(ctx, unused(), strategy)
		var got []string
		for _, cidr := range want {
			bits := int32(netip.MustParsePrefix(cidr).Bits())
			got = append(got, specs.Created(ctx, k8s, build.Claim(team, "").Generated("next-").Pool(pool.Name).Length(bits).Obj()).Spec.CIDR)
		}
		Expect(got).To(Equal(want))
	},
		Entry("by FirstFit the lowest address", v1alpha1.StrategyFirstFit,
			"10.36.0.32/28", "10.36.0.48/28", "10.36.0.80/29", "10.36.0.128/26", "10.36.0.88/30"),
		Entry("by default the lowest address", v1alpha1.Strategy(""),
			"10.36.0.32/28", "10.36.0.48/28", "10.36.0.80/29", "10.36.0.128/26", "10.36.0.88/30"),
		Entry("by BestFit from the smallest hole that is large enough", v1alpha1.StrategyBestFit,
			"10.36.0.80/28", "10.36.0.32/28", "10.36.0.48/29", "10.36.0.56/30", "10.36.0.128/27"),
		Entry("by WorstFit from the largest hole", v1alpha1.StrategyWorstFit,
			"10.36.0.128/28", "10.36.0.192/28", "10.36.0.32/29", "10.36.0.160/30"),
	)

	It("hand out by Random free blocks, and no two claims the same", func(ctx context.Context) {
		pool := fragmented(ctx, "strategy-random", v1alpha1.StrategyRandom)
		within := netip.MustParsePrefix("10.36.0.0/24")
		got := map[netip.Prefix]bool{}
		for range 11 { // all that is free: 2 + 1 + 8 blocks of 16 addresses
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("random-").Pool(pool.Name).Length(28).Obj())
			block := netip.MustParsePrefix(claim.Spec.CIDR)
			Expect(block.Bits()).To(Equal(28))
			Expect(within.Contains(block.Addr())).To(BeTrue())
			Expect(got).NotTo(HaveKey(block))
			got[block] = true
		}
		for _, taken := range []string{"10.36.0.0/28", "10.36.0.16/28", "10.36.0.64/28", "10.36.0.96/28", "10.36.0.112/28"} {
			Expect(got).NotTo(HaveKey(netip.MustParsePrefix(taken)))
		}
		Eventually(available(ctx, pool.Name)).Should(Equal("0"))
	})

	It("hand out by Random in no order", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("strategy-random-hosts").Domain("strategy-random-hosts").CIDR("10.36.0.0/24").Strategy(v1alpha1.StrategyRandom).Obj())
		var got []netip.Addr
		for range 16 {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("random-host-").Pool("strategy-random-hosts").Length(32).Obj())
			got = append(got, netip.MustParsePrefix(claim.Spec.CIDR).Addr())
		}
		// Each is the free one at or after a random address, so that the lowest is the next
		// with a chance of (n+1)/256.
		Expect(slices.IsSortedFunc(got, netip.Addr.Compare)).To(BeFalse(), "one chance in 10^25")
	})

	It("hand out by Random in IPv6 from all over the pool", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("strategy-random-six").Domain("strategy-random").CIDR("2001:db8:36::/48").Strategy(v1alpha1.StrategyRandom).Obj())
		thirds := map[byte]bool{}
		for range 64 {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("random-six-").Pool("strategy-random-six").Length(64).Obj())
			block := netip.MustParsePrefix(claim.Spec.CIDR)
			Expect(netip.MustParsePrefix("2001:db8:36::/48").Contains(block.Addr())).To(BeTrue())
			thirds[block.Addr().As16()[6]>>6] = true
		}
		Expect(thirds).To(HaveLen(4), "a quarter that 64 random blocks leave out: one chance in 25,000,000")
	})

	It("apply to child pools as to claims", func(ctx context.Context) {
		parent := fragmented(ctx, "strategy-parent", v1alpha1.StrategyBestFit)
		for i, want := range []string{"10.36.0.80/28", "10.36.0.32/28"} {
			child := specs.Created(ctx, k8s, build.Pool(fmt.Sprintf("strategy-child-%d", i)).Child(parent.Name, 28).Obj())
			Expect(child.Spec.CIDR).To(Equal(want))
		}
	})
})
