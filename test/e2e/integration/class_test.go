package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// withoutDefault deletes a default class and waits until claims see none of its family, so that
// other topics find the state as it was.
func withoutDefault(ctx context.Context, class *v1alpha1.IPClass) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(k8s.Delete(ctx, class))).To(Succeed())
	Eventually(func() string {
		claim := build.Claim(metav1.NamespaceDefault, "no-default").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = class.Spec.IPFamily }).Obj()
		Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
		return claim.Spec.ClassName
	}).ShouldNot(Equal(class.Name))
}

// unjudged makes a class that the webhook for classes does not see, as two
// creates at one instant do not see each other.
func unjudged(ctx context.Context, class *v1alpha1.IPClass) *v1alpha1.IPClass {
	GinkgoHelper()
	const label = "class-test/unjudged"
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	config.Name = "zz-cadastre-mutating-webhook-configuration"
	select1 := func(selector *metav1.LabelSelector) {
		specs.Edited(ctx, k8s, config, func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			for i := range c.Webhooks {
				if c.Webhooks[i].Name == "ipclass.ipam.cadastre.dev" {
					c.Webhooks[i].ObjectSelector = selector
				}
			}
		})
	}
	select1(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: label, Operator: metav1.LabelSelectorOpDoesNotExist}}})
	defer select1(&metav1.LabelSelector{})
	class.Labels = map[string]string{label: "yes"}
	Eventually(func() error { return k8s.Create(ctx, class) }).Should(Succeed()) // as soon as the API server has seen it
	return class
}

