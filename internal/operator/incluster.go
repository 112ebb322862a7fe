package operator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	incluster "github.com/cadastre-dev/cadastre/internal/incluster/v1alpha2"
	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// providerLease is the name of the lease of the in-cluster provider.
const providerLease = "7bb7acb4.ipam.cluster.x-k8s.io"

// providerInterval is the interval at which the in-cluster provider is looked for.
const providerInterval = 2 * time.Second

// provider watches whether Cluster API's in-cluster provider runs, so that no pool is served by two. It
// runs if its lease is renewed, by this process's own clock, as in leader election of client-go. The
// provider elects no leader by default: without a lease, ready endpoints of its webhooks are only
// reported, because another server can have them. Until the first look, it counts as running.
type provider struct {
	reader    client.Reader
	namespace string
	clock     clock.WithTicker
	log       logr.Logger
	// changed is called after each change of the state.
	changed func()

	mu    sync.Mutex
	state providerState
	// failure is the error of the last look, or "".
	failure string
	// lease is the last lease that was seen, since seenAt.
	lease  coordinationv1.LeaseSpec
	seenAt time.Time
}

// providerState represents the signs of the in-cluster provider.
type providerState string

const (
	providerUnknown providerState = "unknown"
	providerLeading providerState = "lease"
	// providerServing: webhooks of the provider are served, and it holds no lease.
	providerServing providerState = "endpoints"
	providerAbsent  providerState = "absent"
)

func newProvider(reader client.Reader, namespace string, c clock.WithTicker, changed func(), log logr.Logger) *provider {
	return &provider{reader: reader, namespace: namespace, clock: c, changed: changed, log: log, state: providerUnknown}
}

// isRunning reports whether the in-cluster provider serves its pools, as far as is known.
func (p *provider) isRunning() bool {
	state := p.current()
	return state == providerUnknown || state == providerLeading
}

func (p *provider) current() providerState {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.state
}

// run looks for the provider until ctx is done.
func (p *provider) run(ctx context.Context) {
	ticker := p.clock.NewTicker(providerInterval)
	defer ticker.Stop()
	for {
		p.look(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
		}
	}
}

// look updates the state; only one goroutine calls it. After an error the state stays.
func (p *provider) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, providerInterval)
	defer cancel()
	state, err := p.observe(ctx)
	if err != nil {
		if text := kubeutil.StableText(err); text != p.failure {
			p.failure = text
			p.log.Info("Could not look for the in-cluster provider: its state stays until that succeeds", "state", p.current(), "error", text)
		}
		return
	}
	p.failure = ""
	if state == p.current() {
		return
	}
	p.mu.Lock()
	p.state = state
	p.mu.Unlock()
	p.changed()
	switch state {
	case providerLeading:
		p.log.Info("The in-cluster provider runs: its pools get no new addresses from Cadastre until it is scaled down", "lease", providerLease, "namespace", p.namespace)
	case providerServing:
		p.log.Info("Webhooks of the in-cluster provider are served, and it holds no lease: if it runs, scale it down, or two programs hand out the same addresses", "service", incluster.WebhookService, "namespace", p.namespace)
	case providerAbsent:
		p.log.Info("The in-cluster provider does not run: serving its pools")
	}
}

// observe returns the present state.
func (p *provider) observe(ctx context.Context) (providerState, error) {
	lease := &coordinationv1.Lease{}
	err := p.reader.Get(ctx, client.ObjectKey{Namespace: p.namespace, Name: providerLease}, lease)
	switch {
	case err == nil && p.isRenewed(lease.Spec):
		return providerLeading, nil
	case kubeutil.IgnoreNotFound(err) != nil:
		return "", fmt.Errorf("reading the lease of the in-cluster provider: %w", err)
	}
	isServing, err := kubeutil.HasReadyEndpoints(ctx, p.reader, client.ObjectKey{Namespace: p.namespace, Name: incluster.WebhookService})
	switch {
	case err != nil:
		return "", fmt.Errorf("listing the endpoints of the in-cluster provider: %w", err)
	case isServing:
		return providerServing, nil
	}
	return providerAbsent, nil
}

// isRenewed reports whether a lease has a holder, and has changed within its duration.
func (p *provider) isRenewed(spec coordinationv1.LeaseSpec) bool {
	if ptr.Deref(spec.HolderIdentity, "") == "" {
		return false
	}
	if !p.lease.RenewTime.Equal(spec.RenewTime) || ptr.Deref(p.lease.HolderIdentity, "") != *spec.HolderIdentity || p.seenAt.IsZero() {
		p.lease, p.seenAt = spec, p.clock.Now()
	}
	return p.clock.Since(p.seenAt) < time.Duration(ptr.Deref(spec.LeaseDurationSeconds, 15))*time.Second
}
