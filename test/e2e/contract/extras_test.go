package contract

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("poolRef to an IPClass", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "by-class")
		specs.Created(ctx, k8s, build.Class("by-class").Obj())
		specs.Pool(ctx, k8s, build.Pool("by-class-a").CIDR("10.10.0.7/32").Network(24, "10.10.0.254").Classes("by-class").Obj())
		specs.Pool(ctx, k8s, build.Pool("by-class-b").CIDR("10.10.1.0/32").Classes("by-class").Obj())
	})

	It("lets the class pick the pool, which owner and labels name", func(ctx context.Context) {
		address := served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "a").Class("by-class").Obj()))
		Expect(address.Spec.Address).To(Equal("10.10.0.7"))
		Expect(address.Spec.PoolRef).To(Equal(ipamv1.IPPoolReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClass", Name: "by-class"}))
		Expect(address.OwnerReferences).To(ContainElement(And(HaveField("Kind", "IPPool"), HaveField("Name", "by-class-a"))))
		Expect(address.Labels).To(And(HaveKeyWithValue(v1alpha1.LabelPool, "by-class-a"), HaveKeyWithValue(v1alpha1.LabelPoolKind, "IPPool")))
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(24)))
		Expect(address.Spec.Gateway).To(Equal("10.10.0.254"))
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "b").Class("by-class").Obj())).Spec.Address).To(Equal("10.10.1.0"))
		waits := specs.Created(ctx, k8s, build.AddressClaim(team, "c").Class("by-class").Obj())
		Eventually(reason(ctx, waits)).Should(Equal("False/PoolExhausted"))
	})

	It("gives one address, for any default length of the class", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("networks").Lengths(24, 32).Length(28).Obj())
		specs.Pool(ctx, k8s, build.Pool("networks").CIDR("10.10.2.0/24").Classes("networks").Obj())
		address := served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "one").Class("networks").Obj()))
		Expect(address.Spec.Address).To(Equal("10.10.2.0"))
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(24)))
		Expect(specs.RecordsIn(ctx, k8s, "networks")).To(ConsistOf(HaveField("Spec.CIDR", "10.10.2.0/32")))
	})

	It("takes nothing if the class or the pool hands out larger blocks only, reports it, and is served when that changes", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("blocks").Lengths(24, 28).Length(28).Obj())
		specs.Pool(ctx, k8s, build.Pool("blocks").CIDR("10.10.4.0/24").Classes("blocks").Obj())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "block").Class("blocks").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/AllocationFailed"))
		Expect(message(claim)).To(Equal("spec.poolRef.name: blocks: the class hands out /24 to /28, and an IPAddressClaim is one address, a /32: " +
			"set spec.allowedPrefixLengths of the class so that it allows that, or name another class"))
		Expect(specs.RecordsIn(ctx, k8s, "blocks")).To(BeEmpty())
		specs.Edited(ctx, k8s, class, func(c *v1alpha1.IPClass) { c.Spec.AllowedPrefixLengths = nil })
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.10.4.0"))
	})

	It("reports a kind that does not exist", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "misspelt").From(v1alpha1.GroupVersion.Group, "IPPol", "by-class-a").Obj())
		Expect(claim.Finalizers).To(BeEmpty())
		Eventually(reason(ctx, claim)).Should(Equal("False/AllocationFailed"))
		Expect(message(claim)).To(ContainSubstring(`spec.poolRef.kind: Unsupported value: "IPPol": supported values: "IPPool", "LocalIPPool", "IPClass"`))
	})

	It("records the addresses that exist before any pool of the class", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("late").Obj())
		specs.Created(ctx, k8s, addressFor(build.AddressClaim(team, "without-claim").Class("late").Obj(), "10.10.3.1", 24))
		claim := build.AddressClaim(team, "early").Class("late").Obj()
		specs.Created(ctx, k8s, addressFor(claim, "10.10.3.0", 24))
		specs.Created(ctx, k8s, claim)
		Eventually(reason(ctx, claim)).Should(Equal("False/" + ipamv1.IPAddressClaimReadyPoolNotReadyReason))
		specs.Created(ctx, k8s, build.Pool("late").CIDR("10.10.3.0/28").Classes("late").Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.10.3.0"))
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "late", "without-claim") }).Should(HaveLen(1))
	})
})