// This topic has 10.32.0.0/16 and 2001:db8:32::/48 of a separate routing domain.
var _ = Describe("class", Ordered, ContinueOnFailure, func() {
	const team = "class"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Created(ctx, k8s, build.Class("class-plain").Length(26).Lengths(20, 28).Obj())
		specs.Created(ctx, k8s, build.Class("class-bare").Obj())
		specs.Pool(ctx, k8s, build.Pool("class-plain").Domain("class").CIDR("10.32.0.0/18").Classes("class-plain", "class-bare").Obj())
		specs.Pool(ctx, k8s, build.Pool("class-six").Domain("class").CIDR("2001:db8:32::/48").Classes("class-six").Obj())
	})

	It("serves a claim that names it, and records the class by which a block was handed out", func(ctx context.Context) {
		claim := served(ctx, build.Claim(team, "named").Class("class-plain").Length(24).Obj(), "10.32.0.0/24")
		Expect(claim.Status.PoolRef).To(Equal(&v1alpha1.PoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "class-plain"}))
		Expect(recordsOf(ctx, claim)).To(ConsistOf(team + "/" + claim.Spec.AllocationName))
		record := specs.Stored(ctx, k8s, specs.RecordOf(claim))
		Expect(record.Spec.CIDR).To(Equal(claim.Spec.CIDR))
		Expect(record.Spec.ClaimRef.Name).To(Equal("named"))
		Expect(record.Finalizers).To(Equal([]string{v1alpha1.FinalizerHeld}))
		Expect(record.Spec.ClassName).To(Equal("class-plain"))
		Expect(record.Spec.PoolRef).To(Equal(&v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindIPPool, Name: "class-plain"}))
		Expect(record.Spec.RequestedBy).To(Equal("admin"))
		Expect(record.ManagedFields).To(ConsistOf(HaveField("Manager", "cadastre-controller-manager")))
		Expect(record.ManagedFields[0].FieldsV1.GetRawString()).To(ContainSubstring(`"f:spec":{}`)) // that of each field would double the record
	})

	It("fills in family, length and reclaim policy", func(ctx context.Context) {
		claim := answered(ctx, build.Claim(team, "folded").Class("class-plain").Obj(), "10.32.1.0/26")
		Expect(claim.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
		Expect(claim.Spec.PrefixLength).To(HaveValue(Equal(int32(26))))
		Expect(claim.Spec.ReclaimPolicy).To(Equal(v1alpha1.ReclaimDelete))
	})

	DescribeTable("refuses requests that it does not allow:", func(ctx context.Context, spec string, want refusal) {
		expectRefused(ctx, written("IPClaim", team, unused(), spec), want)
	},
		Entry("no length if it has no default", `{className: class-bare}`,
			refusal{field: "spec.prefixLength", remedy: "set it to the length of the block that you need, such as 32 for one address"}),
		Entry("larger blocks than its pools hand out", `{className: class-bare, prefixLength: 17}`,
			refusal{field: "spec.prefixLength", value: "17", remedy: "pool class-plain (10.32.0.0/18) hands out /18 to /32: ask for one of these"}),
	)

	It("allows the bounds themselves", func(ctx context.Context) {
		answered(ctx, build.Claim(team, "longest").Class("class-plain").Length(28).Obj(), "10.32.1.64/28")
		answered(ctx, build.Claim(team, "shortest").Class("class-plain").Length(20).Obj(), "10.32.16.0/20")
	})

	It("judges new claims by its present fields, and leaves bound ones alone", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("class-edited").Length(26).Lengths(20, 28).Obj())
		specs.Pool(ctx, k8s, build.Pool("class-edited").Domain("class").CIDR("10.32.64.0/18").Classes("class-edited").Obj())
		bound := served(ctx, build.Claim(team, "edited").Class("class-edited").Length(28).Obj(), "10.32.64.0/28")
		Expect(patched(ctx, class, `{allowedPrefixLengths: {min: 24, max: 24}, defaultPrefixLength: 24}`)).To(Succeed())
		Eventually(func() string { // as soon as the operator has seen it
			claim := build.Claim(team, "edited-dry").Class("class-edited").Obj()
			Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			return claim.Spec.CIDR
		}).Should(Equal("10.32.65.0/24"))
		Consistently(phase(ctx, bound), "500ms").Should(Equal(v1alpha1.ClaimBound))
		Expect(bound.Spec.CIDR).To(Equal("10.32.64.0/28"))
	})

	It("hands out by its own strategy if it has one", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("class-best").With(func(s *v1alpha1.IPClassSpec) { s.Strategy = v1alpha1.StrategyBestFit }).Obj())
		specs.Pool(ctx, k8s, build.Pool("class-best").Domain("class").CIDR("10.32.128.0/24").Strategy(v1alpha1.StrategyFirstFit).Classes("class-best").Obj())
		specs.Created(ctx, k8s, build.Claim(team, "best-held").Pool("class-best").CIDR("10.32.128.128/26").Obj())
		specs.Created(ctx, k8s, build.Claim(team, "best-held-2").Pool("class-best").CIDR("10.32.128.192/27").Obj())
		answered(ctx, build.Claim(team, "best-by-class").Class("class-best").Length(28).Obj(), "10.32.128.224/28")
		answered(ctx, build.Claim(team, "best-by-pool").Pool("class-best").Length(28).Obj(), "10.32.128.0/28")
	})

	Context("as the default", Ordered, func() {
		var four, six *v1alpha1.IPClass

		BeforeAll(func(ctx context.Context) {
			four = specs.Created(ctx, k8s, build.Class("class-default").Length(24).Default().Obj())
			six = specs.Created(ctx, k8s, build.Class("class-six").V6().Length(64).Default().Obj())
			DeferCleanup(withoutDefault, four)
			DeferCleanup(withoutDefault, six)
			specs.Pool(ctx, k8s, build.Pool("class-default").Domain("class").CIDR("10.32.192.0/18").Classes("class-default").Obj())
		})

		It("serves claims that name nothing, and is written into them", func(ctx context.Context) {
			claim := served(ctx, build.Claim(team, "default").Obj(), "10.32.192.0/24")
			Expect(claim.Spec.ClassName).To(Equal("class-default"))
			Expect(claim.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
		})

		It("serves claims of its family", func(ctx context.Context) {
			claim := specs.Created(ctx, k8s, build.Claim(team, "default-six").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Obj())
			expectBound(ctx, claim, "2001:db8:32::/64")
			Expect(claim.Spec.ClassName).To(Equal("class-six"))
			exact := served(ctx, build.Claim(team, "default-exact").CIDR("2001:db8:32:9::/64").Obj(), "2001:db8:32:9::/64")
			Expect(exact.Spec.ClassName).To(Equal("class-six"))
		})

		It("is not asked by claims that name a pool", func(ctx context.Context) {
			claim := specs.Created(ctx, k8s, build.Claim(team, "default-not").Pool("class-default").Length(24).Obj())
			Expect(claim.Spec.ClassName).To(BeEmpty())
		})

		It("is one of each family: a second is refused, created or edited", func(ctx context.Context) {
			why := refusal{field: "metadata.annotations[ipam.cadastre.dev/is-default-class]", value: `"true"`,
				remedy: `IPClass "class-default" is the default class for IPv4 already: remove the annotation here, or switch with kubectl ipam default-class class-`}
			second := build.Class("class-second").Length(24).Default().Obj()
			why.expect(k8s.Create(ctx, second.DeepCopy()))
			Expect(specs.IsGone(ctx, k8s, second)()).To(BeTrue())
			patch := build.Merge(`{"metadata":{"annotations":{"ipam.cadastre.dev/is-default-class":"true"}}}`)
			why.expect(k8s.Patch(ctx, build.Class("class-plain").Obj(), patch))
		})

		It("counts as the default only with the value true", func(ctx context.Context) {
			other := build.Class("class-not-default").Length(24).Obj()
			other.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "false"}
			specs.Created(ctx, k8s, other)
		})

		It("is the older one, if there are two, and the younger reports it", func(ctx context.Context) {
			// Of two that were created within one second, the first by name is the older.
			younger := unjudged(ctx, build.Class("class-younger").Length(24).Default().Obj())
			DeferCleanup(withoutDefault, younger)
			Eventually(func() string { return reasons(specs.Stored(ctx, k8s, younger).Status.Conditions)["Ready"] }).Should(Equal("False/NotDefault"))
			Expect(meta.FindStatusCondition(younger.Status.Conditions, "Ready").Message).To(Equal(
				`the IPClass "class-default" is older and the default class for IPv4: remove the annotation of one of them`))
			Eventually(func() string { return reasons(specs.Stored(ctx, k8s, four).Status.Conditions)["Ready"] }).Should(Equal("True/Ready"))
			Expect(specs.Created(ctx, k8s, build.Claim(team, "default-two").Obj()).Spec.ClassName).To(Equal("class-default"))
		})

		It("allows another once it is not the default any more", func(ctx context.Context) {
			patch := build.Merge(`{"metadata":{"annotations":{"ipam.cadastre.dev/is-default-class":null}}}`)
			Expect(k8s.Patch(ctx, four, patch)).To(Succeed())
			next := specs.Created(ctx, k8s, build.Class("class-next").Length(24).Default().Obj())
			DeferCleanup(withoutDefault, next)
		})
	})

	It("can be deleted while claims of it are bound", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("class-leaving").Length(24).Obj())
		specs.Pool(ctx, k8s, build.Pool("class-leaving").Domain("class").CIDR("10.32.129.0/24").Classes("class-leaving").Obj())
		claim := served(ctx, build.Claim(team, "stays").Class("class-leaving").Obj(), "10.32.129.0/24")
		deleted(ctx, class)
		Consistently(phase(ctx, claim), "500ms").Should(Equal(v1alpha1.ClaimBound))
	})
})

