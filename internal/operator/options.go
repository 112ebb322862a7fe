// Package operator wires the operator: ledger, allocator, webhooks, controllers
// and certificate in one manager.
package operator

import (
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	"k8s.io/component-base/cli/flag"
	"sigs.k8s.io/cluster-api/util/flags"

	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/ipam"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing/export"
)

// Options holds the settings of the operator. They are read from flags at start-up.
type Options struct {
	// Namespace of the operator: its Secret, its lease, and the records of pools.
	Namespace string
	// ServiceAccount under which the operator writes.
	ServiceAccount string

	// WatchNamespace is the only namespace whose claims the controllers reconcile;
	// empty means all. In either case the operator sees the blocks in use in all
	// namespaces, and webhooks answer for all.
	WatchNamespace string
	// WatchFilter is the value of the label cluster.x-k8s.io/watch-filter that an
	// IPAddressClaim must have; empty means any, or none.
	WatchFilter string
	// SyncPeriod is the interval at which everything is reconciled again; 0 means
	// the library's default, 10 hours.
	SyncPeriod time.Duration

	// Manager holds the address of the diagnostics, which are metrics and pprof, and
	// the TLS settings of the diagnostics and the webhooks.
	Manager flags.ManagerOptions
	// ProbeAddress serves healthz and readyz.
	ProbeAddress   string
	WebhookHost    string
	WebhookPort    int
	WebhookService string
	CertSource     string
	// WebhookClientCA is a file with the authorities of the certificates that the
	// webhooks ask of their clients; empty means that they ask for none.
	WebhookClientCA string

	// History holds the destinations of the history.
	History HistoryOptions

	// PlatformProject is the project of the platform's own namespaces.
	PlatformProject string

	LeaderElect bool
	// LeaseDuration is the duration of the lease. RenewDeadline and RetryPeriod are by
	// default three quarters and one eighth of it.
	LeaseDuration, RenewDeadline, RetryPeriod time.Duration
	// DefaultIPFamily is the family of claims that name no class, no pool and no family.
	// Empty means IPv4.
	DefaultIPFamily string

	// OrphanGrace is the time for which an IPAllocation can be without holder: at
	// least safeOrphanGrace.
	OrphanGrace time.Duration
	// UnclaimedLimit bounds a namespace's IPAllocations that no claim or LocalIPPool has taken.
	UnclaimedLimit int
	// WaitingLimit bounds a namespace's claims that wait for a block.
	WaitingLimit int
	// Workers is the number of claims that are reconciled at a time.
	Workers int

	// TracingEndpoint is the address of the collector to which traces are sent; empty
	// means that nothing is traced.
	TracingEndpoint string
	// TracingSamplingRate is the number of traces whose spans are recorded, out of a million
	// that begin in the operator.
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
	fs.StringVar(&o.Namespace, "operator-namespace", namespace(), "Namespace of the operator: of its Secret, its lease, and the IPAllocations of pools. Default: $POD_NAMESPACE, else cadastre-system.")
	fs.StringVar(&o.ServiceAccount, "service-account", account(), "Service account under which the operator runs. Default: $POD_SERVICE_ACCOUNT, else cadastre-controller-manager.")
	fs.StringVar(&o.PlatformProject, "platform-project", "", "Project whose namespaces may use pools and classes of visibility Platform. Default: none may.")
	fs.StringVar(&o.DefaultIPFamily, "default-ip-family", string(ipam.IPv4), "Address family of claims that name no class, no pool and no family: IPv4 or IPv6. They are served by the default class of that family and by no other.")
	fs.DurationVar(&o.OrphanGrace, "orphan-grace", 180*time.Second, "How long an IPAllocation may be without a holder before it is released, where the holder's deletion was not seen. At least 65s.")
	fs.IntVar(&o.UnclaimedLimit, "unclaimed-limit", 1000, "How many IPAllocations of a namespace, and of a project, may be unclaimed, by an IPClaim or a LocalIPPool; beyond it creates are answered with 429.")
	fs.IntVar(&o.WaitingLimit, "waiting-limit", 1000, "How many claims of a namespace may wait for a block; beyond it creates that would wait are answered with 429. 0: any number.")
	fs.IntVar(&o.Workers, "workers", 8, "How many claims are reconciled at a time.")
	o.bindWatch(fs)
	o.bindServers(fs)
	o.bindElection(fs)
	o.History.bind(fs)
	o.bindTracing(fs)
}

