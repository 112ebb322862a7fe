package integration

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// hostPool holds a pool, and its size in single addresses.
type hostPool struct {
	cidr string
	// network is its prefixLength; none if zero. edges hands out those too.
	network int32
	gateway string
	edges   bool
	// addresses has the addresses that are handed out, in order.
	addresses []string
}

// This topic has 10.31.0.0/16 and 2001:db8:31::/48, each pool in a separate routing domain.
var _ = Describe("host-addresses", Ordered, ContinueOnFailure, func() {
	const team = "host-addresses"
	count := 0

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	hosts := func(p hostPool) *v1alpha1.IPPool {
		count++
		pool := build.Pool(fmt.Sprintf("hosts-%d", count)).Domain(fmt.Sprintf("hosts-%d", count)).CIDR(p.cidr).Rejects()
		if p.network != 0 {
			pool = pool.Network(p.network, p.gateway).With(func(s *v1alpha1.IPPoolSpec) { s.Network.AllocateEdgeAddresses = p.edges })
		}
		return pool.Obj()
	}

	DescribeTable("hands out, one by one, all addresses for hosts and nothing else:", func(ctx context.Context, p hostPool) {
		pool := specs.Pool(ctx, k8s, hosts(p))
		bits := int32(32)
		if pool.Spec.IPFamily == v1alpha1.IPv6 {
			bits = 128
		}
		var got []string
		for range p.addresses {
			claim := specs.Created(ctx, k8s, build.Claim(team, "").Generated("host-").Pool(pool.Name).Length(bits).Obj())
			Eventually(func() string { return specs.Stored(ctx, k8s, claim).Status.Address }).ShouldNot(BeEmpty())
			got = append(got, claim.Status.Address)
		}
		Expect(got).To(Equal(p.addresses))
		Expect(k8s.Create(ctx, build.Claim(team, "").Generated("host-").Pool(pool.Name).Length(bits).Obj())).
			To(MatchError(ContainSubstring("nothing is free")))
		Eventually(available(ctx, pool.Name)).Should(Equal("0"))
		Expect(specs.Stored(ctx, k8s, pool).Status.Capacity.Allocated).To(Equal(fmt.Sprint(len(p.addresses))))
	},
		Entry("all 8 of a /29 without a network", hostPool{cidr: "10.31.0.0/29", addresses: []string{
			"10.31.0.0", "10.31.0.1", "10.31.0.2", "10.31.0.3", "10.31.0.4", "10.31.0.5", "10.31.0.6", "10.31.0.7"}}),
		Entry("5 of a /29 with a network and a gateway", hostPool{cidr: "10.31.0.0/29", network: 29, gateway: "10.31.0.1", addresses: []string{
			"10.31.0.2", "10.31.0.3", "10.31.0.4", "10.31.0.5", "10.31.0.6"}}),
		Entry("5 of a /29 with a gateway at its end", hostPool{cidr: "10.31.0.0/29", network: 29, gateway: "10.31.0.6", addresses: []string{
			"10.31.0.1", "10.31.0.2", "10.31.0.3", "10.31.0.4", "10.31.0.5"}}),
		Entry("6 of a /29 with a network and no gateway", hostPool{cidr: "10.31.0.0/29", network: 29, addresses: []string{
			"10.31.0.1", "10.31.0.2", "10.31.0.3", "10.31.0.4", "10.31.0.5", "10.31.0.6"}}),
		Entry("7 of a /29 that allocates its edges", hostPool{cidr: "10.31.0.0/29", network: 29, gateway: "10.31.0.1", edges: true, addresses: []string{
			"10.31.0.0", "10.31.0.2", "10.31.0.3", "10.31.0.4", "10.31.0.5", "10.31.0.6", "10.31.0.7"}}),
		Entry("both of a /31 with a network (RFC 3021)", hostPool{cidr: "10.31.0.0/31", network: 31, addresses: []string{
			"10.31.0.0", "10.31.0.1"}}),
		Entry("the one that is not the gateway of a /31", hostPool{cidr: "10.31.0.0/31", network: 31, gateway: "10.31.0.0", addresses: []string{
			"10.31.0.1"}}),
		Entry("the one of a /32 with a network", hostPool{cidr: "10.31.0.9/32", network: 32, addresses: []string{
			"10.31.0.9"}}),
		Entry("all of a /30 in the middle of a larger network", hostPool{cidr: "10.31.0.8/30", network: 24, gateway: "10.31.0.1", addresses: []string{
			"10.31.0.8", "10.31.0.9", "10.31.0.10", "10.31.0.11"}}),
		Entry("all but the first of a /30 at the beginning of a larger network", hostPool{cidr: "10.31.0.0/30", network: 24, gateway: "10.31.0.254", addresses: []string{
			"10.31.0.1", "10.31.0.2", "10.31.0.3"}}),
		Entry("all but the last of a /30 at the end of a larger network", hostPool{cidr: "10.31.0.252/30", network: 24, gateway: "10.31.0.1", addresses: []string{
			"10.31.0.252", "10.31.0.253", "10.31.0.254"}}),
		Entry("all 4 of a /126 without a network", hostPool{cidr: "2001:db8:31::/126", addresses: []string{
			"2001:db8:31::", "2001:db8:31::1", "2001:db8:31::2", "2001:db8:31::3"}}),
		Entry("all but the subnet-router anycast address of a /126 with a network", hostPool{cidr: "2001:db8:31::/126", network: 126, addresses: []string{
			"2001:db8:31::1", "2001:db8:31::2", "2001:db8:31::3"}}),
		Entry("all but that and the gateway of a /126", hostPool{cidr: "2001:db8:31::/126", network: 126, gateway: "2001:db8:31::3", addresses: []string{
			"2001:db8:31::1", "2001:db8:31::2"}}),
		Entry("all of a /126 that allocates its edges", hostPool{cidr: "2001:db8:31::/126", network: 126, edges: true, addresses: []string{
			"2001:db8:31::", "2001:db8:31::1", "2001:db8:31::2", "2001:db8:31::3"}}),
		Entry("both of a /127 with a network (RFC 6164)", hostPool{cidr: "2001:db8:31::/127", network: 127, addresses: []string{
			"2001:db8:31::", "2001:db8:31::1"}}),
		Entry("the one of a /128 with a network", hostPool{cidr: "2001:db8:31::9/128", network: 128, addresses: []string{
			"2001:db8:31::9"}}),
	)

	It("counts the withheld addresses", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, hosts(hostPool{cidr: "10.31.1.0/24", network: 24, gateway: "10.31.1.1"}))
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, pool).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "256", Allocated: "0", Available: "253", Withheld: "3", OutOfRange: "0"})))
		Expect(pool.Status.LargestFreePrefix).To(Equal("/26")) // 10.31.1.64/26
	})

	It("gives one address to a claim without a length, if the pool has a network", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, hosts(hostPool{cidr: "10.31.2.0/24", network: 24, gateway: "10.31.2.1"}))
		claim := answered(ctx, build.Claim(team, "one").Pool(pool.Name).Obj(), "10.31.2.2/32")
		Expect(claim.Spec.PrefixLength).To(HaveValue(Equal(int32(32))))
		six := specs.Pool(ctx, k8s, hosts(hostPool{cidr: "2001:db8:31:2::/64", network: 64, gateway: "2001:db8:31:2::1"}))
		answered(ctx, build.Claim(team, "one-six").Pool(six.Name).Obj(), "2001:db8:31:2::2/128")
	})

	It("does so by class too, if all pools of the class have a network", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("hosts-class").Obj())
		specs.Pool(ctx, k8s, build.Pool("hosts-class").Domain("hosts-class").CIDR("10.31.3.0/24").Network(24, "10.31.3.254").Classes("hosts-class").Obj())
		answered(ctx, build.Claim(team, "by-class").Class("hosts-class").Obj(), "10.31.3.1/32")
	})

	It("gives no block that contains a gateway or an edge", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, hosts(hostPool{cidr: "10.31.4.0/28", network: 28, gateway: "10.31.4.9"}))
		first := specs.Created(ctx, k8s, build.Claim(team, "block").Pool(pool.Name).Length(30).Obj())
		Expect(first.Spec.CIDR).To(Equal("10.31.4.4/30")) // .0 is the network's, .9 the gateway, .15 the broadcast address
		Expect(k8s.Create(ctx, build.Claim(team, "block-2").Pool(pool.Name).Length(30).Obj())).
			To(MatchError(ContainSubstring("no free /30 in pool " + pool.Name + ": the largest free block is a /31")))
	})

	It("withholds the old gateway while an address is held that was handed out with it", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, hosts(hostPool{cidr: "10.31.5.0/29", network: 29, gateway: "10.31.5.1"}))
		first := answered(ctx, build.Claim(team, "gateway-1").Pool(pool.Name).Obj(), "10.31.5.2/32")
		Expect(patched(ctx, pool, `{network: {gateway: 10.31.5.3}}`)).To(Succeed())
		dry := func(cidr string) func() error {
			return func() error {
				return k8s.Create(ctx, build.Claim(team, "gateway-dry").Pool(pool.Name).CIDR(cidr).Obj(), client.DryRunAll)
			}
		}
		Eventually(dry("10.31.5.3/32")).Should(MatchError(ContainSubstring("10.31.5.3/32 is not handed out"))) // as soon as the operator has seen it
		Expect(dry("10.31.5.1/32")()).To(MatchError(ContainSubstring("10.31.5.1/32 is not handed out")))
		Eventually(func() []string { return specs.Stored(ctx, k8s, pool).Status.FormerGateways }).Should(Equal([]string{"10.31.5.1"}))
		second := answered(ctx, build.Claim(team, "gateway-2").Pool(pool.Name).Obj(), "10.31.5.4/32")
		Expect(second.Status.Network.Gateway).To(Equal("10.31.5.3"))
		Expect(specs.Stored(ctx, k8s, first).Status.Network.Gateway).To(Equal("10.31.5.1"))
		deleted(ctx, first)
		Eventually(dry("10.31.5.1/32")).Should(Succeed())
		answered(ctx, build.Claim(team, "gateway-3").Pool(pool.Name).Obj(), "10.31.5.1/32")
		Eventually(func() []string { return specs.Stored(ctx, k8s, pool).Status.FormerGateways }).Should(BeEmpty())
	})
})

