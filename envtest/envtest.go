package envtest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

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
