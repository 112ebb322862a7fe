// Package certs keeps the webhooks' serving certificate: it issues the certificate, makes
// the API server trust it, and serves it from memory.
//
// One Secret holds everything: tls.crt and tls.key, which every replica serves,
// ca.crt, which the webhook configurations trust, and (self-signed mode only)
// ca.key, which signs. Each replica watches that Secret and the configurations,
// and each can write them; there is no leader. Every write carries the resource
// version on which it was decided. So if several replicas decide at once, one
// writes, and the others read its write.
//
// In self-signed mode, no replica serves a certificate that the API server does
// not trust:
//
//   - The bundle comes first. A pass injects ca.crt into the configurations before
//     it serves tls.crt.
//   - A certificate that replaces a good one is served only after the [handover],
//     so that every API server has seen the bundle.
//   - A new authority goes in front of the authorities that are trusted already; these
//     leave the bundle when the last certificate is as old as the [overlap].
//   - A pass reads the configurations, then the Secret, both from the API server.
//     A bundle that replaces another is therefore never an older one.
//
// How authority B and its certificate b follow A and a:
//
//	Secret    ca.crt   A ──────┬── B A ────────────────────┬── B
//	          tls.crt  a ──────┴── b ──────────────────────┴──
//	injected           A ────────┬── B A ────────────────────┬── B
//	served             a ────────┴── handover ──┬── b ─────────
//	                           └──────── overlap ──────────┘
//
// open-policy-agent/cert-controller does not do this: it ends the process if
// the Secret or the mounted files are missing, does not make a deleted Secret
// again, counts a missing configuration as injected, and replaces the authority
// before anything trusts the new one. It also must list all Secrets of the
// namespace, and its keys are RSA, which makes the handshakes slower.
//
// # Paths
//
// The webhooks have side effects, so they answer the API server alone: the paths in
// the configurations begin with a secret, and requests to other paths get 404. The
// manifests contain neither path nor bundle; [Paths] injects the path. A separate Secret
// holds the present secret, the time when it was made, the time when all configurations
// had it, and the secrets before it. It is not the Secret of the certificate, because
// another controller writes that one in FromSecret mode.
//
// The API server writes the path of a webhook that it could not call into its answer, so a
// secret can become known. A replica replaces two such secrets: a secret that was injected
// when the replica started, and a secret on whose path a request ended without its answer.
// That is at most one replacement in ten minutes, however many requests a client cancels.
// In any case there is one replacement each hour.
//
// The API server calls no webhook by a path that a replica does not answer:
//
//   - A new secret is injected when it is as old as the [handover]; all replicas
//     watch the Secret. A replica that has not seen the new secret yet reads the Secret
//     when a request comes with it.
//   - The secret before it is accepted until all configurations have the new one, and for
//     a minute after that, even if a replica dies between two writes. No other secret is
//     made before the end of that minute.
//   - A request with an older secret is refused with HTTP 503 in a way that makes clients
//     try again. The Secret holds the older secrets of at least a day.
//   - Each replica measures from the time when it sees a change, by its own clock. Only a
//     replica that has just started uses the times in the Secret.
package certs

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/kubeutil"
)

// Certs holds the serving certificate of one replica. Its exported methods other
// than Reconcile can be called concurrently, and before the manager starts.
type Certs struct {
	keeper
	handover time.Duration
	steps    []func(context.Context, *scope) error

	serving atomic.Pointer[tls.Certificate]

	// next is the certificate that replaces serving, first seen at since. Only
	// Reconcile uses them.
	next  *tls.Certificate
	since time.Time
}

// handover is the time for which a certificate that replaces a good one waits, for API
// servers whose watch shows them the new bundle late.
const handover = 10 * time.Second

// New returns the certificate of one replica, which the controller of SetupWithManager keeps. The
// reader reads from the API server, past all caches.
func New(options Options, reader client.Reader, writer client.Client) (*Certs, error) {
	options.Mode = cmp.Or(options.Mode, SelfSigned)
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("webhook certificate: %w", err)
	}
	c := &Certs{handover: handover}
	c.init("Webhook certificate", options, reader, writer)
	c.steps = []func(context.Context, *scope) error{c.read, c.usable, c.serve}
	if options.Mode == SelfSigned {
		c.steps = []func(context.Context, *scope) error{c.readTrust, c.read, c.rotate, c.inject, c.serve, c.complete}
	}
	return c, nil
}

