package operator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	ipamv1 "sigs.k8s.io/cluster-api/api/ipam/v1beta2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/allocator"
	"github.com/cadastre-dev/cadastre/internal/authorize"
	"github.com/cadastre-dev/cadastre/internal/controller"
	"github.com/cadastre-dev/cadastre/internal/convert"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/inventory"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
	"github.com/cadastre-dev/cadastre/internal/ledger"
	"github.com/cadastre-dev/cadastre/internal/manifests"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/queue"
	"github.com/cadastre-dev/cadastre/internal/version"
	"github.com/cadastre-dev/cadastre/webhooks"
)

// The right to create a lease cannot be limited to a name.
//
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=cadastre-system,resources=leases,verbs=create
// +kubebuilder:rbac:groups=coordination.k8s.io,namespace=cadastre-system,resources=leases,resourceNames=cadastre.ipam.cadastre.dev,verbs=get;update
// +kubebuilder:rbac:groups="",resources=namespaces,verbs=get;list;watch
// +kubebuilder:rbac:groups=authentication.k8s.io,resources=tokenreviews,verbs=create
// +kubebuilder:rbac:groups=authorization.k8s.io,resources=subjectaccessreviews,verbs=create

// silence is the time for which an acknowledged record can stay unseen before the ledger takes
// the watch for dead.
const silence = 2 * time.Second

// Run runs the operator until ctx is done, with options that are valid. It makes each part with all that the part needs; only
// then it registers all parts with the manager, and starts them.
func Run(ctx context.Context, cfg *rest.Config, o Options) error {
	if o.Log.GetSink() == nil {
		o.Log = ctrl.Log
	}
	cfg = connectionConfig(cfg)
	tracer, stopTracing, err := startTracing(ctx, cfg, o)
	if err != nil {
		return err
	}
	defer stopTracing()
	conn, err := connect(cfg)
	if err != nil {
		return err
	}
	rollbacks := newRollbacks(conn.scheme, o.Log.WithName("informers"))
	view := ledger.New(ledger.Options{
		Clock: clock.RealClock{}, Silence: silence, WentBack: rollbacks.spread,
		Random: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), Log: o.Log.WithName("ledger"),
	})
	rollbacks.include(view)
	informers, err := newRecordsFirst(cfg, conn, view.Synced, rollbacks)
	if err != nil {
		return err
	}
	guard, err := newGuard(conn.client, o, tracer, rollbacks)
	if err != nil {
		return err
	}
	managed, err := managerOptions(cfg, o, conn, informers, guard)
	if err != nil {
		return err
	}
	mgr, err := ctrl.NewManager(cfg, managed)
	if err != nil {
		return err
	}
	op, err := newOperator(ctx, o, view, conn.client, tracer)
	if err != nil {
		return err
	}
	op.manager, op.guard, op.records = mgr, guard, informers.records
	if o.InClusterPools {
		op.provider = newProvider(conn.client, o.InClusterNamespace, clock.RealClock{}, op.catalog.NotifyInCluster, o.Log.WithName("in-cluster-provider"))
	}
	defer runUntilStopped(op.history.Run)()
	defer op.allocator.Close()
	policies, err := newPolicyWatch(cfg, conn.http, manifests.Account{Namespace: o.Namespace, Name: o.ServiceAccount}, rollbacks)
	if err != nil {
		return err
	}
	op.measures = newMeasures(op, policies, rollbacks)
	op.measures.provider = op.provider
	op.measures.notAfter, op.measures.replacements = guard.certificate.NotAfter, guard.paths.Replacements
	if err := op.register(ctx); err != nil {
		return err
	}
	return op.run(ctx)
}

// connectionConfig returns the configuration of the operator's connections.
func connectionConfig(cfg *rest.Config) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.UserAgent = "cadastre-controller-manager/" + version.Own() // managed fields and audit logs show it
	cfg.QPS = -1                                                   // the API server's priority and fairness is the throttle
	cfg.Wrap(kubeutil.CountingWrites)
	return cfg
}

