package integration

import (
	"context"
	"fmt"
	"os"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// historyOf returns the entries of a block in the manager's log, which is JSON, in their order.
func historyOf(block string) func() []string {
	return func() []string {
		GinkgoHelper()
		file, err := os.Open(running.Managers[0].LogPath())
		Expect(err).NotTo(HaveOccurred())
		defer func() { _ = file.Close() }()
		var entries []string
		_, err = history.Read(file, func(e history.Entry) error {
			if e.Block.IsValid() && e.Block.String() == block {
				entries = append(entries, fmt.Sprintf("%s %s %s/%s by %s: %s", e.Action, e.State, e.HolderNamespace, e.Holder, e.RequestedBy, e.Reason))
			}
			return nil
		})
		Expect(err).NotTo(HaveOccurred())
		return entries
	}
}

var _ = Describe("The history", Ordered, func() {
	const team = "history"
	var retain func(*v1alpha1.IPClaimSpec)

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		retain = func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }
		specs.Pool(ctx, k8s, build.Pool("history").CIDR("10.241.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.AllowRetain = true
			s.RetentionPeriod = &metav1.Duration{Duration: 2 * time.Second}
		}).Obj())
		specs.Pool(ctx, k8s, build.Pool("history-kept").CIDR("10.241.2.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj())
		specs.Pool(ctx, k8s, build.Pool("history-cool").CIDR("10.241.1.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.ReuseDelay = &metav1.Duration{Duration: 2 * time.Second}
		}).Obj())
	})

	It("shows a block from its grant to its release", func(ctx context.Context) {
		block := func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.0.7/32" }
		claim := specs.Created(ctx, k8s, build.Claim(team, "db").Pool("history").With(block).With(retain).Obj())
		Expect(k8s.Create(ctx, build.Claim(team, "second").Pool("history").With(block).Obj())).NotTo(Succeed())
		deleted(ctx, claim)
		Eventually(historyOf("10.241.0.7/32")).Should(HaveExactElements(
			"Granted  history/db by admin: Allocated",
			"Refused  history/second by admin: Conflict",
			"Retained Retained history/db by admin: HolderDeleted",
			"Released  history/db by admin: RetentionExpired",
		))
	})

	It("shows the next holder of a retained block, and that a person released it", func(ctx context.Context) {
		block := func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.2.8/32" }
		claim := specs.Created(ctx, k8s, build.Claim(team, "kept").Pool("history-kept").With(block).With(retain).Obj())
		deleted(ctx, claim)
		Eventually(historyOf("10.241.2.8/32")).Should(HaveLen(2))
		claim = specs.Created(ctx, k8s, build.Claim(team, "kept").Pool("history-kept").With(block).With(retain).Obj())
		record := &v1alpha1.IPAllocation{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: claim.Spec.AllocationName}}
		Eventually(func() types.UID { return specs.Stored(ctx, k8s, record).Spec.ClaimRef.UID }).Should(Equal(claim.UID))
		deleted(ctx, claim)
		Eventually(historyOf("10.241.2.8/32")).Should(HaveLen(4))
		deleted(ctx, record)
		Eventually(historyOf("10.241.2.8/32")).Should(HaveExactElements(
			"Granted  history/kept by admin: Allocated",
			"Retained Retained history/kept by admin: HolderDeleted",
			"Granted  history/kept by admin: TakenOver",
			"Retained Retained history/kept by admin: HolderDeleted",
			"Released  history/kept by admin: Deleted",
		))
	})

	It("shows that a block cools down", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "cools").Pool("history-cool").With(func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.1.7/32" }).Obj())
		deleted(ctx, claim)
		Eventually(historyOf("10.241.1.7/32")).Should(HaveExactElements(
			"Granted  history/cools by admin: Allocated",
			"Retained Cooling history/cools by admin: HolderDeleted",
			"Released  history/cools by admin: ReuseDelayOver",
		))
	})

	It("shows the blocks that pools get and release", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("history-child").Child("history", 28).Obj())
		block := pool.Spec.CIDR
		deleted(ctx, pool)
		Eventually(historyOf(block)).Should(HaveExactElements(
			"Granted  /history-child by admin: Allocated",
			"Released  /history-child by admin: HolderDeleted",
		))
	})

	It("shows that a record without holder was collected", func(ctx context.Context) {
		refused := build.Claim(team, "never-stored").Pool("history").With(func(s *v1alpha1.IPClaimSpec) { s.CIDR = "10.241.0.9/32" }).Obj()
		Expect(k8s.Create(ctx, refused, client.DryRunAll)).To(Succeed(), "a dry run leaves nothing behind")
		Expect(historyOf("10.241.0.9/32")()).To(BeEmpty())
		refuses(ctx, team)
		refused.Labels = map[string]string{"refuse": "me"}
		Expect(k8s.Create(ctx, refused)).NotTo(Succeed())
		Eventually(historyOf("10.241.0.9/32")).WithTimeout(time.Minute).Should(HaveExactElements(
			"Granted  history/never-stored by admin: Allocated",
			"Released  history/never-stored by admin: Orphaned",
		))
	})
})