// A claim has its turn, and then a quota refuses its IPAddress.
var _ = Describe("An IPAddress that is refused", func() {
	It("stalls no other claim: the claim reports it, keeps its address, and is served once it may be", func(ctx context.Context) {
		poor, rich := specs.Namespace(ctx, k8s, "a-refused"), specs.Namespace(ctx, k8s, "b-refused")
		specs.Pool(ctx, k8s, build.Pool("refused").CIDR("10.29.0.0/31").Obj())
		claim := func(team, name string) *ipamv1.IPAddressClaim {
			return specs.Created(ctx, k8s, build.AddressClaim(team, name).Pool("refused").Obj())
		}
		first, second := claim(rich, "first"), claim(rich, "second")
		served(ctx, first)
		served(ctx, second)
		quota := noAddresses(ctx, poor)
		refused := claim(poor, "refused")
		Eventually(reason(ctx, refused)).Should(Equal("False/PoolExhausted"))
		behind := claim(rich, "z-behind")
		Eventually(reason(ctx, behind)).Should(Equal("False/PoolExhausted"))

		had := served(ctx, first).Spec.Address
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "refused", "refused") }).Should(ConsistOf(HaveField("Spec.CIDR", had+"/32")))
		By("serving the claim behind it")
		Expect(k8s.Delete(ctx, second)).To(Succeed())
		served(ctx, behind)
		Eventually(reason(ctx, refused)).Should(Equal("False/RecordRefused"))
		Expect(message(refused)).To(MatchRegexp(`^%s/32 of pool refused is held for this claim, but creating the IPAddress: .* is forbidden: exceeded quota: none, .*: remove the cause; it is tried again by itself$`, had))

		By("serving it when the quota is gone")
		Expect(k8s.Delete(ctx, quota)).To(Succeed())
		Expect(served(ctx, refused).Spec.Address).To(Equal(had))
	})
})

// IPAddresses that other clients than the operator make, of a project that may hold one of a pool
// or of a class.
var _ = DescribeTable("An IPAddress beyond a limit",
	func(ctx context.Context, name, cidr string, limit func(*v1alpha1.IPPoolSpec, *v1alpha1.IPClassSpec), says string) {
		team := specs.Namespace(ctx, k8s, name)
		class, pool := build.Class(name).Obj(), build.Pool(name).CIDR(cidr).Classes(name).Obj()
		limit(&pool.Spec, &class.Spec)
		specs.Created(ctx, k8s, class)
		specs.Pool(ctx, k8s, pool)
		start := netip.MustParsePrefix(cidr).Addr()
		address := func(claim *ipamv1.IPAddressClaim, at netip.Addr) *ipamv1.IPAddress {
			address := addressFor(claim, at.String(), 24)
			address.Labels = map[string]string{v1alpha1.LabelPool: name, v1alpha1.LabelPoolKind: "IPPool"}
			return specs.Created(ctx, k8s, address)
		}
		first := address(build.AddressClaim(team, "first").Class(name).Obj(), start)
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, name, "first") }).Should(HaveLen(1))
		claim := build.AddressClaim(team, "second").Class(name).Obj()
		address(claim, start.Next())
		specs.Created(ctx, k8s, claim)
		Eventually(reason(ctx, claim)).Should(Equal("False/LimitReached"))
		Expect(message(claim)).To(Equal(says + " allows project " + team + " 1 block, which it holds: release some, or ask for a higher limit"))
		Expect(recordsOf(ctx, name, "second")).To(BeEmpty())

		By("recording it once the project holds less")
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		Expect(served(ctx, claim).Spec.Address).To(Equal(start.Next().String()))
	},
	Entry("of the pool", "limit-of-pool", "10.29.1.0/24", func(pool *v1alpha1.IPPoolSpec, _ *v1alpha1.IPClassSpec) { pool.Limits = build.Limits(1) }, "pool limit-of-pool"),
	Entry("of the class", "limit-of-class", "10.29.2.0/24", func(_ *v1alpha1.IPPoolSpec, class *v1alpha1.IPClassSpec) { class.Limits = build.Limits(1) }, "IPClass limit-of-class"),
)

