package certs

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/tracing"
)

const pathOwner = client.FieldOwner("cadastre-webhook-path")

// rereadEvery bounds how often requests with an unknown secret have the Secret read.
const rereadEvery = time.Second

// PlainPaths are the paths at which webhooks answer, without the secret, by the
// names of the webhooks in their configuration.
type PlainPaths struct{ Mutating, Validating map[string]string }

// PathOptions say which objects a [Paths] keeps.
type PathOptions struct {
	// Namespace is the operator's.
	Namespace string
	// SecretName is the Secret with the path secrets.
	SecretName string
	// MutatingWebhook and ValidatingWebhook are the configurations that get the
	// paths. They may be made after the operator has started.
	MutatingWebhook, ValidatingWebhook string
	// Plain has the webhooks that get a path. Others are left as they are.
	Plain PlainPaths
	// Tracer has a span for each pass. Nil: there are none.
	Tracer *tracing.Tracer
	// Clock is the real one where it is nil.
	Clock clock.PassiveClock
}

func (o PathOptions) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName}
}

// Paths keeps the secret with which the paths of the webhooks begin, on one
// replica. Its exported methods other than Reconcile may be called concurrently,
// and before the manager starts.
type Paths struct {
	progress
	options PathOptions
	reader  client.Reader // reads from the API server
	writer  client.Client
	started time.Time

	accepted atomic.Pointer[pathSecrets]
	reread   atomic.Int64 // when Accepts had the Secret read, in nanoseconds
}

// NewPaths are the paths of one replica, which Setup keeps. The reader reads from the API
// server, past all caches.
func NewPaths(options PathOptions, reader client.Reader, writer client.Client) (*Paths, error) {
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if options.Namespace == "" || options.SecretName == "" || options.MutatingWebhook == "" || options.ValidatingWebhook == "" {
		return nil, errors.New("webhook path: the Secret, its namespace and both webhook configurations need a name")
	}
	p := &Paths{options: options, reader: reader, writer: writer, started: options.Clock.Now()}
	p.subject, p.ready = "Webhook path", make(chan struct{})
	p.accepted.Store(&pathSecrets{})
	return p, nil
}

// Setup adds what keeps the path secret to a manager that is not started yet. It runs on
// every replica.
func (p *Paths) Setup(mgr ctrl.Manager) error {
	watched := map[client.Object]cache.ByObject{}
	watchSecret(watched, p.options.secret())
	watchConfigurations(watched, p.options.MutatingWebhook, p.options.ValidatingWebhook)
	const name = "webhook-path"
	if err := runOnEveryReplica(mgr, name, p.options.Tracer.Passes(name, p), watched); err != nil {
		return fmt.Errorf("webhook path: %w", err)
	}
	return nil
}

// Check is a healthz.Checker for readyz: nil from when both configurations had
// paths that this replica accepts.
func (p *Paths) Check(*http.Request) error { return p.check() }

// Accepts reports whether a path that begins with this element is one that the
// operator gave to the API server. One that is not known, but could be another
// replica's, has the Secret read again, at most once a second.
func (p *Paths) Accepts(ctx context.Context, secret string) bool {
	now := p.options.Clock.Now()
	if p.accepted.Load().accepts(secret, now) {
		return true
	}
	last := p.reread.Load()
	if !aPathSecret.MatchString(secret) || now.UnixNano()-last < int64(rereadEvery) || !p.reread.CompareAndSwap(last, now.UnixNano()) {
		return false
	}
	held := &corev1.Secret{}
	if err := p.reader.Get(ctx, p.options.secret(), held); err != nil {
		return false
	}
	secrets := parsePathSecrets(held.Data)
	if secrets.accepts(secret, now) {
		p.accepted.Store(&secrets)
		return true
	}
	return false
}

