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
	"github.com/cadastre-dev/cadastre/test/build"
	"github.com/cadastre-dev/cadastre/test/cluster"
)

// tryingOnce is a client that does not try again by itself what is answered with 429.
func tryingOnce(cfg *rest.Config) rest.Interface {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
	cfg.GroupVersion, cfg.APIPath = &v1alpha1.GroupVersion, "/apis"
	cfg.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	return c
}

var _ = Describe("what the webhook reads does not come in time", Ordered, func() {
	var w *world

	BeforeAll(func(ctx context.Context) {
		w = start(ctx, cluster.Options{Managers: 1, Proxied: true})
		w.namespace(ctx, "late")
	})

	It("the user is told to try again, before the API server gives up the webhook", func(ctx context.Context) {
		once := tryingOnce(w.Config())
		create := func() error {
			claim := build.Claim("late", "x").Selecting("no", "such-pool").Length(32).Obj()
			return once.Post().Namespace("late").Resource("ipclaims").Body(claim).MaxRetries(0).Do(ctx).Error()
		}
		api := w.Managers[0].API
		DeferCleanup(api.HoldLists, "", time.Duration(0))
		api.HoldLists("ippools", time.Hour)
		err := create()
		Expect(apierrors.IsTooManyRequests(err)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("try again")))
		api.HoldLists("", 0)
		Eventually(create).Should(Succeed())
	})
})