// noAddresses creates a quota by which a namespace has no IPAddress, and waits until it counts.
func noAddresses(ctx context.Context, namespace string) *corev1.ResourceQuota {
	GinkgoHelper()
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "none"}}
	quota.Spec.Hard = corev1.ResourceList{"count/ipaddresses.ipam.cluster.x-k8s.io": resource.MustParse("0")}
	specs.Created(ctx, k8s, quota)
	Eventually(func() error { // as the quota controller does once it knows the kind
		if err := k8s.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
			return err
		}
		quota.Status.Hard, quota.Status.Used = quota.Spec.Hard, quota.Spec.Hard
		return k8s.Status().Update(ctx, quota)
	}).Should(Succeed())
	Eventually(func() error {
		return k8s.Create(ctx, addressFor(build.AddressClaim(namespace, "trial").Pool("none").Obj(), "10.29.9.9", 24), client.DryRunAll)
	}).Should(MatchError(ContainSubstring("exceeded quota")))
	return quota
}

var _ = Describe("The annotation address", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "asks")
		specs.Pool(ctx, k8s, build.Pool("asks").CIDR("10.11.0.0/24").Network(24, "10.11.0.1").Obj())
	})
	asking := func(name, address string) *ipamv1.IPAddressClaim {
		return build.AddressClaim(team, name).Pool("asks").Annotation(v1alpha1.AnnotationAddress, address).Obj()
	}

	It("asks for exactly that address, and waits for it if it is taken", func(ctx context.Context) {
		first := specs.Created(ctx, k8s, asking("first", "10.11.0.77"))
		Expect(served(ctx, first).Spec.Address).To(Equal("10.11.0.77"))
		second := specs.Created(ctx, k8s, asking("second", "10.11.0.77"))
		Eventually(reason(ctx, second)).Should(Equal("False/AllocationFailed"))
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		Expect(served(ctx, second).Spec.Address).To(Equal("10.11.0.77"))
	})

	It("is refused at admission if it is no address, and by the condition if it lies outside or is withheld", func(ctx context.Context) {
		Expect(k8s.Create(ctx, asking("bad", "10.11.0.7/24"))).To(MatchError(And(
			ContainSubstring("ipam.cadastre.dev/address"), ContainSubstring("10.11.0.7/24"), ContainSubstring("is not an IP address"))))
		for name, test := range map[string]struct{ address, says string }{
			"outside": {"10.12.0.1", "metadata.annotations[ipam.cadastre.dev/address]: 10.12.0.1/32: lies outside pool asks, which is 10.11.0.0/24: ask for a block within it, or name another pool"},
			"gateway": {"10.11.0.1", "10.11.0.1/32 is never handed out by pool asks: it is reserved, a gateway or edge address, or outside its ranges: ask for another address"},
			"family":  {"2001:db8::1", "metadata.annotations[ipam.cadastre.dev/address]: 2001:db8::1/128: pool asks is IPv4: ask for such a block, or name a pool of the family that you need"},
		} {
			claim := specs.Created(ctx, k8s, asking(name, test.address))
			Eventually(reason(ctx, claim)).Should(Equal("False/AllocationFailed"), name)
			Expect(message(claim)).To(Equal(test.says))
		}
	})
})

