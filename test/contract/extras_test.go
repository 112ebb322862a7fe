package contract

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/test/build"
)

var _ = Describe("poolRef to an IPClass", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = namespace(ctx, "by-class")
		created(ctx, build.Class("by-class").Obj())
		ready(ctx, created(ctx, build.Pool("by-class-a").CIDR("10.10.0.7/32").Network(24, "10.10.0.254").Classes("by-class").Obj()))
		ready(ctx, created(ctx, build.Pool("by-class-b").CIDR("10.10.1.0/32").Classes("by-class").Obj()))
	})

	It("has the class pick the pool, which owner and labels name", func(ctx context.Context) {
		for name, want := range map[string][2]string{"a": {"by-class-a", "10.10.0.7"}} {
			address := served(ctx, created(ctx, build.AddressClaim(team, name).Class("by-class").Obj()))
			Expect(address.Spec.Address).To(Equal(want[1]))
			Expect(address.Spec.PoolRef).To(Equal(ipamv1.IPPoolReference{APIGroup: v1alpha1.GroupVersion.Group, Kind: "IPClass", Name: "by-class"}))
			Expect(address.OwnerReferences).To(ContainElement(And(HaveField("Kind", "IPPool"), HaveField("Name", want[0]))))
			Expect(address.Labels).To(And(HaveKeyWithValue(v1alpha1.LabelPool, want[0]), HaveKeyWithValue(v1alpha1.LabelPoolKind, "IPPool")))
			Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(24)))
			Expect(address.Spec.Gateway).To(Equal("10.10.0.254"))
		}
		Expect(served(ctx, created(ctx, build.AddressClaim(team, "b").Class("by-class").Obj())).Spec.Address).To(Equal("10.10.1.0"))
		waits := created(ctx, build.AddressClaim(team, "c").Class("by-class").Obj())
		Eventually(reason(ctx, waits)).Should(Equal("False/PoolExhausted"))
	})

	It("gives a block where the class hands out blocks", func(ctx context.Context) {
		created(ctx, build.Class("blocks").Lengths(28, 28).Length(28).Obj())
		ready(ctx, created(ctx, build.Pool("blocks").CIDR("10.10.2.0/24").Classes("blocks").Obj()))
		address := served(ctx, created(ctx, build.AddressClaim(team, "block").Class("blocks").Obj()))
		Expect(address.Spec.Address).To(Equal("10.10.2.0"))
		Expect(address.Spec.Prefix).To(HaveValue(BeEquivalentTo(28)))
		Expect(recordsIn(ctx, "blocks")).To(ConsistOf(HaveField("Spec.CIDR", "10.10.2.0/28")))
	})

	It("records the addresses that are there before any pool of the class", func(ctx context.Context) {
		created(ctx, build.Class("late").Obj())
		created(ctx, addressFor(build.AddressClaim(team, "without-claim").Class("late").Obj(), "10.10.3.1", 24))
		claim := build.AddressClaim(team, "early").Class("late").Obj()
		created(ctx, addressFor(claim, "10.10.3.0", 24))
		created(ctx, claim)
		Eventually(reason(ctx, claim)).Should(Equal("False/" + ipamv1.IPAddressClaimReadyPoolNotReadyReason))
		created(ctx, build.Pool("late").CIDR("10.10.3.0/28").Classes("late").Obj())
		Expect(served(ctx, claim).Spec.Address).To(Equal("10.10.3.0"))
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "late", "without-claim") }).Should(HaveLen(1))
	})
})

