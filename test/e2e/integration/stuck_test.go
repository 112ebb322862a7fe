package integration

import (
	"context"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// A claim or child pool that cannot be served stalls no other: the next one is served, and its own
// status states the reason. Each pool has room for one. This topic has 10.29.0.0/16 of a separate
// routing domain.
var _ = Describe("stuck", Ordered, ContinueOnFailure, func() {
	const team = "stuck"

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	// full makes a pool of one address, and the claim that holds it.
	full := func(ctx context.Context, pool, cidr string) *v1alpha1.IPClaim {
		GinkgoHelper()
		specs.Pool(ctx, k8s, build.Pool(pool).Domain("stuck").CIDR(cidr).Obj())
		holder := specs.Created(ctx, k8s, build.Claim(team, pool+"-holder").Pool(pool).Length(32).Obj())
		Expect(holder.Spec.CIDR).To(Equal(cidr))
		return holder
	}
	// waiting makes a claim that waits for the pool, after all that do by its name: ages have a
	// resolution of one second.
	waiting := func(ctx context.Context, namespace, name, pool string) *v1alpha1.IPClaim {
		GinkgoHelper()
		claim := answered(ctx, build.Claim(namespace, name).Pool(pool).Length(32).Obj(), "")
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimExhausted))
		return claim
	}

	It("serves a claim whose name has a dot at the place where its record's is cut, and the one behind it", func(ctx context.Context) {
		holder := full(ctx, "stuck-name", "10.29.0.0/32")
		long := strings.Repeat("a", 243) + "." + strings.Repeat("b", 9)
		Expect(long).To(HaveLen(253))
		stuck, behind := waiting(ctx, team, long, "stuck-name"), waiting(ctx, team, "b-behind-name", "stuck-name")
		deleted(ctx, holder)
		expectBound(ctx, stuck, "10.29.0.0/32")
		deleted(ctx, stuck)
		expectBound(ctx, behind, "10.29.0.0/32")

		deleted(ctx, behind)
		Eventually(func() []v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "stuck-name") }).Should(BeEmpty())
		again := specs.Created(ctx, k8s, build.Claim(team, long).Pool("stuck-name").Length(32).Obj())
		Expect(again.Spec.CIDR).To(Equal("10.29.0.0/32"), "at admission")
	})

	It("serves the claim behind one whose record a quota refuses, and reports it", func(ctx context.Context) {
		poor := specs.Namespace(ctx, k8s, "a-stuck-quota")
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: poor, Name: "none"}}
		quota.Spec.Hard = corev1.ResourceList{"count/ipallocations.ipam.cadastre.dev": resource.MustParse("0")}
		specs.Created(ctx, k8s, quota)
		Eventually(func() error { // as the quota controller does once it knows the kind
			specs.Stored(ctx, k8s, quota)
			quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
			return k8s.Status().Update(ctx, quota)
		}).Should(Succeed())
		specs.Pool(ctx, k8s, build.Pool("stuck-roomy").Domain("stuck").CIDR("10.29.1.0/24").Obj())
		Eventually(func() error {
			return k8s.Create(ctx, build.Claim(poor, "refused").Pool("stuck-roomy").Length(32).Obj())
		}).Should(MatchError(ContainSubstring("exceeded quota")))

		holder := full(ctx, "stuck-quota", "10.29.2.0/32")
		stuck, behind := waiting(ctx, poor, "stuck", "stuck-quota"), waiting(ctx, team, "behind-quota", "stuck-quota")
		deleted(ctx, holder)
		expectBound(ctx, behind, "10.29.2.0/32")
		Eventually(func() map[string]string { return reasons(specs.Stored(ctx, k8s, stuck).Status.Conditions) }).Should(Equal(map[string]string{
			"Ready": "False/RecordRefused", "Pending": "True/RecordRefused",
		}))
		Expect(stuck.Status.Phase).To(Equal(v1alpha1.ClaimPending))
		Expect(meta.FindStatusCondition(stuck.Status.Conditions, v1alpha1.ConditionPending).Message).To(
			MatchRegexp(`^the IPAllocation cannot be recorded: .* is forbidden: exceeded quota: none, .*: remove the cause; others are served first until it can$`))

		deleted(ctx, quota)
		deleted(ctx, behind)
		Eventually(phase(ctx, stuck)).WithTimeout(lastRetry).Should(Equal(v1alpha1.ClaimBound))
	})

	It("serves the claim behind a child pool that was deleted while it was read live", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("stuck-parent").Domain("stuck").CIDR("10.29.3.0/29").Obj())
		holder := specs.Created(ctx, k8s, build.Claim(team, "child-holder").Pool("stuck-parent").Length(30).Obj())
		answered(ctx, build.Claim(team, "child-other").Pool("stuck-parent").Length(30).Obj(), "10.29.3.4/30")
		child := specs.Created(ctx, k8s, build.Pool("stuck-child").Child("stuck-parent", 30).Obj())
		Expect(child.Spec.CIDR).To(BeEmpty())
		behind := specs.Created(ctx, k8s, build.Claim(team, "behind-child").Pool("stuck-parent").Length(30).Obj())
		Eventually(phase(ctx, behind)).Should(Equal(v1alpha1.ClaimExhausted))

		reading := make(chan struct{})
		go func() { // each makes the operator read the child pool live
			defer GinkgoRecover()
			defer close(reading)
			for !apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(child), &v1alpha1.IPPool{})) {
				_ = k8s.Create(ctx, build.Claim(team, "grandchild").Pool("stuck-child").Length(32).Obj(), client.DryRunAll)
			}
		}()
		unwanted(ctx, child)
		<-reading
		deleted(ctx, holder)
		expectBound(ctx, behind, "10.29.3.0/30")
	})
})

