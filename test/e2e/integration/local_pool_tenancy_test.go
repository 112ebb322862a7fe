package integration

import (
	"context"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic uses 10.76.0.0/16 in the platform's default domain.
var _ = Describe("local-pool-tenancy", Ordered, ContinueOnFailure, func() {
	const red, blue = "local-red", "local-blue"
	var bob client.Client // an editor of the red namespace, and nothing else

	mayUse := func(ctx context.Context, pools ...string) {
		role := "local-use-" + pools[0]
		specs.Created(ctx, k8s, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}, Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"ipam.cadastre.dev"}, Resources: []string{"ippools"}, ResourceNames: pools, Verbs: []string{"use"},
		}}})
		specs.Created(ctx, k8s, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "bob"}},
		})
	}
	// tells returns all that a pool or a claim reports of itself, except its name.
	tells := func(conditions []metav1.Condition, name string) string {
		var all []string
		for _, c := range conditions {
			all = append(all, c.Type, string(c.Status), c.Reason, strings.ReplaceAll(c.Message, strconv.Quote(name), "NAME"))
		}
		return strings.Join(all, " ")
	}

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, red)
		specs.Namespace(ctx, k8s, blue)
		bob = running.As("bob")
		specs.Created(ctx, k8s, build.Editor("bob", red))
		for _, pool := range []*v1alpha1.IPPool{
			build.Pool("local-shared").CIDR("10.76.0.0/20").Obj(),
			build.Pool("local-granted").CIDR("10.76.16.0/20").Obj(),
			build.Pool("local-blues").CIDR("10.76.32.0/20").With(func(s *v1alpha1.IPPoolSpec) {
				s.Visibility, s.Project = v1alpha1.VisibilityConsumer, blue
			}).Obj(),
			build.Pool("local-reds").CIDR("10.76.48.0/20").With(func(s *v1alpha1.IPPoolSpec) {
				s.Visibility, s.Project = v1alpha1.VisibilityConsumer, red
			}).Obj(),
		} {
			specs.Pool(ctx, k8s, pool)
		}
		specs.Created(ctx, k8s, build.Class("local-tenancy").LocalPools().Length(32).Obj())
		Eventually(func() error { // the authorizer sees the binding a moment later
			return bob.Create(ctx, build.Pool("reds").CIDR("10.76.0.0/16").Classes("local-tenancy").Label("tenancy", "reds").In(red))
		}).WithTimeout(30e9).Should(Succeed())
		specs.Ready(ctx, k8s, build.Pool("reds").In(red))
	})

	It("cannot be named, selected or used by class from another namespace", func(ctx context.Context) {
		for name, c := range map[string]struct{ others, none *v1alpha1.IPClaim }{
			"reds":          {build.Claim(blue, "by-ref").LocalPool("reds").Length(32).Obj(), build.Claim(blue, "by-no-ref").LocalPool("none").Length(32).Obj()},
			"local-tenancy": {build.Claim(blue, "by-class").Class("local-tenancy").Obj(), nil},
			"label":         {build.Claim(blue, "by-label").Selecting("tenancy", "reds").Length(32).Obj(), build.Claim(blue, "by-no-label").Selecting("tenancy", "none").Length(32).Obj()},
		} {
			claim := specs.Created(ctx, k8s, c.others)
			Eventually(phase(ctx, claim)).Should(Equal(v1alpha1.ClaimPending))
			if c.none == nil {
				Expect(reasons(claim.Status.Conditions)["Pending"]).To(Equal("True/NoPoolForClass"))
				continue
			}
			none := specs.Created(ctx, k8s, c.none)
			Eventually(phase(ctx, none)).Should(Equal(v1alpha1.ClaimPending))
			Expect(tells(claim.Status.Conditions, name)).To(Equal(tells(none.Status.Conditions, "none")))
		}
		Expect(specs.Created(ctx, k8s, build.Claim(red, "by-class").Class("local-tenancy").Obj()).Spec.CIDR).To(Equal("10.76.0.0/32"))
	})

	It("is not shown by the class that it backs", func(ctx context.Context) {
		class := build.Class("local-tenancy").Obj()
		Eventually(func() string { return reasons(specs.Stored(ctx, k8s, class).Status.Conditions)["Ready"] }).Should(Equal("True/NoPools"))
		Expect(class.Status.Pools).To(BeZero())
		Expect(class.Status.Capacity.Total).To(Equal("0"))
	})

	It("needs the verb use for any IPPool as its parent, and is answered otherwise as if that did not exist", func(ctx context.Context) {
		for _, parent := range []string{"local-shared", "local-reds", "local-none"} {
			pool := build.Pool("of-"+parent).Child(parent, 24).In(red)
			Expect(bob.Create(ctx, pool)).To(Succeed())
			Expect(pool.Spec.CIDR).To(BeEmpty())
			Expect(pool.Annotations).NotTo(HaveKey(v1alpha1.AnnotationUseGranted))
			Eventually(func() string { return tells(specs.Stored(ctx, k8s, pool).Status.Conditions, parent) }).Should(ContainSubstring(
				`Ready False ParentNotReady there is no IPPool NAME that this namespace may use: create it, name another parent, or ask for the right to use it and then create this object again`))
		}
	})

	It("blocks no other pool while it waits for a parent that it may not use", func(ctx context.Context) {
		Expect(specs.Created(ctx, k8s, build.Claim(red, "not-overtaking").Pool("local-shared").Length(24).Obj()).Spec.CIDR).To(Equal("10.76.0.0/24"))
	})

	// tried returns the result that a pool would get, if it were created; answers are remembered
	// for seconds, and the authorizer sees a binding a moment later.
	tried := func(ctx context.Context, pool *v1alpha1.LocalIPPool) func() string {
		return func() string {
			trial := pool.DeepCopy()
			Expect(bob.Create(ctx, trial, client.DryRunAll)).To(Succeed())
			return trial.Spec.CIDR
		}
	}

	It("is carved if its maker may use the parent, and if the parent is for its project", func(ctx context.Context) {
		mayUse(ctx, "local-granted", "local-blues", "local-reds", "local-later")
		child := build.Pool("child").Child("local-granted", 24).In(red)
		Eventually(tried(ctx, child)).WithTimeout(30e9).Should(Equal("10.76.16.0/24"))
		Expect(bob.Create(ctx, child)).To(Succeed())
		Expect(child.Spec.CIDR).To(Equal("10.76.16.0/24"))
		specs.Ready(ctx, k8s, child)
		Expect(specs.Created(ctx, k8s, build.Claim(red, "in-child").LocalPool("child").Length(32).Obj()).Spec.CIDR).To(Equal("10.76.16.0/32"))
		own := build.Pool("own-project").Child("local-reds", 24).In(red)
		Eventually(tried(ctx, own)).WithTimeout(30e9).Should(Equal("10.76.48.0/24"))
		Expect(bob.Create(ctx, own)).To(Succeed())
		Expect(own.Spec.CIDR).To(Equal("10.76.48.0/24"))
		others := build.Pool("others-project").Child("local-blues", 24).In(red)
		Expect(bob.Create(ctx, others)).To(Succeed())
		Expect(others.Spec.CIDR).To(BeEmpty())
	})

	It("keeps the right to use a parent that does not exist yet", func(ctx context.Context) {
		early := build.Pool("early").Child("local-later", 24).In(red)
		Expect(bob.Create(ctx, early)).To(Succeed())
		Expect(early.Spec.CIDR).To(BeEmpty())
		specs.Created(ctx, k8s, build.Pool("local-later").CIDR("10.76.64.0/20").Obj())
		Expect(specs.Ready(ctx, k8s, early).Spec.CIDR).To(Equal("10.76.64.0/24"))
	})

	It("lets no tenant grant themselves the use of a parent", func(ctx context.Context) {
		forged := build.Pool("forged").Child("local-shared", 24).In(red)
		forged.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "local-shared"}
		Expect(bob.Create(ctx, forged)).To(Succeed())
		Expect(forged.Annotations).NotTo(HaveKey(v1alpha1.AnnotationUseGranted))
		granted := func(p *v1alpha1.LocalIPPool) {
			p.Annotations = map[string]string{v1alpha1.AnnotationUseGranted: "local-shared"}
		}
		Expect(specs.Update(ctx, k8s, bob, forged, granted)).To(MatchError(ContainSubstring("is written by the operator alone")))
		placed := func(p *v1alpha1.LocalIPPool) { p.Spec.CIDR = "10.76.1.0/24" }
		Expect(specs.Update(ctx, k8s, bob, forged, placed)).To(MatchError(ContainSubstring("is filled in by the operator once there is room")))
	})

	It("does not learn the other holders in its parent", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Claim(blue, "secret").Pool("local-granted").CIDR("10.76.17.0/24").Obj())
		clash := build.Pool("clash").Child("local-granted", 24).CIDR("10.76.17.0/24").In(red)
		err := bob.Create(ctx, clash)
		Expect(err).To(MatchError(ContainSubstring("10.76.17.0/24 is in use in pool local-granted")))
		Expect(err.Error()).NotTo(ContainSubstring(blue))
		err = bob.Create(ctx, build.Pool("clash").Child("local-granted", 24).CIDR("10.76.16.0/24").In(red))
		Expect(err).To(MatchError(ContainSubstring("held by LocalIPPool local-red/child")), "its own project")
	})
})
