package operator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	"sigs.k8s.io/cluster-api/util/flags"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/controller"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/requester"
	"github.com/cadastre-dev/cadastre/webhooks"
)

// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=cadastre-system,resources=leases,verbs=get;create;update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// silence is how long an acknowledged record may not be seen before the watch
// is taken for dead.
const silence = 2 * time.Second

// reconcileWithin bounds one pass of a controller: the API server gives up a
// request after as long.
const reconcileWithin = time.Minute

// syncWithin bounds the wait of a controller for what it watches. With a hundred
// thousand claims the two minutes of the library can be too short.
const syncWithin = 10 * time.Minute

// Run runs the operator until ctx is done.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if err := o.validate(); err != nil {
		return err
	}
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // the API server's priority and fairness is the throttle
	first := &recordsFirst{}
	mgr, serving, err := newManager(cfg, o, first)
	if err != nil {
		return err
	}
	certificate, paths, err := guard(mgr, o)
	if err != nil {
		return err
	}
	serving.from, serving.accepts = certificate.GetCertificate, paths.Accepts
	if err := first.connect(cfg, mgr.GetHTTPClient(), mgr.GetScheme()); err != nil {
		return err
	}
	parts, feed, err := newParts(ctx, mgr, cfg, o, first.records)
	if err != nil {
		return err
	}
	first.listed = parts.Ledger.Synced
	defer parts.Close()
	// The manager stops what it runs before its webhooks, which still answer what
	// is under way: for that they need the view.
	defer runUntilStopped(feed)()
	defer runUntilStopped(parts.Queue.Run)()
	defer runUntilStopped(func(ctx context.Context) {
		parts.Allocator.FeedClaims(ctx, mgr.GetAPIReader(), mgr.GetCache())
		if ctx.Err() == nil {
			mgr.GetLogger().Info("All allocations and claims have been seen", "pools", len(parts.Catalogue.Pools()), "waiting", parts.Queue.Len())
			debug.FreeOSMemory() // what the lists took, and is not needed again
		}
	})()
	for _, c := range collect(parts) {
		if err := metrics.Registry.Register(c); err != nil {
			return fmt.Errorf("registering metrics: %w", err)
		}
		defer metrics.Registry.Unregister(c)
	}
	if err := checks(mgr, certificate, paths, parts.Queue.Synced); err != nil {
		return err
	}
	rights := requester.NewRights(mgr.GetClient())
	ring := requester.NewRing(mgr.GetAPIReader(), mgr.GetClient(), o.Namespace, clock.RealClock{})
	if err := mgr.Add(ring); err != nil {
		return err
	}
	if err := webhooks.Setup(mgr, webhooks.Options{Parts: parts, Live: mgr.GetAPIReader(), Operator: o.User(), Rights: rights, Ring: ring}); err != nil {
		return fmt.Errorf("setting up webhooks: %w", err)
	}
	err = controller.Setup(mgr, controller.Options{
		Parts: parts, Live: mgr.GetAPIReader(), Asker: requester.NewAsker(ring, rights, mgr.GetClient(), clock.RealClock{}), OrphanGrace: o.OrphanGrace, Workers: o.Workers,
		Namespace: o.Namespace, WatchNamespace: o.WatchNamespace, WatchFilter: o.WatchFilter,
	})
	if err != nil {
		return fmt.Errorf("setting up controllers: %w", err)
	}
	return mgr.Start(ctx)
}

// The objects that the operator keeps for its webhooks.
const (
	certificateSecret = "cadastre-webhook-server-cert"
	pathSecret        = "cadastre-webhook-path"
	mutatingWebhook   = "zz-cadastre-mutating-webhook-configuration"
	validatingWebhook = "cadastre-validating-webhook-configuration"
)

// guard sets up what keeps the webhooks' certificate and the secret in their paths.
func guard(mgr ctrl.Manager, o Options) (*certs.Certs, *certs.Paths, error) {
	certificate, err := certs.Setup(mgr, certs.Options{
		Mode: certs.Mode(o.CertSource), Namespace: o.Namespace,
		SecretName: certificateSecret, ServiceName: o.WebhookService,
		MutatingWebhook: mutatingWebhook, ValidatingWebhook: validatingWebhook,
	})
	if err != nil {
		return nil, nil, err
	}
	plain, err := webhooks.Paths()
	if err != nil {
		return nil, nil, err
	}
	paths, err := certs.SetupPaths(mgr, certs.PathOptions{
		Namespace: o.Namespace, SecretName: pathSecret, Plain: plain,
		MutatingWebhook: mutatingWebhook, ValidatingWebhook: validatingWebhook,
	})
	return certificate, paths, err
}

