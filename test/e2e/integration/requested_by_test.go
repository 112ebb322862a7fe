package integration

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/framework/specs"
)

// impersonating returns a client that the administrator uses in the name of a user, with all
// rights.
func impersonating(user string) client.Client {
	cfg := running.Config()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return running.Client(cfg)
}

// This topic has 10.126.0.0/16.
var _ = Describe("requested-by", Ordered, ContinueOnFailure, func() {
	const team = "requested-by"
	requester := func(ctx context.Context, claim *v1alpha1.IPClaim) string {
		GinkgoHelper()
		record := &v1alpha1.IPAllocation{}
		Expect(k8s.Get(ctx, client.ObjectKey{Namespace: team, Name: claim.Spec.AllocationName}, record)).To(Succeed())
		return record.Spec.RequestedBy
	}

	BeforeAll(func(ctx context.Context) {
		specs.Namespace(ctx, k8s, team)
		specs.Pool(ctx, k8s, build.Pool("requested-by").CIDR("10.126.0.0/24").Obj())
	})

	It("serves a user with a name of more than 1,024 characters, and records the first 1,024", func(ctx context.Context) {
		for _, letter := range []string{"x", "ü"} {
			claim := build.Claim(team, unused()).Pool("requested-by").Length(32).Obj()
			Expect(impersonating(strings.Repeat(letter, 1500)).Create(ctx, claim)).To(Succeed())
			Expect(requester(ctx, claim)).To(Equal(strings.Repeat(letter, 1024)))
		}
	})

	It("is recorded for a claim that waited, and cannot be forged until then", func(ctx context.Context) {
		claim := build.Claim(team, "waits").Class("requested-by").Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "another user"}
		Expect(impersonating("judy").Create(ctx, claim)).To(Succeed())
		Expect(claim.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationRequestedBy, "judy"))
		forged := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"ipam.cadastre.dev/requested-by":"another user"}}}`))
		Expect(k8s.Patch(ctx, claim.DeepCopy(), forged)).To(MatchError(ContainSubstring("ipam.cadastre.dev/requested-by is written by the operator alone")))

		specs.Created(ctx, k8s, build.Class("requested-by").Length(32).Obj())
		specs.Pool(ctx, k8s, build.Pool("requested-by-late").CIDR("10.126.1.0/24").Classes("requested-by").Obj())
		expectBound(ctx, specs.Stored(ctx, k8s, claim), "10.126.1.0/32")
		Expect(requester(ctx, claim)).To(Equal("judy"))
	})

	It("is not left in a claim that is bound at once", func(ctx context.Context) {
		claim := build.Claim(team, "at-once").Pool("requested-by").Length(32).Obj()
		claim.Annotations = map[string]string{v1alpha1.AnnotationRequestedBy: "another user"}
		specs.Created(ctx, k8s, claim)
		Expect(claim.Annotations).NotTo(HaveKey(v1alpha1.AnnotationRequestedBy))
		Expect(requester(ctx, claim)).To(Equal("admin"))
	})
})
