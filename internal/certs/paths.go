package certs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// rereadEvery is the shortest interval at which requests with an unknown secret cause a read of
// the Secret.
const rereadEvery = time.Second

// PlainPaths holds the paths at which webhooks answer, without the secret, by the
// names of the webhooks in their configuration.
type PlainPaths struct{ Mutating, Validating map[string]string }

// Paths keeps the secret with which the paths of the webhooks begin, on one
// replica. Its exported methods other than Reconcile can be called concurrently,
// and before the manager starts.
type Paths struct {
	keeper
	plain PlainPaths

	reading       sync.Mutex // held while the Secret is read and followed
	hasReadSecret bool       // whether a pass has read the Secret; guarded by reading
	view          atomic.Pointer[pathView]
	reread        atomic.Int64 // the time when Judge read the Secret last, in nanoseconds
	// exposed is the secret that others may know, and the cause; nil means that there is none.
	exposed atomic.Pointer[exposure]

	countsMu sync.Mutex
	counts   map[string]int
}

// exposure represents a secret that others may know, and the cause.
type exposure struct{ secret, cause string }

// NewPaths returns the paths of one replica, which the controller of SetupWithManager keeps. The
// webhooks that have a plain path get a secret one; other webhooks stay as they are. The reader reads
// from the API server, past all caches.
func NewPaths(options Options, plain PlainPaths, reader client.Reader, writer client.Client) (*Paths, error) {
	if options.Namespace == "" || options.SecretName == "" || !options.namesConfigurations() {
		return nil, errors.New("webhook path: the Secret, its namespace and all webhook configurations need a name")
	}
	p := &Paths{plain: plain, counts: map[string]int{}}
	p.init("Webhook path", options, reader, writer)
	p.view.Store(&pathView{})
	return p, nil
}

// SetupWithManager adds the controller of the path secret to a manager that is not started yet.
func (p *Paths) SetupWithManager(mgr ctrl.Manager, passes kubeutil.PassCounter) error {
	if err := p.setup(mgr, p, passes); err != nil {
		return fmt.Errorf("webhook path: %w", err)
	}
	return nil
}

// Check implements healthz.Checker for readyz. It returns nil once all configurations have had
// paths that this replica accepts.
func (p *Paths) Check(*http.Request) error { return p.check() }

// Replacements returns the number of secrets that this replica has made, by cause.
func (p *Paths) Replacements() map[string]int {
	p.countsMu.Lock()
	defer p.countsMu.Unlock()
	return maps.Clone(p.counts)
}

// Judge returns the standing of a path that begins with this element. If the secret is unknown
// but could come from another replica, Judge reads the Secret again, at most once a second.
func (p *Paths) Judge(ctx context.Context, secret string) Standing {
	now := p.options.Clock.Now()
	standing := p.view.Load().standing(secret, now)
	if standing != PathUnknown || !aPathSecret.MatchString(secret) {
		return standing
	}
	last := p.reread.Load()
	if now.UnixNano()-last < int64(rereadEvery) || !p.reread.CompareAndSwap(last, now.UnixNano()) {
		return PathUnknown
	}
	p.reading.Lock()
	defer p.reading.Unlock()
	stored, err := p.readSecret(ctx)
	if err != nil || stored == nil {
		return PathUnknown
	}
	if read := parsePathSecrets(stored.Data); read.current != "" {
		p.follow(read, now)
	}
	return p.view.Load().standing(secret, now)
}

// Unanswered records that a request on a path with this secret has ended without its
// answer: the API server may have written the path into an error. A pass replaces the secret
// as soon as it is old enough.
func (p *Paths) Unanswered(secret string) {
	if p.markExposed(secret, causeUnanswered) {
		p.startPass()
	}
}

// markExposed records that others may know a secret. It reports whether the secret is the current one
// and was not recorded before.
func (p *Paths) markExposed(secret, cause string) bool {
	exposed := p.exposed.Load()
	if secret != p.view.Load().current || exposed != nil && exposed.secret == secret {
		return false
	}
	return p.exposed.CompareAndSwap(exposed, &exposure{secret: secret, cause: cause})
}

// exposedBy returns the cause for which others may know the current secret, empty if there is none.
func (p *Paths) exposedBy() string {
	if exposed := p.exposed.Load(); exposed != nil && exposed.secret == p.view.Load().current {
		return exposed.cause
	}
	return ""
}

func (p *Paths) follow(read pathSecrets, now time.Time) {
	next := p.view.Load().follow(read, now)
	p.view.Store(&next)
}

