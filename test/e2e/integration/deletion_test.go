package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

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

var _ = Describe("namespace-deletion", Ordered, func() {
	It("releases the blocks of a namespace, except those that a finalizer still holds", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "namespace-deletion")
		specs.Pool(ctx, k8s, build.Pool("namespace-deletion").CIDR("10.63.0.0/24").Obj())
		for i := range 5 {
			specs.Created(ctx, k8s, build.Claim(team, fmt.Sprintf("free-%d", i)).Pool("namespace-deletion").Length(32).Obj())
		}
		vm := specs.Created(ctx, k8s, build.Claim(team, "vm").Pool("namespace-deletion").Length(32).Finalizer("example.com/vm").Obj())
		gone := build.Namespace(team)
		deleted(ctx, gone)
		Eventually(func() []string { return cidrs(specs.RecordsIn(ctx, k8s, "namespace-deletion")) }).Should(Equal([]string{vm.Spec.CIDR}))
		specs.Edited(ctx, k8s, vm, func(c *v1alpha1.IPClaim) { c.Finalizers = nil })
		Eventually(func() bool {
			return apierrors.IsNotFound(k8s.Get(ctx, client.ObjectKeyFromObject(gone), gone))
		}).WithTimeout(60e9).Should(BeTrue())
		Eventually(available(ctx, "namespace-deletion")).Should(Equal("256"))
	})
})

var _ = Describe("operator-down", Ordered, Serial, func() {
	It("settles the claims that were deleted in the meantime", func(ctx context.Context) {
		team := specs.Namespace(ctx, k8s, "operator-down")
		specs.Pool(ctx, k8s, build.Pool("operator-down").CIDR("10.64.0.0/24").Obj())
		stays := specs.Created(ctx, k8s, build.Claim(team, "stays").Pool("operator-down").Length(32).Obj())
		goes := specs.Created(ctx, k8s, build.Claim(team, "goes").Pool("operator-down").Length(32).Obj())
		Expect(running.Managers[0].Kill()).To(Succeed())
		deleted(ctx, goes)
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(goes), goes)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		Expect(k8s.Create(ctx, build.Claim(team, "refused").Pool("operator-down").Length(32).Obj())).To(MatchError(ContainSubstring("webhook")))
		specs.Edited(ctx, k8s, stays, func(c *v1alpha1.IPClaim) { c.Labels = map[string]string{"edited": "while-down"} })
		Expect(running.Managers[0].Restart(ctx)).To(Succeed())
		Eventually(func() []string { return cidrs(specs.RecordsIn(ctx, k8s, "operator-down")) }).Should(Equal([]string{stays.Spec.CIDR}))
	})
})

var _ = Describe("operator-down, classes", Ordered, Serial, func() {
	It("allows edits of classes in the meantime, but no new default", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("operator-down").Length(32).Obj())
		Expect(running.Managers[0].Kill()).To(Succeed())
		DeferCleanup(func(ctx context.Context) { Expect(running.Managers[0].Restart(ctx)).To(Succeed()) })
		specs.Stored(ctx, k8s, class) // its status is not written any more
		class.Labels = map[string]string{"edited": "while-down"}
		Expect(k8s.Update(ctx, class)).To(Succeed())
		class.Spec.DefaultPrefixLength = new(int32(30))
		Expect(k8s.Update(ctx, class)).To(Succeed())
		class.Spec.DefaultPrefixLength = new(int32(33))
		Expect(k8s.Update(ctx, class.DeepCopy())).To(MatchError(ContainSubstring("must be 32 or less in an IPv4 class")))
		class.Spec.DefaultPrefixLength = new(int32(30))
		class.Annotations = map[string]string{v1alpha1.AnnotationDefaultClass: "true"}
		Expect(k8s.Update(ctx, class)).To(MatchError(ContainSubstring("failed calling webhook")))
	})
})

