package integration

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// addressLimits limits the addresses that one project may hold.
func addressLimits(addresses int32) *v1alpha1.Limits {
	return &v1alpha1.Limits{PerProject: &v1alpha1.ProjectLimits{Addresses: new(intstr.FromInt32(addresses))}}
}

var _ = Describe("limits", func() {
	refused := func(ctx context.Context, claim *v1alpha1.IPClaim, message string) {
		GinkgoHelper()
		err := k8s.Create(ctx, claim)
		Expect(err).To(MatchError(apierrors.IsForbidden, "a refusal"))
		Expect(err.Error()).To(ContainSubstring(message))
	}

	It("refuses claims of a project beyond its limit in a pool, and no others", func(ctx context.Context) {
		red, blue := specs.Namespace(ctx, k8s, "limit-red"), specs.Namespace(ctx, k8s, "limit-blue")
		specs.Pool(ctx, k8s, build.Pool("limited").CIDR("10.120.0.0/24").Limit(2).Obj())
		first := specs.Created(ctx, k8s, build.Claim(red, "a").Pool("limited").Length(32).Obj())
		specs.Created(ctx, k8s, build.Claim(red, "b").Pool("limited").Length(32).Obj())
		refused(ctx, build.Claim(red, "c").Pool("limited").Length(32).Obj(),
			"exceeded limit: pool limited allows project limit-red 2 blocks, 2 are held")
		specs.Created(ctx, k8s, build.Claim(blue, "a").Pool("limited").Length(32).Obj())
		By("counting a release that is on its way")
		deleted(ctx, first)
		third := build.Claim(red, "c").Pool("limited").Length(32).Obj()
		Eventually(func() error { return k8s.Create(ctx, third) }).Should(Succeed()) // the create does not wait for a release beyond 250 ms
		Expect(third.Spec.CIDR).NotTo(BeEmpty())
	})

	It("counts addresses, over all pools of a class", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "limit-class")
		specs.Created(ctx, k8s, build.Class("limited").With(func(s *v1alpha1.IPClassSpec) { s.Limits = addressLimits(24) }).Obj())
		for n := range 2 {
			specs.Pool(ctx, k8s, build.Pool(fmt.Sprint("limited-", n)).CIDR(fmt.Sprintf("10.120.%d.0/28", n+1)).Classes("limited").Obj())
		}
		specs.Created(ctx, k8s, build.Claim(team, "a").Class("limited").Length(28).Obj())
		refused(ctx, build.Claim(team, "b").Class("limited").Length(28).Obj(),
			"exceeded limit: IPClass limited allows project limit-class 24 addresses, 16 are held")
		specs.Created(ctx, k8s, build.Claim(team, "b").Class("limited").Length(29).Obj())
	})

	It("counts the space of child pools of a namespace", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "limit-child")
		specs.Pool(ctx, k8s, build.Pool("limited-parent").CIDR("10.121.0.0/16").With(func(s *v1alpha1.IPPoolSpec) { s.Limits = addressLimits(256) }).Obj())
		specs.Created(ctx, k8s, build.Pool("child").Child("limited-parent", 24).In(team))
		err := k8s.Create(ctx, build.Pool("second").Child("limited-parent", 32).In(team))
		Expect(err).To(MatchError(apierrors.IsForbidden, "a refusal"))
	})

	It("is exact when many are created at once", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "limit-race")
		specs.Pool(ctx, k8s, build.Pool("raced").CIDR("10.122.0.0/24").Limit(7).Obj())
		var bound, forbidden atomic.Int32
		var all sync.WaitGroup
		for n := range 40 {
			all.Go(func() {
				err := k8s.Create(ctx, build.Claim(team, fmt.Sprint("c-", n)).Pool("raced").Length(32).Obj())
				switch {
				case err == nil:
					bound.Add(1)
				case apierrors.IsForbidden(err):
					forbidden.Add(1)
				}
			})
		}
		all.Wait()
		Expect(bound.Load()).To(BeEquivalentTo(7))
		Expect(forbidden.Load()).To(BeEquivalentTo(33))
	})

	// A claim waits for room in one pool, and is at the limit in another, in which there is
	// room. This has 10.72.0.0/16.
	It("holds up no other claim, if a claim waits for room in another pool", func(ctx context.Context) {
		red, blue := specs.Namespace(ctx, k8s, "limit-elsewhere"), specs.Namespace(ctx, k8s, "limit-others")
		specs.Created(ctx, k8s, build.Class("limit-turns").LocalPools().Length(32).Obj())
		specs.Pool(ctx, k8s, build.Pool("limit-shared").CIDR("10.72.0.0/28").Classes("limit-turns").Limit(2).Obj())
		specs.Pool(ctx, k8s, build.Pool("own").CIDR("10.72.1.0/32").Classes("limit-turns").In(red))
		claim := func(team, name string) *v1alpha1.IPClaim {
			return specs.Created(ctx, k8s, build.Claim(team, name).Class("limit-turns").Obj())
		}
		Expect(claim(red, "own").Spec.CIDR).To(Equal("10.72.1.0/32"))
		first, second := claim(red, "first"), claim(red, "second")
		waits := claim(red, "waits")
		expectExhausted(ctx, waits, "no free /32 in pool limit-elsewhere/own; pool limit-shared allows project limit-elsewhere 2 blocks, which it holds: the claim is bound as soon as one is released")
		for n := range 2 {
			Expect(claim(blue, fmt.Sprint(n)).Spec.CIDR).NotTo(BeEmpty(), "the response to the create call has the block")
		}
		By("serving the claim that waits once its project holds less")
		deleted(ctx, first)
		Eventually(phase(ctx, waits)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, second)
	})

	It("is reported for a claim that waited", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "limit-waits")
		specs.Created(ctx, k8s, build.Claim(team, "a").Pool("limited-later").Length(32).Obj())
		claim := specs.Created(ctx, k8s, build.Claim(team, "b").Pool("limited-later").Length(32).Obj())
		specs.Created(ctx, k8s, build.Pool("limited-later").CIDR("10.123.0.0/24").Limit(1).Obj())
		var waits *v1alpha1.IPClaim
		Eventually(func() string {
			phases := ""
			for _, name := range []string{"a", "b"} {
				one := specs.Stored(ctx, k8s, build.Claim(team, name).Obj())
				if phases += string(one.Status.Phase) + " "; one.Status.Phase == v1alpha1.ClaimPending {
					waits = one
				}
			}
			return phases
		}).Should(Or(Equal("Bound Pending "), Equal("Pending Bound ")))
		Eventually(func() string {
			return reasons(specs.Stored(ctx, k8s, waits).Status.Conditions)[v1alpha1.ConditionPending]
		}).Should(Equal("True/LimitReached"))
		By("holding up no claim behind it")
		other := specs.Namespace(ctx, k8s, "limit-waits-not")
		Expect(specs.Created(ctx, k8s, build.Claim(other, "c").Pool("limited-later").Length(32).Obj()).Spec.CIDR).NotTo(BeEmpty())
		By("binding it when the project holds less")
		bound := "b"
		if waits.Name == claim.Name {
			bound = "a"
		}
		deleted(ctx, build.Claim(team, bound).Obj())
		Eventually(phase(ctx, waits)).Should(Equal(v1alpha1.ClaimBound))
	})
})