// lastRetry bounds the time until a claim is tried again that has lost its turn, with a reserve.
const lastRetry = 75 * time.Second

// An operator that serves one namespace alone, in which two claims may wait.
var _ = Describe("stuck outside", Ordered, func() {
	var c *suite.World

	BeforeAll(func() {
		c = suite.Start(GinkgoTB(), cluster.Options{Managers: 1, ManagerArgs: []string{"--namespace=watched", "--waiting-limit=2"}})
		c.Namespace("an-outside")
		c.Namespace("watched")
		c.Pools(build.Pool("narrow").CIDR("10.29.4.0/32").Obj())
	})

	claim := func(ctx context.Context, namespace, name string) (*v1alpha1.IPClaim, error) {
		claim := build.Claim(namespace, name).Pool("narrow").Length(32).Obj()
		return claim, c.Create(ctx, claim)
	}
	phaseOf := func(ctx context.Context, claim *v1alpha1.IPClaim) func() v1alpha1.ClaimPhase {
		return func() v1alpha1.ClaimPhase {
			Expect(c.Get(ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
			return claim.Status.Phase
		}
	}

	It("serves a claim of its namespace that came after one that another operator is to serve", func(ctx context.Context) {
		holder, err := claim(ctx, "watched", "holder")
		Expect(err).NotTo(HaveOccurred())
		Expect(holder.Spec.CIDR).To(Equal("10.29.4.0/32"))
		outside, err := claim(ctx, "an-outside", "stuck")
		Expect(err).NotTo(HaveOccurred())
		Expect(outside.Spec.CIDR).To(BeEmpty())
		behind, err := claim(ctx, "watched", "behind")
		Expect(err).NotTo(HaveOccurred())
		Eventually(phaseOf(ctx, behind)).Should(Equal(v1alpha1.ClaimExhausted))
		Expect(c.Delete(ctx, holder)).To(Succeed())
		Eventually(phaseOf(ctx, behind)).Should(Equal(v1alpha1.ClaimBound))
		Expect(behind.Spec.CIDR).To(Equal("10.29.4.0/32"))
	})

	It("answers with 429 if the limit of waiting claims of a namespace is reached", func(ctx context.Context) {
		for _, name := range []string{"first", "second"} {
			waits, err := claim(ctx, "watched", name)
			Expect(err).NotTo(HaveOccurred())
			Eventually(phaseOf(ctx, waits)).Should(Equal(v1alpha1.ClaimExhausted))
		}
		_, err := claim(ctx, "watched", "third")
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("namespace watched has reached its limit of 2 waiting claims: delete some, or wait until they are bound")))
	})
})

// Reasons that no other topic meets.
var _ = Describe("conditions", Ordered, func() {
	It("show that a pool is being deleted while it is in use", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "conditions")
		pool := specs.Pool(ctx, k8s, build.Pool("conditions").CIDR("10.68.0.0/32").Obj())
		claim := specs.Created(ctx, k8s, build.Claim(team, "all-of-it").Pool("conditions").Length(32).Obj())
		By("forcing the deletion past the webhook, as if it did not run")
		webhooks := deleteWebhook(ctx)
		Eventually(func() error { return k8s.Delete(ctx, pool) }).Should(Succeed()) // as soon as the API server has seen it
		Expect(k8s.Create(ctx, webhooks)).To(Succeed())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, pool).Status.Conditions)["Ready"] }).Should(Equal("False/Terminating"))
		Expect(pool.Status.Phase).To(Equal(v1alpha1.PoolTerminating))
		deleted(ctx, claim)
		Eventually(func() error { return client.IgnoreNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(pool), pool)) }).Should(Succeed())
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
