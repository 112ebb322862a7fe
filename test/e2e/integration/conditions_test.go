package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// Reasons that no other topic meets.
var _ = Describe("conditions", Ordered, func() {
	var team string
	ofPool := func(ctx context.Context, pool *v1alpha1.IPPool) func() map[string]string {
		return func() map[string]string { return reasons(specs.Stored(ctx, k8s, pool).Status.Conditions) }
	}
	ofClass := func(ctx context.Context, class *v1alpha1.IPClass) func() string {
		return func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }
	}
	ofClaim := func(ctx context.Context, claim *v1alpha1.IPClaim) func() string {
		return func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }
	}

	BeforeAll(func(ctx context.Context) { team = specs.Namespace(ctx, k8s, "conditions") })

	It("show a pool that is ready, full, paused and being deleted", func(ctx context.Context) {
		pool := specs.Created(ctx, k8s, build.Pool("conditions").CIDR("10.68.0.0/32").Obj())
		Eventually(ofPool(ctx, pool)).Should(Equal(map[string]string{"Ready": "True/Ready", "Allocated": "True/Recorded", "Exhausted": "False/HasRoom"}))
		claim := specs.Created(ctx, k8s, build.Claim(team, "all-of-it").Pool("conditions").Length(32).Obj())
		Eventually(ofPool(ctx, pool)).Should(Equal(map[string]string{"Ready": "True/Full", "Allocated": "True/Recorded", "Exhausted": "True/PoolExhausted"}))
		Expect(specs.Stored(ctx, k8s, pool).Status.Phase).To(Equal(v1alpha1.PoolExhausted))
		Expect(pool.Status.UtilizationPercent).To(BeEquivalentTo(100))
		Expect(pool.Status.LargestFreePrefix).To(BeEmpty())
		By("forcing the deletion past the webhook, as if it did not run")
		webhooks := deleteWebhook(ctx)
		Eventually(func() error { return k8s.Delete(ctx, pool) }).Should(Succeed()) // as soon as the API server has seen it
		Expect(k8s.Create(ctx, webhooks)).To(Succeed())
		Eventually(ofPool(ctx, pool)).Should(HaveKeyWithValue("Ready", "False/Terminating"))
		Expect(pool.Status.Phase).To(Equal(v1alpha1.PoolTerminating))
		deleted(ctx, claim)
		Eventually(func() error { return client.IgnoreNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)) }).Should(Succeed())
	})

	It("show a child whose parent is missing, or full", func(ctx context.Context) {
		orphan := specs.Created(ctx, k8s, build.Pool("conditions-child").Child("conditions-parent", 24).Obj())
		Eventually(ofPool(ctx, orphan)).Should(HaveKeyWithValue("Allocated", "False/ParentNotReady"))
		Expect(orphan.Status.Phase).To(Equal(v1alpha1.PoolPending))
		specs.Pool(ctx, k8s, build.Pool("conditions-parent").CIDR("10.68.4.0/23").Obj())
		specs.Ready(ctx, k8s, orphan)
		specs.Pool(ctx, k8s, build.Pool("conditions-second").Child("conditions-parent", 24).Obj())
		third := specs.Created(ctx, k8s, build.Pool("conditions-third").Child("conditions-parent", 24).Obj())
		Eventually(ofPool(ctx, third)).Should(HaveKeyWithValue("Allocated", "False/PoolExhausted"))
		deleted(ctx, orphan)
		specs.Ready(ctx, k8s, third)
	})

	It("show a class without pools, and one that another provisioner serves", func(ctx context.Context) {
		Eventually(ofClass(ctx, specs.Created(ctx, k8s, build.Class("conditions-empty").Obj()))).Should(Equal("True/NoPools"))
		foreign := specs.Created(ctx, k8s, build.Class("conditions-foreign").With(func(s *v1alpha1.IPClassSpec) { s.Provisioner = "example.com/theirs" }).Obj())
		Eventually(ofClass(ctx, foreign)).Should(Equal("True/ForeignProvisioner"))
		Eventually(ofClaim(ctx, specs.Created(ctx, k8s, build.Claim(team, "foreign").Class("conditions-foreign").Length(32).Obj()))).Should(Equal("True/ForeignProvisioner"))
		served := specs.Created(ctx, k8s, build.Class("conditions-served").Obj())
		specs.Pool(ctx, k8s, build.Pool("conditions-served").CIDR("10.68.8.0/24").Classes("conditions-served").Obj())
		Eventually(ofClass(ctx, served)).Should(Equal("True/Ready"))
		Eventually(func() any { return specs.Stored(ctx, k8s, served).Status.Capacity }).Should(HaveValue(HaveField("Available", "256")))
	})

	It("show a claim with a request that a class, made after it, does not allow", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "too-large").Class("conditions-later").Length(8).Obj())
		Eventually(ofClaim(ctx, claim)).Should(Equal("True/ClassNotFound"))
		specs.Created(ctx, k8s, build.Class("conditions-later").Lengths(24, 28).Obj())
		specs.Pool(ctx, k8s, build.Pool("conditions-later").CIDR("10.69.0.0/16").Classes("conditions-later").Obj())
		Eventually(ofClaim(ctx, claim)).Should(Equal("True/PolicyViolation"))
		By("not holding up those behind it")
		Expect(specs.Created(ctx, k8s, build.Claim(team, "allowed").Class("conditions-later").Length(24).Obj()).Spec.CIDR).To(Equal("10.69.0.0/24"))
	})
})

// deleteWebhook deletes the validating webhooks, as if they did not run, and returns them to be
// created again.
func deleteWebhook(ctx context.Context) *admissionv1.ValidatingWebhookConfiguration {
	GinkgoHelper()
	webhooks := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "cadastre-validating-webhook-configuration"}}
	specs.Stored(ctx, k8s, webhooks)
	deleted(ctx, webhooks.DeepCopy())
	webhooks.ResourceVersion, webhooks.UID = "", ""
	return webhooks
}
