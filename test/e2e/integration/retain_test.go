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
			record := specs.RecordOf(claim)
			if k8s.Get(ctx, client.ObjectKeyFromObject(record), record) != nil {
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
		first := specs.Bound(ctx, k8s, build.Claim(team, "db").Class("retain").Obj())
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
		claim := specs.Bound(ctx, k8s, build.Claim(team, "briefly").Class("retain-briefly").Obj())
		deleted(ctx, claim)
		Eventually(state(ctx, claim)).Should(Equal(v1alpha1.AllocationRetained))
		Eventually(state(ctx, claim)).Should(BeEquivalentTo("gone"))
	})

	It("releases it when a person deletes the record", func(ctx context.Context) {
		claim := specs.Bound(ctx, k8s, build.Claim(team, "by-hand").Class("retain").Obj())
		deleted(ctx, claim)
		Eventually(state(ctx, claim)).Should(Equal(v1alpha1.AllocationRetained))
		deleted(ctx, specs.RecordOf(claim))
		Eventually(state(ctx, claim)).Should(BeEquivalentTo("gone"))
	})

	It("follows the claim when its policy is edited", func(ctx context.Context) {
		claim := specs.Bound(ctx, k8s, build.Claim(team, "edited").Class("retain").Obj())
		specs.Edited(ctx, k8s, claim, func(c *v1alpha1.IPClaim) { c.Spec.ReclaimPolicy = v1alpha1.ReclaimDelete })
		Eventually(func() v1alpha1.ReclaimPolicy {
			return specs.Stored(ctx, k8s, specs.RecordOf(claim)).Spec.ReclaimPolicy
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
		first := answered(ctx, build.Claim(team, "first").Pool("reuse-delay").Length(32).Obj(), "10.66.0.0/32")
		deleted(ctx, first)
		Eventually(func() v1alpha1.AllocationState { return specs.RecordsIn(ctx, k8s, "reuse-delay")[0].Spec.State }).Should(Equal(v1alpha1.AllocationCooling))
		record := specs.RecordsIn(ctx, k8s, "reuse-delay")[0]
		Expect(record.Spec.ReleaseAfter.Time).To(BeTemporally("~", time.Now().Add(time.Hour), time.Minute))
		answered(ctx, build.Claim(team, "second").Pool("reuse-delay").Length(32).Obj(), "10.66.0.1/32")
		third := answered(ctx, build.Claim(team, "third").Pool("reuse-delay").Length(32).Obj(), "")
		Eventually(phase(ctx, third)).Should(Equal(v1alpha1.ClaimExhausted))
	})

	It("counts for a retained block whose record is deleted by hand: it cools down, and is not free at once", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("reuse-retained").Length(32).With(func(s *v1alpha1.IPClassSpec) {
			s.ReclaimPolicy, s.ReuseDelay = v1alpha1.ReclaimRetain, &metav1.Duration{Duration: time.Hour}
		}).Obj())
		specs.Pool(ctx, k8s, build.Pool("reuse-retained").CIDR("10.66.2.0/32").Classes("reuse-retained").Obj())
		claim := answered(ctx, build.Claim(team, "retained").Class("reuse-retained").Obj(), "10.66.2.0/32")
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

// The fate of claims whose records are gone: forced away, or not part of a backup. Records are
// removed as the operator, because no other user can.
var _ = Describe("restore", Ordered, Serial, func() {
	var team string
	var operator client.Client

	forceAway := func(ctx context.Context, claim *v1alpha1.IPClaim) *v1alpha1.IPAllocation {
		record := specs.Stored(ctx, operator, specs.RecordOf(claim))
		Expect(operator.Patch(ctx, record, build.Merge(`{"metadata":{"finalizers":null}}`))).To(Succeed())
		Expect(operator.Delete(ctx, record)).To(Succeed())
		return record
	}
	record := func(ctx context.Context, claim *v1alpha1.IPClaim) func() string {
		return func() string {
			r := specs.RecordOf(claim)
			if k8s.Get(ctx, client.ObjectKeyFromObject(r), r) != nil {
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
		claim := specs.Bound(ctx, k8s, build.Claim(team, "forced").Pool("restore").Length(32).Obj())
		before := forceAway(ctx, claim)
		Eventually(func() bool {
			r := &v1alpha1.IPAllocation{}
			return k8s.Get(ctx, client.ObjectKeyFromObject(before), r) == nil && r.UID != before.UID
		}).Should(BeTrue())
		Expect(record(ctx, claim)()).To(Equal(claim.Spec.CIDR + " of forced"))
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
	})

	It("takes up claims of a backup that holds no records, and renumbers none", func(ctx context.Context) {
		saved := specs.Bound(ctx, k8s, build.Claim(team, "saved").Pool("restore").Length(32).Obj())
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
		claim := specs.Bound(ctx, k8s, build.Claim(team, "conflict").Pool("restore-one").Length(32).Obj())
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

// This topic has 10.35.0.0/16 of a separate routing domain.
var _ = Describe("drain", Ordered, ContinueOnFailure, func() {
	const team = "drain"

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	// expectCapacity waits until a pool's status has these counts.
	expectCapacity := func(ctx context.Context, pool *v1alpha1.IPPool, allocated, available, withheld, outOfRange string) {
		GinkgoHelper()
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, pool).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "256", Allocated: allocated, Available: available, Withheld: withheld, OutOfRange: outOfRange})))
	}
	// held makes claims for the next blocks of 16 addresses of a pool.
	held := func(ctx context.Context, pool string, want ...string) []*v1alpha1.IPClaim {
		GinkgoHelper()
		claims := make([]*v1alpha1.IPClaim, len(want))
		for i, cidr := range want {
			claims[i] = specs.Created(ctx, k8s, build.Claim(team, "").Generated(pool+"-").Pool(pool).Length(28).Obj())
			Expect(claims[i].Spec.CIDR).To(Equal(cidr))
			Eventually(phase(ctx, claims[i])).Should(Equal(v1alpha1.ClaimBound))
		}
		return claims
	}

	It("keeps a block that becomes reserved, counts it, and does not hand it out again", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-reserved").Domain("drain").CIDR("10.35.0.0/24").Obj())
		claims := held(ctx, "drain-reserved", "10.35.0.0/28", "10.35.0.16/28", "10.35.0.32/28")
		expectCapacity(ctx, pool, "48", "208", "0", "0")

		Expect(patched(ctx, pool, `{reserved: [10.35.0.16/28]}`)).To(Succeed())
		expectCapacity(ctx, pool, "48", "208", "16", "16")
		Expect(pool.Status.Allocations).To(Equal(int64(3)))
		Expect(specs.Stored(ctx, k8s, claims[1]).Status.Phase).To(Equal(v1alpha1.ClaimBound))
		Expect(claims[1].Spec.CIDR).To(Equal("10.35.0.16/28"))
		held(ctx, "drain-reserved", "10.35.0.48/28")
		expectCapacity(ctx, pool, "64", "192", "16", "16")

		deleted(ctx, claims[1])
		expectCapacity(ctx, pool, "48", "192", "16", "0")
		held(ctx, "drain-reserved", "10.35.0.64/28")

		Expect(patched(ctx, pool, `{reserved: null}`)).To(Succeed())
		expectCapacity(ctx, pool, "64", "192", "0", "0")
		held(ctx, "drain-reserved", "10.35.0.16/28")
	})

	It("does so with blocks that changed ranges leave out", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-ranges").Domain("drain").CIDR("10.35.1.0/24").Obj())
		claims := held(ctx, "drain-ranges", "10.35.1.0/28", "10.35.1.16/28")
		Expect(patched(ctx, pool, `{ranges: [10.35.1.128-10.35.1.255]}`)).To(Succeed())
		expectCapacity(ctx, pool, "32", "128", "128", "32")
		Expect(pool.Status.LargestFreePrefix).To(Equal("/25"))
		Expect(pool.Status.UtilizationPercent).To(Equal(int32(20)), "32 of 160 addresses that are held or free")
		inside := held(ctx, "drain-ranges", "10.35.1.128/28")
		expectCapacity(ctx, pool, "48", "112", "128", "32")

		Expect(patched(ctx, pool, `{ranges: [10.35.1.0/26]}`)).To(Succeed())
		expectCapacity(ctx, pool, "48", "32", "192", "16")
		deleted(ctx, claims[0])
		expectCapacity(ctx, pool, "32", "48", "192", "16")
		deleted(ctx, inside[0])
		expectCapacity(ctx, pool, "16", "48", "192", "0")
		held(ctx, "drain-ranges", "10.35.1.0/28", "10.35.1.32/28", "10.35.1.48/28")
		expectCapacity(ctx, pool, "64", "0", "192", "0")
		Expect(pool.Status.Phase).To(Equal(v1alpha1.PoolExhausted))
	})

	It("counts a partly reserved block to the address, and hands out the rest of it", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-parts").Domain("drain").CIDR("10.35.2.0/24").Obj())
		claims := held(ctx, "drain-parts", "10.35.2.0/28", "10.35.2.16/28")
		Expect(patched(ctx, pool, `{reserved: [10.35.2.8-10.35.2.23, 10.35.2.200]}`)).To(Succeed())
		expectCapacity(ctx, pool, "32", "223", "17", "16") // 8 of each block, and one that is free
		deleted(ctx, claims[0])
		expectCapacity(ctx, pool, "16", "231", "17", "8")
		answered(ctx, build.Claim(team, "half").Pool("drain-parts").Length(29).Obj(), "10.35.2.0/29")
		expectCapacity(ctx, pool, "24", "223", "17", "8")
		deleted(ctx, claims[1])
		expectCapacity(ctx, pool, "8", "231", "17", "0")
		answered(ctx, build.Claim(team, "half-2").Pool("drain-parts").Length(29).Obj(), "10.35.2.24/29")
	})

	It("drains a pool altogether", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("drain-all").Domain("drain").CIDR("10.35.3.0/24").Obj())
		claims := held(ctx, "drain-all", "10.35.3.0/28", "10.35.3.16/28")
		Expect(patched(ctx, pool, `{reserved: [10.35.3.0/24]}`)).To(Succeed())
		expectCapacity(ctx, pool, "32", "0", "256", "32")
		Eventually(func() v1alpha1.PoolPhase { return specs.Stored(ctx, k8s, pool).Status.Phase }).Should(Equal(v1alpha1.PoolExhausted))
		waits := specs.Created(ctx, k8s, build.Claim(team, "waits").Pool("drain-all").Length(28).Obj())
		pending := func() string { return reasons(specs.Stored(ctx, k8s, waits).Status.Conditions)["Pending"] }
		Eventually(pending).Should(Equal("True/CannotFit")) // no release would help
		deleted(ctx, claims[0])
		deleted(ctx, claims[1])
		expectCapacity(ctx, pool, "0", "0", "256", "0")
		Expect(pending()).To(Equal("True/CannotFit"))
		Expect(patched(ctx, pool, `{reserved: [10.35.3.0/25]}`)).To(Succeed())
		expectBound(ctx, waits, "10.35.3.128/28")
	})

	It("keeps a child pool whose block becomes reserved in its parent", func(ctx context.Context) {
		parent := specs.Pool(ctx, k8s, build.Pool("drain-parent").Domain("drain").CIDR("10.35.4.0/24").Obj())
		child := specs.Pool(ctx, k8s, build.Pool("drain-child").Child("drain-parent", 26).Obj())
		Expect(patched(ctx, parent, `{reserved: [10.35.4.0/26]}`)).To(Succeed())
		expectCapacity(ctx, parent, "64", "192", "64", "64")
		Expect(specs.Stored(ctx, k8s, child).Status.Phase).To(Equal(v1alpha1.PoolReady))
		answered(ctx, build.Claim(team, "of-child").Pool("drain-child").Length(28).Obj(), "10.35.4.0/28")
	})
})