var _ = Describe("creates that are refused after their block was recorded", func() {
	It("take no more than a share of a pool from others", func(ctx context.Context) {
		team, others := specs.Namespace(ctx, k8s, "share-refused"), specs.Namespace(ctx, k8s, "share-others")
		specs.Pool(ctx, k8s, build.Pool("shared-out").CIDR("10.125.0.0/29").Obj())
		refuses(ctx, team)
		codes := map[int32]int{}
		for n := range 8 {
			claim := build.Claim(team, fmt.Sprint("c-", n)).Pool("shared-out").Length(32).Obj()
			claim.Labels = map[string]string{"refuse": "me"}
			Expect(len(specs.RecordsIn(ctx, k8s, "shared-out"))).To(BeNumerically("<=", 4))
			short, cancel := context.WithTimeout(ctx, 2*time.Second) // a client retries a create that is answered with 429
			err := k8s.Create(short, claim)
			cancel()
			if status, ok := err.(apierrors.APIStatus); ok {
				codes[status.Status().Code]++
			}
		}
		Expect(codes[http.StatusUnprocessableEntity]).To(BeNumerically(">=", 4))
		Expect(specs.Created(ctx, k8s, build.Claim(others, "a").Pool("shared-out").Length(32).Obj()).Spec.CIDR).NotTo(BeEmpty())
	})
})

