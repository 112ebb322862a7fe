package integration

import (
	"context"
	"os"
	"regexp"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// documented returns the objects of the YAML block of a document that contains the text.
func documented(path, text string) []*unstructured.Unstructured {
	GinkgoHelper()
	content, err := os.ReadFile("../../../" + path)
	Expect(err).NotTo(HaveOccurred())
	var objs []*unstructured.Unstructured
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(content), -1) {
		if !strings.Contains(block[1], text) {
			continue
		}
		found, err := manifests.Decode([]byte(block[1]))
		Expect(err).NotTo(HaveOccurred())
		objs = append(objs, found...)
	}
	Expect(objs).NotTo(BeEmpty(), "%s has no example with %s", path, text)
	return objs
}

var _ = Describe("tenancy", Ordered, ContinueOnFailure, func() {
	const red, blue, platform = "tenancy-red", "tenancy-blue", "tenancy-platform"
	var alice client.Client // of the red project, may make claims

	project := func(ctx context.Context, namespace, project string) {
		specs.Created(ctx, k8s, build.NamespaceOf(project, namespace))
	}
	bind := func(ctx context.Context, role string, rules ...rbacv1.PolicyRule) {
		specs.Created(ctx, k8s, build.ClusterRole(role, rules...))
		specs.Created(ctx, k8s, build.ClusterBinding(role, role, build.User("alice")))
	}
	// pendingWith waits until a claim is pending without a block, and returns its reason for that.
	pendingWith := func(ctx context.Context, claim *v1alpha1.IPClaim) string {
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimPending))
		Expect(claim.Spec.CIDR).To(BeEmpty())
		return reasons(claim.Status.Conditions)["Pending"]
	}

	BeforeAll(func(ctx context.Context) {
		project(ctx, red, "red")
		project(ctx, blue, "blue")
		project(ctx, platform, platformProject)
		alice = running.As("alice")
		bind(ctx, "tenancy-claims", rbacv1.PolicyRule{
			APIGroups: []string{"ipam.cadastre.dev"}, Resources: []string{"ipclaims"}, Verbs: []string{"create", "get", "update"},
		})
		for _, pool := range []*v1alpha1.IPPool{
			build.Pool("tenancy-consumer").CIDR("10.60.0.0/24").Classes("tenancy-consumer").With(func(s *v1alpha1.IPPoolSpec) {
				s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "red"
			}).Obj(),
			build.Pool("tenancy-platform").CIDR("10.60.1.0/24").Classes("tenancy-shared").With(func(s *v1alpha1.IPPoolSpec) {
				s.Visibility = v1alpha1.VisibilityPlatform
			}).Obj(),
			build.Pool("tenancy-shared").CIDR("10.60.2.0/24").Classes("tenancy-shared").Obj(),
			build.Pool("tenancy-owned").CIDR("10.60.3.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "blue" }).Obj(),
			build.Pool("tenancy-labeled").CIDR("10.60.9.0/24").Label("tenancy", "owned").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "blue" }).Obj(),
			build.Pool("tenancy-one").CIDR("10.60.4.0/32").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "blue" }).Obj(),
		} {
			specs.Pool(ctx, k8s, pool)
		}
		specs.Created(ctx, k8s, build.Class("tenancy-shared").Length(32).Obj())
		specs.Created(ctx, k8s, build.Class("tenancy-consumer").Length(32).With(func(s *v1alpha1.IPClassSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "red"
		}).Obj())
	})

	It("serves a consumer's own project, by name and by class", func(ctx context.Context) {
		answered(ctx, build.Claim(red, "own-pool").Pool("tenancy-consumer").Length(32).Obj(), "10.60.0.0/32")
		answered(ctx, build.Claim(red, "own-class").Class("tenancy-consumer").Obj(), "10.60.0.1/32")
	})

	It("answers for pools that may not be used as for missing ones", func(ctx context.Context) {
		for _, c := range []struct{ forbidden, missing *v1alpha1.IPClaim }{
			{build.Claim(blue, "others-pool").Pool("tenancy-consumer").Length(32).Obj(), build.Claim(blue, "no-pool").Pool("tenancy-nothing").Length(32).Obj()},
			{build.Claim(blue, "others-class").Class("tenancy-consumer").Obj(), build.Claim(blue, "no-class").Class("tenancy-nothing").Obj()},
			{build.Claim(red, "platforms").Pool("tenancy-platform").Length(32).Obj(), build.Claim(red, "no-pool").Pool("tenancy-nothing").Length(32).Obj()},
		} {
			Expect(pendingWith(ctx, specs.Created(ctx, k8s, c.forbidden))).To(Equal(pendingWith(ctx, specs.Created(ctx, k8s, c.missing))))
		}
	})

	It("serves the platform's project from platform pools, by class before all others", func(ctx context.Context) {
		answered(ctx, build.Claim(platform, "by-class").Class("tenancy-shared").Obj(), "10.60.1.0/32")
		answered(ctx, build.Claim(red, "by-class").Class("tenancy-shared").Obj(), "10.60.2.0/32")
	})

	It("selects no pool by labels if it takes the verb use to name it", func(ctx context.Context) {
		owned := func(team, name string) *v1alpha1.IPClaim {
			return specs.Created(ctx, k8s, build.Claim(team, name).Selecting("tenancy", "owned").Length(32).Obj())
		}
		nothing := specs.Created(ctx, k8s, build.Claim(red, "selects-nothing").Selecting("tenancy", "nothing").Length(32).Obj())
		Expect(pendingWith(ctx, owned(red, "selects-owned"))).To(Equal(pendingWith(ctx, nothing)))
		Expect(owned(blue, "selects-own").Spec.CIDR).To(Equal("10.60.9.0/32"))
	})

	It("needs the verb use to name another project's pool", func(ctx context.Context) {
		refused := build.Claim(red, "without-use").Pool("tenancy-owned").Length(32).Obj()
		Expect(alice.Create(ctx, refused)).To(Succeed())
		Expect(pendingWith(ctx, refused)).To(Equal("True/PoolNotFound"))

		bind(ctx, "tenancy-use", rbacv1.PolicyRule{
			APIGroups: []string{"ipam.cadastre.dev"}, Resources: []string{"ippools"}, ResourceNames: []string{"tenancy-one"}, Verbs: []string{"use"},
		})
		allowed := build.Claim(red, "with-use").Pool("tenancy-one").Length(32).Obj()
		Eventually(func() string { // the authorizer sees the binding a moment later
			trial := allowed.DeepCopy()
			Expect(alice.Create(ctx, trial, client.DryRunAll)).To(Succeed())
			return trial.Spec.CIDR
		}).WithTimeout(30e9).Should(Equal("10.60.4.0/32"))
		Expect(alice.Create(ctx, allowed)).To(Succeed())
		Expect(allowed.Spec.CIDR).To(Equal("10.60.4.0/32"))

		waiting := build.Claim(red, "use-and-wait").Pool("tenancy-one").Length(32).Obj()
		Expect(alice.Create(ctx, waiting)).To(Succeed())
		Expect(waiting.Spec.CIDR).To(BeEmpty())
		deleted(ctx, allowed)
		Eventually(phase(ctx, waiting)).Should(Equal(v1alpha1.ClaimBound))
	})

	It("lets no tenant grant themselves the use of a pool", func(ctx context.Context) {
		forged := build.Claim(red, "forged").Pool("tenancy-owned").Length(32).Obj()
		forged.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "tenancy-owned"}
		Expect(alice.Create(ctx, forged)).To(Succeed())
		Expect(forged.Annotations).NotTo(HaveKey(v1alpha1.AnnotationUseGranted))
		Expect(pendingWith(ctx, forged)).To(Equal("True/PoolNotFound"))
		granted := func(c *v1alpha1.IPClaim) {
			c.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "tenancy-owned"}
		}
		Expect(specs.Update(ctx, k8s, alice, forged, granted)).To(MatchError(ContainSubstring("is written by the operator alone")))
	})

	It("serves a pool's own project without a grant", func(ctx context.Context) {
		answered(ctx, build.Claim(blue, "owner").Pool("tenancy-owned").Length(32).Obj(), "10.60.3.0/32")
	})

	It("matches a project by the label alone if a namespace has that label", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Namespace("red")) // any tenant's, of the project's name
		forged := specs.Created(ctx, k8s, build.Claim("red", "forged").Pool("tenancy-consumer").Length(32).Obj())
		Expect(pendingWith(ctx, forged)).To(Equal("True/PoolNotFound"))
		Expect(pendingWith(ctx, specs.Created(ctx, k8s, build.Claim("red", "forged-class").Class("tenancy-consumer").Obj()))).To(Equal("True/ClassNotFound"))
	})

	It("matches a project by the name of a namespace if no namespace has that label", func(ctx context.Context) {
		alone := specs.Namespace(ctx, k8s, "tenancy-alone")
		specs.Pool(ctx, k8s, build.Pool("tenancy-alone").CIDR("10.60.5.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, alone
		}).Obj())
		answered(ctx, build.Claim(alone, "own").Pool("tenancy-alone").Length(32).Obj(), "10.60.5.0/32")
	})

	It("keeps the label to users that may assign the project, by the policy of the documentation", func(ctx context.Context) {
		for _, obj := range documented("docs/operations.md", "guard-project-label") {
			specs.Created(ctx, k8s, obj)
		}
		bind(ctx, "tenancy-namespaces", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"create", "update"}})
		labeled := func(name, project string) error {
			return alice.Create(ctx, build.NamespaceOf(project, name), client.DryRunAll)
		}
		Eventually(func() error { return labeled("tenancy-guarded", "red") }).Should(MatchError(ContainSubstring("may change it")))
		Expect(alice.Create(ctx, build.Namespace("tenancy-guarded"))).To(Succeed())
		relabeled := build.NamespaceOf("red", "tenancy-guarded")
		Expect(alice.Update(ctx, relabeled)).To(MatchError(ContainSubstring("may change it")))
		bind(ctx, "tenancy-assign", rbacv1.PolicyRule{
			APIGroups: []string{"ipam.cadastre.dev"}, Resources: []string{"projects"}, ResourceNames: []string{"shop"}, Verbs: []string{"assign"},
		})
		Eventually(func() error { return labeled("tenancy-shop", "shop") }).Should(Succeed())
		Expect(labeled("tenancy-shop", "red")).To(MatchError(ContainSubstring("may change it")))
	})

	It("does not report that no pool backs a class if one does that the namespace may not use", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("tenancy-hidden").Length(32).Obj())
		specs.Pool(ctx, k8s, build.Pool("tenancy-hidden").CIDR("10.60.6.0/24").Classes("tenancy-hidden").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility = v1alpha1.VisibilityPlatform
		}).Obj())
		claim := specs.Created(ctx, k8s, build.Claim(blue, "hidden").Class("tenancy-hidden").Obj())
		expectPending(ctx, claim, v1alpha1.ReasonNoPoolForClass,
			`no IPv4 pool that this namespace may use backs the IPClass "tenancy-hidden": add the class to the classNames of one, or change the visibility of one that backs it`)
		specs.Pool(ctx, k8s, build.Pool("tenancy-hidden-not").CIDR("10.60.10.0/24").Classes("tenancy-hidden").Obj())
		expectBound(ctx, claim, "10.60.10.0/32")
	})

	It("does not select by label a pool that the namespace may not use", func(ctx context.Context) {
		labeled := func(name, cidr, project string) {
			pool := build.Pool(name).CIDR(cidr).With(func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = v1alpha1.VisibilityConsumer, project }).Obj()
			pool.Labels = map[string]string{"tenancy": "selected"}
			specs.Pool(ctx, k8s, pool)
		}
		labeled("tenancy-label-red", "10.60.7.0/24", "red")
		stranger := specs.Created(ctx, k8s, build.Claim(blue, "selects").Selecting("tenancy", "selected").Length(32).Obj())
		Expect(pendingWith(ctx, stranger)).To(Equal("True/PoolNotFound"))
		answered(ctx, build.Claim(red, "selects").Selecting("tenancy", "selected").Length(32).Obj(), "10.60.7.0/32")
		labeled("tenancy-label-blue", "10.60.8.0/24", "blue")
		expectBound(ctx, stranger, "10.60.8.0/32")
	})
})