var _ = Describe("The annotation sticky", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "sticky")
		specs.Pool(ctx, k8s, build.Pool("sticky").CIDR("10.13.0.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.AllowRetain = true }).Obj())
	})
	sticky := func(in, name, key string) *ipamv1.IPAddressClaim {
		return build.AddressClaim(in, name).Pool("sticky").Annotation(v1alpha1.AnnotationSticky, key).Obj()
	}

	It("gives a claim the address that the last one of its key had", func(ctx context.Context) {
		served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "in-the-way").Pool("sticky").Obj()))
		first := specs.Created(ctx, k8s, sticky(team, "machine-a", "node-1"))
		had := served(ctx, first).Spec.Address
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, first)).Should(BeTrue())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "sticky", "machine-a") }).Should(
			ConsistOf(And(HaveField("Spec.State", v1alpha1.AllocationRetained), HaveField("Spec.ReleaseAfter.Time", BeTemporally("~", time.Now().Add(time.Hour), time.Minute)))))

		By("which no other claim gets until then, not even by the key in another namespace")
		elsewhere := specs.Namespace(ctx, k8s, "sticky-elsewhere")
		Expect(served(ctx, specs.Created(ctx, k8s, sticky(elsewhere, "machine-b", "node-1"))).Spec.Address).NotTo(Equal(had))
		Expect(served(ctx, specs.Created(ctx, k8s, sticky(team, "machine-c", "node-2"))).Spec.Address).NotTo(Equal(had))

		Expect(served(ctx, specs.Created(ctx, k8s, sticky(team, "machine-d", "node-1"))).Spec.Address).To(Equal(had))
		By("and one that comes while the address is in use gets another")
		Expect(served(ctx, specs.Created(ctx, k8s, sticky(team, "machine-e", "node-1"))).Spec.Address).NotTo(Equal(had))
	})

	It("keeps the address through a replacement without pause, ten times", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, sticky(team, "roll-0", "rolling"))
		had := served(ctx, claim).Spec.Address
		for i := range 10 {
			Expect(k8s.Delete(ctx, claim)).To(Succeed())
			Eventually(specs.IsGone(ctx, k8s, claim)).Should(BeTrue())
			claim = specs.Created(ctx, k8s, sticky(team, fmt.Sprintf("roll-%d", i+1), "rolling"))
			Expect(served(ctx, claim).Spec.Address).To(Equal(had))
		}
	})

	It("gives it back when the pool's retentionPeriod is over", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("sticky-short").CIDR("10.13.1.0/32").With(func(s *v1alpha1.IPPoolSpec) {
			s.AllowRetain, s.RetentionPeriod = true, &metav1.Duration{Duration: time.Second}
		}).Obj())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "short").Pool("sticky-short").Annotation(v1alpha1.AnnotationSticky, "short").Obj())
		served(ctx, claim)
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "next").Pool("sticky-short").Obj()))
	})
})

var _ = Describe("The project of a pool", Ordered, func() {
	It("names no pool of another project, and holds nothing there", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "uninvited")
		specs.Pool(ctx, k8s, build.Pool("private").CIDR("10.14.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "someone-else"
		}).Obj())
		claim := specs.Created(ctx, k8s, build.AddressClaim(team, "claim").Pool("private").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/PoolNotFound"))
		specs.Created(ctx, k8s, addressFor(build.AddressClaim(team, "squatter").Pool("private").Obj(), "10.14.0.7", 24))
		passedAny(ctx, team)
		Expect(specs.RecordsIn(ctx, k8s, "private")).To(BeEmpty())
	})
})