var _ = Describe("retain is allowed", func() {
	It("by class and pool alone", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "retain-allowed")
		specs.Pool(ctx, k8s, build.Pool("retain-not").CIDR("10.124.0.0/28").Classes("retain-not").Obj())
		specs.Created(ctx, k8s, build.Class("retain-not").Length(32).Obj())
		specs.Pool(ctx, k8s, build.Pool("retain-may").CIDR("10.124.1.0/28").With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj())
		retains := func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }
		for _, claim := range []*v1alpha1.IPClaim{
			build.Claim(team, "by-class").Class("retain-not").With(retains).Obj(),
			build.Claim(team, "by-pool").Pool("retain-not").Length(32).With(retains).Obj(),
		} {
			err := k8s.Create(ctx, claim)
			Expect(err).To(MatchError(apierrors.IsInvalid, "a refusal"))
			Expect(err.Error()).To(ContainSubstring("spec.reclaimPolicy"))
		}
		specs.Created(ctx, k8s, build.Claim(team, "may").Pool("retain-may").Length(32).With(retains).Obj())
		By("refusing an update to it too")
		claim := specs.Bound(ctx, k8s, build.Claim(team, "later").Class("retain-not").Obj())
		Expect(specs.Update(ctx, k8s, k8s, claim, func(c *v1alpha1.IPClaim) { retains(&c.Spec) })).To(MatchError(apierrors.IsInvalid, "a refusal"))
	})

	It("again, unchanged, if a create that took a block over is not stored", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "retain-refused")
		specs.Pool(ctx, k8s, build.Pool("retain-refused").CIDR("10.124.2.0/28").Classes("retain-refused").Obj())
		specs.Created(ctx, k8s, build.Class("retain-refused").Length(32).With(func(s *v1alpha1.IPClassSpec) { s.ReclaimPolicy = v1alpha1.ReclaimRetain }).Obj())
		claim := specs.Bound(ctx, k8s, build.Claim(team, "db").Class("retain-refused").Obj())
		deleted(ctx, claim)
		record := specs.RecordOf(claim)
		Eventually(func() v1alpha1.AllocationState { return specs.Stored(ctx, k8s, record).Spec.State }).Should(Equal(v1alpha1.AllocationRetained))
		refuses(ctx, team)
		deletes := func(s *v1alpha1.IPClaimSpec) { s.ReclaimPolicy = v1alpha1.ReclaimDelete }
		unlucky := build.Claim(team, "db").Class("retain-refused").With(deletes).Obj()
		unlucky.Labels = map[string]string{"refuse": "me"}
		Expect(k8s.Create(ctx, unlucky)).NotTo(Succeed())
		Expect(specs.Stored(ctx, k8s, record).Spec.State).To(Equal(v1alpha1.AllocationBound))
		By("giving it to the next create of the name at once")
		again := specs.Created(ctx, k8s, build.Claim(team, "db").Class("retain-refused").Obj())
		Expect(again.Spec.CIDR).To(Equal(claim.Spec.CIDR))
		Eventually(phase(ctx, again)).Should(Equal(v1alpha1.ClaimBound))
		deleted(ctx, again)
		Eventually(func() v1alpha1.AllocationState { return specs.Stored(ctx, k8s, record).Spec.State }).Should(Equal(v1alpha1.AllocationRetained))
		By("retaining it again after the grace period")
		until := record.Spec.ReleaseAfter
		unlucky.ResourceVersion, unlucky.UID = "", ""
		Expect(k8s.Create(ctx, unlucky)).NotTo(Succeed())
		Expect(specs.Stored(ctx, k8s, record).Spec.State).To(Equal(v1alpha1.AllocationBound))
		Eventually(func() v1alpha1.AllocationState { return specs.Stored(ctx, k8s, record).Spec.State }).WithTimeout(60e9).Should(Equal(v1alpha1.AllocationRetained))
		Expect(record.Spec.ReleaseAfter).To(Equal(until))
		Expect(record.Spec.ReclaimPolicy).To(Equal(v1alpha1.ReclaimRetain))
	})
})

// refuses makes the API server refuse claims of a namespace that have this label, after the webhook
// has recorded their block.
func refuses(ctx context.Context, namespace string) {
	GinkgoHelper()
	policy, binding := build.Refusal("refuses-"+namespace, "refuse", namespace)
	specs.Created(ctx, k8s, policy)
	specs.Created(ctx, k8s, binding)
	DeferCleanup(func(ctx context.Context) {
		deleted(ctx, binding)
		deleted(ctx, policy)
	})
	probe := build.Claim(namespace, "probe").Pool("none").Length(32).Obj()
	probe.Labels = map[string]string{"refuse": "me"}
	Eventually(func() int32 {
		err := k8s.Create(ctx, probe.DeepCopy(), client.DryRunAll)
		if status, ok := err.(apierrors.APIStatus); ok {
			return status.Status().Code
		}
		return 0
	}).Should(BeEquivalentTo(http.StatusUnprocessableEntity))
}
