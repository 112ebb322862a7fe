package provisioner

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// Options holds the settings of Run.
type Options struct {
	// Name is the value of spec.provisioner of the classes to serve, such as ipam.example.com/ranges: a
	// domain, a slash and a name without dots, in lower case, of at most 63 characters.
	Name string
	// Namespace of the ConfigMap with the keys, and of the lease: one for all processes of the name.
	Namespace string
	// Timeout bounds each call of the Provisioner. A range is returned once more after this time, in case a
	// call of Provision that was given up had its effect late. Default: 30s.
	Timeout time.Duration
	// Resync is the time after which Provision is called again for the range of a pool, which also happens at
	// start. Default: 10m.
	Resync time.Duration
	// Workers is the number of classes that are served at a time: a call that is not answered blocks one
	// of them. Default: 8.
	Workers int
	// MetricsBindAddress and HealthProbeBindAddress serve /metrics, and /healthz and /readyz, such as :8080. Empty: none.
	MetricsBindAddress, HealthProbeBindAddress string
	// Log receives the log of the manager. Default: the logger of controller-runtime, see ctrl.SetLogger.
	Log logr.Logger
}

// identity returns the name as a label's value and as the name of an object.
func (o Options) identity() string { return strings.ReplaceAll(o.Name, "/", ".") }

func (o Options) withDefaults() (Options, error) {
	domain, name, _ := strings.Cut(o.Name, "/")
	if problems := append(validation.IsDNS1123Subdomain(domain), validation.IsDNS1123Label(name)...); len(problems) > 0 || len(o.Name) > validation.LabelValueMaxLength || o.Name == v1alpha1.NativeProvisioner {
		return o, fmt.Errorf("the name %q of the provisioner is not valid: choose one such as ipam.example.com/ranges, of at most %d characters", o.Name, validation.LabelValueMaxLength)
	}
	if o.Namespace == "" {
		return o, fmt.Errorf("no namespace is set: set the one in which the provisioner runs")
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Resync <= 0 {
		o.Resync = 10 * time.Minute
	}
	if o.Workers <= 0 {
		o.Workers = 8
	}
	return o, nil
}

// Run makes and removes the pools of the classes of a provisioner until ctx is done, while it has the
// lease. It returns an error if the options are invalid, the API server does not answer, or the lease is
// lost.
func Run(ctx context.Context, cfg *rest.Config, p Provisioner, o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		return err
	}
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return err
	}
	mgr, err := manager.New(cfg, manager.Options{
		Scheme: scheme, Logger: o.Log,
		LeaderElection: true, LeaderElectionID: "provisioner-" + o.identity(), LeaderElectionNamespace: o.Namespace, LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: orNone(o.MetricsBindAddress)}, HealthProbeBindAddress: orNone(o.HealthProbeBindAddress),
		Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{
			&v1alpha1.IPPool{}: {Label: labels.SelectorFromSet(labels.Set{LabelProvisioner: o.identity()})},
		}},
	})
	if err != nil {
		return err
	}
	system := &corev1.Namespace{}
	if err := mgr.GetAPIReader().Get(ctx, client.ObjectKey{Name: "kube-system"}, system); err != nil {
		return fmt.Errorf("reading the UID of the cluster: %w", err)
	}
	c := newController(p, o, mgr.GetClient(), mgr.GetAPIReader(), clock.RealClock{})
	c.cluster, c.events, c.metrics = string(system.UID), mgr.GetEventRecorder("provisioner"), newInstruments(o.Name, metrics.Registry)
	if err := c.setup(mgr); err != nil {
		return err
	}
	for name, add := range map[string]func(string, healthz.Checker) error{"healthz": mgr.AddHealthzCheck, "readyz": mgr.AddReadyzCheck} {
		if err := add(name, healthz.Ping); err != nil {
			return err
		}
	}
	return mgr.Start(ctx)
}

// orNone returns an address, or the one by which controller-runtime serves nothing.
func orNone(address string) string {
	if address == "" {
		return "0"
	}
	return address
}

func newController(p Provisioner, o Options, c client.Client, live client.Reader, clock clock.PassiveClock) *controller {
	return &controller{
		provisioner: p, options: o, client: c, live: live, clock: clock,
		keys:     &keys{client: c, live: live, name: client.ObjectKey{Namespace: o.Namespace, Name: "provisioner-" + o.identity()}},
		openedAt: map[string]time.Time{}, emptySince: map[string]time.Time{}, ensuredAt: map[string]time.Time{}, releasedAt: map[string]time.Time{},
		attempts: map[string]attempt{},
	}
}

// setup registers the controller. A class is reconciled when it or a pool of it changes, and once at
// start if it has keys.
func (c *controller) setup(mgr manager.Manager) error {
	ofClass := func(class string) reconcile.Request {
		return reconcile.Request{NamespacedName: client.ObjectKey{Name: class}}
	}
	skip := true // names of controllers are unique in a process, which may run several provisioners
	return builder.ControllerManagedBy(mgr).
		Named("provisioner").
		For(&v1alpha1.IPClass{}).
		Watches(&v1alpha1.IPPool{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, obj client.Object) []reconcile.Request {
			var requests []reconcile.Request
			for _, class := range obj.(*v1alpha1.IPPool).Spec.ClassNames {
				requests = append(requests, ofClass(class))
			}
			return requests
		})).
		WatchesRawSource(source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			entries, err := c.keys.list(ctx)
			for _, e := range entries {
				q.Add(ofClass(e.Class))
			}
			return err
		})).
		WithOptions(ctrlcontroller.Options{
			MaxConcurrentReconciles: c.options.Workers, SkipNameValidation: &skip,
			// A class is tried each second at least, so that it follows when the API server accepts its writes again.
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](5*time.Millisecond, firstRetry),
		}).
		Complete(c)
}

// instruments counts the calls and the ranges.
type instruments struct {
	calls  *prometheus.CounterVec
	ranges *prometheus.GaugeVec
}

// newInstruments registers the metrics of one provisioner. Those of an earlier one of the process are kept.
func newInstruments(name string, registry prometheus.Registerer) *instruments {
	constant := prometheus.Labels{"provisioner": name}
	return &instruments{
		calls: register(registry, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "cadastre_provisioner_calls_total", Help: "Calls of the provisioner, by class, method and result.", ConstLabels: constant,
		}, []string{"class", "method", "result"})),
		ranges: register(registry, prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "cadastre_provisioner_ranges", Help: "Ranges of the provisioner, by class and state.", ConstLabels: constant,
		}, []string{"class", "state"})),
	}
}

// register registers a collector, or returns the registered one that is equal.
func register[T prometheus.Collector](registry prometheus.Registerer, c T) T {
	already, _ := errors.AsType[prometheus.AlreadyRegisteredError](registry.Register(c))
	if registered, ok := already.ExistingCollector.(T); ok {
		return registered
	}
	return c
}

func (i *instruments) count(class, method string, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	i.calls.WithLabelValues(class, method, result).Inc()
}

func (i *instruments) observe(class string, entries map[string]entry) {
	counts := map[state]int{provisioning: 0, ready: 0, releasing: 0}
	for _, e := range entries {
		counts[e.State]++
	}
	for s, n := range counts {
		i.ranges.WithLabelValues(class, string(s)).Set(float64(n))
	}
}
