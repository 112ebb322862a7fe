package integration

import (
	"context"
	"net/http"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// localRecord returns the record of a LocalIPPool's own CIDR.
func localRecord(namespace, pool string) *v1alpha1.IPAllocation {
	record := &v1alpha1.IPAllocation{}
	record.Namespace, record.Name = cluster.Namespace, "localippool."+namespace+"."+pool
	return record
}

// localAvailable returns the number of free addresses in the status of a LocalIPPool.
func localAvailable(ctx context.Context, pool *v1alpha1.LocalIPPool) func() string {
	return func() string {
		if specs.Stored(ctx, k8s, pool).Status.Capacity == nil {
			return ""
		}
		return pool.Status.Capacity.Available
	}
}

// This topic uses 10.75.0.0/16 in the platform's default domain, and any addresses in its
// namespaces' own.
var _ = Describe("local-pool", Ordered, ContinueOnFailure, func() {
	const team, other = "local-pool", "local-pool-other"
	var recordingClient *witness

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Namespace(ctx, k8s, other)
		recordingClient = newWitness()
		specs.Pool(ctx, k8s, build.Pool("local-pool").CIDR("10.75.0.0/16").Classes("local-pool").Obj())
		specs.Created(ctx, k8s, build.Class("local-pool").LocalPools().Length(32).Obj())
	})

	It("gives a root the CIDR that others have, in a private routing domain of its namespace", func(ctx context.Context) {
		for _, where := range []string{team, other} {
			pool := specs.Pool(ctx, k8s, build.Pool("root").CIDR("10.75.0.0/16").In(where))
			Expect(pool.Spec.RoutingDomain).To(Equal("default"))
			Expect(pool.Spec.IPFamily).To(Equal(v1alpha1.IPv4))
			Expect(pool.Finalizers).To(ConsistOf(v1alpha1.FinalizerPool))
			Expect(pool.Status.AllocatedCIDR).To(Equal("10.75.0.0/16"))
			Expect(reasons(pool.Status.Conditions)).To(Equal(map[string]string{
				"Ready": "True/Ready", "Allocated": "True/Recorded", "Exhausted": "False/HasRoom",
			}))
			record := specs.Stored(ctx, k8s, localRecord(where, "root"))
			Expect(record.Spec.PoolRef).To(BeNil())
			Expect(record.Spec.RoutingDomain).To(Equal("default"))
			Expect(record.Spec.ClaimRef).To(Equal(v1alpha1.ClaimReference{
				APIGroup: v1alpha1.GroupVersion.Group, Kind: "LocalIPPool", Namespace: where, Name: "root", UID: record.Spec.ClaimRef.UID,
			}))
			Eventually(func() string { return string(specs.Stored(ctx, k8s, record).Spec.ClaimRef.UID) }).Should(Equal(string(pool.UID)))
		}
	})

	It("keeps two roots of one namespace and domain apart", func(ctx context.Context) {
		Expect(recordingClient.Create(ctx, build.Pool("overlaps").CIDR("10.75.8.0/24").In(team))).To(MatchError(ContainSubstring(
			"conflicts with 10.75.0.0/16 of routing domain local-pool/default, held by LocalIPPool local-pool/root")))
		Expect(recordingClient.code()).To(Equal(http.StatusConflict))
		specs.Pool(ctx, k8s, build.Pool("elsewhere").Domain("vrf").CIDR("10.75.8.0/24").In(team))
	})

	It("gives a child its block of the pool beside it", func(ctx context.Context) {
		child := specs.Created(ctx, k8s, build.Pool("child").Beside("root", 24).In(team))
		Expect(child.Spec.CIDR).To(Equal("10.75.0.0/24"))
		specs.Ready(ctx, k8s, child)
		record := specs.Stored(ctx, k8s, localRecord(team, "child"))
		Expect(record.Spec.PoolRef).To(Equal(&v1alpha1.RecordPoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: "root"}))
		root := build.Pool("root").In(team)
		Eventually(func() int64 { return specs.Stored(ctx, k8s, root).Status.Allocations }).Should(Equal(int64(1)))
		Eventually(localAvailable(ctx, root)).Should(Equal("65280"))
		Expect(localAvailable(ctx, build.Pool("root").In(other))()).To(Equal("65536"), "of the same name in another namespace")
		Expect(available(ctx, "local-pool")()).To(Equal("65536"), "the platform's, of the same CIDR")
	})

	It("serves claims of its namespace by reference, and shows it in them", func(ctx context.Context) {
		claim := answered(ctx, build.Claim(team, "by-ref").LocalPool("child").Length(28).Obj(), "10.75.0.0/28")
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(claim.Status.PoolRef).To(Equal(&v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: "child"}))
		Eventually(localAvailable(ctx, build.Pool("child").In(team))).Should(Equal("240"))
	})

	It("comes before the platform's pools for claims by class, in its own namespace alone", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("zz-own").Domain("by-class").CIDR("172.16.0.0/31").Classes("local-pool").In(team))
		answered(ctx, build.Claim(other, "class").Class("local-pool").Obj(), "10.75.0.0/32")
		answered(ctx, build.Claim(team, "class-1").Class("local-pool").Obj(), "172.16.0.0/32")
		answered(ctx, build.Claim(team, "class-2").Class("local-pool").Obj(), "172.16.0.1/32")
		Expect(specs.Created(ctx, k8s, build.Claim(team, "class-3").Class("local-pool").Obj()).Spec.CIDR).To(Equal("10.75.0.1/32"), "its own is full")
	})

	It("does not back a class that does not allow it, with any CIDR", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("local-closed").Length(32).Obj())
		specs.Pool(ctx, k8s, build.Pool("local-closed").Domain("local-closed").CIDR("172.17.0.0/31").Classes("local-closed").Obj())
		specs.Pool(ctx, k8s, build.Pool("as-the-platforms").Domain("local-closed").CIDR("172.17.0.0/31").Classes("local-closed").In(team))
		answered(ctx, build.Claim(other, "closed").Class("local-closed").Obj(), "172.17.0.0/32")
		answered(ctx, build.Claim(team, "closed-1").Class("local-closed").Obj(), "172.17.0.1/32")
		waits := specs.Created(ctx, k8s, build.Claim(team, "closed-2").Class("local-closed").Obj())
		Eventually(phase(ctx, waits)).Should(Equal(v1alpha1.ClaimExhausted))
		By("serving the claim from it once the class allows it")
		class := build.Class("local-closed").Obj()
		Expect(specs.Update(ctx, k8s, k8s, class, func(c *v1alpha1.IPClass) { c.Spec.AllowLocalPools = true })).To(Succeed())
		Eventually(phase(ctx, waits)).Should(Equal(v1alpha1.ClaimBound))
		Expect(waits.Status.PoolRef.Kind).To(Equal(v1alpha1.PoolKindLocalIPPool))
		By("leaving the claim its block when the class no longer does")
		Expect(specs.Update(ctx, k8s, k8s, class, func(c *v1alpha1.IPClass) { c.Spec.AllowLocalPools = false })).To(Succeed())
		Consistently(phase(ctx, waits), "500ms").Should(Equal(v1alpha1.ClaimBound))
	})

	It("serves claims that select it by its labels", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("labeled").Domain("by-label").CIDR("172.16.1.0/24").Label("local-pool", "here").In(team))
		answered(ctx, build.Claim(team, "selecting").Selecting("local-pool", "here").Length(30).Obj(), "172.16.1.0/30")
	})

	It("is available at once for a claim that is made in the same moment", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Pool("fresh").Domain("fresh").CIDR("172.16.2.0/24").In(team))
		answered(ctx, build.Claim(team, "fresh").LocalPool("fresh").Length(32).Obj(), "172.16.2.0/32")
	})

	It("makes a claim wait for a pool that does not exist yet", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.Claim(team, "early").LocalPool("late").Length(32).Obj())
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, claim).Status.Conditions)["Pending"] }).Should(Equal("True/PoolNotFound"))
		specs.Created(ctx, k8s, build.Pool("late").Domain("late").CIDR("172.16.3.0/24").In(team))
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
		Expect(claim.Spec.CIDR).To(Equal("172.16.3.0/32"))
	})

	It("makes claims and child pools wait while there is no room", func(ctx context.Context) {
		pool := specs.Pool(ctx, k8s, build.Pool("small").Domain("small").CIDR("172.16.4.0/31").In(team))
		first := specs.Created(ctx, k8s, build.Claim(team, "small-1").LocalPool("small").Length(32).Obj())
		second := specs.Created(ctx, k8s, build.Claim(team, "small-2").LocalPool("small").Length(32).Obj())
		waits := specs.Created(ctx, k8s, build.Claim(team, "small-3").LocalPool("small").Length(32).Obj())
		child := specs.Created(ctx, k8s, build.Pool("small-child").Beside("small", 32).In(team))
		Expect(child.Spec.CIDR).To(BeEmpty())
		expectExhausted(ctx, waits, "no free /32 in pool local-pool/small: the claim is bound as soon as one is released")
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, child).Status.Conditions)["Allocated"] }).Should(Equal("False/PoolExhausted"))
		Eventually(func() v1alpha1.PoolPhase { return specs.Stored(ctx, k8s, pool).Status.Phase }).Should(Equal(v1alpha1.PoolExhausted))
		deleted(ctx, first)
		Eventually(phase(ctx, waits)).Should(Equal(v1alpha1.ClaimBound))
		Expect(waits.Spec.CIDR).To(Equal("172.16.4.0/32"))
		deleted(ctx, second)
		Expect(specs.Ready(ctx, k8s, child).Spec.CIDR).To(Equal("172.16.4.1/32"))
	})

	It("refuses them if it is set to reject", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("rejects").Domain("rejects").CIDR("172.16.5.0/32").Rejects().In(team))
		specs.Created(ctx, k8s, build.Claim(team, "rejects-1").LocalPool("rejects").Length(32).Obj())
		err := recordingClient.Create(ctx, build.Claim(team, "rejects-2").LocalPool("rejects").Length(32).Obj())
		expectInsufficient(recordingClient, err, "no free /32 in pool local-pool/rejects: nothing is free")
	})

	It("refuses the same as an IPPool, in the same words", func(ctx context.Context) {
		for _, b := range []*build.PoolBuilder{
			build.Pool("bad").Domain("bad").CIDR("172.16.6.1/24"),
			build.Pool("bad").Domain("bad").CIDR("172.16.6.0/24").Ranges("172.16.7.0/28"),
			build.Pool("bad").Domain("bad").CIDR("172.16.6.0/24").Lengths(30, 26),
			build.Pool("bad").Domain("bad").Child("local-pool", 24),
			build.Pool("bad").Domain("bad").CIDR("172.16.6.0/24").Network(24, "172.16.7.1"),
		} {
			platform, local := k8s.Create(ctx, b.Obj()), k8s.Create(ctx, b.In(team))
			Expect(local).To(HaveOccurred())
			Expect(local.Error()).To(Equal(strings.NewReplacer("IPPool", "LocalIPPool", "ippool", "localippool").Replace(platform.Error())))
		}
	})

	It("cannot be the parent of cluster-scoped pools", func(ctx context.Context) {
		Expect(k8s.Create(ctx, build.Pool("local-pool-up").Beside("root", 24).Obj())).To(MatchError(ContainSubstring(
			"spec.parentRef.kind: Invalid value: \"LocalIPPool\": a cluster-scoped pool cannot be part of a LocalIPPool: name an IPPool")))
	})

	It("has immutable fields", func(ctx context.Context) {
		for field, patch := range map[string]string{
			"spec.cidr":          `{"spec":{"cidr":"10.75.1.0/24"}}`,
			"spec.parentRef":     `{"spec":{"parentRef":{"kind":"IPPool"}}}`,
			"spec.prefixLength":  `{"spec":{"prefixLength":25}}`,
			"spec.routingDomain": `{"spec":{"routingDomain":"vrf"}}`,
			"spec.ipFamily":      `{"spec":{"ipFamily":"IPv6"}}`,
			"spec.network":       `{"spec":{"network":{"prefixLength":24}}}`,
		} {
			err := k8s.Patch(ctx, build.Pool("child").In(team), build.Merge(patch))
			Expect(err).To(MatchError(ContainSubstring(field)), patch)
		}
		specs.Edited(ctx, k8s, build.Pool("child").In(team), func(p *v1alpha1.LocalIPPool) { p.Spec.Reserved = []string{"10.75.0.128/25"} })
		Eventually(localAvailable(ctx, build.Pool("child").In(team))).Should(Equal("112"))
	})

	It("may have the longest possible name, in either kind", func(ctx context.Context) {
		name := strings.Repeat("long.", 50) + "x"
		specs.Pool(ctx, k8s, build.Pool(name).Domain("local-pool-long").CIDR("172.16.8.0/24").Obj())
		specs.Pool(ctx, k8s, build.Pool(name).Domain("long").CIDR("172.16.8.0/24").In(team))
		answered(ctx, build.Claim(team, "of-long").LocalPool(name).Length(32).Obj(), "172.16.8.0/32")
		answered(ctx, build.Claim(team, "of-longs").Pool(name).Length(32).Obj(), "172.16.8.0/32")
	})

	It("hands out nothing while it is paused", func(ctx context.Context) {
		pool := build.Pool("fresh").In(team)
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.LocalIPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, pool).Status.Conditions)["Ready"] }).Should(Equal("False/Paused"))
		claim := answered(ctx, build.Claim(team, "paused").LocalPool("fresh").Length(32).Obj(), "")
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.LocalIPPool) { p.Annotations = nil })
		Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimBound))
	})

	It("is shown by kubectl as an IPPool is", func(ctx context.Context) {
		Eventually(func() []string {
			return strings.Fields(kubectl(ctx, "", "get", "localippool", "-n", team, "child", "--no-headers"))[:6]
		}).Should(Equal([]string{"child", "10.75.0.0/24", "root", "Ready", "1", "12"}))
		header := func(kind string) []string {
			return strings.Fields(strings.SplitN(kubectl(ctx, "", "get", kind, "-o", "wide", "-n", team), "\n", 2)[0])
		}
		Expect(header("localippool")).To(Equal(header("ippool")))
		Expect(kubectl(ctx, "", "get", "localippools", "-A", "--field-selector=spec.parentRef.name=root", "-o", "name")).To(Equal("localippool.ipam.cadastre.dev/child\n"))
	})
})