func (o Options) validate() error {
	if o.Mode != SelfSigned && o.Mode != FromSecret {
		return fmt.Errorf("mode %q is neither %q nor %q", o.Mode, SelfSigned, FromSecret)
	}
	if o.Namespace == "" || o.SecretName == "" {
		return errors.New("the Secret needs a namespace and a name")
	}
	if o.Mode == SelfSigned && (o.ServiceName == "" || !o.namesConfigurations()) {
		return errors.New("the Service and all webhook configurations need a name")
	}
	return nil
}

// names returns the names for which the certificate must be valid. The API server asks
// for the first.
func (o Options) names() []string {
	name := o.ServiceName + "." + o.Namespace + ".svc"
	return []string{name, name + ".cluster.local"}
}

// SetupWithManager adds the controller of the certificate to a manager that is not started yet.
// It counts its passes with the counter, if that is not nil.
func (c *Certs) SetupWithManager(mgr ctrl.Manager, passes kubeutil.PassCounter) error {
	if err := c.setup(mgr, c, passes); err != nil {
		return fmt.Errorf("webhook certificate: %w", err)
	}
	return nil
}

// GetCertificate returns the serving certificate, for [tls.Config]. It fails until a certificate
// is loaded.
func (c *Certs) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := c.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, errors.New(c.troubleText())
}

// NotAfter returns the time at which the served certificate expires, and false until a certificate
// is loaded.
func (c *Certs) NotAfter() (time.Time, bool) {
	if serving := c.serving.Load(); serving != nil {
		return serving.Leaf.NotAfter, true
	}
	return time.Time{}, false
}

// Check implements healthz.Checker for readyz. It returns nil once a certificate is loaded and
// (self-signed mode) all configurations trust it, which Ready reports, for as long as
// the certificate has not expired. A configuration that is deleted or emptied later
// does not make a replica unready: a pass repairs it while the other replicas still serve.
func (c *Certs) Check(*http.Request) error {
	if err := c.check(); err != nil {
		return err
	}
	if leaf := c.serving.Load().Leaf; c.options.Clock.Now().After(leaf.NotAfter) {
		return fmt.Errorf("webhook certificate: expired at %s: %s", leaf.NotAfter.Format(time.RFC3339), c.troubleText())
	}
	return nil
}

// All rights are limited to the objects' names. This is possible for `create` because the
// Secret is made by a patch.
//
// +kubebuilder:rbac:groups="",namespace=cadastre-system,resources=secrets,resourceNames=cadastre-webhook-server-cert;cadastre-webhook-path,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=zz-cadastre-mutating-webhook-configuration;aa-cadastre-cluster,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=cadastre-validating-webhook-configuration,verbs=get;list;watch;patch

// scope holds the state of one pass.
type scope struct {
	now            time.Time
	configurations []client.Object // by readTrust: the existing ones
	missing        []string        // by readTrust: the names of the missing ones
	secret         *corev1.Secret  // by read; nil if there is none
	held           secretContent   // by read, and by rotate if that changes it
	unusable       error           // by read: the reason why held.serving is nil
	again          time.Duration   // the time until the next pass; serve can shorten it
}

// Reconcile makes one pass. It does the same for every request.
func (c *Certs) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	s := &scope{now: c.options.Clock.Now(), again: recheck}
	for _, step := range c.steps {
		if err := step(ctx, s); err != nil {
			return c.failed(ctx, err, s.again)
		}
	}
	c.succeeded()
	return reconcile.Result{RequeueAfter: s.again}, nil
}

// readTrust reads the webhook configurations into the scope. It runs before read, so the Secret is at
// least as new as the bundles in the configurations.
func (c *Certs) readTrust(ctx context.Context, s *scope) (err error) {
	s.configurations, s.missing, err = c.readConfigurations(ctx)
	return err
}

