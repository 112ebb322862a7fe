package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

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
		Entry("of another family than the class", `{className: valid-class, ipFamily: IPv6}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "class valid-class hands out IPv4: remove ipFamily, or name another class"}),
		Entry("of another family than the pool", `{poolRef: {name: valid-pool}, ipFamily: IPv6, prefixLength: 64}`,
			refusal{field: "spec.ipFamily", value: `"IPv6"`, remedy: "pool valid-pool is IPv4: name a pool of the family that you need"}),
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
