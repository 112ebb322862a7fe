// Package operator wires the operator: ledger, allocator, webhooks, controllers
// and certificate in one manager.
package operator

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/cli/flag"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/cadastre-dev/cadastre/internal/certs"
	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing/export"
)

// Options holds the settings of the operator. Bind describes the ones that are read from flags at
// start-up.
type Options struct {
	Namespace, ServiceAccount string

	// WatchNamespace and WatchFilter limit the claims that the controllers reconcile. In either case
	// the operator sees the blocks in use in all namespaces, and webhooks answer for all.
	WatchNamespace, WatchFilter string
	// SyncPeriod is 0 for the library's default.
	SyncPeriod time.Duration

	// Manager holds the address of the diagnostics, which are metrics and pprof, and
	// the TLS settings of the diagnostics and the webhooks.
	Manager                     flags.ManagerOptions
	ProbeAddress                string
	WebhookHost                 string
	WebhookPort                 int
	WebhookService              string
	CertSource, WebhookClientCA string

	History         HistoryOptions
	PlatformProject string

	// InClusterPools has the pools of the in-cluster provider's kinds served, unless that provider runs in
	// InClusterNamespace.
	InClusterPools     bool
	InClusterNamespace string

	LeaderElect bool
	// LeaseDuration is the duration of the lease. RenewDeadline and RetryPeriod are by
	// default three quarters and one eighth of it.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// DefaultIPFamily is IPv4 if it is empty.
	DefaultIPFamily string

	// OrphanGrace is at least safeOrphanGrace.
	OrphanGrace                  time.Duration
	UnclaimedLimit, WaitingLimit int
	Workers                      int
	// Features has the features that are turned on or off. Nil: their defaults.
	Features featuregate.FeatureGate

	// TracingEndpoint is empty if nothing is traced.
	TracingEndpoint     string
	TracingSamplingRate int

	// The following fields are for a process that does more than run one operator.

	// SkipNameValidation allows several managers in one process.
	SkipNameValidation bool
	// Metrics takes the metrics of the ledger and the queue. Nil means the registry of
	// controller-runtime, which takes them from one operator only.
	Metrics prometheus.Registerer
	// Log takes the log. Without a sink, the operator uses the log of controller-runtime.
	Log logr.Logger
	// Ready is called once, when all checks of readyz pass for the first time.
	Ready func()
}

