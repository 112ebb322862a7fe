package integration

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// expectRefused creates an object that must be refused as stated, with nothing stored and nothing
// recorded.
func expectRefused(ctx context.Context, obj *unstructured.Unstructured, want refusal) {
	GinkgoHelper()
	before := recordsOf(ctx, obj) // of one that has the name already
	want.expect(k8s.Create(ctx, obj.DeepCopy()))
	Expect(recordsOf(ctx, obj)).To(ConsistOf(before), "recorded in spite of the refusal")
	if obj.GetName() != "" {
		Expect(apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(obj), obj.DeepCopy()))).To(BeTrue(), "stored in spite of the refusal")
	}
}

// unused returns a name that nothing has had yet, so that remains of an earlier refusal are not
// mistaken for remains of this one.
func unused() string {
	refused++
	return fmt.Sprintf("bad-%d", refused)
}

// refused counts the names that unused has given.
var refused int

// Pools of this topic lie in 10.20.0.0/16, 10.21.0.0/16 and 2001:db8:20::/47 of a separate routing
// domain.
var _ = Describe("bad-input", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("bad-parent").Domain("bad-input").CIDR("10.20.0.0/16").Lengths(20, 28).Obj())
		specs.Pool(ctx, k8s, build.Pool("bad-parent-v6").Domain("bad-input").CIDR("2001:db8:20::/48").Obj())
	})

	DescribeTable("refuses a pool", func(ctx context.Context, spec string, want refusal) {
		expectRefused(ctx, written("IPPool", "", unused(), spec), want)
	},
		Entry("whose CIDR has host bits", `{routingDomain: bad-input, cidr: 10.21.0.1/16}`,
			refusal{field: "spec.cidr", value: `"10.21.0.1/16"`, remedy: `has host bits set: did you mean "10.21.0.0/16"?`}),
		Entry("whose IPv6 CIDR has host bits", `{routingDomain: bad-input, cidr: "2001:db8:21::1/48"}`,
			refusal{field: "spec.cidr", value: `"2001:db8:21::1/48"`, remedy: `has host bits set: did you mean "2001:db8:21::/48"?`}),
		Entry("whose CIDR is IPv4-mapped IPv6", `{routingDomain: bad-input, cidr: "::ffff:10.21.0.0/112"}`,
			refusal{field: "spec.cidr", value: `"::ffff:10.21.0.0/112"`, remedy: "write it as IPv4"}),
		Entry("whose IPv6 CIDR is in upper case", `{routingDomain: bad-input, cidr: "2001:DB8:21::/48"}`,
			refusal{field: "spec.cidr", value: `"2001:DB8:21::/48"`, remedy: `is not in canonical form: write "2001:db8:21::/48"`}),
		Entry("whose IPv6 CIDR spells zeros out", `{routingDomain: bad-input, cidr: "2001:db8:21:0::/48"}`,
			refusal{field: "spec.cidr", value: `"2001:db8:21:0::/48"`, remedy: `is not in canonical form: write "2001:db8:21::/48"`}),
		Entry("whose IPv4 CIDR has leading zeros", `{routingDomain: bad-input, cidr: 010.021.000.000/16}`,
			refusal{field: "spec.cidr", value: `"010.021.000.000/16"`, remedy: "is not a CIDR: write an address and a prefix length, such as"}),
		Entry("whose CIDR is a word", `{routingDomain: bad-input, cidr: lab}`,
			refusal{field: "spec.cidr", value: `"lab"`, remedy: "is not a CIDR: write an address and a prefix length, such as"}),
		Entry("whose CIDR has no length", `{routingDomain: bad-input, cidr: 10.21.0.0}`,
			refusal{field: "spec.cidr", value: `"10.21.0.0"`, remedy: "write an address and a prefix length"}),
		Entry("whose CIDR has a netmask", `{routingDomain: bad-input, cidr: 10.21.0.0/255.255.0.0}`,
			refusal{field: "spec.cidr", value: `"10.21.0.0/255.255.0.0"`, remedy: "write an address and a prefix length"}),
		Entry("of length 33 in IPv4", `{routingDomain: bad-input, cidr: 10.21.0.0/33}`,
			refusal{field: "spec.cidr", value: `"10.21.0.0/33"`, remedy: "write an address and a prefix length"}),
		Entry("of length 129", `{routingDomain: bad-input, cidr: "2001:db8:21::/129"}`,
			refusal{field: "spec.cidr", value: `"2001:db8:21::/129"`, remedy: "write an address and a prefix length"}),
		Entry("of negative length", `{routingDomain: bad-input, cidr: 10.21.0.0/-1}`,
			refusal{field: "spec.cidr", value: `"10.21.0.0/-1"`, remedy: "write an address and a prefix length"}),
		Entry("whose CIDR is a number", `{routingDomain: bad-input, cidr: 10}`,
			refusal{field: "spec.cidr", value: `"number"`, remedy: "must be of type string"}),
		Entry("whose length is in quotes", `{parentRef: {name: bad-parent}, prefixLength: "24"}`,
			refusal{field: "spec.prefixLength", value: `"string"`, remedy: "must be of type integer"}),
		Entry("whose CIDR has a zone", `{routingDomain: bad-input, cidr: "fe80::%eth0/64"}`,
			refusal{field: "spec.cidr", value: `"fe80::%eth0/64"`, remedy: "write an address and a prefix length"}),

		Entry("that states IPv6 for an IPv4 CIDR", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ipFamily: IPv6}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "the CIDR is IPv4: remove ipFamily, it is derived"}),
		Entry("that states IPv4 for an IPv6 CIDR", `{routingDomain: bad-input, cidr: "2001:db8:21::/48", ipFamily: IPv4}`,
			refusal{field: "spec.ipFamily", value: `"IPv4"`, remedy: "the CIDR is IPv6: remove ipFamily, it is derived"}),
		Entry("of an unknown family", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ipFamily: IPv5}`,
			refusal{field: "spec.ipFamily", value: `"IPv5"`, remedy: "IPv4"}),

		Entry("with a reversed range", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [10.21.0.9-10.21.0.1]}`,
			refusal{field: "spec.ranges[0]", value: `"10.21.0.9-10.21.0.1"`, remedy: `ends before it begins: did you mean "10.21.0.1-10.21.0.9"?`}),
		Entry("with a range outside its CIDR", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [10.21.0.1, 10.22.0.1-10.22.0.9]}`,
			refusal{field: "spec.ranges[1]", value: `"10.22.0.1-10.22.0.9"`, remedy: "is not inside the pool's CIDR 10.21.0.0/16: remove it, or correct it"}),
		Entry("with a range that begins inside its CIDR and ends outside", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [10.21.255.255-10.22.0.0]}`,
			refusal{field: "spec.ranges[0]", value: `"10.21.255.255-10.22.0.0"`, remedy: "is not inside the pool's CIDR 10.21.0.0/16"}),
		Entry("with a range around its CIDR", `{routingDomain: bad-input, cidr: 10.21.0.0/16, reserved: [10.20.0.0/15]}`,
			refusal{field: "spec.reserved[0]", value: `"10.20.0.0/15"`, remedy: "is not inside the pool's CIDR 10.21.0.0/16"}),
		Entry("with a range of the other family", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: ["2001:db8::1-2001:db8::9"]}`,
			refusal{field: "spec.ranges[0]", value: `"2001:db8::1-2001:db8::9"`, remedy: "is not inside the pool's CIDR 10.21.0.0/16"}),
		Entry("with a range that mixes families", `{routingDomain: bad-input, cidr: 10.21.0.0/16, reserved: ["10.21.0.1-2001:db8::9"]}`,
			refusal{field: "spec.reserved[0]", value: `"10.21.0.1-2001:db8::9"`, remedy: "mixes IPv4 and IPv6: both ends must be of the pool's family"}),
		Entry("with a range of words", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [first-last]}`,
			refusal{field: "spec.ranges[0]", value: `"first`, remedy: "is not an IP address: write one such as 10.0.0.1"}),
		Entry("with a range of three addresses", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [10.21.0.1-10.21.0.2-10.21.0.3]}`,
			refusal{field: "spec.ranges[0]", value: `10.21.0.3"`, remedy: "is not an IP address: write one such as 10.0.0.1"}),
		Entry("with a range cut short", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [10.21.0.10-20]}`,
			refusal{field: "spec.ranges[0]", value: `20"`, remedy: "is not an IP address: write one such as 10.0.0.1"}),
		Entry("with an empty range", `{routingDomain: bad-input, cidr: 10.21.0.0/16, ranges: [""]}`,
			refusal{field: "spec.ranges[0]", value: `""`, remedy: "is not an IP address: write one such as 10.0.0.1"}),
		Entry("with a reserved CIDR that has host bits", `{routingDomain: bad-input, cidr: 10.21.0.0/16, reserved: [10.21.0.1/24]}`,
			refusal{field: "spec.reserved[0]", value: `"10.21.0.1/24"`, remedy: `has host bits set: did you mean "10.21.0.0/24"?`}),
		Entry("with a reserved address that is IPv4-mapped", `{routingDomain: bad-input, cidr: 10.21.0.0/16, reserved: ["::ffff:10.21.0.1"]}`,
			refusal{field: "spec.reserved[0]", value: `"::ffff:10.21.0.1"`, remedy: "write it as IPv4"}),

		Entry("with a gateway outside of the subnet", `{routingDomain: bad-input, cidr: 10.21.0.0/24, network: {prefixLength: 24, gateway: 10.21.1.1}}`,
			refusal{field: "spec.network.gateway", value: `"10.21.1.1"`, remedy: "is not an address of the subnet 10.21.0.0/24: correct it, or correct prefixLength"}),
		Entry("with a gateway of the other family", `{routingDomain: bad-input, cidr: 10.21.0.0/24, network: {prefixLength: 24, gateway: "2001:db8::1"}}`,
			refusal{field: "spec.network.gateway", value: `"2001:db8::1"`, remedy: "is not an address of the subnet 10.21.0.0/24"}),
		Entry("with a gateway that has a length", `{routingDomain: bad-input, cidr: 10.21.0.0/24, network: {prefixLength: 24, gateway: 10.21.0.1/24}}`,
			refusal{field: "spec.network.gateway", value: `"10.21.0.1/24"`, remedy: "is not an IP address: write one such as 10.0.0.1"}),
		Entry("with a gateway that is not canonical", `{routingDomain: bad-input, cidr: "2001:db8:21::/64", network: {prefixLength: 64, gateway: "2001:db8:21:0::1"}}`,
			refusal{field: "spec.network.gateway", value: `"2001:db8:21:0::1"`, remedy: `is not in canonical form: write "2001:db8:21::1"`}),
		Entry("with a network smaller than its CIDR", `{routingDomain: bad-input, cidr: 10.21.0.0/24, network: {prefixLength: 25}}`,
			refusal{field: "spec.network.prefixLength", value: `25`, remedy: "the pool is a /24, and lies within one subnet: write 24 or less"}),
		Entry("with a network of length 33 in IPv4", `{routingDomain: bad-input, cidr: 10.21.0.0/24, network: {prefixLength: 33}}`,
			refusal{field: "spec.network.prefixLength", value: `33`, remedy: "must be between 0 and 32"}),
		Entry("with a network of negative length", `{routingDomain: bad-input, cidr: 10.21.0.0/24, network: {prefixLength: -1}}`,
			refusal{field: "spec.network.prefixLength", value: `-1`, remedy: "must be between 0 and 32"}),

		Entry("with bounds the wrong way round", `{routingDomain: bad-input, cidr: 10.21.0.0/16, allocation: {minPrefixLength: 28, maxPrefixLength: 20}}`,
			refusal{field: "spec.allocation.minPrefixLength", value: `28`, remedy: "must not be greater than maxPrefixLength 20: swap them"}),
		Entry("with a bound larger than itself", `{routingDomain: bad-input, cidr: 10.21.0.0/16, allocation: {minPrefixLength: 12}}`,
			refusal{field: "spec.allocation.minPrefixLength", value: `12`, remedy: "a block cannot be larger than the pool, which is a /16"}),
		Entry("with a bound of 33 in IPv4", `{routingDomain: bad-input, cidr: 10.21.0.0/16, allocation: {maxPrefixLength: 33}}`,
			refusal{field: "spec.allocation.maxPrefixLength", value: `33`, remedy: "must be between 0 and 32"}),
		Entry("with a negative bound", `{routingDomain: bad-input, cidr: 10.21.0.0/16, allocation: {minPrefixLength: -1}}`,
			refusal{field: "spec.allocation.minPrefixLength", value: `-1`, remedy: "must be between 0 and 32"}),
		Entry("with a bound of 129", `{routingDomain: bad-input, cidr: "2001:db8:21::/48", allocation: {maxPrefixLength: 129}}`,
			refusal{field: "spec.allocation.maxPrefixLength", value: `129`, remedy: "must be between 0 and 128"}),

		Entry("with an unknown strategy", `{routingDomain: bad-strategy, cidr: 10.21.0.0/16, allocation: {strategy: NextFit}}`,
			refusal{field: "spec.allocation.strategy", value: `"NextFit"`, remedy: "supported values: "}),
		Entry("with an unknown onExhaustion", `{routingDomain: bad-exhaustion, cidr: 10.21.0.0/16, onExhaustion: Panic}`,
			refusal{field: "spec.onExhaustion", value: `"Panic"`, remedy: "supported values: "}),
		Entry("with an unknown visibility", `{routingDomain: bad-visibility, cidr: 10.21.0.0/16, visibility: Public}`,
			refusal{field: "spec.visibility", value: `"Public"`, remedy: "supported values: "}),
		Entry("that consumers of no project may use", `{routingDomain: bad-project, cidr: 10.21.0.0/16, visibility: Consumer}`,
			refusal{field: "spec.project", remedy: "set the one whose claims may use it"}),
		Entry("with a negative reuseDelay", `{routingDomain: bad-delay, cidr: 10.21.0.0/16, reuseDelay: -5m}`,
			refusal{field: "spec.reuseDelay", value: `"-5m0s"`, remedy: "must not be negative: leave it out for none"}),
		Entry("with an empty class name", `{routingDomain: bad-no-class, cidr: 10.21.0.0/16, classNames: [""]}`,
			refusal{field: "spec.classNames[0]"}),
		Entry("with the same class twice", `{routingDomain: bad-same-class, cidr: 10.21.0.0/16, classNames: [gold, gold]}`,
			refusal{field: "spec.classNames[1]", value: `Duplicate value: "gold"`}),
		Entry("in a routing domain with a bad name", `{routingDomain: VRF_1, cidr: 10.21.0.0/16}`,
			refusal{field: "spec.routingDomain", value: `"VRF_1"`}),

		Entry("that is neither root nor child", `{}`,
			refusal{field: "spec.cidr", remedy: "a root pool needs a cidr, a child pool a parentRef: set one of them"}),
		Entry("that is a child of no size", `{parentRef: {name: bad-parent}}`,
			refusal{field: "spec.prefixLength", remedy: "set it to the length of the pool's block of the parent"}),
		Entry("that is a root with a prefixLength", `{routingDomain: bad-input, cidr: 10.21.0.0/16, prefixLength: 16}`,
			refusal{field: "spec.prefixLength", remedy: "is for child pools only, a root pool has the length of its cidr: remove it, or set parentRef"}),
		Entry("that is a child with a routingDomain", `{routingDomain: bad-input, parentRef: {name: bad-parent}, prefixLength: 24}`,
			refusal{field: "spec.routingDomain", remedy: "is for root pools only, a child lives in its parent: remove it"}),
		Entry("whose parent is of an unknown kind", `{parentRef: {kind: Subnet, name: bad-parent}, prefixLength: 24}`,
			refusal{field: "spec.parentRef.kind", value: `"Subnet"`, remedy: "supported values: "}),
		Entry("whose parent has no name", `{parentRef: {name: ""}, prefixLength: 24}`,
			refusal{field: "spec.parentRef.name"}),
		Entry("that is a child as large as its parent", `{parentRef: {name: bad-parent}, prefixLength: 16}`,
			refusal{field: "spec.prefixLength", value: `16`, remedy: "is all of the parent 10.20.0.0/16: ask for a smaller block"}),
		Entry("that is a child larger than its parent", `{parentRef: {name: bad-parent}, prefixLength: 12}`,
			refusal{field: "spec.prefixLength", value: `12`, remedy: "pool bad-parent (10.20.0.0/16) hands out /20 to /28: ask for one of these"}),
		Entry("that is a child smaller than its parent hands out", `{parentRef: {name: bad-parent}, prefixLength: 29}`,
			refusal{field: "spec.prefixLength", value: `29`, remedy: "pool bad-parent (10.20.0.0/16) hands out /20 to /28: ask for one of these"}),
		Entry("that is a child of length 33 in IPv4", `{parentRef: {name: bad-parent}, prefixLength: 33}`,
			refusal{field: "spec.prefixLength", value: `33`, remedy: "pool bad-parent (10.20.0.0/16) hands out /20 to /28: ask for one of these"}),
		Entry("that is a child of length 129", `{parentRef: {name: bad-parent-v6}, prefixLength: 129}`,
			refusal{field: "spec.prefixLength", value: `129`, remedy: "must be between 0 and 128"}),
		Entry("that is a child of negative length", `{parentRef: {name: bad-parent}, prefixLength: -1}`,
			refusal{field: "spec.prefixLength", value: `-1`, remedy: "must be between 0 and"}),
		Entry("that is a child of another family than its parent", `{parentRef: {name: bad-parent}, prefixLength: 24, ipFamily: IPv6}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "pool bad-parent is IPv4"}),
		Entry("that is a child outside of its parent", `{parentRef: {name: bad-parent}, cidr: 10.21.0.0/24}`,
			refusal{field: "spec.cidr", value: `"10.21.0.0/24"`, remedy: "lies outside pool bad-parent, which is 10.20.0.0/16"}),
		Entry("that is a child whose CIDR is not of the length it states", `{parentRef: {name: bad-parent}, cidr: 10.20.0.0/24, prefixLength: 25}`,
			refusal{field: "spec.prefixLength", value: `25`, remedy: "the CIDR is a /24: remove one of them"}),
		Entry("that is an IPv4 child of length 64", `{parentRef: {name: bad-parent}, prefixLength: 64, ipFamily: IPv4}`,
			refusal{field: "spec.prefixLength", value: `64`, remedy: "must be between 0 and 32"}),
	)

	It("refuses a child whose ranges or gateway do not lie in the block that it would get", func(ctx context.Context) {
		for spec, want := range map[string]refusal{
			`{parentRef: {name: bad-parent}, prefixLength: 24, ranges: [10.20.99.1-10.20.99.9]}`: {
				field: "spec.ranges[0]", value: `"10.20.99.1-10.20.99.9"`, remedy: "is not inside the pool's CIDR 10.20."},
			`{parentRef: {name: bad-parent}, prefixLength: 24, network: {prefixLength: 24, gateway: 10.20.99.1}}`: {
				field: "spec.network.gateway", value: `"10.20.99.1"`, remedy: "is not an address of the subnet 10.20."},
		} {
			pool := written("IPPool", "", unused(), spec)
			want.expect(k8s.Create(ctx, pool))
			// The block is known only once it is recorded; it is released in the background,
			// well before it would be collected.
			Eventually(func() []string { return recordsOf(ctx, pool) }).
				WithTimeout(orphanGrace / 2).Should(BeEmpty())
		}
	})

	It("refuses a pool that is its own parent", func(ctx context.Context) {
		expectRefused(ctx, written("IPPool", "", "bad-own-parent", `{parentRef: {name: bad-own-parent}, prefixLength: 24}`),
			refusal{field: "spec.parentRef.name", value: `"bad-own-parent"`, remedy: "is the pool itself: name the pool of which this one is a part"})
	})

	It("refuses two pools that are each other's parent", func(ctx context.Context) {
		chicken := specs.Created(ctx, k8s, build.Pool("bad-chicken").Child("bad-egg", 24).Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, chicken).Status.Conditions)["Ready"] }).Should(Equal("False/ParentNotReady"))
		expectRefused(ctx, written("IPPool", "", "bad-egg", `{parentRef: {name: bad-chicken}, prefixLength: 20}`),
			refusal{field: "spec.parentRef.name", value: `"bad-chicken"`, remedy: "is itself a descendant of this pool: name a parent outside its own subtree"})
		deleted(ctx, chicken)
	})

	It("refuses names that Kubernetes would refuse, before anything is recorded for them", func(ctx context.Context) {
		for _, name := range []string{"Bad", "bad_pool", "-bad", "bad..pool"} {
			expectRefused(ctx, written("IPPool", "", name, `{routingDomain: bad-input, cidr: 10.21.0.0/16}`),
				refusal{field: "metadata.name", value: `"` + name + `"`, remedy: "must consist of lower case alphanumeric characters"})
		}
	})

	DescribeTable("refuses a class", func(ctx context.Context, spec string, want refusal) {
		expectRefused(ctx, written("IPClass", "", unused(), spec), want)
	},
		Entry("of no family", `{}`,
			refusal{field: "spec.ipFamily", value: "Required value"}),
		Entry("of an unknown family", `{ipFamily: IPv5}`,
			refusal{field: "spec.ipFamily", value: `"IPv5"`, remedy: "supported values: "}),
		Entry("with a default length of 33 in IPv4", `{ipFamily: IPv4, defaultPrefixLength: 33}`,
			refusal{field: "spec.defaultPrefixLength", value: "33", remedy: "32"}),
		Entry("with a default length of 129", `{ipFamily: IPv6, defaultPrefixLength: 129}`,
			refusal{field: "spec.defaultPrefixLength", value: "129", remedy: "128"}),
		Entry("with a negative default length", `{ipFamily: IPv4, defaultPrefixLength: -1}`,
			refusal{field: "spec.defaultPrefixLength", value: "-1", remedy: "0"}),
		Entry("with bounds the wrong way round", `{ipFamily: IPv4, allowedPrefixLengths: {min: 28, max: 20}}`,
			refusal{field: "spec.allowedPrefixLengths.min", value: "28", remedy: "must not be greater than max"}),
		Entry("with a bound of 33 in IPv4", `{ipFamily: IPv4, allowedPrefixLengths: {max: 33}}`,
			refusal{field: "spec.allowedPrefixLengths.max", value: "33", remedy: "32"}),
		Entry("with a negative bound", `{ipFamily: IPv4, allowedPrefixLengths: {min: -1}}`,
			refusal{field: "spec.allowedPrefixLengths.min", value: "-1", remedy: "0"}),
		Entry("with a default length out of its bounds", `{ipFamily: IPv4, defaultPrefixLength: 29, allowedPrefixLengths: {min: 20, max: 28}}`,
			refusal{field: "spec.defaultPrefixLength", value: "29", remedy: "must lie within allowedPrefixLengths"}),
		Entry("with an unknown reclaimPolicy", `{ipFamily: IPv4, reclaimPolicy: Keep}`,
			refusal{field: "spec.reclaimPolicy", value: `"Keep"`, remedy: "supported values: "}),
		Entry("with an unknown poolSelection", `{ipFamily: IPv4, poolSelection: RoundRobin}`,
			refusal{field: "spec.poolSelection", value: `"RoundRobin"`, remedy: "supported values: "}),
		Entry("with an unknown strategy", `{ipFamily: IPv4, strategy: NextFit}`,
			refusal{field: "spec.strategy", value: `"NextFit"`, remedy: "supported values: "}),
		Entry("with an unknown onExhaustion", `{ipFamily: IPv4, onExhaustion: Panic}`,
			refusal{field: "spec.onExhaustion", value: `"Panic"`, remedy: "supported values: "}),
		Entry("with an unknown visibility", `{ipFamily: IPv4, visibility: Public}`,
			refusal{field: "spec.visibility", value: `"Public"`, remedy: "supported values: "}),
		Entry("that retains, and does not allow it", `{ipFamily: IPv4, reclaimPolicy: Retain, allowRetain: false}`,
			refusal{field: "spec.allowRetain", value: "false", remedy: "must not be false where reclaimPolicy is Retain: remove one of them"}),
		Entry("with a limit that is no number", `{ipFamily: IPv4, limits: {perProject: {addresses: 1Ki}}}`,
			refusal{field: "spec.limits.perProject.addresses", value: `"1Ki"`, remedy: "must be a decimal number of 0 or more"}),
		Entry("with a limit below 0", `{ipFamily: IPv4, limits: {perProject: {blocks: -1}}}`,
			refusal{field: "spec.limits.perProject.blocks", value: `-1`, remedy: "0"}),
		Entry("with a negative reuseDelay", `{ipFamily: IPv4, reuseDelay: -5m}`,
			refusal{field: "spec.reuseDelay", remedy: "must not be negative: leave it out for none"}),
		Entry("with a negative retentionPeriod", `{ipFamily: IPv4, reclaimPolicy: Retain, retentionPeriod: -5m}`,
			refusal{field: "spec.retentionPeriod", remedy: "must be more than 0: leave it out for the default"}),
		Entry("that consumers of no project may use", `{ipFamily: IPv4, visibility: Consumer}`,
			refusal{field: "spec.project", remedy: "set the one whose claims may use it"}),
	)
})

var _ = Describe("claim-validation", Ordered, ContinueOnFailure, func() {
	const team = "claim-validation"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Created(ctx, k8s, build.Class("valid-class").Length(24).Lengths(22, 26).Obj())
		specs.Created(ctx, k8s, build.Class("valid-class-v6").V6().Length(64).Obj())
		specs.Pool(ctx, k8s, build.Pool("valid-pool").Domain("claim-validation").CIDR("10.22.0.0/16").Lengths(18, 28).Classes("valid-class").Label("valid", "yes").Obj())
		specs.Pool(ctx, k8s, build.Pool("valid-pool-v6").Domain("claim-validation").CIDR("2001:db8:22::/48").Classes("valid-class-v6").Obj())
	})

	DescribeTable("refuses a claim", func(ctx context.Context, spec string, want refusal) {
		expectRefused(ctx, written("IPClaim", team, unused(), spec), want)
	},
		Entry("that names a class and a pool", `{className: valid-class, poolRef: {name: valid-pool}, prefixLength: 24}`,
			refusal{field: "spec", value: "className, poolRef, poolSelector", remedy: "exclude each other: keep one of them"}),
		Entry("that names a class and selects pools", `{className: valid-class, poolSelector: {matchLabels: {valid: "yes"}}, prefixLength: 24}`,
			refusal{field: "spec", value: "className, poolRef, poolSelector", remedy: "exclude each other: keep one of them"}),
		Entry("that names a pool and selects pools", `{poolRef: {name: valid-pool}, poolSelector: {matchLabels: {valid: "yes"}}, prefixLength: 24}`,
			refusal{field: "spec", value: "className, poolRef, poolSelector", remedy: "exclude each other: keep one of them"}),
		Entry("that names a class and a pool and selects pools", `{className: valid-class, poolRef: {name: valid-pool}, poolSelector: {matchLabels: {valid: "yes"}}}`,
			refusal{field: "spec", value: "className, poolRef, poolSelector", remedy: "exclude each other: keep one of them"}),
		Entry("that selects all pools", `{poolSelector: {}, prefixLength: 24}`,
			refusal{field: "spec.poolSelector", value: "{}", remedy: "selects every pool: name at least one label"}),
		Entry("that selects by an unknown operator", `{poolSelector: {matchExpressions: [{key: valid, operator: Like, values: ["y"]}]}, prefixLength: 24}`,
			refusal{field: "spec.poolSelector", value: "Like", remedy: `"Like" is not a valid label selector operator`}),
		Entry("that selects by one of no values", `{poolSelector: {matchExpressions: [{key: valid, operator: In}]}, prefixLength: 24}`,
			refusal{field: "spec.poolSelector", value: "In", remedy: "for 'in', 'notin' operators, values set can't be empty"}),
		Entry("that selects by a bad label", `{poolSelector: {matchLabels: {"not a label": "yes"}}, prefixLength: 24}`,
			refusal{field: "spec.poolSelector", value: "not a label", remedy: "name part must consist of alphanumeric characters"}),
		Entry("of a pool of an unknown kind", `{poolRef: {kind: Subnet, name: valid-pool}, prefixLength: 24}`,
			refusal{field: "spec.poolRef.kind", value: `"Subnet"`, remedy: "supported values: "}),
		Entry("of a pool without a name", `{poolRef: {name: ""}, prefixLength: 24}`,
			refusal{field: "spec.poolRef.name"}),

		Entry("whose CIDR has host bits", `{poolRef: {name: valid-pool}, cidr: 10.22.0.1/24}`,
			refusal{field: "spec.cidr", value: `"10.22.0.1/24"`, remedy: `has host bits set: did you mean "10.22.0.0/24"?`}),
		Entry("whose CIDR is IPv4-mapped IPv6", `{poolRef: {name: valid-pool}, cidr: "::ffff:10.22.0.0/120"}`,
			refusal{field: "spec.cidr", value: `"::ffff:10.22.0.0/120"`, remedy: "write it as IPv4"}),
		Entry("whose CIDR is not canonical", `{poolRef: {name: valid-pool-v6}, cidr: "2001:db8:22:0::/64"}`,
			refusal{field: "spec.cidr", value: `"2001:db8:22:0::/64"`, remedy: `is not in canonical form: write "2001:db8:22::/64"`}),
		Entry("whose CIDR is a bare address", `{poolRef: {name: valid-pool}, cidr: 10.22.0.1}`,
			refusal{field: "spec.cidr", value: `"10.22.0.1"`, remedy: "write an address and a prefix length"}),
		Entry("whose CIDR is of length 33", `{poolRef: {name: valid-pool}, cidr: 10.22.0.0/33}`,
			refusal{field: "spec.cidr", value: `"10.22.0.0/33"`, remedy: "write an address and a prefix length"}),
		Entry("whose CIDR is not of the length it states", `{poolRef: {name: valid-pool}, cidr: 10.22.0.0/24, prefixLength: 25}`,
			refusal{field: "spec.prefixLength", value: "25", remedy: "cidr asks for a /24: remove one of them"}),
		Entry("whose CIDR is not of the family it states", `{poolRef: {name: valid-pool}, cidr: 10.22.0.0/24, ipFamily: IPv6}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "the CIDR is IPv4: remove ipFamily"}),
		Entry("whose CIDR lies outside the pool", `{poolRef: {name: valid-pool}, cidr: 10.99.0.0/24}`,
			refusal{field: "spec.cidr", value: `"10.99.0.0/24"`, remedy: "lies outside pool valid-pool, which is 10.22.0.0/16"}),
		Entry("whose CIDR lies around the pool", `{poolRef: {name: valid-pool}, cidr: 10.0.0.0/8}`,
			refusal{field: "spec.cidr", value: `"10.0.0.0/8"`, remedy: "lies outside pool valid-pool, which is 10.22.0.0/16"}),
		Entry("whose CIDR is longer than the class allows", `{className: valid-class, cidr: 10.22.0.0/27}`,
			refusal{field: "spec.cidr", value: `"10.22.0.0/27"`, remedy: "class valid-class allows /22 to /26: ask for one of these"}),
		Entry("whose CIDR is not of the class's family", `{className: valid-class-v6, cidr: 10.22.0.0/24}`,
			refusal{field: "spec.cidr", value: `"10.22.0.0/24"`, remedy: "class valid-class-v6 hands out IPv6: ask for such a block, or name another class"}),

		Entry("of an unknown family", `{poolRef: {name: valid-pool}, ipFamily: IPv5, prefixLength: 24}`,
			refusal{field: "spec.ipFamily", value: `"IPv5"`, remedy: "supported values: "}),
		Entry("of another family than the pools it selects", `{poolSelector: {matchLabels: {valid: "yes"}}, ipFamily: IPv6, prefixLength: 64}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "pool valid-pool is IPv4"}),

		Entry("of length 33 in IPv4", `{poolRef: {name: valid-pool}, prefixLength: 33}`,
			refusal{field: "spec.prefixLength", value: "33", remedy: "must be 32 or less for IPv4"}),
		Entry("of length 33 that says IPv4", `{poolRef: {name: valid-pool}, ipFamily: IPv4, prefixLength: 33}`,
			refusal{field: "spec.prefixLength", value: "33", remedy: "must be between 0 and 32"}),
		Entry("of length 129", `{poolRef: {name: valid-pool-v6}, prefixLength: 129}`,
			refusal{field: "spec.prefixLength", value: "129", remedy: "must be between 0 and 128"}),
		Entry("of negative length", `{poolRef: {name: valid-pool}, prefixLength: -1}`,
			refusal{field: "spec.prefixLength", value: "-1", remedy: "must be between 0 and"}),
		Entry("of a length in quotes", `{poolRef: {name: valid-pool}, prefixLength: "24"}`,
			refusal{field: "spec.prefixLength", value: `"string"`, remedy: "must be of type integer"}),
		Entry("of no length, if nothing states one", `{poolRef: {name: valid-pool}}`,
			refusal{field: "spec.prefixLength", remedy: "set it to the length of the block that you need, such as 32 for one address"}),
		Entry("larger than the class allows", `{className: valid-class, prefixLength: 21}`,
			refusal{field: "spec.prefixLength", value: "21", remedy: "class valid-class allows /22 to /26: ask for one of these"}),
		Entry("smaller than the class allows", `{className: valid-class, prefixLength: 27}`,
			refusal{field: "spec.prefixLength", value: "27", remedy: "class valid-class allows /22 to /26: ask for one of these"}),
		Entry("larger than the pool allows", `{poolRef: {name: valid-pool}, prefixLength: 17}`,
			refusal{field: "spec.prefixLength", value: "17", remedy: "pool valid-pool (10.22.0.0/16) hands out /18 to /28: ask for one of these"}),
		Entry("smaller than the pool allows", `{poolRef: {name: valid-pool}, prefixLength: 29}`,
			refusal{field: "spec.prefixLength", value: "29", remedy: "pool valid-pool (10.22.0.0/16) hands out /18 to /28: ask for one of these"}),
		Entry("larger than the pool is", `{poolRef: {name: valid-pool-v6}, prefixLength: 32}`,
			refusal{field: "spec.prefixLength", value: "32", remedy: "pool valid-pool-v6 (2001:db8:22::/48) hands out /48 to /128: ask for one of these"}),

		Entry("that fills in allocationName", `{poolRef: {name: valid-pool}, prefixLength: 24, allocationName: mine}`,
			refusal{field: "spec.allocationName", remedy: "leave it out"}),
		Entry("with an unknown reclaimPolicy", `{poolRef: {name: valid-pool}, prefixLength: 24, reclaimPolicy: Keep}`,
			refusal{field: "spec.reclaimPolicy", value: `"Keep"`, remedy: "supported values: "}),
		Entry("with an owner without a name", `{poolRef: {name: valid-pool}, prefixLength: 24, ownerRef: {kind: VirtualMachine}}`,
			refusal{field: "spec.ownerRef.name", value: "Required value"}),
	)

	It("refuses names that Kubernetes would refuse, before anything is recorded for them", func(ctx context.Context) {
		for _, name := range []string{"Bad", "bad_claim", "-bad", "bad..claim"} {
			expectRefused(ctx, written("IPClaim", team, name, `{poolRef: {name: valid-pool}, prefixLength: 24}`),
				refusal{field: "metadata.name", value: `"` + name + `"`, remedy: "must consist of lower case alphanumeric characters"})
		}
		generated := written("IPClaim", team, "", `{poolRef: {name: valid-pool}, prefixLength: 24}`)
		generated.SetGenerateName("Bad_")
		expectRefused(ctx, generated, refusal{field: "metadata.name", remedy: "must consist of lower case alphanumeric characters"})
	})
})
