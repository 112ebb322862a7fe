package replicas

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/cluster-api/util/flags"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/operator"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// delayed represents a connection to the API server on which the watch of claims is late.
type delayed struct {
	http.RoundTripper
	delay time.Duration
}

// RoundTrip implements http.RoundTripper.
func (d delayed) RoundTrip(req *http.Request) (*http.Response, error) {
	response, err := d.RoundTripper.RoundTrip(req)
	if err == nil && strings.HasSuffix(req.URL.Path, "/ipclaims") && req.URL.Query().Get("watch") != "" {
		response.Body = &lateBody{ReadCloser: response.Body, delay: d.delay}
	}
	return response, err
}

type lateBody struct {
	io.ReadCloser
	delay time.Duration
}

// Read implements io.Reader.
func (b *lateBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	time.Sleep(b.delay) //nolint:forbidigo // this represents a slow network; no test waits by it
	return n, err
}

var _ = Describe("a claim of one name is created, deleted and created again by 8 clients, at one replica that sees claims late", Ordered, func() {
	const clients = 8
	rounds := suite.Sized(60, 25)
	var w *world

	BeforeAll(func(ctx context.Context) {
		port := freePort()
		w = start(cluster.Options{Managers: 1, Webhooks: []string{fmt.Sprintf("127.0.0.1:%d", port)}})
		startDelayed(ctx, w, port)
		w.Namespace("delay")
		w.Pools(build.Pool("delay").CIDR("10.0.0.0/16").Obj())
	})

	It("never has a claim without its record, nor frees a record under a claim", func(ctx context.Context) {
		watched := make(chan struct{})
		violations := make(chan string, 1000)
		var watching sync.WaitGroup
		watching.Go(func() { w.watchForClaimsWithoutRecord(ctx, watched, violations) })
		var looping sync.WaitGroup
		for n := range clients {
			looping.Go(func() {
				as := w.Client(w.Config())
				random := rand.New(rand.NewPCG(1, uint64(n)))
				for range rounds {
					claim := build.Claim("delay", fmt.Sprintf("same-%d", random.IntN(2))).Pool("delay").Length(32).Obj()
					if as.Create(ctx, claim) == nil && claim.Spec.CIDR == "" {
						violations <- "created without a block: " + claim.Name
					}
					_ = client.IgnoreNotFound(as.Delete(ctx, claim))
				}
			})
		}
		looping.Wait()
		close(watched)
		watching.Wait()
		close(violations)
		for v := range violations {
			Fail(v)
		}
		final := build.Claim("delay", "final").Pool("delay").Length(32).Obj()
		Expect(w.Create(ctx, final)).To(Succeed())
		Eventually(func() int { return len(w.records(ctx, "delay")) }).Should(Equal(len(w.claims(ctx, "delay"))))
		expectHeld(w.claims(ctx, "delay"), w.records(ctx, "delay"))
	})
})

// watchForClaimsWithoutRecord polls for a claim that exists before and after its record was looked
// for in vain.
func (w *world) watchForClaimsWithoutRecord(ctx context.Context, over <-chan struct{}, violations chan<- string) {
	for {
		select {
		case <-over:
			return
		default:
		}
		for _, claim := range w.claims(ctx, "delay") {
			record := &v1alpha1.IPAllocation{}
			key := client.ObjectKey{Namespace: claim.Namespace, Name: claim.Spec.AllocationName}
			if w.Get(ctx, key, record) == nil {
				continue
			}
			again := &v1alpha1.IPClaim{}
			if w.Get(ctx, client.ObjectKeyFromObject(&claim), again) == nil && again.UID == claim.UID {
				violations <- fmt.Sprintf("claim %s (%s) without its record %s", claim.Name, claim.Spec.CIDR, claim.Spec.AllocationName)
			}
		}
	}
}

// startDelayed runs a replica in this process, behind the balancer, whose watch
// of claims is late.
func startDelayed(ctx context.Context, w *world, port int) {
	GinkgoHelper()
	cfg, err := w.OperatorConfig(ctx)
	Expect(err).NotTo(HaveOccurred())
	cfg.Wrap(func(rt http.RoundTripper) http.RoundTripper { return delayed{rt, 400 * time.Millisecond} })
	running, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- operator.Run(running, cfg, operator.Options{
			Namespace: cluster.Namespace, ServiceAccount: cluster.ServiceAccount,
			Manager: flags.ManagerOptions{DiagnosticsAddress: "0"}, ProbeAddress: "0", WebhookHost: "127.0.0.1", WebhookPort: port,
			WebhookService: "cadastre-webhook-service", CertSource: "self-signed",
			LeaseDuration: 4 * time.Second, OrphanGrace: orphanGrace, UnclaimedLimit: 1000, Workers: 4,
			SkipNameValidation: true,
		})
	}()
	DeferCleanup(func() {
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})
	Eventually(func() error {
		c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			err = c.Close()
		}
		return err
	}).Should(Succeed())
}

func freePort() int {
	GinkgoHelper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(l.Close()).To(Succeed()) }()
	return l.Addr().(*net.TCPAddr).Port
}

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