// serving hands the webhook server what is known only once the manager exists.
type serving struct {
	from    func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	accepts func(context.Context, string) bool
}

// server makes the webhook server.
func (s *serving) server(o Options, accepts []func(*tls.Config)) (webhook.Server, error) {
	clients, err := clientAuthority(o.WebhookClientCA)
	if err != nil {
		return nil, err
	}
	get := func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) { return s.from(hello) }
	server := webhook.NewServer(webhook.Options{
		Host: o.WebhookHost, Port: o.WebhookPort,
		TLSOpts: append(accepts, clients, func(c *tls.Config) { c.GetCertificate = get }),
	})
	guarded := webhooks.Guarded(server, func(ctx context.Context, secret string) bool { return s.accepts(ctx, secret) })
	return webhooks.Graceful(guarded), nil
}

func newManager(cfg *rest.Config, o Options, first *recordsFirst) (ctrl.Manager, *serving, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(
		clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		clusterv1.AddToScheme(scheme), ipamv1.AddToScheme(scheme)); err != nil {
		return nil, nil, err
	}
	accepts, diagnostics, err := flags.GetManagerOptions(o.Manager)
	if err != nil {
		return nil, nil, err
	}
	serving := &serving{}
	server, err := serving.server(o, accepts)
	if err != nil {
		return nil, nil, err
	}
	options := ctrl.Options{
		Scheme:  scheme,
		Cache:   cache.Options{DefaultTransform: slimmer(), NewInformer: first.newInformer, SyncPeriod: syncPeriod(o)},
		Metrics: *diagnostics, HealthProbeBindAddress: o.ProbeAddress,
		WebhookServer: server,
		// The priority queue of controller-runtime v0.24 can block for good when it is
		// shut down with work left in it (kubernetes-sigs/controller-runtime#3538).
		// A call of which no answer comes must not hold up its object for good.
		Controller: config.Controller{
			SkipNameValidation: &o.SkipNameValidation, UsePriorityQueue: new(false), ReconciliationTimeout: reconcileWithin,
			CacheSyncTimeout: syncWithin,
		},
	}
	if err := electLeader(&options, cfg, o); err != nil {
		return nil, nil, fmt.Errorf("setting up leader election: %w", err)
	}
	mgr, err := ctrl.NewManager(cfg, options)
	return mgr, serving, err
}

// syncPeriod is nil for the library's own.
func syncPeriod(o Options) *time.Duration {
	if o.SyncPeriod == 0 {
		return nil
	}
	return &o.SyncPeriod
}

// newParts makes what allocation consists of, and what feeds the view, on every replica.
func newParts(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, o Options, records toolscache.ListerWatcher) (allocator.Parts, func(context.Context), error) {
	direct, err := client.New(cfg, client.Options{Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper(), HTTPClient: mgr.GetHTTPClient()})
	if err != nil {
		return allocator.Parts{}, nil, err
	}
	parts := allocator.NewParts(allocator.PartsOptions{
		Ledger: ledger.New(ledger.Options{
			Clock: clock.RealClock{}, Silence: silence,
			Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: mgr.GetLogger().WithName("ledger"),
		}),
		Client: direct, Namespace: o.Namespace, PlatformProject: o.PlatformProject, DefaultFamily: ipam.Family(o.DefaultIPFamily),
		UnclaimedLimit: o.UnclaimedLimit, WaitingLimit: o.WaitingLimit, WatchNamespace: o.WatchNamespace,
		Log: mgr.GetLogger().WithName("allocator"),
	})
	if err := parts.Allocator.Feed(ctx, mgr.GetCache()); err != nil {
		return allocator.Parts{}, nil, err
	}
	feed := func(ctx context.Context) { parts.Ledger.Run(ctx, records, &v1alpha1.IPAllocation{}) }
	return parts, feed, nil
}

// runUntilStopped runs f in the background; what it returns stops it, and waits.
func runUntilStopped(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { f(ctx) })
	return func() {
		cancel()
		running.Wait()
	}
}

// checks make readyz mean that blocks can be handed out.
func checks(mgr ctrl.Manager, certificate *certs.Certs, paths *certs.Paths, synced func() error) error {
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddReadyzCheck("certificate", certificate.Check),
		mgr.AddReadyzCheck("paths", paths.Check),
		mgr.AddReadyzCheck("register", func(*http.Request) error { return synced() }),
		mgr.AddReadyzCheck("webhooks", mgr.GetWebhookServer().StartedChecker()),
	)
}
