package replicas

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// restClient returns a client whose requests can be sent without retries.
func restClient(cfg *rest.Config) rest.Interface {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	cfg.GroupVersion, cfg.APIPath = &v1alpha1.GroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("a claim whose admission needs objects that are not read in time", Ordered, func() {
	var w *world

	BeforeAll(func() {
		w = start(cluster.Options{Managers: 1, Proxied: true})
		w.Namespace("late")
	})

	DescribeTable("is answered with 429 before the API server gives up on the webhook", func(ctx context.Context, held string, b *build.ClaimBuilder, atLeast time.Duration) {
		api, once := w.Managers[0].API, restClient(w.Config())
		create := func() error {
			return once.Post().Namespace("late").Resource("ipclaims").Body(b.Obj()).MaxRetries(0).Do(ctx).Error()
		}
		DeferCleanup(api.HoldReads, "", time.Duration(0))
		api.HoldReads(held, time.Hour)
		began := time.Now()
		err := create()
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(HaveSuffix(": the API server did not answer in time: try again")))
		Expect(time.Since(began)).To(BeNumerically(">=", atLeast), "it waited for the answer that was held back")
		api.HoldReads("", 0)
		Expect(create()).To(Succeed())
	},
		Entry("a list of pools, which has a separate bound", "ippools", build.Claim("late", "selects").Selecting("no", "such-pool").Length(32), 2*time.Second),
		Entry("a class, which the request's deadline bounds alone", "ipclasses/missing", build.Claim("late", "class").Class("missing"), 4*time.Second),
	)
})
