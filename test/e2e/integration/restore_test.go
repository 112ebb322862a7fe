package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// The fate of claims whose records are gone: forced away, or not part of a backup. Records are
// removed as the operator, because no other user can.
var _ = Describe("restore", Ordered, Serial, func() {
	var team string
	var operator client.Client

	forceAway := func(ctx context.Context, claim *v1alpha1.IPClaim) *v1alpha1.IPAllocation {
		record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: claim.Spec.AllocationName}}
		Expect(operator.Get(ctx, client.ObjectKeyFromObject(record), record)).To(Succeed())
		Expect(operator.Patch(ctx, record, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		Expect(operator.Delete(ctx, record)).To(Succeed())
		return record
	}
	record := func(ctx context.Context, claim *v1alpha1.IPClaim) func() string {
		return func() string {
			r := &v1alpha1.IPAllocation{}
			if k8s.Get(ctx, client.ObjectKey{Namespace: team, Name: claim.Spec.AllocationName}, r) != nil {
				return ""
			}
			return r.Spec.CIDR + " of " + r.Spec.ClaimRef.Name
		}
	}

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "restore")
		operator = running.AsOperator()
		specs.Pool(ctx, k8s, build.Pool("restore").CIDR("10.70.0.0/31").Obj())
	})

	It("records a block again whose record was forced away", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "forced").Pool("restore").Length(32).Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		before := forceAway(ctx, claim)
		Eventually(func() bool {
			r := &v1alpha1.IPAllocation{}
			return k8s.Get(ctx, client.ObjectKeyFromObject(before), r) == nil && r.UID != before.UID
		}).Should(BeTrue())
		Expect(record(ctx, claim)()).To(Equal(claim.Spec.CIDR + " of forced"))
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
	})

	It("takes up claims of a backup that holds no records, and renumbers none", func(ctx context.Context) {
		saved := specs.Created(ctx, k8s, build.Claim(team, "saved").Pool("restore").Length(32).Obj())
		Eventually(phase(ctx, saved)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, saved)
		Eventually(record(ctx, saved)).Should(BeEmpty())
		again := saved.DeepCopy()
		again.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: "saved"}
		Expect(k8s.Create(ctx, again)).To(Succeed())
		Expect(again.Spec.CIDR).To(Equal(saved.Spec.CIDR))
		Eventually(phase(ctx, again)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, again)
		Eventually(record(ctx, again)).Should(BeEmpty())
	})

	It("reports a conflict if another claim holds the block, and waits for it", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("restore-one").CIDR("10.70.1.0/32").Obj())
		claim := specs.Created(ctx, k8s, build.Claim(team, "conflict").Pool("restore-one").Length(32).Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(running.Managers[0].Kill()).To(Succeed())
		other := forceAway(ctx, claim)
		other.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: "others", Finalizers: []string{v1alpha1.FinalizerHeld}}
		other.Spec.ClaimRef.Name = "others"
		Expect(operator.Create(ctx, other)).To(Succeed())
		Expect(running.Managers[0].Restart(ctx)).To(Succeed())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }).Should(Equal("True/" + v1alpha1.ReasonConflict))
		Expect(claim.Spec.CIDR).To(Equal("10.70.1.0/32"))
		By("collecting the other, whose claim does not exist")
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(record(ctx, claim)()).To(Equal("10.70.1.0/32 of conflict"))
	})
})
