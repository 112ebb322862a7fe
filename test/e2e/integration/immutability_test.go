package integration

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// patched changes the spec of an object as `kubectl patch --type=merge` does.
func patched(ctx context.Context, obj client.Object, spec string) error {
	GinkgoHelper()
	patch, err := yaml.ToJSON([]byte("spec: " + spec))
	Expect(err).NotTo(HaveOccurred(), spec)
	return k8s.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch))
}

// expectUnchangeable changes the spec of an object. The change must be refused as stated, and leave
// the object, its record and those of this topic as they were.
func expectUnchangeable[T client.Object](ctx context.Context, obj T, spec string, want refusal) {
	GinkgoHelper()
	meant := func(holder types.NamespacedName) bool {
		return holder == client.ObjectKeyFromObject(obj) || holder.Namespace == "immutability" || strings.HasPrefix(holder.Name, "fixed-")
	}
	before := recordsHeld(ctx, meant)
	Expect(before).NotTo(BeEmpty())
	generation := specs.Stored(ctx, k8s, obj).GetGeneration()
	want.expect(patched(ctx, obj, spec))
	Expect(specs.Stored(ctx, k8s, obj).GetGeneration()).To(Equal(generation), "changed in spite of the refusal")
	Expect(recordsHeld(ctx, meant)).To(Equal(before), "recorded or released in spite of the refusal")
}

