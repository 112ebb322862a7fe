package integration

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has 10.34.0.0/16 of a separate routing domain.
var _ = Describe("static-block", Ordered, ContinueOnFailure, func() {
	const team, strangers = "static-block", "static-block-strangers"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Namespace(ctx, k8s, strangers)
		specs.Created(ctx, k8s, build.Class("static").Length(24).Obj())
		specs.Pool(ctx, k8s, build.Pool("static-a").Domain("static-block").CIDR("10.34.0.0/20").Reserved("10.34.15.0/24").Classes("static").Obj())
		specs.Pool(ctx, k8s, build.Pool("static-b").Domain("static-block").CIDR("10.34.16.0/20").Classes("static").Obj())
		specs.Pool(ctx, k8s, build.Pool("static-hosts").Domain("static-block").CIDR("10.34.32.0/24").Network(24, "10.34.32.1").Ranges("10.34.32.0/25").Obj())
		served(ctx, build.Claim(team, "held").Pool("static-a").CIDR("10.34.4.0/24").Obj(), "10.34.4.0/24")
	})

	// refused asks for a block that is not available, and returns the message.
	refused := func(ctx context.Context, pool, cidr string) string {
		GinkgoHelper()
		claim := build.Claim(team, unused()).Pool(pool).CIDR(cidr).Obj()
		err := k8s.Create(ctx, claim.DeepCopy())
		Expect(err).To(Satisfy(apierrors.IsConflict), "%v", err)
		Expect(specs.IsGone(ctx, k8s, claim)()).To(BeTrue())
		Expect(recordsOf(ctx, claim)).To(BeEmpty())
		Expect(err.Error()).To(And(ContainSubstring("spec.cidr: "+cidr), ContainSubstring("leave cidr out to get a free block, or ask for another")))
		return err.Error()
	}

	It("is given to a claim that asks a pool for it", func(ctx context.Context) {
		claim := served(ctx, build.Claim(team, "by-pool").Pool("static-a").CIDR("10.34.8.0/22").Obj(), "10.34.8.0/22")
		Expect(claim.Spec.PrefixLength).To(HaveValue(Equal(int32(22))))
		Expect(claim.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
	})

	It("is given to a claim that asks a class for it, from the pool in which it lies", func(ctx context.Context) {
		claim := served(ctx, build.Claim(team, "by-class").Class("static").CIDR("10.34.20.0/24").Obj(), "10.34.20.0/24")
		Expect(claim.Status.PoolRef.Name).To(Equal("static-b"))
	})

	It("may be a single address, with the length stated or not", func(ctx context.Context) {
		served(ctx, build.Claim(team, "address").Pool("static-hosts").CIDR("10.34.32.9/32").Obj(), "10.34.32.9/32")
		stated := served(ctx, build.Claim(team, "address-stated").Pool("static-hosts").CIDR("10.34.32.10/32").Length(32).Obj(), "10.34.32.10/32")
		Expect(stated.Status.Address).To(Equal("10.34.32.10"))
	})

	DescribeTable("is refused as in use", func(ctx context.Context, cidr string) {
		Expect(refused(ctx, "static-a", cidr)).To(ContainSubstring(cidr + " conflicts with 10.34.4.0/24 of pool static-a, held by IPClaim static-block/held"))
	},
		Entry("if another claim holds it", "10.34.4.0/24"),
		Entry("if it is a part of another claim's block", "10.34.4.128/25"),
		Entry("if it is an address of another claim's block", "10.34.4.7/32"),
		Entry("if another claim holds a part of it", "10.34.4.0/23"),
	)

	It("does not show the waiting claim to a stranger", func(ctx context.Context) {
		holder := specs.Created(ctx, k8s, build.Claim(team, "late-held").Pool("static-late").CIDR("10.34.48.0/24").Obj())
		Eventually(phase(ctx, holder)).Should(Equal(v1alpha1.ClaimPending))
		strange := specs.Created(ctx, k8s, build.Claim(strangers, "late-strange").Pool("static-late").CIDR("10.34.48.0/24").Obj())
		specs.Pool(ctx, k8s, build.Pool("static-late").Domain("static-block").CIDR("10.34.48.0/20").Obj())
		expectBound(ctx, holder, "10.34.48.0/24")
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, strange).Status.Conditions)["Pending"] }).Should(Equal("True/Conflict"))
		for _, condition := range strange.Status.Conditions {
			Expect(condition.Message).To(HavePrefix("10.34.48.0/24 is in use in pool static-late"))
			Expect(condition.Message).NotTo(ContainSubstring("late-held"))
		}
	})

	It("is refused as in use of a class too", func(ctx context.Context) {
		err := k8s.Create(ctx, build.Claim(team, "by-class-2").Class("static").CIDR("10.34.20.0/24").Obj())
		Expect(err).To(Satisfy(apierrors.IsConflict))
		Expect(err.Error()).To(ContainSubstring("10.34.20.0/24 conflicts with 10.34.20.0/24 of pool static-b, held by IPClaim static-block/by-class"))
	})

	DescribeTable("is refused if it is withheld:", func(ctx context.Context, pool, cidr string) {
		Expect(refused(ctx, pool, cidr)).To(ContainSubstring(cidr + " is not handed out by pool " + pool + ": it is reserved, a gateway or edge address, or outside its ranges"))
	},
		Entry("reserved", "static-a", "10.34.15.0/24"),
		Entry("partly reserved", "static-a", "10.34.14.0/23"),
		Entry("a gateway", "static-hosts", "10.34.32.1/32"),
		Entry("a network address", "static-hosts", "10.34.32.0/32"),
		Entry("outside of the ranges", "static-hosts", "10.34.32.200/32"),
	)

	It("is refused outside of the pool, and outside of all pools of the class", func(ctx context.Context) {
		expectRefused(ctx, written("IPClaim", team, unused(), `{poolRef: {name: static-a}, cidr: 10.34.16.0/24}`),
			refusal{field: "spec.cidr", value: `"10.34.16.0/24"`, remedy: "lies outside pool static-a, which is 10.34.0.0/20"})
		expectRefused(ctx, written("IPClaim", team, unused(), `{className: static, cidr: 10.99.0.0/24}`),
			refusal{field: "spec.cidr", value: `"10.99.0.0/24"`, remedy: "lies outside"})
	})

	It("is refused, and does not wait, for any onExhaustion of the pool", func(ctx context.Context) {
		Expect(specs.Stored(ctx, k8s, build.Pool("static-a").Obj()).Spec.OnExhaustion).To(Or(BeEmpty(), Equal(v1alpha1.OnExhaustionWait)))
		refused(ctx, "static-a", "10.34.4.0/24")
	})

	It("is answered in a dry run as it would be", func(ctx context.Context) {
		free := build.Claim(team, "dry").Pool("static-a").CIDR("10.34.1.0/24").Obj()
		Expect(k8s.Create(ctx, free, client.DryRunAll)).To(Succeed())
		Expect(k8s.Create(ctx, build.Claim(team, "dry").Pool("static-a").CIDR("10.34.4.0/24").Obj(), client.DryRunAll)).To(Satisfy(apierrors.IsConflict))
	})

	It("is not handed out to a claim that asks for any block", func(ctx context.Context) {
		for _, want := range []struct {
			length int32
			cidr   string
		}{{22, "10.34.0.0/22"}, {24, "10.34.5.0/24"}, {23, "10.34.6.0/23"}, {23, "10.34.12.0/23"}, {24, "10.34.14.0/24"}} {
			answered(ctx, build.Claim(team, "").Generated("any-").Pool("static-a").Length(want.length).Obj(), want.cidr)
		}
	})

	It("is free again as soon as its claim is deleted", func(ctx context.Context) {
		atOnce := 0
		for range 20 {
			claim := build.Claim(team, "").Generated("again-").Pool("static-b").CIDR("10.34.31.0/24").Obj()
			if err := k8s.Create(ctx, claim); err == nil {
				atOnce++
			} else {
				Expect(err).To(Satisfy(apierrors.IsConflict))
				Eventually(func() error { return k8s.Create(ctx, claim) }).Should(Succeed())
			}
			Expect(claim.Spec.CIDR).To(Equal("10.34.31.0/24"))
			deleted(ctx, claim)
		}
		// The create does not wait for a release that takes longer than 250 ms, on a machine that is
		// busy.
		Expect(atOnce).To(BeNumerically(">", 10), "the release that is on its way is waited for")
	})
})