// newOperator makes the parts that decide about blocks, all of one ledger.
func newOperator(ctx context.Context, o Options, view *ledger.Ledger, c client.Client, tracer trace.Tracer) (*operator, error) {
	sinks, err := o.sinks(ctx)
	if err != nil {
		return nil, err
	}
	op := &operator{options: o, ledger: view, metrics: metrics.New(clock.RealClock{}), tracer: tracer}
	log := o.Log.WithName("allocator")
	op.history = history.New(history.Options{
		Sinks: sinks, Replica: podName(), Clock: clock.RealClock{}, Lost: op.metrics.HistoryLost, Log: log.WithName("history"),
	})
	catalog := inventory.Options{
		Namespace: o.Namespace, PlatformProject: o.PlatformProject, DefaultFamily: ipam.Family(o.DefaultIPFamily), InCluster: o.InClusterPools, Clock: clock.RealClock{},
	}
	waiting := queue.Options{Limit: o.WaitingLimit, WatchNamespace: o.WatchNamespace}
	op.allocator = allocator.New(view, catalog, waiting, allocator.Options{
		Client: c, UnclaimedLimit: o.UnclaimedLimit, PoolRanges: o.isEnabled(PoolRanges), Metrics: op.metrics, History: op.history, Tracer: tracer, Log: log,
	})
	op.catalog, op.queue = op.allocator.Catalog, op.allocator.Queue
	return op, nil
}

// apiConnection holds the clients of the API server, and their scheme.
type apiConnection struct {
	scheme *runtime.Scheme
	http   *http.Client
	// client reads and writes without a cache.
	client client.Client
}

func connect(cfg *rest.Config) (apiConnection, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(
		clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme),
		clusterv1.AddToScheme(scheme), ipamv1.AddToScheme(scheme), incluster.AddToScheme(scheme)); err != nil {
		return apiConnection{}, err
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return apiConnection{}, err
	}
	direct, err := client.New(cfg, client.Options{Scheme: scheme, HTTPClient: httpClient})
	return apiConnection{scheme: scheme, http: httpClient, client: direct}, err
}

// operator holds the parts of one replica.
type operator struct {
	ledger    *ledger.Ledger
	catalog   *inventory.Catalog
	queue     *queue.Queue
	allocator *allocator.Allocator
	metrics   *metrics.Instruments
	history   *history.Recorder
	tracer    trace.Tracer

	options  Options
	manager  ctrl.Manager
	guard    guard
	measures *measures
	// records feeds the ledger.
	records toolscache.ListerWatcher
	// provider watches the in-cluster provider; nil if its pools are not served.
	provider *provider
}

// register registers all parts with the manager.
func (op *operator) register(ctx context.Context) error {
	mgr, o := op.manager, op.options
	if err := op.guard.setup(mgr, op.metrics); err != nil {
		return err
	}
	if err := op.allocator.Feed(ctx, mgr.GetCache()); err != nil {
		return err
	}
	rights, targets := authorize.NewRights(mgr.GetClient()), convert.Targets{InCluster: o.InClusterPools}
	webhooks.Setup(mgr, webhooks.Options{
		Ledger: op.ledger, Catalog: op.catalog, Queue: op.queue, Allocator: op.allocator, Metrics: op.metrics, History: op.history, Tracer: op.tracer,
		Live: mgr.GetAPIReader(), Client: mgr.GetClient(), Operator: o.User(), Rights: rights, InCluster: o.InClusterPools,
	})
	err := controller.Setup(mgr, controller.Options{
		Ledger: op.ledger, Catalog: op.catalog, Queue: op.queue, Allocator: op.allocator, Metrics: op.metrics, History: op.history, Tracer: op.tracer,
		Live: mgr.GetAPIReader(), Asker: authorize.NewAsker(rights, mgr.GetClient(), clock.RealClock{}),
		OrphanGrace: o.OrphanGrace, Workers: o.Workers, Namespace: o.Namespace, WatchNamespace: o.WatchNamespace, WatchFilter: o.WatchFilter,
		AddressClaims: op.measures.claims.Handler(keyOfAddressClaim(targets)), Targets: targets, IsProviderRunning: op.isProviderRunning,
	})
	if err != nil {
		return fmt.Errorf("setting up controllers: %w", err)
	}
	return op.addChecks()
}

// isProviderRunning reports whether the in-cluster provider serves its pools.
func (op *operator) isProviderRunning() bool { return op.provider != nil && op.provider.isRunning() }