var _ = Describe("The annotation address", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = namespace(ctx, "asks")
		ready(ctx, created(ctx, build.Pool("asks").CIDR("10.11.0.0/24").Network(24, "10.11.0.1").Obj()))
	})
	asking := func(name, address string) *ipamv1.IPAddressClaim {
		return build.AddressClaim(team, name).Pool("asks").Annotation(v1alpha1.AnnotationAddress, address).Obj()
	}

	It("asks for that very address, and waits for it where it is taken", func(ctx context.Context) {
		first := created(ctx, asking("first", "10.11.0.77"))
		Expect(served(ctx, first).Spec.Address).To(Equal("10.11.0.77"))
		second := created(ctx, asking("second", "10.11.0.77"))
		Eventually(reason(ctx, second)).Should(Equal("False/AllocationFailed"))
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		Expect(served(ctx, second).Spec.Address).To(Equal("10.11.0.77"))
	})

	It("is refused at admission where it is no address, and by the condition where it lies outside or is withheld", func(ctx context.Context) {
		Expect(k8s.Create(ctx, asking("bad", "10.11.0.7/24"))).To(MatchError(And(
			ContainSubstring("ipam.cadastre.dev/address"), ContainSubstring("10.11.0.7/24"), ContainSubstring("is not an IP address"))))
		for name, address := range map[string]string{"outside": "10.12.0.1", "gateway": "10.11.0.1", "family": "2001:db8::1"} {
			Eventually(reason(ctx, created(ctx, asking(name, address)))).Should(Equal("False/AllocationFailed"), address)
		}
	})
})

var _ = Describe("The annotation sticky", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = namespace(ctx, "sticky")
		ready(ctx, created(ctx, build.Pool("sticky").CIDR("10.13.0.0/24").Obj()))
	})
	sticky := func(in, name, key string) *ipamv1.IPAddressClaim {
		return build.AddressClaim(in, name).Pool("sticky").Annotation(v1alpha1.AnnotationSticky, key).Obj()
	}

	It("gives a claim the address that the last one of its key had", func(ctx context.Context) {
		served(ctx, created(ctx, build.AddressClaim(team, "in-the-way").Pool("sticky").Obj()))
		first := created(ctx, sticky(team, "machine-a", "node-1"))
		had := served(ctx, first).Spec.Address
		Expect(k8s.Delete(ctx, first)).To(Succeed())
		Eventually(gone(ctx, first)).Should(BeTrue())
		Eventually(func() []v1alpha1.IPAllocation { return recordsOf(ctx, "sticky", "machine-a") }).Should(
			ConsistOf(And(HaveField("Spec.State", v1alpha1.AllocationRetained), HaveField("Spec.ReleaseAfter.Time", BeTemporally("~", time.Now().Add(time.Hour), time.Minute)))))

		By("which nobody else gets meanwhile, not even by the key in another namespace")
		elsewhere := namespace(ctx, "sticky-elsewhere")
		Expect(served(ctx, created(ctx, sticky(elsewhere, "machine-b", "node-1"))).Spec.Address).NotTo(Equal(had))
		Expect(served(ctx, created(ctx, sticky(team, "machine-c", "node-2"))).Spec.Address).NotTo(Equal(had))

		second := created(ctx, sticky(team, "machine-d", "node-1"))
		Expect(served(ctx, second).Spec.Address).To(Equal(had))
		By("and one that comes while the address is in use gets another")
		Expect(served(ctx, created(ctx, sticky(team, "machine-e", "node-1"))).Spec.Address).NotTo(Equal(had))
	})

	It("keeps the address through a replacement without pause, ten times", func(ctx context.Context) {
		claim := created(ctx, sticky(team, "roll-0", "rolling"))
		had := served(ctx, claim).Spec.Address
		for i := range 10 {
			Expect(k8s.Delete(ctx, claim)).To(Succeed())
			Eventually(gone(ctx, claim)).Should(BeTrue())
			claim = created(ctx, sticky(team, fmt.Sprintf("roll-%d", i+1), "rolling"))
			Expect(served(ctx, claim).Spec.Address).To(Equal(had))
		}
	})

	It("gives it back when the pool's retentionPeriod is over", func(ctx context.Context) {
		ready(ctx, created(ctx, build.Pool("sticky-short").CIDR("10.13.1.0/32").With(func(s *v1alpha1.IPPoolSpec) {
			s.RetentionPeriod = &metav1.Duration{Duration: time.Second}
		}).Obj()))
		claim := created(ctx, build.AddressClaim(team, "short").Pool("sticky-short").Annotation(v1alpha1.AnnotationSticky, "short").Obj())
		served(ctx, claim)
		Expect(k8s.Delete(ctx, claim)).To(Succeed())
		served(ctx, created(ctx, build.AddressClaim(team, "next").Pool("sticky-short").Obj()))
	})
})

