package integration

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// This topic has 10.33.0.0/16 of a separate routing domain.
var _ = Describe("class-many-pools", Ordered, ContinueOnFailure, func() {
	const team = "class-many-pools"

	BeforeAll(func(ctx context.Context) { specs.Namespace(ctx, k8s, team) })

	// backed makes a class that hands out single addresses, and its pools.
	backed := func(ctx context.Context, class string, by v1alpha1.PoolSelection, cidrs map[string]string) {
		GinkgoHelper()
		specs.Created(ctx, k8s, build.Class(class).Length(32).With(func(s *v1alpha1.IPClassSpec) { s.PoolSelection = by }).Obj())
		for name, cidr := range cidrs {
			specs.Pool(ctx, k8s, build.Pool(name).Domain("class-many-pools").CIDR(cidr).Classes(class).Obj())
		}
	}

	// handedOut returns the next blocks that a class gives, claim after claim.
	handedOut := func(ctx context.Context, class string, count int) []string {
		GinkgoHelper()
		var blocks []string
		for range count {
			blocks = append(blocks, specs.Created(ctx, k8s, build.Claim(team, "").Generated(class+"-").Class(class).Obj()).Spec.CIDR)
		}
		return blocks
	}

	It("uses the next pool by name when the first is full", func(ctx context.Context) {
		backed(ctx, "many-first", v1alpha1.SelectFirstFit, map[string]string{
			"many-first-b": "10.33.0.0/31", "many-first-a": "10.33.1.0/31", "many-first-c": "10.33.2.0/31",
		})
		Expect(handedOut(ctx, "many-first", 5)).To(Equal([]string{
			"10.33.1.0/32", "10.33.1.1/32", "10.33.0.0/32", "10.33.0.1/32", "10.33.2.0/32",
		}))
	})

	It("returns to the first as soon as it has room", func(ctx context.Context) {
		var first *v1alpha1.IPClaim
		claims := &v1alpha1.IPClaimList{}
		Expect(k8s.List(ctx, claims)).To(Succeed())
		for i := range claims.Items {
			if claims.Items[i].Spec.CIDR == "10.33.1.0/32" {
				first = &claims.Items[i]
			}
		}
		Expect(first).NotTo(BeNil())
		deleted(ctx, first)
		Eventually(func() int { return len(specs.RecordsIn(ctx, k8s, "many-first-a")) }).Should(Equal(1))
		Eventually(available(ctx, "many-first-a")).Should(Equal("1"))
		Expect(handedOut(ctx, "many-first", 2)).To(Equal([]string{"10.33.1.0/32", "10.33.2.1/32"}))
	})

	It("makes a claim wait when all are full, names them, and serves it from the first that has room", func(ctx context.Context) {
		waits := specs.Created(ctx, k8s, build.Claim(team, "waits").Class("many-first").Obj())
		expectExhausted(ctx, waits, "no free /32 in pool many-first-a, pool many-first-b, pool many-first-c: the claim is bound as soon as one is released")
		specs.Created(ctx, k8s, build.Pool("many-first-d").Domain("class-many-pools").CIDR("10.33.3.0/32").Classes("many-first").Obj())
		expectBound(ctx, waits, "10.33.3.0/32")
	})

	It("skips pools that have no block of that length, and returns for one that they have", func(ctx context.Context) {
		backed(ctx, "many-sizes", v1alpha1.SelectFirstFit, map[string]string{"many-sizes-a": "10.33.4.0/28", "many-sizes-b": "10.33.5.0/24"})
		large := specs.Created(ctx, k8s, build.Claim(team, "sizes-large").Class("many-sizes").Length(25).Obj())
		Expect(large.Spec.CIDR).To(Equal("10.33.5.0/25"))
		small := specs.Created(ctx, k8s, build.Claim(team, "sizes-small").Class("many-sizes").Length(30).Obj())
		Expect(small.Spec.CIDR).To(Equal("10.33.4.0/30"))
	})

	It("skips pools that are not ready", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Pool("many-unready-a").Child("many-unready-none", 24).Classes("many-unready").Obj())
		backed(ctx, "many-unready", v1alpha1.SelectFirstFit, map[string]string{"many-unready-b": "10.33.6.0/24"})
		Expect(handedOut(ctx, "many-unready", 1)).To(Equal([]string{"10.33.6.0/32"}))
	})

	It("takes the least utilized, and of equals the first by name", func(ctx context.Context) {
		backed(ctx, "many-least", v1alpha1.SelectLeastUtilized, map[string]string{
			"many-least-a": "10.33.8.0/30", "many-least-b": "10.33.9.0/29", "many-least-c": "10.33.10.0/30",
		})
		Expect(handedOut(ctx, "many-least", 9)).To(Equal([]string{
			// a: 0/4, b: 0/8, c: 0/4
			"10.33.8.0/32",  // a: 1/4
			"10.33.9.0/32",  // b: 1/8
			"10.33.10.0/32", // c: 1/4
			"10.33.9.1/32",  // b: 2/8
			"10.33.8.1/32",  // all 1/4; a: 2/4
			"10.33.9.2/32",  // b: 3/8
			"10.33.10.1/32", // c: 2/4
			"10.33.9.3/32",  // b: 4/8
			"10.33.8.2/32",  // all 1/2; a: 3/4
		}))
	})

	It("takes the most utilized that has room, and of equals the first by name", func(ctx context.Context) {
		backed(ctx, "many-most", v1alpha1.SelectMostUtilized, map[string]string{
			"many-most-a": "10.33.16.0/30", "many-most-b": "10.33.17.0/30", "many-most-c": "10.33.18.0/31",
		})
		specs.Created(ctx, k8s, build.Claim(team, "most-begun").Pool("many-most-b").CIDR("10.33.17.3/32").Obj())
		Expect(handedOut(ctx, "many-most", 8)).To(Equal([]string{
			"10.33.17.0/32", "10.33.17.1/32", "10.33.17.2/32", // b is begun, and filled up
			"10.33.16.0/32", "10.33.16.1/32", "10.33.16.2/32", "10.33.16.3/32", // then a, being first by name
			"10.33.18.0/32",
		}))
	})

	It("adds up its pools", func(ctx context.Context) {
		class := build.Class("many-least").Obj()
		Eventually(func() *v1alpha1.Capacity { return specs.Stored(ctx, k8s, class).Status.Capacity }).Should(HaveValue(Equal(
			v1alpha1.Capacity{Total: "16", Allocated: "9", Available: "7", Withheld: "0", OutOfRange: "0"})))
		Expect(class.Status.Pools).To(Equal(int32(3)))
		Expect(reasons(class.Status.Conditions)).To(Equal(map[string]string{"Ready": "True/Ready"}))
	})
})