// cidrs returns the blocks of records.
func cidrs(records []v1alpha1.IPAllocation) []string {
	var blocks []string
	for _, r := range records {
		blocks = append(blocks, r.Spec.CIDR)
	}
	return blocks
}

var _ = Describe("protection", Ordered, func() {
	var team string
	var claim *v1alpha1.IPClaim
	record := func(ctx context.Context) *v1alpha1.IPAllocation {
		return specs.Stored(ctx, k8s, specs.RecordOf(claim))
	}
	code := func(err error) int {
		var status apierrors.APIStatus
		Expect(err).To(HaveOccurred())
		Expect(errors.As(err, &status)).To(BeTrue())
		return int(status.Status().Code)
	}

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "protection")
		specs.Pool(ctx, k8s, build.Pool("protection").CIDR("10.62.0.0/24").Obj())
		claim = specs.Bound(ctx, k8s, build.Claim(team, "held").Pool("protection").Length(32).Obj())
	})

	It("refuses a new record even from an administrator", func(ctx context.Context) {
		forged := record(ctx)
		forged.ObjectMeta = metav1.ObjectMeta{Namespace: team, Name: "forged"}
		err := k8s.Create(ctx, forged)
		Expect(code(err)).To(Equal(http.StatusForbidden))
		Expect(err).To(MatchError(ContainSubstring("create an IPClaim instead")))
	})

	It("refuses a changed record even from an administrator", func(ctx context.Context) {
		for what, change := range map[string]func(*v1alpha1.IPAllocation){
			"its state":      func(r *v1alpha1.IPAllocation) { r.Spec.State = v1alpha1.AllocationRetained },
			"its finalizer":  func(r *v1alpha1.IPAllocation) { r.Finalizers = nil },
			"its annotation": func(r *v1alpha1.IPAllocation) { r.Annotations = map[string]string{v1alpha1.AnnotationAdopted: "x"} },
			"its mark":       func(r *v1alpha1.IPAllocation) { r.Annotations = map[string]string{v1alpha1.AnnotationPoolUnknown: "x"} },
		} {
			Expect(code(specs.Update(ctx, k8s, k8s, record(ctx), change))).To(Equal(http.StatusForbidden), what)
		}
		labels := func(r *v1alpha1.IPAllocation) { r.Labels = map[string]string{"backup": "yes"} }
		Expect(specs.Update(ctx, k8s, k8s, record(ctx), labels)).To(Succeed())
	})

	It("lets no other service account make or change a record", func(ctx context.Context) {
		other := impersonating("system:serviceaccount:cadastre-system:default")
		forged := record(ctx)
		forged.ObjectMeta = metav1.ObjectMeta{Namespace: forged.Namespace, Name: "forged-by-account"}
		Expect(other.Create(ctx, forged)).To(MatchError(ContainSubstring("create an IPClaim instead")))
		requester := func(r *v1alpha1.IPAllocation) { r.Spec.RequestedBy = "another user" }
		Expect(specs.Update(ctx, k8s, other, record(ctx), requester)).To(MatchError(ContainSubstring("is changed by the operator alone")))
	})

	It("advises to delete the claim when a record is deleted", func(ctx context.Context) {
		err := k8s.Delete(ctx, record(ctx))
		Expect(code(err)).To(Equal(http.StatusConflict))
		Expect(err).To(MatchError(ContainSubstring("delete the claim instead")))
		Expect(record(ctx).DeletionTimestamp).To(BeNil())
	})

	It("refuses to delete a pool in use, and names the holders", func(ctx context.Context) {
		pool := &v1alpha1.IPPool{ObjectMeta: metav1.ObjectMeta{Name: "protection"}}
		err := k8s.Delete(ctx, pool)
		Expect(code(err)).To(Equal(http.StatusConflict))
		Expect(err).To(MatchError(ContainSubstring("pool protection is in use by 1 allocation (IPClaim protection/held): delete it first")))
		Expect(specs.Stored(ctx, k8s, pool).DeletionTimestamp).To(BeNil())
	})

	It("refuses to delete a class for which claims wait", func(ctx context.Context) {
		class := specs.Created(ctx, k8s, build.Class("protection").Length(32).Obj())
		waiting := specs.Created(ctx, k8s, build.Claim(team, "waiting").Class("protection").Obj())
		Eventually(func() error { return k8s.Delete(ctx, class, client.DryRunAll) }).Should(And(
			Satisfy(apierrors.IsConflict), MatchError(ContainSubstring("is in use by 1 waiting claim (IPClaim protection/waiting): delete it first"))))
		deleted(ctx, waiting)
		Eventually(func() error { return k8s.Delete(ctx, class) }).Should(Succeed())
	})

	It("hands out nothing from a paused pool, but releases", func(ctx context.Context) {
		pool := specs.Created(ctx, k8s, build.Pool("protection-paused").CIDR("10.62.1.0/24").Obj())
		specs.Ready(ctx, k8s, pool)
		before := specs.Created(ctx, k8s, build.Claim(team, "before").Pool("protection-paused").Length(32).Obj())
		for _, annotation := range []string{v1alpha1.AnnotationPaused, v1alpha1.AnnotationClusterAPIPaused} {
			specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{annotation: ""} })
			Eventually(func() string { return reasons(specs.Stored(ctx, k8s, pool).Status.Conditions)["Ready"] }).Should(Equal("False/Paused"))
			during := answered(ctx, build.Claim(team, "").Generated("during-").Pool("protection-paused").Length(32).Obj(), "")
			Eventually(phase(ctx, during)).Should(Equal(v1alpha1.ClaimPending))
			Expect(reasons(during.Status.Conditions)["Pending"]).To(Equal("True/PoolNotReady"))
			specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = nil })
			Eventually(phase(ctx, during)).Should(Equal(v1alpha1.ClaimBound))
		}
		specs.Edited(ctx, k8s, pool, func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
		deleted(ctx, before)
		Eventually(func() int { return len(specs.RecordsIn(ctx, k8s, "protection-paused")) }).Should(Equal(2))
	})

	It("gives the built-in roles the rights that they need for claims", func(ctx context.Context) {
		verbs := func(role string) func() []string {
			return func() []string {
				r := &rbacv1.ClusterRole{}
				Expect(k8s.Get(ctx, client.ObjectKey{Name: role}, r)).To(Succeed())
				for _, rule := range r.Rules {
					if slices.Equal(rule.APIGroups, []string{"ipam.cadastre.dev"}) && slices.Contains(rule.Resources, "ipclaims") {
						return rule.Verbs
					}
				}
				return nil
			}
		}
		for _, role := range []string{"admin", "edit"} {
			Eventually(verbs(role)).Should(ContainElements("create", "delete"))
		}
		Eventually(verbs("view")).Should(ConsistOf("get", "list", "watch"))
	})

	It("releases a record that has another finalizer, too", func(ctx context.Context) {
		specs.Pool(ctx, k8s, build.Pool("protection-finalizer").CIDR("10.62.2.0/32").Obj())
		claim = specs.Created(ctx, k8s, build.Claim(team, "finalizer").Pool("protection-finalizer").Length(32).Obj())
		theirs := func(r *v1alpha1.IPAllocation) {
			r.Finalizers = append([]string{"example.com/backup"}, r.Finalizers...)
		}
		Expect(specs.Update(ctx, k8s, k8s, record(ctx), theirs)).To(Succeed())
		deleted(ctx, claim)
		Eventually(func() []string { return record(ctx).Finalizers }).Should(Equal([]string{"example.com/backup"}))
		Expect(specs.Update(ctx, k8s, k8s, record(ctx), func(r *v1alpha1.IPAllocation) { r.Finalizers = nil })).To(Succeed())
		Eventually(func() []v1alpha1.IPAllocation { return specs.RecordsIn(ctx, k8s, "protection-finalizer") }).Should(BeEmpty())
	})
})
