package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
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
		learned = append(append(learned, string(text)), tenant.takeWarnings()...)
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
		specs.Created(ctx, k8s, build.NamespaceOf(secret, theirs))
		specs.Created(ctx, k8s, build.NamespaceOf("sees", mine))
		specs.Created(ctx, k8s, build.Editor("carol", mine))
		for _, p := range []*v1alpha1.IPPool{
			pool("sees-a", "10.34.0.0/28").Classes("sees").Obj(),
			pool("sees-b", "10.34.1.0/24").Classes("sees").Obj(),
			pool("sees-confidential", "10.34.2.0/24").Classes("sees", "sees-confidential").With(owned).Obj(),
			pool("sees-other", "10.34.3.0/24").Classes("sees").Lengths(24, 28).Obj(),
		} {
			specs.Pool(ctx, k8s, p)
		}
		paused := pool("sees-paused", "10.34.4.0/24").Classes("sees").Obj()
		paused.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""}
		specs.Created(ctx, k8s, paused)
		specs.Created(ctx, k8s, build.Class("sees").Length(29).Obj())
		specs.Created(ctx, k8s, build.Class("sees-confidential").Length(29).With(func(s *v1alpha1.IPClassSpec) {
			s.Visibility, s.Project = v1alpha1.VisibilityConsumer, secret
		}).Obj())
		specs.Created(ctx, k8s, build.Claim(theirs, "confidential").Pool("sees-a").CIDR("10.34.0.0/29").Obj())
		specs.Created(ctx, k8s, build.Claim(theirs, "confidential-owned").Pool("sees-confidential").Length(28).Obj())
		tenant = newWitnessAs("carol")
		Eventually(func() error { return tenant.List(ctx, &v1alpha1.IPClaimList{}, client.InNamespace(mine)) }).Should(Succeed())
		Expect(tenant.List(ctx, &v1alpha1.IPPoolList{})).NotTo(Succeed())
		tenant.takeWarnings()
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
			tenant.takeWarnings()
			claim := build.Claim(mine, "dry").Class(class).Obj()
			Expect(tenant.Create(ctx, claim, client.DryRunAll)).To(Succeed())
			warnings := tenant.takeWarnings()
			Expect(warnings).To(HaveLen(2))
			Expect(warnings[1]).To(HavePrefix("namespace " + mine + " may use the IPClasses "))
			Expect(strings.ReplaceAll(strings.Join(warnings, ""), `"`+class+`"`, "")).NotTo(ContainSubstring(secret))
			Expect(claim.Status.Candidates).To(BeEmpty())
		}
	})

	It("learns why a claim waits, which is written when it changes, and not otherwise", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Claim(theirs, "confidential-too").Pool("sees-a").Length(29).Obj())
		specs.Created(ctx, k8s, build.Claim(theirs, "confidential-all").Pool("sees-b").Length(24).Obj())
		claim := build.Claim(mine, "waits").Class("sees").Obj()
		Expect(tenant.Create(ctx, claim)).To(Succeed())
		want := []string{"sees-a NoFreeBlock", "sees-b NoFreeBlock", "sees-other LengthNotAllowed", "sees-paused Paused"}
		Expect(listed(claim)).To(Equal(want))
		Expect(claim.Status.Candidates[0].Message).To(Equal("no free /29 in pool sees-a: the claim is bound as soon as one is released"))
		learn(claim)
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, claim) }).Should(Equal([]string{"Warning PoolExhausted"}))

		Expect(patched(ctx, build.Pool("sees-b").Obj(), `{allowRetain: true}`)).To(Succeed()) // nothing that concerns the claim
		Consistently(func() string { return specs.Stored(ctx, k8s, build.Claim(mine, "waits").Obj()).ResourceVersion }, time.Second).Should(Equal(claim.ResourceVersion))

		specs.Edited(ctx, k8s, build.Pool("sees-b").Obj(), func(p *v1alpha1.IPPool) { p.Annotations = map[string]string{v1alpha1.AnnotationPaused: ""} })
		want = []string{"sees-a NoFreeBlock", "sees-b Paused", "sees-other LengthNotAllowed", "sees-paused Paused"}
		Eventually(func() []string { return listed(specs.Stored(ctx, k8s, claim)) }).Should(Equal(want))
		learn(claim)
	})

	It("learns the progress of its claim from events, each once", func(ctx context.Context) {
		claim := build.Claim(mine, "waits").Obj()
		deleted(ctx, build.Claim(theirs, "confidential-too").Obj())
		expectBound(ctx, claim, "10.34.0.8/29")
		Expect(claim.Status.Candidates).To(BeEmpty())
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, claim) }).Should(Equal([]string{"Normal Bound", "Warning PoolExhausted"}))
		atOnce := specs.Created(ctx, k8s, build.Claim(mine, "at-once").Class("sees").CIDR("10.34.3.0/28").Obj())
		Expect(atOnce.Status.Phase).To(Equal(v1alpha1.ClaimBound))
		Expect(atOnce.Status.Candidates).To(BeEmpty())
		Consistently(func() []string { return specs.EventsOf(ctx, k8s, atOnce) }, time.Second).Should(BeEmpty())
		Expect(specs.EventsOf(ctx, k8s, claim)).To(HaveLen(2))
	})

	It("cannot write that information", func(ctx context.Context) {
		claim := specs.Stored(ctx, k8s, build.Claim(mine, "waits").Obj())
		claim.Status.Candidates = []v1alpha1.CandidatePool{{PoolRef: v1alpha1.PoolReference{Name: "forged"}, Reason: "Forged"}}
		Expect(tenant.Update(ctx, claim)).To(Succeed())
		Expect(claim.Status.Candidates).NotTo(ContainElement(HaveField("Reason", "Forged")))
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
		b := specs.Stored(ctx, k8s, build.Pool("sees-b").Obj())
		specs.Edited(ctx, k8s, b, func(p *v1alpha1.IPPool) { p.Annotations = nil })
		deleted(ctx, build.Claim(theirs, "confidential-all").Obj())
		Eventually(func() []string { return specs.EventsOf(ctx, k8s, b) }).Should(Equal([]string{"Normal Ready", "Warning Full", "Warning Paused"}))
		events := &eventsv1.EventList{}
		Expect(k8s.List(ctx, events, client.InNamespace("default"))).To(Succeed())
		for _, e := range events.Items {
			if e.Regarding.UID == b.UID {
				Expect(e.Note).NotTo(ContainSubstring(secret))
			}
		}
	})
})