// Reconcile makes one pass. Whatever the request, there is one thing to do.
func (p *Paths) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := p.options.Clock.Now()
	again := recheck
	err := p.pass(ctx, now)
	if secrets := p.accepted.Load(); secrets.current != "" {
		again = secrets.due(now)
	}
	if err != nil {
		return p.failed(ctx, err, again)
	}
	p.succeeded()
	return reconcile.Result{RequeueAfter: again}, nil
}

// pass reads the configurations, then the Secret, both from the API server: what a
// configuration has is then never newer than what the Secret says.
func (p *Paths) pass(ctx context.Context, now time.Time) error {
	configurations, missing, err := readConfigurations(ctx, p.reader, p.options.MutatingWebhook, p.options.ValidatingWebhook)
	if err != nil {
		return err
	}
	secrets, err := p.keep(ctx, now, p.injected(configurations))
	if err != nil {
		return err
	}
	p.accepted.Store(&secrets)
	for _, configuration := range configurations {
		set := func() bool { return p.setPaths(configuration, secrets, now) }
		if err := changeConfiguration(ctx, p.writer, configuration, set, pathOwner); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w for %s", errWait, strings.Join(missing, " and "))
	}
	return nil
}

// keep writes to the Secret what it should hold, and returns that.
func (p *Paths) keep(ctx context.Context, now time.Time, injected []string) (pathSecrets, error) {
	key := p.options.secret()
	secret := &corev1.Secret{}
	err := p.reader.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		return pathSecrets{}, makeSecret(ctx, p.writer, key, pathOwner)
	}
	if err != nil {
		return pathSecrets{}, fmt.Errorf("reading Secret %s: %w", key, err)
	}
	next, news := parsePathSecrets(secret.Data).next(now, p.started, injected)
	if news == "" {
		return next, nil
	}
	if err := writeSecret(ctx, p.writer, secret, next.data(), pathOwner); err != nil {
		return pathSecrets{}, err
	}
	log.FromContext(ctx).Info("Wrote the Secret of the webhooks' paths: " + news)
	return next, nil
}

// injected are the secrets in the paths of the configurations.
func (p *Paths) injected(configurations []client.Object) []string {
	var all []string
	for _, configuration := range configurations {
		for _, config := range clientConfigs(configuration) {
			if secret := secretIn(pathOf(config)); secret != "" && !slices.Contains(all, secret) {
				all = append(all, secret)
			}
		}
	}
	return all
}

// setPaths gives each webhook that has a plain path the one with the secret, and
// reports whether that changes the configuration.
func (p *Paths) setPaths(configuration client.Object, secrets pathSecrets, now time.Time) bool {
	changed := false
	each(configuration, func(name string, config *admissionv1.WebhookClientConfig) {
		plain, ok := p.plain(configuration)[name]
		if !ok {
			return
		}
		has := pathOf(config)
		if path := "/" + secrets.inject(now, secretIn(has)) + plain; path != has {
			setPath(config, path)
			changed = true
		}
	})
	return changed
}

func (p *Paths) plain(configuration client.Object) map[string]string {
	if _, ok := configuration.(*admissionv1.MutatingWebhookConfiguration); ok {
		return p.options.Plain.Mutating
	}
	return p.options.Plain.Validating
}

// pathOf is where the API server calls a webhook, by a Service or by a URL.
func pathOf(config *admissionv1.WebhookClientConfig) string {
	switch {
	case config.Service != nil && config.Service.Path != nil:
		return *config.Service.Path
	case config.URL != nil:
		if parsed, err := url.Parse(*config.URL); err == nil {
			return parsed.Path
		}
	}
	return ""
}

// setPath sets the path of a Service, or all of the path of a URL.
func setPath(config *admissionv1.WebhookClientConfig, path string) {
	switch {
	case config.Service != nil:
		config.Service.Path = &path
	case config.URL != nil:
		if parsed, err := url.Parse(*config.URL); err == nil {
			parsed.Path = path
			whole := parsed.String()
			config.URL = &whole
		}
	}
}

// secretIn is the secret with which a path begins; empty where there is none.
func secretIn(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !aPathSecret.MatchString(first) {
		return ""
	}
	return first
}