// bindWatch registers the flags that Cluster API's providers have in common.
func (o *Options) bindWatch(fs *pflag.FlagSet) {
	fs.StringVar(&o.WatchNamespace, "namespace", "", "Namespace whose claims the controllers reconcile. Webhooks answer for all namespaces, and a block is in use regardless of its holder's namespace. Default: all.")
	fs.StringVar(&o.WatchFilter, "watch-filter", "", "Value of the label cluster.x-k8s.io/watch-filter of the IPAddressClaims that the controllers reconcile. Default: any, or none.")
	fs.DurationVar(&o.SyncPeriod, "sync-period", 0, "How often all objects are reconciled again. Default: every 10 hours.")
}

func (o *Options) bindServers(fs *pflag.FlagSet) {
	flags.AddManagerOptions(fs, &o.Manager)
	fs.StringVar(&o.ProbeAddress, "health-addr", ":8081", "Address that serves healthz and readyz. 0 disables it.")
	fs.StringVar(&o.WebhookHost, "webhook-bind-host", "", "Address on which the webhooks listen. Default: all.")
	fs.IntVar(&o.WebhookPort, "webhook-port", 9443, "Port on which the webhooks listen.")
	fs.StringVar(&o.WebhookService, "webhook-service-name", "cadastre-webhook-service", "Service by which the API server reaches the webhooks.")
	fs.StringVar(&o.CertSource, "webhook-cert-source", string(certs.SelfSigned), "Issuer of the webhooks' certificate. self-signed: the operator. secret: another controller, such as cert-manager, which writes the Secret cadastre-webhook-server-cert.")
	fs.StringVar(&o.WebhookClientCA, "webhook-client-ca", "", "File with the PEM certificates of the authorities that sign the client certificates of the API servers; the webhooks answer no other client. It is read at start-up. Default: clients need no certificate.")
}

func (o *Options) bindElection(fs *pflag.FlagSet) {
	fs.BoolVar(&o.LeaderElect, "leader-elect", true, "Elect a leader, which writes status and collects orphans. Blocks are handed out by every replica, and are safe without.")
	fs.DurationVar(&o.LeaseDuration, "leader-elect-lease-duration", 2*time.Second, "How long a leader that died keeps its lease.")
	fs.DurationVar(&o.RenewDeadline, "leader-elect-renew-deadline", 0, "How long a leader tries to renew its lease before it gives up. Default: three quarters of the lease.")
	fs.DurationVar(&o.RetryPeriod, "leader-elect-retry-period", 0, "How long replicas wait between tries to get or renew the lease. Default: an eighth of the lease.")
}

func (o *Options) bindTracing(fs *pflag.FlagSet) {
	fs.StringVar(&o.TracingEndpoint, "tracing-endpoint", "", "Address of the collector to which traces are sent by OTLP over gRPC, such as https://collector.example.com:4317; with http:// the connection is without TLS. The environment variables of OpenTelemetry's exporter, such as OTEL_EXPORTER_OTLP_HEADERS, say the rest. Default: nothing is traced.")
	fs.IntVar(&o.TracingSamplingRate, "tracing-sampling-rate-per-million", 0, "How many in a million of the traces that begin in the operator, in its controllers, are sent. For requests that the API server traces, the API server decides. 0: none begins here.")
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
	duration, renew, retry = o.LeaseDuration, o.RenewDeadline, o.RetryPeriod
	if renew == 0 {
		renew = duration * 3 / 4
	}
	if retry == 0 {
		retry = duration / 8
	}
	return duration, renew, retry
}

func namespace() string {
	if n := os.Getenv("POD_NAMESPACE"); n != "" {
		return n
	}
	return "cadastre-system"
}

func account() string {
	if n := os.Getenv("POD_SERVICE_ACCOUNT"); n != "" {
		return n
	}
	return "cadastre-controller-manager"
}