// Bind registers the flags.
func (o *Options) Bind(fs *pflag.FlagSet) {
	fs.SetNormalizeFunc(normalize)
	fs.StringVar(&o.Namespace, "operator-namespace", cmp.Or(os.Getenv("POD_NAMESPACE"), "cadastre-system"), "Namespace of the operator: of its Secret, its lease, and the IPAllocations of pools. Default: $POD_NAMESPACE, else cadastre-system.")
	fs.StringVar(&o.ServiceAccount, "service-account", cmp.Or(os.Getenv("POD_SERVICE_ACCOUNT"), "cadastre-controller-manager"), "Service account under which the operator runs. Default: $POD_SERVICE_ACCOUNT, else cadastre-controller-manager.")
	fs.StringVar(&o.PlatformProject, "platform-project", "", "Project whose namespaces may use pools and classes of visibility Platform. Default: none may.")
	fs.StringVar(&o.DefaultIPFamily, "default-ip-family", string(ipam.IPv4), "Address family of claims that name no class, no pool and no family: IPv4 or IPv6. They are served by the default class of that family and by no other.")
	fs.DurationVar(&o.OrphanGrace, "orphan-grace", 180*time.Second, "How long an IPAllocation may be without a holder before it is released, where the holder's deletion was not seen. At least 65s.")
	fs.IntVar(&o.UnclaimedLimit, "unclaimed-limit", 1000, "How many IPAllocations of a namespace, and of a project, may be unclaimed, by an IPClaim or a LocalIPPool; beyond it creates are answered with 429.")
	fs.IntVar(&o.WaitingLimit, "waiting-limit", 1000, "How many claims of a namespace may wait for a block; beyond it creates that would wait are answered with 429. 0: any number.")
	fs.IntVar(&o.Workers, "workers", 8, "How many claims are reconciled at a time.")

	features := newFeatures()
	features.AddFlag(fs)
	o.Features = features

	fs.BoolVar(&o.InClusterPools, "in-cluster-pools", false, "Serve the InClusterIPPools and GlobalInClusterIPPools of Cluster API's in-cluster provider in its place. Needs --feature-gates=PoolRanges=true, and the CRDs.")
	fs.StringVar(&o.InClusterNamespace, "in-cluster-provider-namespace", incluster.DefaultNamespace, "Namespace of the in-cluster provider. While its lease there is renewed, --in-cluster-pools hands out no new addresses.")

	// Cluster API's providers have these in common.
	fs.StringVar(&o.WatchNamespace, "namespace", "", "Namespace whose claims the controllers reconcile. Webhooks answer for all namespaces, and a block is in use regardless of its holder's namespace. Default: all.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "", "Value of the label cluster.x-k8s.io/watch-filter of the IPAddressClaims that the controllers reconcile. Default: any, or none.")
	fs.DurationVar(&o.SyncPeriod, "sync-period", 0, "How often all objects are reconciled again. Default: every 10 hours.")

	flags.AddManagerOptions(fs, &o.Manager)
	fs.StringVar(&o.ProbeAddress, "health-addr", ":8081", "Address that serves healthz and readyz. 0 disables it.")
	fs.StringVar(&o.WebhookHost, "webhook-bind-host", "", "Address on which the webhooks listen. Default: all.")
	fs.IntVar(&o.WebhookPort, "webhook-port", 9443, "Port on which the webhooks listen.")
	fs.StringVar(&o.WebhookService, "webhook-service-name", "cadastre-webhook-service", "Service by which the API server reaches the webhooks.")
	fs.StringVar(&o.CertSource, "webhook-cert-source", string(certs.SelfSigned), "Issuer of the webhooks' certificate. self-signed: the operator. secret: another controller, such as cert-manager, which writes the Secret cadastre-webhook-server-cert.")
	fs.StringVar(&o.WebhookClientCA, "webhook-client-ca", "", "File with the PEM certificates of the authorities that sign the client certificates of the API servers; the webhooks answer no other client. It is read at start-up. Default: clients need no certificate.")

	fs.BoolVar(&o.LeaderElect, "leader-elect", true, "Elect a leader, which writes status and collects orphans. Blocks are handed out by every replica, and are safe without.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 2*time.Second, "How long a leader that died keeps its lease.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 0, "How long a leader tries to renew its lease before it gives up. Default: three quarters of the lease.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 0, "How long replicas wait between tries to get or renew the lease. Default: an eighth of the lease.")

	o.History.bind(fs)
	fs.StringVar(&o.TracingEndpoint, "tracing-endpoint", "", "Address of the collector to which traces are sent by OTLP over gRPC, such as https://collector.example.com:4317; with http:// the connection is without TLS. The environment variables of OpenTelemetry's exporter, such as OTEL_EXPORTER_OTLP_HEADERS, say the rest. Default: nothing is traced.")
	fs.IntVar(&o.TracingSamplingRate, "tracing-sampling-rate-per-million", 0, "How many in a million of the traces that begin in the operator, in its controllers, are sent. For requests that the API server traces, the API server decides. 0: none begins here.")
}

// PoolRanges is the feature of pools that occupy their ranges. Their records hold several blocks, of
// which replicas of older versions know only the first: turn it on when none is left.
const PoolRanges featuregate.Feature = "PoolRanges"

func newFeatures() featuregate.MutableFeatureGate {
	features := featuregate.NewFeatureGate()
	utilruntime.Must(features.Add(map[featuregate.Feature]featuregate.FeatureSpec{
		PoolRanges: {Default: false, PreRelease: featuregate.Alpha},
	}))
	return features
}

// isEnabled reports whether a feature is turned on.
func (o *Options) isEnabled(feature featuregate.Feature) bool {
	if o.Features == nil {
		return newFeatures().Enabled(feature)
	}
	return o.Features.Enabled(feature)
}

// normalize gives a flag one name: Cluster API's providers and operators made with
// kubebuilder have different names for two of the flags.
func normalize(fs *pflag.FlagSet, name string) pflag.NormalizedName {
	switch name {
	case "metrics-bind-address":
		name = "diagnostics-address"
	case "health-probe-bind-address":
		name = "health-addr"
	}
	return flag.WordSepNormalizeFunc(fs, name)
}

// These durations bound the life of a request to create a claim. kube-apiserver ends a request
// after 60 s (its default of --request-timeout), admission included; the margin is
// for the write to etcd that was begun before, and for this replica's cache and
// quorum read to show it.
const (
	longestRequest  = 60 * time.Second
	requestMargin   = 5 * time.Second
	safeOrphanGrace = longestRequest + requestMargin
)

// Validate returns an error that names the first flag whose value cannot be used.
//
// An OrphanGrace shorter than safeOrphanGrace would release a block while its claim is
// being stored: the rule Grace of test/chaos/model assumes that a request is over before
// the grace of its record is.
func (o *Options) Validate() error {
	switch ipam.Family(o.DefaultIPFamily) {
	case "", ipam.IPv4, ipam.IPv6:
	default:
		return fmt.Errorf("--default-ip-family=%s is no address family: set IPv4 or IPv6", o.DefaultIPFamily)
	}
	if o.OrphanGrace < safeOrphanGrace {
		return fmt.Errorf("--orphan-grace=%s is shorter than a request to create a claim can last: set %s or more", o.OrphanGrace, safeOrphanGrace)
	}
	if o.InClusterPools && !o.isEnabled(PoolRanges) {
		return fmt.Errorf("--in-cluster-pools needs pools that occupy their ranges: set --feature-gates=%s=true, too, when no replica of an older version is left", PoolRanges)
	}
	if o.InClusterPools && (o.WatchNamespace != "" || o.WatchFilter != "") {
		return errors.New("--in-cluster-pools is for all namespaces and labels, as IPAddresses that are not reconciled would be handed out again: leave out --namespace and --watch-filter")
	}
	return errors.Join(o.History.validate(), o.validateTracing())
}

func (o *Options) validateTracing() error {
	if o.TracingSamplingRate < 0 || o.TracingSamplingRate > export.PerMillion {
		return fmt.Errorf("--tracing-sampling-rate-per-million=%d is out of range: set 0 to %d", o.TracingSamplingRate, export.PerMillion)
	}
	if o.TracingEndpoint == "" {
		return nil
	}
	if _, err := export.Endpoint(o.TracingEndpoint); err != nil {
		return fmt.Errorf("--tracing-endpoint=%w", err)
	}
	return nil
}

// User returns the name under which the API server knows the operator.
func (o *Options) User() string {
	return "system:serviceaccount:" + o.Namespace + ":" + o.ServiceAccount
}

// lease returns the duration of a lease, the time after which a leader that cannot renew it
// gives it up, and the interval between attempts to get it.
func (o *Options) lease() (duration, renew, retry time.Duration) {
	return o.LeaseDuration, cmp.Or(o.RenewDeadline, o.LeaseDuration*3/4), cmp.Or(o.RetryPeriod, o.LeaseDuration/8)
}