// This topic has 10.30.0.0/16 and 2001:db8:30::/47 of a separate routing domain.
var _ = Describe("family-mismatch", Ordered, ContinueOnFailure, func() {
	const team = "family-mismatch"
	ofFamily := func(family v1alpha1.IPFamily) func(*v1alpha1.IPClaimSpec) {
		return func(s *v1alpha1.IPClaimSpec) { s.IPFamily = family }
	}

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Created(ctx, k8s, build.Class("family-four").Length(28).Obj())
		specs.Created(ctx, k8s, build.Class("family-six").V6().Length(64).Obj())
		// Both back both classes: pools of the wrong family are passed over.
		specs.Pool(ctx, k8s, build.Pool("family-a6").Domain("family-mismatch").CIDR("2001:db8:30::/48").Classes("family-four", "family-six").Label("family", "any").Obj())
		specs.Pool(ctx, k8s, build.Pool("family-b4").Domain("family-mismatch").CIDR("10.30.0.0/24").Classes("family-four", "family-six").Label("family", "any").Obj())
	})

	It("serves a claim from those pools of its class that are of the class's family", func(ctx context.Context) {
		four := served(ctx, build.Claim(team, "four").Class("family-four").Obj(), "10.30.0.0/28")
		Expect(four.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
		six := served(ctx, build.Claim(team, "six").Class("family-six").Obj(), "2001:db8:30::/64")
		Expect(six.Spec.IPFamily).To(Equal(v1alpha1.IPv6))
	})

	It("counts for a class only the pools of its family", func(ctx context.Context) {
		four := build.Class("family-four").Obj()
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, four).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "256", Allocated: "16", Available: "240", Withheld: "0", OutOfRange: "0"})))
		Expect(four.Status.Pools).To(Equal(int32(1)))
	})

	It("accepts the family of the class, pool or CIDR", func(ctx context.Context) {
		served(ctx, build.Claim(team, "same-class").Class("family-four").With(ofFamily(v1alpha1.IPv4)).Obj(), "10.30.0.16/28")
		served(ctx, build.Claim(team, "same-pool").Pool("family-a6").With(ofFamily(v1alpha1.IPv6)).Length(64).Obj(), "2001:db8:30:1::/64")
		served(ctx, build.Claim(team, "same-cidr").Pool("family-b4").With(ofFamily(v1alpha1.IPv4)).CIDR("10.30.0.128/25").Obj(), "10.30.0.128/25")
	})

	DescribeTable("refuses a claim, and records nothing for it,", func(ctx context.Context, spec string, want refusal) {
		expectRefused(ctx, written("IPClaim", team, unused(), spec), want)
	},
		Entry("of IPv6 that names an IPv4 class", `{className: family-four, ipFamily: IPv6}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "class family-four hands out IPv4: remove ipFamily, or name another class"}),
		Entry("of IPv4 that names an IPv6 class", `{className: family-six, ipFamily: IPv4}`,
			refusal{field: "spec.ipFamily", value: `"IPv4"`, remedy: "class family-six hands out IPv6: remove ipFamily, or name another class"}),
		Entry("of IPv6 that names an IPv4 pool", `{poolRef: {name: family-b4}, ipFamily: IPv6, prefixLength: 64}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "pool family-b4 is IPv4: name a pool of the family that you need"}),
		Entry("of IPv4 that names an IPv6 pool", `{poolRef: {name: family-a6}, ipFamily: IPv4, prefixLength: 28}`,
			refusal{field: "spec.ipFamily", value: `"IPv4"`, remedy: "pool family-a6 is IPv6: name a pool of the family that you need"}),
		Entry("for an IPv6 block of an IPv4 pool", `{poolRef: {name: family-b4}, cidr: "2001:db8:30::/64"}`,
			refusal{field: "spec.cidr", value: `"2001:db8:30::/64"`}),
		Entry("for an IPv4 block of an IPv6 pool", `{poolRef: {name: family-a6}, cidr: 10.30.0.64/28}`,
			refusal{field: "spec.cidr", value: `"10.30.0.64/28"`}),
	)

	It("makes a claim of a class that only pools of the other family back wait for a pool of it", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("family-lonely").Length(28).Obj())
		specs.Pool(ctx, k8s, build.Pool("family-lonely-six").Domain("family-mismatch").CIDR("2001:db8:31::/48").Classes("family-lonely").Obj())
		claim := answered(ctx, build.Claim(team, "lonely").Class("family-lonely").Obj(), "")
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }).Should(Equal("True/NoPoolForClass"))
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }).Should(Equal("True/NoPools"))
		specs.Created(ctx, k8s, build.Pool("family-lonely-four").Domain("family-mismatch").CIDR("10.30.9.0/28").Classes("family-lonely").Obj())
		expectBound(ctx, claim, "10.30.9.0/28")
	})

	It("serves a claim that selects pools of both families from those of the family that it states", func(ctx context.Context) {
		served(ctx, build.Claim(team, "select-four").Selecting("family", "any").With(ofFamily(v1alpha1.IPv4)).Length(32).Obj(), "10.30.0.32/32")
		served(ctx, build.Claim(team, "select-six").Selecting("family", "any").With(ofFamily(v1alpha1.IPv6)).Length(64).Obj(), "2001:db8:30:2::/64")
	})
})