// This topic has 10.69.0.0/24 of a separate routing domain.
var _ = Describe("exact-without-class", Ordered, func() {
	It("binds a claim of an exact block that was made before there was a default class", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "exact-without-class")
		claim := specs.Created(ctx, k8s, build.Claim(team, "early").CIDR("10.69.0.128/28").Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }).Should(Equal("True/NoDefaultClass"))
		class := specs.Created(ctx, k8s, build.Class("exact-late").Length(28).Default().Obj())
		DeferCleanup(withoutDefault, class)
		specs.Pool(ctx, k8s, build.Pool("exact-late").Domain("exact-without-class").CIDR("10.69.0.0/24").Classes("exact-late").Obj())
		expectBound(ctx, claim, "10.69.0.128/28")
		Expect(claim.Spec.ClassName).To(Equal("exact-late"))

		By("keeping the class from then on")
		expectUnchangeable(ctx, claim, `{className: exact-other}`, refusal{field: "spec.className", remedy: "is immutable: make a new claim"})
		Expect(specs.Stored(ctx, k8s, claim).Status.Phase).To(Equal(v1alpha1.ClaimBound))
	})
})

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

// This topic has 10.33.0.0/16 of a separate routing domain.
var _ = Describe("class-many-pools", Ordered, ContinueOnFailure, func() {
	const team = "class-many-pools"

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	// backed makes a class that hands out single addresses, and its pools.
	backed := func(ctx context.Context, class string, by v1alpha1.PoolSelection, cidrs map[string]string) {
		GinkgoHelper()
		specs.Created(ctx, k8s, build.Class(class).Length(32).With(func(s *v1alpha1.IPClassSpec) { s.PoolSelection = by }).Obj())
		for name, cidr := range cidrs {
			specs.Pool(ctx, k8s, build.Pool(name).Domain("class-many-pools").CIDR(cidr).Classes(class).Obj())
		}
	}

	// handedOut returns the next blocks that a class gives, claim after claim.
	handedOut := func(ctx context.Context, class string, count int) []string {
		GinkgoHelper()
		var blocks []string
		for range count {
			blocks = append(blocks, specs.Created(ctx, k8s, build.Claim(team, "").Generated(class+"-").Class(class).Obj()).Spec.CIDR)
		}
		return blocks
	}

	It("uses the next pool by name when the first is full", func(ctx context.Context) {
		backed(ctx, "many-first", v1alpha1.SelectFirstFit, map[string]string{
			"many-first-b": "10.33.0.0/31", "many-first-a": "10.33.1.0/31", "many-first-c": "10.33.2.0/31",
		})
		Expect(handedOut(ctx, "many-first", 5)).To(Equal([]string{
			"10.33.1.0/32", "10.33.1.1/32", "10.33.0.0/32", "10.33.0.1/32", "10.33.2.0/32",
		}))
	})

	It("returns to the first as soon as it has room", func(ctx context.Context) {
		var first *v1alpha1.IPClaim
		claims := &v1alpha1.IPClaimList{}
		Expect(k8s.List(ctx, claims)).To(Succeed())
		for i := range claims.Items {
			if claims.Items[i].Spec.CIDR == "10.33.1.0/32" {
				first = &claims.Items[i]
			}
		}
		Expect(first).NotTo(BeNil())
		deleted(ctx, first)
		Eventually(func() int { return len(specs.RecordsIn(ctx, k8s, "many-first-a")) }).Should(Equal(1))
		Eventually(available(ctx, "many-first-a")).Should(Equal("1"))
		Expect(handedOut(ctx, "many-first", 2)).To(Equal([]string{"10.33.1.0/32", "10.33.2.1/32"}))
	})

	It("makes a claim wait when all are full, names them, and serves it from the first that has room", func(ctx context.Context) {
		waits := specs.Created(ctx, k8s, build.Claim(team, "waits").Class("many-first").Obj())
		expectExhausted(ctx, waits, "no free /32 in pool many-first-a, pool many-first-b, pool many-first-c: the claim is bound as soon as one is released")
		specs.Created(ctx, k8s, build.Pool("many-first-d").Domain("class-many-pools").CIDR("10.33.3.0/32").Classes("many-first").Obj())
		expectBound(ctx, waits, "10.33.3.0/32")
	})

	It("skips pools that have no block of that length, and returns for one that they have", func(ctx context.Context) {
		backed(ctx, "many-sizes", v1alpha1.SelectFirstFit, map[string]string{"many-sizes-a": "10.33.4.0/28", "many-sizes-b": "10.33.5.0/24"})
		answered(ctx, build.Claim(team, "sizes-large").Class("many-sizes").Length(25).Obj(), "10.33.5.0/25")
		answered(ctx, build.Claim(team, "sizes-small").Class("many-sizes").Length(30).Obj(), "10.33.4.0/30")
	})

	It("skips pools that are not ready", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Pool("many-unready-a").Child("many-unready-none", 24).Classes("many-unready").Obj())
		backed(ctx, "many-unready", v1alpha1.SelectFirstFit, map[string]string{"many-unready-b": "10.33.6.0/24"})
		Expect(handedOut(ctx, "many-unready", 1)).To(Equal([]string{"10.33.6.0/32"}))
	})

	It("takes the least utilized, and of equals the first by name", func(ctx context.Context) {
		backed(ctx, "many-least", v1alpha1.SelectLeastUtilized, map[string]string{
			"many-least-a": "10.33.8.0/30", "many-least-b": "10.33.9.0/29", "many-least-c": "10.33.10.0/30",
		})
		Expect(handedOut(ctx, "many-least", 9)).To(Equal([]string{
			// a: 0/4, b: 0/8, c: 0/4
			"10.33.8.0/32",  // a: 1/4
			"10.33.9.0/32",  // b: 1/8
			"10.33.10.0/32", // c: 1/4
			"10.33.9.1/32",  // b: 2/8
			"10.33.8.1/32",  // all 1/4; a: 2/4
			"10.33.9.2/32",  // b: 3/8
			"10.33.10.1/32", // c: 2/4
			"10.33.9.3/32",  // b: 4/8
			"10.33.8.2/32",  // all 1/2; a: 3/4
		}))
	})

	It("takes the most utilized that has room, and of equals the first by name", func(ctx context.Context) {
		backed(ctx, "many-most", v1alpha1.SelectMostUtilized, map[string]string{
			"many-most-a": "10.33.16.0/30", "many-most-b": "10.33.17.0/30", "many-most-c": "10.33.18.0/31",
		})
		specs.Created(ctx, k8s, build.Claim(team, "most-begun").Pool("many-most-b").CIDR("10.33.17.3/32").Obj())
		Expect(handedOut(ctx, "many-most", 8)).To(Equal([]string{
			"10.33.17.0/32", "10.33.17.1/32", "10.33.17.2/32", // b is begun, and filled up
			"10.33.16.0/32", "10.33.16.1/32", "10.33.16.2/32", "10.33.16.3/32", // then a, being first by name
			"10.33.18.0/32",
		}))
	})

	It("adds up its pools", func(ctx context.Context) {
		class := build.Class("many-least").Obj()
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, class).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "16", Allocated: "9", Available: "7", Withheld: "0", OutOfRange: "0"})))
		Expect(class.Status.Pools).To(Equal(int32(3)))
		Expect(reasons(class.Status.Conditions)).To(Equal(map[string]string{"Ready": "True/Ready"}))
	})
})