// selecting returns an edit for claims that select pools by an expression.
func selecting(key string, operator metav1.LabelSelectorOperator, values ...string) func(*v1alpha1.IPClaimSpec) {
	return func(s *v1alpha1.IPClaimSpec) {
		by := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: operator, Values: values}}}
		s.PoolSelector = v1alpha1.PoolSelectorOf(&by)
	}
}

// This topic has 10.29.0.0/16 and 2001:db8:29::/48 of a separate routing domain.
var _ = Describe("pool-selector", Ordered, ContinueOnFailure, func() {
	const team = "pool-selector"

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		for name, pool := range map[string]struct{ zone, cidr string }{
			"select-a1": {"a", "10.29.0.0/31"}, "select-a2": {"a", "10.29.1.0/24"},
			"select-b1": {"b", "10.29.2.0/24"}, "select-b6": {"b", "2001:db8:29::/64"},
		} {
			specs.Pool(ctx, k8s, build.Pool(name).Domain("pool-selector").CIDR(pool.cidr).Label("select-zone", pool.zone).Obj())
		}
		specs.Pool(ctx, k8s, build.Pool("select-none").Domain("pool-selector").CIDR("10.29.9.0/24").Obj())
	})

	It("serves a claim from the first pool by name that has the label and room", func(ctx context.Context) {
		for _, want := range []struct{ cidr, pool string }{
			{"10.29.0.0/32", "select-a1"}, {"10.29.0.1/32", "select-a1"}, {"10.29.1.0/32", "select-a2"},
		} {
			claim := served(ctx, build.Claim(team, "").Generated("a-").Selecting("select-zone", "a").Length(32).Obj(), want.cidr)
			Expect(claim.Status.PoolRef.Name).To(Equal(want.pool))
			Expect(claim.Spec.PoolRef).To(BeNil())
			Expect(claim.Spec.ClassName).To(BeEmpty())
		}
	})

	It("skips the pools that are too small", func(ctx context.Context) {
		served(ctx, build.Claim(team, "large").Selecting("select-zone", "a").Length(28).Obj(), "10.29.1.16/28")
	})

	It("serves a claim from a pool of its family", func(ctx context.Context) {
		four := specs.Created(ctx, k8s, build.Claim(team, "four").Selecting("select-zone", "b").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv4 }).Length(28).Obj())
		expectBound(ctx, four, "10.29.2.0/28")
		six := specs.Created(ctx, k8s, build.Claim(team, "six").Selecting("select-zone", "b").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv6 }).Length(80).Obj())
		expectBound(ctx, six, "2001:db8:29::/80")
	})

	It("understands expressions", func(ctx context.Context) {
		served(ctx, build.Claim(team, "in").With(selecting("select-zone", metav1.LabelSelectorOpIn, "b", "c")).Length(28).Obj(), "10.29.2.16/28")
		served(ctx, build.Claim(team, "exists").With(selecting("select-zone", metav1.LabelSelectorOpExists)).Length(26).Obj(), "10.29.1.64/26")
	})

	It("asks for an exact block among those selected", func(ctx context.Context) {
		claim := served(ctx, build.Claim(team, "exact").Selecting("select-zone", "a").CIDR("10.29.1.128/25").Obj(), "10.29.1.128/25")
		Expect(claim.Status.PoolRef.Name).To(Equal("select-a2"))
	})

	It("looks at labels when a claim is made, and not again once it is bound", func(ctx context.Context) {
		bound := specs.Created(ctx, k8s, build.Claim(team, "before").Selecting("select-zone", "b").With(func(s *v1alpha1.IPClaimSpec) { s.IPFamily = v1alpha1.IPv4 }).Length(32).Obj())
		expectBound(ctx, bound, "10.29.2.32/32")
		specs.Edited(ctx, k8s, build.Pool("select-b1").Obj(), func(p *v1alpha1.IPPool) { p.Labels = map[string]string{"select-zone": "moved"} })
		Eventually(func() string { // as soon as the operator has seen it
			moved := specs.Created(ctx, k8s, build.Claim(team, "").Generated("moved-").Selecting("select-zone", "moved").Length(32).Obj())
			return moved.Spec.CIDR
		}).Should(Equal("10.29.2.33/32"))
		Consistently(phase(ctx, bound), "500ms").Should(Equal(v1alpha1.ClaimBound))
		Expect(bound.Spec.CIDR).To(Equal("10.29.2.32/32"))
	})

	It("never uses a pool that is not selected", func(ctx context.Context) {
		Expect(specs.RecordsIn(ctx, k8s, "select-none")).To(BeEmpty())
	})
})