// Reconcile makes one pass. It does the same for every request.
func (p *Paths) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	now := p.options.Clock.Now()
	err := p.pass(ctx, now)
	delay := p.view.Load().untilDue(now)
	if err != nil {
		return p.failed(ctx, err, delay)
	}
	p.succeeded()
	return reconcile.Result{RequeueAfter: delay}, nil
}

// pass reads the configurations, then the Secret, both from the API server: so the secret in a
// configuration is never newer than the Secret.
func (p *Paths) pass(ctx context.Context, now time.Time) error {
	configurations, missing, err := p.readConfigurations(ctx)
	if err != nil {
		return err
	}
	if err := p.keep(ctx, now, p.presentSecrets(configurations)); err != nil {
		return err
	}
	view := p.view.Load()
	for _, configuration := range configurations {
		set := func() bool { return p.setPaths(configuration, view, now) }
		if err := p.changeConfiguration(ctx, configuration, set); err != nil {
			return err
		}
	}
	return checkComplete(missing)
}

// keep reads the Secret, writes the next secrets to it if they change, and updates the view.
func (p *Paths) keep(ctx context.Context, now time.Time, present []string) error {
	p.reading.Lock()
	defer p.reading.Unlock()
	secret, err := p.readSecret(ctx)
	if err != nil {
		return err
	}
	first := !p.hasReadSecret
	p.hasReadSecret = true
	if secret == nil {
		return p.makeSecret(ctx)
	}
	read := parsePathSecrets(secret.Data)
	view := p.view.Load().follow(read, now)
	if read.current != "" {
		p.view.Store(&view)
	}
	if first && slices.Contains(present, read.current) {
		p.markExposed(read.current, causeStart)
	}
	next, cause := view.next(now, p.exposedBy(), present)
	if cause == "" && next.injected.Equal(read.injected) {
		return nil
	}
	if err := p.writeSecret(ctx, secret, next.data()); err != nil {
		return err
	}
	p.follow(next, now)
	if cause != "" {
		p.replaced(ctx, cause)
	}
	return nil
}

// replaced counts a new secret.
func (p *Paths) replaced(ctx context.Context, cause string) {
	p.countsMu.Lock()
	p.counts[cause]++
	p.countsMu.Unlock()
	log.FromContext(ctx).Info("Made a new secret for the paths of the webhooks", "cause", cause)
}

// presentSecrets returns the secrets in the paths of the webhooks that get one, each once, and an
// empty one for a webhook that has none.
func (p *Paths) presentSecrets(configurations []client.Object) []string {
	var all []string
	for _, configuration := range configurations {
		for _, config := range clientConfigs(configuration) {
			if _, isOurs := p.plainPath(configuration, config); !isOurs {
				continue
			}
			if secret := secretIn(pathOf(config)); !slices.Contains(all, secret) {
				all = append(all, secret)
			}
		}
	}
	return all
}

// setPaths gives each webhook that has a plain path the path with the secret, and
// reports whether this changes the configuration.
func (p *Paths) setPaths(configuration client.Object, view *pathView, now time.Time) bool {
	isChanged := false
	for _, config := range clientConfigs(configuration) {
		plain, isOurs := p.plainPath(configuration, config)
		currentPath := pathOf(config)
		if path := "/" + view.inject(now, secretIn(currentPath)) + plain; isOurs && path != currentPath {
			setPath(config, path)
			isChanged = true
		}
	}
	return isChanged
}

// plainPath returns the path of a webhook without the secret, and reports whether it gets a path.
func (p *Paths) plainPath(configuration client.Object, webhook clientConfig) (path string, ok bool) {
	paths := p.plain.Validating
	if _, isMutating := configuration.(*admissionv1.MutatingWebhookConfiguration); isMutating {
		paths = p.plain.Mutating
	}
	path, ok = paths[webhook.name]
	return path, ok
}

// pathOf returns the path at which the API server calls a webhook, by a Service or by a URL.
func pathOf(config clientConfig) string {
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

// setPath sets the path of a Service, or the whole path of a URL.
func setPath(config clientConfig, path string) {
	switch {
	case config.Service != nil:
		config.Service.Path = &path
	case config.URL != nil:
		if parsed, err := url.Parse(*config.URL); err == nil {
			parsed.Path = path
			fullURL := parsed.String()
			config.URL = &fullURL
		}
	}
}

// secretIn returns the secret with which a path begins, empty if there is none.
func secretIn(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	if !aPathSecret.MatchString(first) {
		return ""
	}
	return first
}
