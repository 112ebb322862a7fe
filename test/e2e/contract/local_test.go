package contract

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

var _ = Describe("A LocalIPPool", Ordered, func() {
	var team string

	BeforeAll(func(ctx context.Context) {
		team = specs.Namespace(ctx, k8s, "local")
		specs.Pool(ctx, k8s, build.Pool("lab").CIDR("10.40.0.0/24").Network(24, "10.40.0.1").In(team))
	})
	asking := func(in, name, pool string) *build.AddressClaimBuilder {
		return build.AddressClaim(in, name).From(v1alpha1.GroupVersion.Group, "LocalIPPool", pool)
	}

	It("serves claims of its namespace by reference", func(ctx context.Context) {
		address := served(ctx, specs.Created(ctx, k8s, asking(team, "by-reference", "lab").Obj()))
		Expect(address.Spec.Address).To(Equal("10.40.0.2"))
		Expect(address.Spec.Gateway).To(Equal("10.40.0.1"))
		Expect(address.OwnerReferences).To(ContainElement(And(HaveField("Kind", "LocalIPPool"), HaveField("Name", "lab"))))
		Expect(address.Labels).To(HaveKeyWithValue(v1alpha1.LabelPoolKind, "LocalIPPool"))
	})

	It("serves no claim of another", func(ctx context.Context) {
		claim := specs.Created(ctx, k8s, asking(specs.Namespace(ctx, k8s, "local-other"), "stranger", "lab").Obj())
		Eventually(reason(ctx, claim)).Should(Equal("False/PoolNotFound"))
	})

	It("comes before the platform's by class", func(ctx context.Context) {
		specs.Created(ctx, k8s, build.Class("local").LocalPools().Obj())
		specs.Pool(ctx, k8s, build.Pool("local-platform").CIDR("10.41.0.0/24").Classes("local").Obj())
		specs.Pool(ctx, k8s, build.Pool("zz-own").CIDR("10.42.0.0/32").Classes("local").In(team))
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "class-a").Class("local").Obj())).Spec.Address).To(Equal("10.42.0.0"))
		Expect(served(ctx, specs.Created(ctx, k8s, build.AddressClaim(team, "class-b").Class("local").Obj())).Spec.Address).To(Equal("10.41.0.0"))
	})

	It("of a Cluster hands out nothing while that is missing or paused, but records addresses in use", func(ctx context.Context) {
		pool := build.Pool("moving").CIDR("10.43.0.0/24").In(team)
		pool.Labels = map[string]string{v1alpha1.LabelCluster: "moving"}
		specs.Created(ctx, k8s, pool)
		waits := specs.Created(ctx, k8s, asking(team, "waits", "moving").Obj())
		Eventually(reason(ctx, waits)).Should(Equal("False/PoolNotReady"))
		ours := build.Claim(team, "ours").Obj()
		ours.Spec.PoolRef = &v1alpha1.PoolReference{Kind: v1alpha1.PoolKindLocalIPPool, Name: "moving"}
		ours.Spec.PrefixLength = new(int32(32))
		Expect(specs.Created(ctx, k8s, ours).Spec.CIDR).To(BeEmpty())

		cluster := capiCluster(ctx, team, "moving", true)
		passed(ctx, team, "after-moving", "local-platform")
		Expect(reason(ctx, waits)()).To(Equal("False/PoolNotReady"))
		moved := asking(team, "moved", "moving").Cluster("moving").Obj()
		specs.Created(ctx, k8s, addressFor(moved, "10.43.0.0", 24))
		specs.Created(ctx, k8s, moved)
		Expect(recordsOf(ctx, "moving", "moved")).To(HaveLen(1))

		specs.Edited(ctx, k8s, cluster, func(c *clusterv1.Cluster) { c.Spec.Paused = nil })
		Expect(served(ctx, moved).Spec.Address).To(Equal("10.43.0.0"))
		Expect(served(ctx, waits).Spec.Address).NotTo(Equal("10.43.0.0"))
		Eventually(func() string { return specs.Stored(ctx, k8s, ours).Spec.CIDR }).ShouldNot(BeEmpty())
	})

	It("goes with its namespace, with all claims and addresses", func(ctx context.Context) {
		doomed := specs.Namespace(ctx, k8s, "local-doomed")
		specs.Pool(ctx, k8s, build.Pool("lab").CIDR("10.44.0.0/24").In(doomed))
		var claims []*ipamv1.IPAddressClaim
		for _, name := range []string{"a", "b"} {
			claims = append(claims, specs.Created(ctx, k8s, asking(doomed, name, "lab").Obj()))
		}
		for _, claim := range claims {
			served(ctx, claim)
		}
		ns := build.Namespace(doomed)
		Expect(k8s.Delete(ctx, ns)).To(Succeed())
		Eventually(specs.IsGone(ctx, k8s, ns)).WithTimeout(time.Minute).Should(BeTrue())
	})
})