// run runs all parts until ctx is done. The manager stops its controllers before its webhooks,
// which still answer the requests under way. They need the ledger for that, so run stops the
// ledger after the manager.
func (op *operator) run(ctx context.Context) error {
	registry := op.options.Metrics
	if registry == nil {
		registry = ctrlmetrics.Registry
	}
	unregister, err := op.measures.register(registry)
	if err != nil {
		return err
	}
	defer unregister()
	defer runUntilStopped(func(ctx context.Context) { op.ledger.Run(ctx, op.records, &v1alpha1.IPAllocation{}) })()
	defer runUntilStopped(op.queue.Run)()
	defer runUntilStopped(op.feedClaims)()
	defer runUntilStopped(op.notifyReady)()
	defer runUntilStopped(op.measures.policies.run)()
	if op.provider != nil {
		op.provider.look(ctx) // before a pool is reconciled, whose condition would change twice
		defer runUntilStopped(op.provider.run)()
	}
	defer runUntilStopped(func(ctx context.Context) { op.measures.countClaims(ctx, op.manager.GetCache()) })()
	return op.manager.Start(ctx)
}

func (op *operator) feedClaims(ctx context.Context) {
	op.allocator.FeedClaims(ctx, op.manager.GetAPIReader(), op.manager.GetCache())
	if ctx.Err() != nil {
		return
	}
	op.manager.GetLogger().Info("All allocations and claims have been seen", "pools", len(op.catalog.Pools()), "waiting", op.queue.Len())
	debug.FreeOSMemory() // the lists took this memory, and need it no longer
}

// runUntilStopped runs f in the background. It returns a function that stops f and waits for its
// end.
func runUntilStopped(f func(context.Context)) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { f(ctx) })
	return func() {
		cancel()
		wg.Wait()
	}
}

// readyPollInterval is the interval at which the checks are repeated until all pass.
const readyPollInterval = 20 * time.Millisecond

// checks returns the checks of readyz, which pass when the operator can hand out blocks.
func (op *operator) checks() map[string]healthz.Checker {
	return map[string]healthz.Checker{
		"certificate": op.guard.certificate.Check,
		"paths":       op.guard.paths.Check,
		"register":    func(*http.Request) error { return op.queue.Synced() },
		"webhooks":    op.manager.GetWebhookServer().StartedChecker(),
	}
}

// addChecks registers the checks of healthz and readyz.
func (op *operator) addChecks() error {
	errs := []error{op.manager.AddHealthzCheck("ping", healthz.Ping)}
	for name, check := range op.checks() {
		errs = append(errs, op.manager.AddReadyzCheck(name, check))
	}
	return errors.Join(errs...)
}

// notifyReady calls Options.Ready when all checks have passed in one pass.
func (op *operator) notifyReady(ctx context.Context) {
	if op.options.Ready == nil {
		return
	}
	failing := func(check healthz.Checker) bool { return check(nil) != nil } // none of them reads the request
	checks := slices.Collect(maps.Values(op.checks()))
	err := wait.PollUntilContextCancel(ctx, readyPollInterval, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(checks, failing), nil
	})
	if err == nil {
		op.options.Ready()
	}
}

// leaseName is the name of the Lease in the operator's namespace.
const leaseName = "cadastre.ipam.cadastre.dev"

// electLeader sets the manager to elect the leader among the replicas by a Lease. Without
// LeaderElect every replica is a leader.
//
// The lease is short, for a quick failover, and a leader does not lose it while the API server
// does not answer. At most one leader saves writes; no promise depends on it
// (docs/reliability.md).
func electLeader(mgr *ctrl.Options, cfg *rest.Config, o Options) error {
	if !o.LeaderElect {
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	duration, renew, retry := o.lease()
	lockConfig := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lease, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, o.Namespace, leaseName, lockConfig, cfg, renew)
	if err != nil {
		return err
	}
	label(lease, version.Own())
	mgr.LeaderElection, mgr.LeaderElectionID, mgr.LeaderElectionReleaseOnCancel = true, leaseName, true
	mgr.LeaderElectionResourceLockInterface = kubeutil.NewPatientLease(lease, o.Log.WithName("lease"))
	mgr.LeaseDuration, mgr.RenewDeadline, mgr.RetryPeriod = &duration, &renew, &retry
	return nil
}

// label sets the leader's version as a label of its lease, for `kubectl ipam version`. It leaves
// out a version that is not a valid label value: the lease is more important.
func label(lease resourcelock.Interface, version string) {
	value := strings.NewReplacer("+", "_", "(", "", ")", "").Replace(version)
	if lease, ok := lease.(*resourcelock.LeaseLock); ok && len(validation.IsValidLabelValue(value)) == 0 {
		lease.Labels = map[string]string{versionLabel: value}
	}
}

// versionLabel is one of Kubernetes' recommended labels.
const versionLabel = "app.kubernetes.io/version"
