package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
)

// The information about pools and classes that a tenant with the role edit, and no right outside
// its namespace, can read. Everything of the other tenant has the word "confidential" in its name.
// This topic has 10.34.0.0/16 of a separate routing domain.
var _ = Describe("the view of a tenant", Ordered, ContinueOnFailure, func() {
	const mine, theirs, secret = "sees-mine", "sees-confidential", "confidential"
	var tenant *witness
	var learned []string

	// learn records all of an object that the tenant has read.
	learn := func(obj any) {
		GinkgoHelper()
		text, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		learned = append(append(learned, string(text)), tenant.heard()...)
	}
	pool := func(name, cidr string) *build.PoolBuilder { return build.Pool(name).Domain("sees").CIDR(cidr) }
	owned := func(s *v1alpha1.IPPoolSpec) { s.Visibility, s.Project = v1alpha1.VisibilityConsumer, secret }
	listed := func(claim *v1alpha1.IPClaim) []string {
		var all []string
		for _, c := range claim.Status.Candidates {
			all = append(all, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", c.PoolRef.Name, c.Reason, c.LargestFreePrefix, c.Available)))
		}
		return all
	}
	dryRun := func(ctx context.Context, claim *v1alpha1.IPClaim) *v1alpha1.IPClaim {
		GinkgoHelper()
		Expect(tenant.Create(ctx, claim, client.DryRunAll)).To(Succeed())
		learn(claim)
		return claim
	}

	BeforeAll(func(ctx context.Context) {
		created(ctx, build.NamespaceOf(secret, theirs))
		created(ctx, build.NamespaceOf("sees", mine))
		Expect(k8s.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: mine, Name: "edit"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "carol"}},
		})).To(Succeed())
		for _, p := range []*v1alpha1.IPPool{
			pool("sees-a", "10.34.0.0/28").Classes("sees").Obj(),
			pool("sees-b", "10.34.1.0/24").Classes("sees").Obj(),
			pool("sees-confidential", "10.34.2.0/24").Classes("sees", "sees-confidential").With(owned).Obj(),
			pool("sees-other", "10.34.3.0/24").Classes("sees").Lengths(24, 28).Obj(),
		} {
			ready(ctx, created(ctx, p))
		}
		paused := pool("sees-paused", "10.34.4.0/24").Classes("sees").Obj()
		paused.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""}
		created(ctx, paused)
		created(ctx, build.Class("sees").Length(29).Obj())
		created(ctx, build.Class("sees-confidential").Length(29).With(func(s *v1alpha1.IPClassSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, secret
		}).Obj())
		created(ctx, build.Claim(theirs, "confidential").Pool("sees-a").CIDR("10.34.0.0/29").Obj())
		created(ctx, build.Claim(theirs, "confidential-owned").Pool("sees-confidential").Length(28).Obj())
		tenant = newWitnessAs("carol")
		Eventually(func() error { return tenant.List(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(mine)) }).Should(Succeed())
		Expect(tenant.List(ctx, &v1alpha1.IPPoolList{})).NotTo(Succeed())
		tenant.heard()
	})

	It("learns from a dry run which pools its namespace may use, and their free space", func(ctx context.Context) {
		Eventually(func() []string { return listed(dryRun(ctx, build.Claim(mine, "dry").Class("sees").Obj())) }).Should(Equal([]string{
			"sees-a Fits /29 8", "sees-b Fits /24 256", "sees-other LengthNotAllowed /24 256", "sees-paused Paused /24 256",
		}))
		large := dryRun(ctx, build.Claim(mine, "dry").Class("sees").Length(28).Obj())
		Expect(large.Status.AllocatedCIDR).To(Equal("10.34.1.0/28"))
		Expect(large.Status.PoolRef.Name).To(Equal("sees-b"))
		Expect(listed(large)[0]).To(Equal("sees-a NoFreeBlock /29 8"))
		taken := build.Claim(mine, "dry").Class("sees").CIDR("10.34.0.0/29").Obj()
		learn(fmt.Sprint(tenant.Create(ctx, taken, client.DryRunAll)))
		Expect(k8s.Get(ctx, client.ObjectKeyFromObject(large), large)).NotTo(Succeed())
	})

	It("learns which classes its namespace may use if it names another", func(ctx context.Context) {
		for _, class := range []string{"sees-confidential", "sees-missing"} {
			tenant.heard()
			claim := build.Claim(mine, "dry").Class(class).Obj()
			Expect(tenant.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			heard := tenant.heard()
			Expect(heard).To(HaveLen(2))
			Expect(heard[1]).To(HavePrefix("namespace " + mine + " may use the IPClasses "))
			Expect(strings.ReplaceAll(strings.Join(heard, ""), `"`+class+`"`, "")).NotTo(ContainSubstring(secret))
			Expect(claim.Status.Candidates).To(BeEmpty())
		}
	})

	It("learns why a claim waits, which is written when it changes, and not otherwise", func(ctx context.Context) {
		created(ctx, build.Claim(theirs, "confidential-too").Pool("sees-a").Length(29).Obj())
		created(ctx, build.Claim(theirs, "confidential-all").Pool("sees-b").Length(24).Obj())
		claim := build.Claim(mine, "waits").Class("sees").Obj()
		Expect(tenant.Create(ctx, claim)).To(Succeed())
		want := []string{"sees-a NoFreeBlock", "sees-b NoFreeBlock", "sees-other LengthNotAllowed", "sees-paused Paused"}
		Expect(listed(claim)).To(Equal(want))
		Expect(claim.Status.Candidates[0].Message).To(Equal("no free /29 in pool sees-a: the claim is bound as soon as one is released"))
		learn(claim)
		Eventually(func() []string { return eventsOf(ctx, claim) }).Should(Equal([]string{"Warning PoolExhausted"}))

		Expect(patched(ctx, build.Pool("sees-b").Obj(), `{allowRetain: true}`)).To(Succeed()) // nothing that concerns the claim
		Consistently(func() string { return fresh(ctx, build.Claim(mine, "waits").Obj()).ResourceVersion }, time.Second).Should(Equal(claim.ResourceVersion))

		edited(ctx, build.Pool("sees-b").Obj(), func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
		want = []string{"sees-a NoFreeBlock", "sees-b Paused", "sees-other LengthNotAllowed", "sees-paused Paused"}
		Eventually(func() []string { return listed(fresh(ctx, claim)) }).Should(Equal(want))
		learn(claim)
	})

	It("learns the progress of its claim from events, each once", func(ctx context.Context) {
		claim := build.Claim(mine, "waits").Obj()
		deleted(ctx, build.Claim(theirs, "confidential-too").Obj())
		expectBound(ctx, claim, "10.34.0.8/29")
		Expect(claim.Status.Candidates).To(BeEmpty())
		Eventually(func() []string { return eventsOf(ctx, claim) }).Should(Equal([]string{"Normal Bound", "Warning PoolExhausted"}))
		atOnce := created(ctx, build.Claim(mine, "at-once").Class("sees").CIDR("10.34.3.0/28").Obj())
		Expect(atOnce.Status.Phase).To(Equal(v1alpha1.ClaimBound))
		Expect(atOnce.Status.Candidates).To(BeEmpty())
		Consistently(func() []string { return eventsOf(ctx, atOnce) }, time.Second).Should(BeEmpty())
		Expect(eventsOf(ctx, claim)).To(HaveLen(2))
	})

	It("cannot write that information", func(ctx context.Context) {
		claim := fresh(ctx, build.Claim(mine, "waits").Obj())
		claim.Status.Candidates = []v1alpha1.CandidatePool{{PoolRef: v1alpha1.PoolReference{Name: "forged"}, Reason: "Forged"}}
		Expect(tenant.Update(ctx, claim)).To(MatchError(ContainSubstring("status: is written by the operator alone")))
		forged := build.Claim(mine, "forged").Class("sees-missing").Obj()
		forged.Status.Candidates = claim.Status.Candidates
		Expect(tenant.Create(ctx, forged)).To(Succeed())
		Expect(forged.Status.Candidates).To(BeEmpty())
	})

	It("has learned nothing of others", func(ctx context.Context) {
		claims, events := &v1alpha1.IPClaimList{}, &eventsv1.EventList{}
		Expect(tenant.List(ctx, claims, client.InNamespace(mine))).To(Succeed())
		learn(claims)
		Expect(k8s.List(ctx, events, client.InNamespace(mine))).To(Succeed())
		learn(events)
		Expect(learned).To(ContainElement(ContainSubstring("sees-paused")))
		Expect(strings.Join(learned, "\n")).NotTo(ContainSubstring(secret))
	})

	It("learns the state of a pool from its events", func(ctx context.Context) {
		b := fresh(ctx, build.Pool("sees-b").Obj())
		edited(ctx, b, func(p *v1alpha1.IPPool) { p.Annotations = nil })
		deleted(ctx, build.Claim(theirs, "confidential-all").Obj())
		Eventually(func() []string { return eventsOf(ctx, b) }).Should(Equal([]string{"Normal Ready", "Warning Full", "Warning Paused"}))
		events := &eventsv1.EventList{}
		Expect(k8s.List(ctx, events, client.InNamespace("default"))).To(Succeed())
		for _, e := range events.Items {
			if e.Regarding.UID == b.UID {
				Expect(e.Note).NotTo(ContainSubstring(secret))
			}
		}
	})
})

// eventsOf returns the events of an object, by type and reason, each kind of them once.
func eventsOf(ctx context.Context, obj client.Object) []string {
	GinkgoHelper()
	namespace := obj.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	events := &eventsv1.EventList{}
	Expect(k8s.List(ctx, events, client.InNamespace(namespace))).To(Succeed())
	var all []string
	for _, e := range events.Items {
		if e.Regarding.UID == obj.GetUID() {
			all = append(all, e.Type+" "+e.Reason)
		}
	}
	slices.Sort(all)
	return all
}