var _ = Describe("A pool that comes after its addresses", Ordered, func() {
	It("gives back those of namespaces that may not use it, and their claims report it; others stay", func(ctx context.Context) {
		early := func(namespace, address string) *ipamv1.IPAddressClaim {
			claim := build.AddressClaim(namespace, "early").Pool("later-private").Obj()
			specs.Created(ctx, k8s, addressFor(claim, address, 24))
			Expect(recordsOf(ctx, "later-private", "early")).To(ContainElement(HaveField("Namespace", namespace)))
			return specs.Created(ctx, k8s, claim)
		}
		stranger := early(specs.Namespace(ctx, k8s, "early-stranger"), "10.14.9.1")
		tenant := early(specs.Namespace(ctx, k8s, "early-tenant"), "10.14.9.2")
		Eventually(reason(ctx, stranger)).Should(Equal("False/PoolNotFound"))
		specs.Created(ctx, k8s, build.Pool("later-private").CIDR("10.14.9.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "early-tenant"
		}).Obj())
		Expect(served(ctx, tenant).Spec.Address).To(Equal("10.14.9.2"))
		Eventually(func() []v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "later-private") }).Should(ConsistOf(HaveField("Namespace", "early-tenant")))
		Expect(reason(ctx, stranger)()).To(Equal("False/PoolNotFound"))
		Expect(specs.RecordsIn(ctx, k8s, "later-private")[0].Annotations).NotTo(HaveKey(v1alpha1.AnnotationPoolUnknown))
	})

	It("keeps those of claims whose maker may use it, although it is another project's", func(ctx context.Context) {
		claim := build.AddressClaim(specs.Namespace(ctx, k8s, "early-granted"), "early").Pool("later-granted").Obj()
		specs.Created(ctx, k8s, addressFor(claim, "10.14.10.1", 24))
		Expect(specs.Created(ctx, k8s, claim).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationUseGranted, "later-granted"))
		Eventually(reason(ctx, claim)).Should(Equal("False/PoolNotFound"))
		specs.Created(ctx, k8s, build.Pool("later-granted").CIDR("10.14.10.0/24").With(func(s *v1alpha1.IPPoolSpec) { s.Project = "another" }).Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.14.10.1"))
	})
})

var _ = Describe("The right to use a pool of another project", Ordered, func() {
	It("belongs to the claim's maker, even if the claim states another", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "grants")
		specs.Pool(ctx, k8s, build.Pool("granted").CIDR("10.16.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.Project = "someone-else"
		}).Obj())
		Expect(k8s.Create(ctx, build.ClusterRole("makes-address-claims", rbacv1.PolicyRule{
			APIGroups: []string{"ipam.cluster.x-k8s.io"}, Resources: []string{"ipaddressclaims"}, Verbs: []string{"create", "get"},
		}))).To(Succeed())
		Expect(k8s.Create(ctx, build.ClusterRole("uses-granted", rbacv1.PolicyRule{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, ResourceNames: []string{"granted"}, Verbs: []string{"use"},
		}))).To(Succeed())
		userWithRoles := func(user string, roles ...string) client.Client {
			for _, role := range roles {
				Expect(k8s.Create(ctx, build.ClusterBinding(user+"-"+role, role, build.User(user)))).To(Succeed())
			}
			return running.As(user)
		}
		withUse, withoutUse := userWithRoles("with-use", "makes-address-claims", "uses-granted"), userWithRoles("without-use", "makes-address-claims")

		pretends := build.AddressClaim(team, "pretends").Pool("granted").Annotation(v1alpha1.AnnotationUseGranted, "granted").Obj()
		Eventually(func() error { return withoutUse.Create(ctx, pretends.DeepCopy()) }).Should(Succeed()) // the authorizer learns of roles by a watch
		Eventually(reason(ctx, pretends)).Should(Equal("False/PoolNotFound"))
		Expect(pretends.Annotations).NotTo(HaveKey(v1alpha1.AnnotationUseGranted))
		entitled := build.AddressClaim(team, "entitled").Pool("granted").Obj()
		Eventually(func() error { return withUse.Create(ctx, entitled.DeepCopy()) }).Should(Succeed())
		Expect(served(ctx, entitled).Spec.Address).To(Equal("10.16.0.0"))
		Expect(specs.RecordsIn(ctx, k8s, "granted")).To(HaveLen(1))
	})
})

// passedAny waits until the controller has seen the earlier changes.
func passedAny(ctx context.Context, team string) {
	GinkgoHelper()
	specs.Pool(ctx, k8s, build.Pool("passed-"+team).CIDR("10.15.0.0/24").Domain(team).Obj())
	passed(ctx, team, "passed", "passed-"+team)
}