// This topic has 10.67.0.0/16 and 2001:db8:67::/48 of a separate routing domain. The operator runs
// with the default of --default-ip-family, IPv4.
var _ = Describe("default-family", Ordered, ContinueOnFailure, func() {
	const team = "default-family"
	const none = "the claim names no class and no pool, and there is no default class for IPv4: " +
		"set spec.className, or annotate an IPv4 class with ipam.cadastre.dev/is-default-class=true"
	var six *v1alpha1.IPClass

	annotated := func(ctx context.Context, class *v1alpha1.IPClass, value string) {
		GinkgoHelper()
		patch := build.Merge(`{"metadata":{"annotations":{"ipam.cadastre.dev/is-default-class":` + value + `}}}`)
		Expect(k8s.Patch(ctx, class, patch)).To(Succeed())
	}

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Pool(ctx, k8s, build.Pool("default-family-six").Domain("default-family").CIDR("2001:db8:67::/48").Classes("default-family-six").Obj())
		specs.Pool(ctx, k8s, build.Pool("default-family-four").Domain("default-family").CIDR("10.67.0.0/24").Classes("default-family-a", "default-family-b").Obj())
		six = specs.Created(ctx, k8s, build.Class("default-family-six").V6().Length(64).Default().Obj())
		DeferCleanup(withoutDefault, six)
		served(ctx, build.Claim(team, "six").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Obj(), "2001:db8:67::/64")
	})

	It("serves a claim that names nothing, while the default class is switched, by the next default alone", func(ctx context.Context) {
		a := specs.Created(ctx, k8s, build.Class("default-family-a").Length(28).Default().Obj())
		DeferCleanup(withoutDefault, a)
		Eventually(func() string {
			claim := build.Claim(team, "as-a").Obj()
			Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			return claim.Spec.ClassName
		}).Should(Equal("default-family-a"))
		annotated(ctx, a, "null")
		Eventually(func() string {
			claim := build.Claim(team, "as-none").Obj()
			Expect(k8s.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			Expect(claim.Spec.IPFamily).NotTo(Equal(v1alpha1.IPv6))
			return claim.Spec.ClassName
		}).Should(BeEmpty())
		claim := specs.Created(ctx, k8s, build.Claim(team, "switched").Obj())
		expectPending(ctx, claim, v1alpha1.ReasonNoDefaultClass, none)
		Expect(claim.Spec.IPFamily).To(BeEmpty(), "it is not served from the other family")
		b := specs.Created(ctx, k8s, build.Class("default-family-b").Length(26).Default().Obj())
		DeferCleanup(withoutDefault, b)
		expectBound(ctx, claim, "10.67.0.0/26")
		Expect(claim.Spec.ClassName).To(Equal("default-family-b"))
	})
})
