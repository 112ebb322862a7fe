package integration

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// unfinalized removes all finalizers from an object.
func unfinalized(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(k8s.Patch(ctx, obj, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
}

// This topic uses 10.77.0.0/16 in the platform's default domain.
var _ = Describe("local-pool-end", Ordered, Serial, ContinueOnFailure, func() {
	It("is not deleted while it is in use, and releases its own block when it is deleted", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "local-end")
		specs.Pool(ctx, k8s, build.Pool("local-end").CIDR("10.77.0.0/24").Obj())
		pool := specs.Created(ctx, k8s, build.Pool("used").Child("local-end", 28).In(team))
		Expect(pool.Spec.CIDR).To(Equal("10.77.0.0/28"))
		specs.Ready(ctx, k8s, pool)
		claim := specs.Created(ctx, k8s, build.Claim(team, "user").LocalPool("used").Length(32).Obj())
		refused := k8s.Delete(ctx, pool)
		Expect(refused).To(MatchError(apierrors.IsConflict, "a conflict"))
		Expect(refused.Error()).To(ContainSubstring("is in use by 1 allocation (IPClaim local-end/user): delete it first"))
		deleted(ctx, claim)
		unwanted(ctx, pool)
		Eventually(specs.IsGone(ctx, k8s, localRecord(team, "used"))).Should(BeTrue())
		Eventually(available(ctx, "local-end")).Should(Equal("256"))
	})

	It("keeps its CIDR while its blocks are in use, when it was forced away, and finds them when it is made again", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "local-forced")
		pool := specs.Pool(ctx, k8s, build.Pool("forced").CIDR("10.77.0.0/30").In(team))
		claim := specs.Created(ctx, k8s, build.Claim(team, "stays").LocalPool("forced").Length(32).Obj())
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(k8s.Delete(ctx, pool)).To(MatchError(apierrors.IsConflict, "a conflict"))
		// The operator is not asked about objects that go with their namespace, or their owner.
		Expect(asTheCluster().Delete(ctx, pool)).To(Succeed())
		unfinalized(ctx, pool) // before its deletion begins it would be put back
		Eventually(specs.IsGone(ctx, k8s, pool)).Should(BeTrue())
		Consistently(specs.IsGone(ctx, k8s, localRecord(team, "forced"))).WithTimeout(2 * orphanGrace).Should(BeFalse())
		Expect(k8s.Create(ctx, build.Pool("other").CIDR("10.77.0.0/24").In(team))).To(MatchError(apierrors.IsConflict, "a conflict"))
		specs.Pool(ctx, k8s, build.Pool("forced").CIDR("10.77.0.0/30").In(team))
		Expect(specs.Created(ctx, k8s, build.Claim(team, "next").LocalPool("forced").Length(32).Obj()).Spec.CIDR).To(Equal("10.77.0.1/32"))
		Expect(specs.Stored(ctx, k8s, claim).Spec.CIDR).To(Equal("10.77.0.0/32"))
		By("releasing it with its last block, when it is forced away again")
		Expect(asTheCluster().Delete(ctx, pool)).To(Succeed())
		unfinalized(ctx, pool)
		Eventually(specs.IsGone(ctx, k8s, pool)).Should(BeTrue())
		Expect(k8s.DeleteAllOf(ctx, &v1alpha1.IPClaim{}, client.InNamespace(team))).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, localRecord(team, "forced"))).Should(BeTrue())
		specs.Pool(ctx, k8s, build.Pool("other").CIDR("10.77.0.0/24").In(team))
	})

	It("goes if it is moved to another cluster, and hands out nothing until it does", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "local-moved")
		pool := build.Pool("moved").CIDR("10.77.0.0/30").In(team)
		pool.Annotations = map[string]string{"clusterctl.cluster.x-k8s.io/delete-for-move": ""}
		specs.Pool(ctx, k8s, pool)
		claim := specs.Created(ctx, k8s, build.Claim(team, "stays").LocalPool("moved").Length(32).Obj())
		deleted(ctx, pool)
		Eventually(func() v1alpha1.PoolPhase { return specs.Stored(ctx, k8s, pool).Status.Phase }).Should(Equal(v1alpha1.PoolTerminating))
		Expect(specs.Created(ctx, k8s, build.Claim(team, "waits").LocalPool("moved").Length(32).Obj()).Spec.CIDR).To(BeEmpty())
		deleted(ctx, claim)
		Eventually(specs.IsGone(ctx, k8s, pool)).Should(BeTrue())
	})

	It("goes with its namespace, after its claims", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "local-gone")
		specs.Pool(ctx, k8s, build.Pool("local-gone").CIDR("10.77.1.0/24").Obj())
		specs.Created(ctx, k8s, build.Pool("root").CIDR("10.0.0.0/8").In(team))
		specs.Created(ctx, k8s, build.Pool("child").Beside("root", 16).In(team))
		specs.Created(ctx, k8s, build.Pool("grandchild").Beside("child", 24).In(team))
		specs.Created(ctx, k8s, build.Pool("of-the-platform").Child("local-gone", 28).In(team))
		for i, pool := range []string{"root", "child", "grandchild", "of-the-platform"} {
			claim := specs.Created(ctx, k8s, build.Claim(team, fmt.Sprintf("claim-%d", i)).LocalPool(pool).Length(32).Obj())
			Expect(claim.Spec.CIDR).NotTo(BeEmpty())
		}
		vm := specs.Created(ctx, k8s, build.Claim(team, "vm").LocalPool("of-the-platform").Length(32).Finalizer("example.com/vm").Obj())
		gone := build.Namespace(team)
		deleted(ctx, gone)

		Eventually(specs.IsGone(ctx, k8s, build.Pool("root").In(team))).Should(BeTrue())
		held := specs.Stored(ctx, k8s, build.Pool("of-the-platform").In(team))
		Expect(held.DeletionTimestamp).NotTo(BeNil())
		Expect(cidrs(specs.RecordsIn(ctx, k8s, "of-the-platform"))).To(Equal([]string{vm.Spec.CIDR}))
		Expect(available(ctx, "local-gone")()).To(Equal("240"))
		specs.Edited(ctx, k8s, vm, func(c *v1alpha1.IPClaim) { c.Finalizers = nil })
		Eventually(specs.IsGone(ctx, k8s, gone)).WithTimeout(60e9).Should(BeTrue())
		for _, pool := range []string{"root", "child", "grandchild", "of-the-platform"} {
			Eventually(specs.IsGone(ctx, k8s, localRecord(team, pool))).Should(BeTrue())
		}
		Eventually(available(ctx, "local-gone")).Should(Equal("256"))
	})

	It("leaves nothing behind if the operator missed its deletion", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "local-unseen")
		specs.Pool(ctx, k8s, build.Pool("local-unseen").CIDR("10.77.2.0/24").Obj())
		pool := specs.Pool(ctx, k8s, build.Pool("unseen").Child("local-unseen", 28).In(team))
		stays := specs.Pool(ctx, k8s, build.Pool("stays").Child("local-unseen", 28).In(team))
		Expect(running.Managers[0].Kill()).To(Succeed())
		unfinalized(ctx, pool)
		deleted(ctx, pool)
		Expect(specs.Stored(ctx, k8s, localRecord(team, "unseen")).Spec.CIDR).To(Equal(pool.Spec.CIDR))
		Expect(running.Managers[0].Restart(ctx)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, localRecord(team, "unseen"))).Should(BeTrue())
		Expect(specs.Stored(ctx, k8s, localRecord(team, "stays")).Spec.CIDR).To(Equal(stays.Spec.CIDR))
		Eventually(available(ctx, "local-unseen")).Should(Equal("240"))
	})
})

// asTheCluster returns a client under the name of the kube-controller-manager, as which the
// namespace controller and the garbage collector delete.
func asTheCluster() client.Client {
	GinkgoHelper()
	return running.As("system:kube-controller-manager", "system:masters")
}