func (c *Certs) read(ctx context.Context, s *scope) (err error) {
	if s.secret, err = c.readSecret(ctx); s.secret != nil {
		s.held, s.unusable = parseHeld(s.secret.Data)
	}
	return err
}

// rotate makes the Secret if it is missing, and writes the next certificates to it if they change.
func (c *Certs) rotate(ctx context.Context, s *scope) error {
	if s.secret == nil {
		return c.makeSecret(ctx)
	}
	next, news, err := s.held.next(s.now, c.options.names(), trusted(s.configurations))
	if err != nil {
		return fmt.Errorf("issuing: %w", err)
	}
	if news == "" {
		return nil
	}
	data, err := next.data()
	if err != nil {
		return fmt.Errorf("encoding: %w", err)
	}
	if err := c.writeSecret(ctx, s.secret, data); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Wrote the Secret of the webhooks: "+news, "expires", next.serving.Leaf.NotAfter)
	s.held = next
	return nil
}

// usable ends the pass if a Secret that others write has no certificate fit to serve.
// It does not check the authority in the Secret: the controller that injects the bundle may
// use another one.
func (c *Certs) usable(_ context.Context, s *scope) error {
	if s.secret == nil {
		return fmt.Errorf("%w for Secret %s", errWait, c.options.secret())
	}
	if s.unusable != nil {
		return reconcile.TerminalError(fmt.Errorf("reading Secret %s: %w", c.options.secret(), s.unusable))
	}
	if expiry := s.held.serving.Leaf.NotAfter; s.now.After(expiry) {
		return reconcile.TerminalError(fmt.Errorf("the certificate in Secret %s expired at %s",
			c.options.secret(), expiry.Format(time.RFC3339)))
	}
	return nil
}

// serve serves the Secret's certificate. If the certificate served now is trusted, it stays
// for the handover.
func (c *Certs) serve(ctx context.Context, s *scope) error {
	serving, fresh := c.serving.Load(), s.held.serving
	if serving != nil && isSameCertificate(serving, fresh) {
		c.next = nil
		return nil
	}
	if c.next == nil || !isSameCertificate(c.next, fresh) {
		c.next, c.since = fresh, s.now
	}
	if left := c.since.Add(c.handover).Sub(s.now); left > 0 && s.trusts(serving) {
		s.again = left
		return nil
	}
	c.serving.Store(fresh)
	c.next = nil
	log.FromContext(ctx).Info("Serving the webhooks with a new certificate",
		"serial", fresh.Leaf.SerialNumber.Text(16), "expires", fresh.Leaf.NotAfter)
	return nil
}

// trusts reports whether the API server accepts a certificate. If the Secret does not name the
// authorities, trusts assumes that the API server accepts the certificate until it expires.
func (s *scope) trusts(serving *tls.Certificate) bool {
	switch {
	case serving == nil:
		return false
	case len(s.held.bundle) == 0:
		return s.now.Before(serving.Leaf.NotAfter)
	default:
		return verify(serving, s.held.bundle, s.now) == nil
	}
}

// inject makes every webhook of the configurations trust the Secret's bundle.
func (c *Certs) inject(ctx context.Context, s *scope) error {
	bundle := encodeBundle(s.held.bundle)
	for _, configuration := range s.configurations {
		set := func() bool { return setBundle(configuration, bundle) }
		if err := c.changeConfiguration(ctx, configuration, set); err != nil {
			return err
		}
	}
	return nil
}

func (c *Certs) complete(_ context.Context, s *scope) error { return checkComplete(s.missing) }

// setBundle sets the bundle of every webhook, and reports whether this changes the configuration.
func setBundle(configuration client.Object, bundle []byte) bool {
	isChanged := false
	for _, webhook := range clientConfigs(configuration) {
		isChanged = isChanged || !bytes.Equal(webhook.CABundle, bundle)
		webhook.CABundle = bundle
	}
	return isChanged
}

// trusted returns the certificates in the configurations' bundles.
func trusted(configurations []client.Object) []*x509.Certificate {
	var all []*x509.Certificate
	for _, configuration := range configurations {
		for _, webhook := range clientConfigs(configuration) {
			all = append(all, ParseBundle(webhook.CABundle)...)
		}
	}
	return all
}
