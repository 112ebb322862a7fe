package integration

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("retain", Ordered, func() {
	var team string
	state := func(ctx context.Context, claim *v1alpha1.IPClaim) func() v1alpha1.AllocationState {
		return func() v1alpha1.AllocationState {
			record := &v1alpha1.IPAllocation{}
			if k8s.Get(ctx, client.ObjectKey{Namespace: team, Name: claim.Spec.AllocationName}, record) != nil {
				return "gone"
			}
			return record.Spec.State
		}
	}

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "retain")
		specs.Pool(ctx, k8s, build.Pool("retain").CIDR("10.61.0.0/24").Classes("retain", "retain-briefly").Obj())
		specs.Created(ctx, k8s, build.Class("retain").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj())
		specs.Created(ctx, k8s, build.Class("retain-briefly").Length(32).With(func(s *v1alpha1.IPClassSpec) {
			s.ReclaimPolicy = v1alpha1.ReclaimRetain
			s.RetentionPeriod = &metav1.Duration{Duration: 2 * time.Second}
		}).Obj())
	})

	It("keeps the block of a claim that is gone, and gives it to one of the same name", func(ctx context.Context) {
		first := specs.Created(ctx, k8s, build.Claim(team, "db").Class("retain").Obj())
		Eventually(phase(ctx, first)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, first)
		Eventually(state(ctx, first)).Should(Equal(v1alpha1.AllocationRetained))
		other := specs.Created(ctx, k8s, build.Claim(team, "other").Class("retain").Obj())
		Expect(other.Spec.CIDR).NotTo(Equal(first.Spec.CIDR))
		again := specs.Created(ctx, k8s, build.Claim(team, "db").Class("retain").Obj())
		Expect(again.Spec.CIDR).To(Equal(first.Spec.CIDR))
		Expect(again.Spec.AllocationName).To(Equal(first.Spec.AllocationName))
		Eventually(state(ctx, again)).Should(Equal(v1alpha1.AllocationBound))
		Eventually(phase(ctx, again)).Should(Equal(v1alpha1.ClaimBound))
		By("retaining it again when that claim is gone too")
		deleted(ctx, again)
		Eventually(state(ctx, again)).Should(Equal(v1alpha1.AllocationRetained))
	})

	It("gives it back at once, however quickly the claim returns", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "quick").Class("retain").Obj())
		block := claim.Spec.CIDR
		for range 5 {
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
			deleted(ctx, claim)
			Eventually(state(ctx, claim)).Should(Equal(v1alpha1.AllocationRetained))
			claim = specs.Created(ctx, k8s, build.Claim(team, "quick").Class("retain").Obj())
			Expect(claim.Spec.CIDR).To(Equal(block))
		}
	})

	It("releases it after the retention period", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "briefly").Class("retain-briefly").Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, claim)
		Eventually(state(ctx, claim)).Should(Equal(v1alpha1.AllocationRetained))
		Eventually(state(ctx, claim)).Should(BeEquivalentTo("gone"))
	})

	It("releases it when a person deletes the record", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "by-hand").Class("retain").Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, claim)
		Eventually(state(ctx, claim)).Should(Equal(v1alpha1.AllocationRetained))
		deleted(ctx, &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: claim.Spec.AllocationName}})
		Eventually(state(ctx, claim)).Should(BeEquivalentTo("gone"))
	})

	It("follows the claim when its policy is edited", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "edited").Class("retain").Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		specs.Edited(ctx, k8s, claim, func(c *v1alpha1.IPClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete })
		Eventually(func() v1alpha1.ReclaimPolicy {
			record := &v1alpha1.IPAllocation{}
			Expect(k8s.Get(ctx, client.ObjectKey{Namespace: team, Name: claim.Spec.AllocationName}, record)).To(Succeed())
			return record.Spec.ReclaimPolicy
		}).Should(Equal(v1alpha1.ReclaimDelete))
		deleted(ctx, claim)
		Eventually(state(ctx, claim)).Should(BeEquivalentTo("gone"))
	})
})

// The passing of the delay is tested with a fake clock in the orphan controller's test.
var _ = Describe("reuse-delay", Ordered, func() {
	var team string
	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "reuse-delay")
		hour := func(s *v1alpha1.IPPoolSpec) { s.ReuseDelay = &metav1.Duration{Duration: time.Hour} }
		specs.Pool(ctx, k8s, build.Pool("reuse-delay").CIDR("10.66.0.0/31").With(hour).Obj())
		specs.Pool(ctx, k8s, build.Pool("reuse-delay-class").CIDR("10.66.1.0/31").Classes("reuse-at-once").With(hour).Obj())
		specs.Created(ctx, k8s, build.Class("reuse-at-once").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.ReuseDelay = &metav1.Duration{} }).Obj())
	})

	It("does not hand out a block again that was released within the delay", func(ctx context.Context) {
		first := specs.Created(ctx, k8s, build.Claim(team, "first").Pool("reuse-delay").Length(32).Obj())
		Expect(first.Spec.CIDR).To(Equal("10.66.0.0/32"))
		deleted(ctx, first)
		Eventually(func() v1alpha1.AllocationState { return specs.RecordsIn(ctx, k8s, "reuse-delay")[0].Spec.State }).Should(Equal(v1alpha1.AllocationCooling))
		record := specs.RecordsIn(ctx, k8s, "reuse-delay")[0]
		Expect(record.Spec.ReleaseAfter.Time).To(BeTemporally("~", time.Now().Add(time.Hour), time.Minute))
		Expect(specs.Created(ctx, k8s, build.Claim(team, "second").Pool("reuse-delay").Length(32).Obj()).Spec.CIDR).To(Equal("10.66.0.1/32"))
		third := specs.Created(ctx, k8s, build.Claim(team, "third").Pool("reuse-delay").Length(32).Obj())
		Expect(third.Spec.CIDR).To(BeEmpty())
		Eventually(phase(ctx, third)).Should(Equal(v1alpha1.ClaimExhausted))
	})

	It("counts for a retained block whose record is deleted by hand: it cools down, and is not free at once", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("reuse-retained").Length(32).With(func(s *v1alpha1.IPClassSpec) {
			s.ReclaimPolicy, s.ReuseDelay = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: time.Hour}
		}).Obj())
		specs.Pool(ctx, k8s, build.Pool("reuse-retained").CIDR("10.66.2.0/32").Classes("reuse-retained").Obj())
		claim := specs.Created(ctx, k8s, build.Claim(team, "retained").Class("reuse-retained").Obj())
		Expect(claim.Spec.CIDR).To(Equal("10.66.2.0/32"))
		deleted(ctx, claim)
		record := func() v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "reuse-retained")[0] }
		Eventually(record).Should(HaveField("Spec.State", v1alpha1.AllocationRetained))
		retained := record()
		deleted(ctx, &retained)
		Eventually(record).Should(HaveField("Spec.State", v1alpha1.AllocationCooling))
		Expect(record().DeletionTimestamp).NotTo(BeNil())
		Expect(record().Spec.ReleaseAfter.Time).To(BeTemporally("~", time.Now().Add(time.Hour), time.Minute))
		again := specs.Created(ctx, k8s, build.Claim(team, "retained").Class("reuse-retained").Obj())
		Expect(again.Spec.CIDR).To(BeEmpty(), "no claim gets the block while it cools down")
	})

	It("follows the class if that states another delay", func(ctx context.Context) {
		first := specs.Created(ctx, k8s, build.Claim(team, "by-class").Class("reuse-at-once").Obj())
		deleted(ctx, first)
		Eventually(func() []v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "reuse-delay-class") }).Should(BeEmpty())
	})
})
