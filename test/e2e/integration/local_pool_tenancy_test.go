package integration

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
		specs.Created(ctx, k8s, build.ClusterRole(role, rbacv1.PolicyRule{
			APIGroups: []string{"ipam.cadastre.dev"}, Resources: []string{"ippools"}, ResourceNames: pools, Verbs: []string{"use"},
		}))
		specs.Created(ctx, k8s, build.ClusterBinding(role, role, build.User("bob")))
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
		answered(ctx, build.Claim(red, "by-class").Class("local-tenancy").Obj(), "10.76.0.0/32")
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
		answered(ctx, build.Claim(red, "not-overtaking").Pool("local-shared").Length(24).Obj(), "10.76.0.0/24")
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
		answered(ctx, build.Claim(red, "in-child").LocalPool("child").Length(32).Obj(), "10.76.16.0/32")
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

// unfinalized removes all finalizers from an object.
func unfinalized(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(k8s.Patch(ctx, obj, build.Merge(`{"metadata":{"finalizers":null}}`))).To(Succeed())
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
		claim := specs.Bound(ctx, k8s, build.Claim(team, "stays").LocalPool("forced").Length(32).Obj())
		Expect(k8s.Delete(ctx, pool)).To(MatchError(apierrors.IsConflict, "a conflict"))
		// The operator is not asked about objects that go with their namespace, or their owner.
		Expect(asTheCluster().Delete(ctx, pool)).To(Succeed())
		unfinalized(ctx, pool) // before its deletion begins it would be put back
		Eventually(specs.IsGone(ctx, k8s, pool)).Should(BeTrue())
		Consistently(specs.IsGone(ctx, k8s, localRecord(team, "forced"))).WithTimeout(2 * orphanGrace).Should(BeFalse())
		Expect(k8s.Create(ctx, build.Pool("other").CIDR("10.77.0.0/24").In(team))).To(MatchError(apierrors.IsConflict, "a conflict"))
		specs.Pool(ctx, k8s, build.Pool("forced").CIDR("10.77.0.0/30").In(team))
		answered(ctx, build.Claim(team, "next").LocalPool("forced").Length(32).Obj(), "10.77.0.1/32")
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
