package envtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/operator"
)

// Options holds the settings that a suite can choose. The zero value means the operator with its
// defaults.
type Options struct {
	// Flags holds flags of the operator, such as "--default-ip-family=IPv6" or
	// "--platform-project=ops": docs/operations.md lists them. Start itself sets the flags for
	// the addresses, the identity of the operator, and the election of a leader.
	Flags []string
	// Log takes the operator's log. The zero value leaves it to the logger that was set
	// with controller-runtime's log.SetLogger.
	Log logr.Logger
}

// Operator represents an operator that runs in this process.
type Operator struct {
	end  context.CancelFunc
	done chan struct{}
	err  error // of the operator, once done is closed
}

// startWithin is the time for which Start waits for the operator, and until the API server applies
// the installed objects. Both take about two seconds if nothing else runs.
const startWithin = time.Minute

// Start installs Cadastre and runs its operator until Stop is called. It returns when the
// operator answers. The context bounds only the start, so it can be the context of a
// BeforeSuite or of a test. Start can be called again after Stop, on the same control plane.
func Start(ctx context.Context, cfg *rest.Config, o Options) (*Operator, error) {
	settings, err := o.settings()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	on, err := connect(cfg)
	if err != nil {
		return nil, err
	}
	if err := on.install(ctx); err != nil {
		return nil, err
	}
	return onFreePort(func(port int) (*Operator, error) {
		if err := on.installWebhooks(ctx, port); err != nil {
			return nil, err
		}
		settings.WebhookPort = port
		return on.run(ctx, settings)
	})
}

// Stop ends the operator and waits until it has ended. It returns the error of the operator if
// the operator has failed before. The objects that Start installed stay in the API server. Stop
// can be called more than once.
func (op *Operator) Stop() error {
	op.end()
	<-op.done
	return op.err
}

// attempts is the number of ports that are tried. Another process can take a port after it was
// found free and before the operator listens on it.
const attempts = 5

// onFreePort starts an operator on a free port.
func onFreePort(start func(port int) (*Operator, error)) (*Operator, error) {
	var last error
	for range attempts {
		port, err := freePort()
		if err != nil {
			return nil, fmt.Errorf("looking for a free port for the webhooks: %w", err)
		}
		op, err := start(port)
		if !errors.Is(err, syscall.EADDRINUSE) {
			return op, err
		}
		last = err
	}
	return nil, last
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
}

// run runs an operator. It returns when the operator answers, or has failed.
func (on *plane) run(ctx context.Context, settings operator.Options) (*Operator, error) {
	ready := make(chan struct{})
	settings.Ready = func() { close(ready) }
	settings.Metrics = prometheus.NewRegistry() // of this operator alone, as there can be others
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	op := &Operator{end: end, done: make(chan struct{})}
	ctx, ended := context.WithCancel(ctx)
	defer ended()
	go func() {
		defer close(op.done)
		defer ended() // ends the wait: there is no operator to wait for any more
		op.err = operator.Run(life, as(on.cfg, settings.User()), settings)
	}()
	if err := on.await(ctx, ready); err != nil {
		return nil, errors.Join(op.Stop(), err) // if it has failed by itself, its error comes first
	}
	return op, nil
}

// await blocks until the operator is ready, and then until the API server asks it.
func (on *plane) await(ctx context.Context, ready <-chan struct{}) error {
	select {
	case <-ready:
		return on.awaitAnswers(ctx)
	case <-ctx.Done():
		return fmt.Errorf("waiting until the operator is ready: %w", ctx.Err())
	}
}

// as returns the same access as another user, with all rights.
func as(cfg *rest.Config, user string) *rest.Config {
	cfg = rest.CopyConfig(cfg)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	return cfg
}

const (
	// namespace and account are the operator's namespace and service account. The manifests name
	// them.
	namespace = "cadastre-system"
	account   = "cadastre-controller-manager"
	// service is the name by which the API server calls the webhooks.
	service = "cadastre-webhook-service"
	// loopback is the address at which the webhooks are served.
	loopback = "127.0.0.1"
)