var _ = Describe("Who may use a pool", Ordered, func() {
	It("names no pool of another project, and holds nothing there", func(ctx context.Context) {
		team := namespace(ctx, "uninvited")
		ready(ctx, created(ctx, build.Pool("private").CIDR("10.14.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, "someone-else"
		}).Obj()))
		claim := created(ctx, build.AddressClaim(team, "claim").Pool("private").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/PoolNotReady"))
		created(ctx, addressFor(build.AddressClaim(team, "squatter").Pool("private").Obj(), "10.14.0.7", 24))
		passedAny(ctx, team)
		Expect(recordsIn(ctx, "private")).To(BeEmpty())
	})
})

var _ = Describe("The right to use a pool of another project", Ordered, func() {
	It("is asked of the claim's maker, whatever the claim says of it", func(ctx context.Context) {
		team := namespace(ctx, "grants")
		ready(ctx, created(ctx, build.Pool("granted").CIDR("10.16.0.0/24").With(func(s *v1alpha1.IPPoolSpec) {
			s.Project = "someone-else"
		}).Obj()))
		Expect(k8s.Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "makes-address-claims"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"ipam.cluster.x-k8s.io"}, Resources: []string{"ipaddressclaims"}, Verbs: []string{"create", "get"}}},
		})).To(Succeed())
		Expect(k8s.Create(ctx, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{Name: "uses-granted"},
			Rules:      []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"ippools"}, ResourceNames: []string{"granted"}, Verbs: []string{"use"}}},
		})).To(Succeed())
		may := func(user string, roles ...string) client.Client {
			for _, role := range roles {
				Expect(k8s.Create(ctx, &rbacv1.ClusterRoleBinding{
					ObjectMeta: metav1.ObjectMeta{Name: user + "-" + role},
					RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
					Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}},
				})).To(Succeed())
			}
			cfg, err := running.User(user)
			Expect(err).NotTo(HaveOccurred())
			return clientFor(cfg)
		}
		with, without := may("with-use", "makes-address-claims", "uses-granted"), may("without-use", "makes-address-claims")

		pretends := build.AddressClaim(team, "pretends").Pool("granted").Annotation(v1alpha1.AnnotationUseGranted, "granted").Obj()
		Eventually(func() error { return without.Create(ctx, pretends.DeepCopy()) }).Should(Succeed()) // the authorizer learns of roles by a watch
		Eventually(reason(ctx, pretends)).Should(Equal("False/PoolNotReady"))
		Expect(pretends.Annotations).NotTo(HaveKey(v1alpha1.AnnotationUseGranted))
		entitled := build.AddressClaim(team, "entitled").Pool("granted").Obj()
		Eventually(func() error { return with.Create(ctx, entitled.DeepCopy()) }).Should(Succeed())
		Expect(served(ctx, entitled).Spec.Address).To(Equal("10.16.0.0"))
		Expect(recordsIn(ctx, "granted")).To(HaveLen(1))
	})
})

// passedAny waits until the controller has seen what happened before.
func passedAny(ctx context.Context, team string) {
	GinkgoHelper()
	ready(ctx, created(ctx, build.Pool("passed-"+team).CIDR("10.15.0.0/24").Domain(team).Obj()))
	passed(ctx, team, "passed", "passed-"+team)
}