var _ = Describe("immutability", Ordered, ContinueOnFailure, func() {
	const team = "immutability"
	const immutable = "is immutable"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Created(ctx, k8s, build.Class("fixed-class").Length(24).Obj())
		specs.Created(ctx, k8s, build.Class("fixed-foreign").With(func(s *v1alpha1.IPClassSpec) { s.Provisioner = "example.com/other" }).Obj())
		specs.Pool(ctx, k8s, build.Pool("fixed-root").Domain("immutability").CIDR("10.23.0.0/16").Classes("fixed-class").Label("fixed", "yes").Obj())
		specs.Pool(ctx, k8s, build.Pool("fixed-child").Child("fixed-root", 24).Obj())
		specs.Pool(ctx, k8s, build.Pool("fixed-subnet").Domain("immutability").CIDR("10.25.0.0/24").Network(24, "10.25.0.1").Obj())
		specs.Pool(ctx, k8s, build.Pool("fixed-hosts").Domain("immutability").CIDR("10.24.0.0/24").Network(24, "10.24.0.1").Obj())
		for _, claim := range []*v1alpha1.IPClaim{
			build.Claim(team, "by-class").Class("fixed-class").Obj(),
			build.Claim(team, "by-pool").Pool("fixed-root").Length(24).Obj(),
			build.Claim(team, "by-selector").Selecting("fixed", "yes").Length(24).Obj(),
		} {
			Eventually(phase(ctx, specs.Created(ctx, k8s, claim))).Should(Equal(v1alpha1.ClaimBound))
		}
		for _, claim := range []*v1alpha1.IPClaim{
			build.Claim(team, "pending-class").Class("fixed-no-class").Obj(),
			build.Claim(team, "pending-pool").Pool("fixed-no-pool").Length(24).Obj(),
		} {
			Eventually(phase(ctx, specs.Created(ctx, k8s, claim))).Should(Equal(v1alpha1.ClaimPending))
		}
	})

	DescribeTable("refuses to change a pool's", func(ctx context.Context, name, spec string, want refusal) {
		pool := build.Pool(name).Obj()
		expectUnchangeable(ctx, pool, spec, want)
	},
		Entry("cidr", "fixed-root", `{cidr: 10.26.0.0/16}`, refusal{field: "spec.cidr", remedy: immutable}),
		Entry("cidr to a larger one", "fixed-root", `{cidr: 10.22.0.0/15}`, refusal{field: "spec.cidr", remedy: immutable}),
		Entry("cidr that its parent gave", "fixed-child", `{cidr: 10.23.9.0/24}`, refusal{field: "spec.cidr", remedy: immutable}),
		Entry("parentRef", "fixed-child", `{parentRef: {name: fixed-hosts}}`, refusal{field: "spec.parentRef", remedy: immutable}),
		Entry("parentRef by removing it", "fixed-child", `{parentRef: null, prefixLength: null}`, refusal{field: "spec.parentRef", remedy: immutable}),
		Entry("parentRef by giving it one", "fixed-root", `{parentRef: {name: fixed-hosts}, routingDomain: null}`, refusal{field: "spec.parentRef", remedy: immutable}),
		Entry("prefixLength", "fixed-child", `{prefixLength: 25}`, refusal{field: "spec.prefixLength", remedy: immutable}),
		Entry("prefixLength by removing it", "fixed-child", `{prefixLength: null}`, refusal{field: "spec.prefixLength", remedy: immutable}),
		Entry("prefixLength by giving a root one", "fixed-root", `{prefixLength: 16}`, refusal{field: "spec.prefixLength", remedy: "is for child pools only"}),
		Entry("ipFamily", "fixed-root", `{ipFamily: IPv6}`, refusal{field: "spec.ipFamily", remedy: immutable}),
		Entry("routingDomain", "fixed-root", `{routingDomain: elsewhere}`, refusal{field: "spec.routingDomain", remedy: immutable}),
		Entry("routingDomain by giving a child one", "fixed-child", `{routingDomain: elsewhere}`, refusal{field: "spec.routingDomain", remedy: "is for root pools only"}),
		Entry("network's length", "fixed-hosts", `{network: {prefixLength: 23}}`, refusal{field: "spec.network.prefixLength", remedy: immutable}),
		Entry("network's length by removing the network", "fixed-subnet", `{network: null}`, refusal{field: "spec.network", remedy: immutable}),
	)

	DescribeTable("keeps the value if an update leaves out a pool's", func(ctx context.Context, name, spec string) {
		before := specs.Stored(ctx, k8s, build.Pool(name).Obj())
		Expect(patched(ctx, build.Pool(name).Obj(), spec)).To(Succeed())
		after := specs.Stored(ctx, k8s, build.Pool(name).Obj())
		Expect(after.Spec).To(Equal(before.Spec))
		Expect(after.Generation).To(Equal(before.Generation))
	},
		Entry("cidr", "fixed-child", `{cidr: null}`),
		Entry("ipFamily", "fixed-root", `{ipFamily: null}`),
		Entry("routingDomain", "fixed-root", `{routingDomain: null}`),
	)

	DescribeTable("refuses to change mutable fields of a pool to", func(ctx context.Context, spec string, want refusal) {
		expectUnchangeable(ctx, build.Pool("fixed-hosts").Obj(), spec, want)
	},
		Entry("a range outside its CIDR", `{ranges: [10.26.0.1]}`, refusal{field: "spec.ranges[0]", value: `"10.26.0.1"`, remedy: "is not inside the pool's CIDR 10.24.0.0/24"}),
		Entry("a reversed reserved range", `{reserved: [10.24.0.9-10.24.0.1]}`, refusal{field: "spec.reserved[0]", value: `"10.24.0.9-10.24.0.1"`, remedy: `did you mean "10.24.0.1-10.24.0.9"?`}),
		Entry("a gateway outside of the subnet", `{network: {gateway: 10.26.0.1}}`, refusal{field: "spec.network.gateway", value: `"10.26.0.1"`, remedy: "is not an address of the subnet 10.24.0.0/24"}),
		Entry("bounds larger than itself", `{allocation: {minPrefixLength: 8}}`, refusal{field: "spec.allocation.minPrefixLength", value: "8", remedy: "a block cannot be larger than the pool, which is a /24"}),
		Entry("an unknown strategy", `{allocation: {strategy: NextFit}}`, refusal{field: "spec.allocation.strategy", value: `"NextFit"`, remedy: "supported values: "}),
	)

	DescribeTable("refuses to change a class's", func(ctx context.Context, name, spec string, want refusal) {
		expectUnchangeable(ctx, build.Class(name).Obj(), spec, want)
	},
		Entry("ipFamily", "fixed-class", `{ipFamily: IPv6}`, refusal{field: "spec.ipFamily", remedy: immutable}),
		Entry("ipFamily by removing it", "fixed-class", `{ipFamily: null}`, refusal{field: "spec.ipFamily", value: "Required value"}),
		Entry("provisioner", "fixed-class", `{provisioner: example.com/other}`, refusal{field: "spec.provisioner", remedy: immutable}),
		Entry("provisioner by removing it", "fixed-foreign", `{provisioner: null}`, refusal{field: "spec.provisioner", remedy: immutable}),
	)

	DescribeTable("refuses to change a claim's", func(ctx context.Context, name, spec string, want refusal) {
		expectUnchangeable(ctx, build.Claim(team, name).Obj(), spec, want)
	},
		Entry("className", "by-class", `{className: fixed-foreign}`, refusal{field: "spec.className", remedy: immutable}),
		Entry("className by naming a pool instead", "by-class", `{className: null, poolRef: {name: fixed-root}}`, refusal{field: "spec.poolRef", remedy: immutable}),
		Entry("className by giving it one", "by-pool", `{poolRef: null, className: fixed-class}`, refusal{field: "spec.className"}),
		Entry("poolRef", "by-pool", `{poolRef: {name: fixed-child}}`, refusal{field: "spec.poolRef", remedy: immutable}),
		Entry("poolRef by removing it", "by-pool", `{poolRef: null}`, refusal{field: "spec.poolRef", remedy: immutable}),
		Entry("poolRef by giving it one", "by-selector", `{poolSelector: null, poolRef: {name: fixed-root}}`, refusal{field: "spec.poolRef", remedy: immutable}),
		Entry("poolSelector", "by-selector", `{poolSelector: {matchLabels: {fixed: "no"}}}`, refusal{field: "spec.poolSelector", remedy: immutable}),
		Entry("poolSelector by removing it", "by-selector", `{poolSelector: null}`, refusal{field: "spec.poolSelector", remedy: immutable}),
		Entry("ipFamily", "by-pool", `{ipFamily: IPv6}`, refusal{field: "spec.ipFamily", remedy: immutable}),
		Entry("prefixLength", "by-pool", `{prefixLength: 25}`, refusal{field: "spec.prefixLength", remedy: immutable}),
		Entry("cidr", "by-pool", `{cidr: 10.23.200.0/24}`, refusal{field: "spec.cidr", remedy: immutable}),
		Entry("cidr to garbage", "by-pool", `{cidr: here}`, refusal{field: "spec.cidr", remedy: immutable}),
		Entry("reclaimPolicy to an unknown one", "by-pool", `{reclaimPolicy: Keep}`, refusal{field: "spec.reclaimPolicy", value: `"Keep"`, remedy: "supported values: "}),

		Entry("cidr, which only the operator fills in", "pending-pool", `{cidr: 10.23.200.0/24}`,
			refusal{code: 403, field: "spec.cidr", remedy: "is filled in by the operator"}),
		Entry("cidr and allocationName, which only the operator fills in", "pending-pool", `{cidr: 10.23.200.0/24, allocationName: mine}`,
			refusal{code: 403, field: "spec.cidr", remedy: "is filled in by the operator"}),
		Entry("allocationName alone", "pending-pool", `{allocationName: mine}`,
			refusal{code: 403, field: "spec.allocationName", remedy: "leave it out"}),
		Entry("className while it waits for a pool", "pending-pool", `{poolRef: null, className: fixed-class}`,
			refusal{field: "spec.className"}),
		Entry("className while it waits for that class", "pending-class", `{className: fixed-class}`,
			refusal{field: "spec.className", remedy: immutable}),
	)

	It("refuses to fill in the class of a claim that waits for a default one", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "pending-default").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Length(64).Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimPending))
		expectUnchangeable(ctx, claim, `{className: fixed-class}`,
			refusal{field: "spec.className", remedy: "is filled in by the operator once the claim is bound"})
		deleted(ctx, claim)
	})

	DescribeTable("keeps a filled-in field of a claim when an update leaves it out, and the allocationName anyway", func(ctx context.Context, name, spec string) {
		before := specs.Stored(ctx, k8s, build.Claim(team, name).Obj())
		after := before.DeepCopy()
		Expect(patched(ctx, after, spec)).To(Succeed())
		Expect(after.Spec).To(Equal(before.Spec))
		Expect(after.Generation).To(Equal(before.Generation))
	},
		Entry("className", "by-class", `{className: null}`),
		Entry("ipFamily", "by-pool", `{ipFamily: null}`),
		Entry("prefixLength", "by-pool", `{prefixLength: null}`),
		Entry("cidr", "by-pool", `{cidr: null}`),
		Entry("allocationName", "by-pool", `{allocationName: null}`),
		Entry("allocationName of another cluster", "by-pool", `{allocationName: another}`),
		Entry("reclaimPolicy", "by-pool", `{reclaimPolicy: null}`),
		Entry("all of them", "by-class", `{className: null, ipFamily: null, prefixLength: null, cidr: null, allocationName: null, reclaimPolicy: null}`),
	)

	It("changes mutable fields of a claim, and leaves its block alone", func(ctx context.Context) {
		before := specs.Stored(ctx, k8s, build.Claim(team, "by-pool").Obj())
		after := before.DeepCopy()
		Expect(patched(ctx, after, `{ownerRef: {kind: VirtualMachine, name: web-0}}`)).To(Succeed())
		Expect(after.Spec.OwnerRef).To(Equal(&v1alpha1.ClaimOwner{Kind: "VirtualMachine", Name: "web-0"}))
		Expect(after.Spec.CIDR).To(Equal(before.Spec.CIDR))
		Expect(after.Status).To(Equal(before.Status))
	})

	It("allows changes to labels, annotations and finalizers of all objects", func(ctx context.Context) {
		for _, obj := range []client.Object{build.Pool("fixed-root").Obj(), build.Class("fixed-class").Obj(), build.Claim(team, "by-pool").Obj(), build.Claim(team, "pending-pool").Obj()} {
			patch := build.Merge(`{"metadata":{"labels":{"seen":"yes"},"annotations":{"example.com/note":"kept"}}}`)
			Expect(k8s.Patch(ctx, obj, patch)).To(Succeed())
			Expect(obj.GetLabels()).To(HaveKeyWithValue("seen", "yes"))
			Expect(obj.GetAnnotations()).To(HaveKeyWithValue("example.com/note", "kept"))
		}
	})
})