// reserved reports whether Start sets a flag: a flag of these names, or with these prefixes.
func reserved(flag string) bool {
	return slices.Contains([]string{"operator-namespace", "service-account", "health-addr", "diagnostics-address", "insecure-diagnostics"}, flag) ||
		strings.HasPrefix(flag, "webhook-") || strings.HasPrefix(flag, "leader-elect")
}

// settings returns the options of the operator, except the port of its webhooks.
func (o Options) settings() (operator.Options, error) {
	var settings operator.Options
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Usage = func() {} // the error is enough
	settings.Bind(flags)
	if err := flags.Parse(o.Flags); err != nil {
		return settings, fmt.Errorf("Options.Flags: %w", err)
	}
	if flags.NArg() > 0 {
		return settings, fmt.Errorf("Options.Flags: %q is no flag: write --name=value", flags.Arg(0))
	}
	var err error
	flags.Visit(func(f *pflag.Flag) {
		if reserved(f.Name) {
			err = fmt.Errorf("Options.Flags: --%s is set by Start itself: leave it out", f.Name)
		}
	})
	settings.Namespace, settings.ServiceAccount = namespace, account
	settings.LeaderElect = false
	settings.ProbeAddress, settings.Manager.DiagnosticsAddress = "0", "0"
	settings.WebhookHost, settings.WebhookService = loopback, service
	settings.SkipNameValidation = true
	settings.Log = o.Log
	return settings, err
}

// probeEvery is the interval at which the API server is probed until it applies the installed
// objects: it learns of them by its own watches, and sends no notification.
const probeEvery = 20 * time.Millisecond

// awaitAnswers blocks until the API server calls the webhooks and enforces the policies. One kind
// of request shows each. All but one are dry runs: the last two concern an object that exists,
// an IPClaim in the operator's namespace that waits for a pool that does not exist.
// awaitAnswers deletes it again.
func (on *plane) awaitAnswers(ctx context.Context) error {
	if err := until(ctx, "calls the mutating webhooks", func() (bool, error) { return on.create(ctx, client.DryRunAll) }); err != nil {
		return err
	}
	if _, err := on.create(ctx); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("trying the webhooks: %w", err)
	}
	return errors.Join(
		until(ctx, "calls the validating webhooks", func() (bool, error) {
			err := on.patch(ctx, `{"spec": {"reclaimPolicy": "Retain"}}`) // no pool allows it
			return apierrors.IsInvalid(err), err
		}),
		// The API server begins to enforce policies in the order in which they were made.
		until(ctx, "enforces the policies", func() (bool, error) {
			err := on.patch(ctx, `{"metadata": {"annotations": {"`+v1alpha1.AnnotationUseGranted+`": "somebody"}}}`)
			return apierrors.IsForbidden(err), err
		}),
		client.IgnoreNotFound(on.k8s.Delete(ctx, probe())),
	)
}

// until blocks until a request gets the answer that shows the behavior of the API server.
func until(ctx context.Context, what string, shows func() (bool, error)) error {
	var last error
	err := wait.PollUntilContextCancel(ctx, probeEvery, true, func(context.Context) (bool, error) {
		ok, err := shows()
		if !errors.Is(err, context.DeadlineExceeded) { // else the answer before is more useful
			last = err
		}
		return ok, nil
	})
	if err == nil {
		return nil
	}
	return errors.Join(fmt.Errorf("waiting until the API server %s: %w", what, err), last)
}

// probe returns the IPClaim that shows whether webhooks and policies are in force.
func probe() *v1alpha1.IPClaim {
	return &v1alpha1.IPClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "envtest-probe"},
		Spec:       v1alpha1.IPClaimSpec{PoolRef: &v1alpha1.PoolReference{Name: "envtest-probe"}},
	}
}

// create creates the IPClaim, and reports whether the webhook has written its status.
func (on *plane) create(ctx context.Context, options ...client.CreateOption) (bool, error) {
	claim := probe()
	err := on.k8s.Create(ctx, claim, options...)
	return err == nil && claim.Status.Phase != "", err
}

// patch tries a change of the IPClaim, by a dry run.
func (on *plane) patch(ctx context.Context, change string) error {
	return on.k8s.Patch(ctx, probe(), client.RawPatch(types.MergePatchType, []byte(change)), client.DryRunAll)
}
