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
// holds the present secret, the time when it was made, the time when both configurations
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
//   - The secret before it is accepted until both configurations have the new one, and for
//     a minute after that, even if a replica dies between the two writes. No other secret is
//     made before the end of that minute.
//   - A request with an older secret is refused with HTTP 503 in a way that makes clients
//     try again. The Secret holds the older secrets of at least a day.
//   - Each replica measures from the time when it sees a change, by its own clock. Only a
//     replica that has just started uses the times in the Secret.
package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Certs holds the serving certificate of one replica. Its exported methods other
// than Reconcile can be called concurrently, and before the manager starts.
type Certs struct {
	options  Options
	reader   client.Reader // reads from the API server
	writer   client.Client
	handover time.Duration
	steps    []step

	progress
	serving atomic.Pointer[tls.Certificate]

	// next is the certificate that replaces serving, first seen at since. Only
	// Reconcile uses them.
	next  *tls.Certificate
	since time.Time
}

// New returns the certificate of one replica, which the controller of SetupWithManager keeps. The
// reader reads from the API server, past all caches.
func New(options Options, reader client.Reader, writer client.Client) (*Certs, error) {
	if options.Mode == "" {
		options.Mode = SelfSigned
	}
	if options.Clock == nil {
		options.Clock = clock.RealClock{}
	}
	if err := options.validate(); err != nil {
		return nil, fmt.Errorf("webhook certificate: %w", err)
	}
	c := &Certs{options: options, reader: reader, writer: writer, handover: handover}
	c.subject, c.ready = "Webhook certificate", make(chan struct{})
	c.steps = []step{c.readSecret, c.usable, c.serve}
	if options.Mode == SelfSigned {
		c.steps = []step{c.readConfigurations, c.readSecret, c.rotate, c.inject, c.serve, c.complete}
	}
	return c, nil
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
// (self-signed mode) both configurations trust it, which Ready reports, for as long as
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
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=zz-cadastre-mutating-webhook-configuration,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=cadastre-validating-webhook-configuration,verbs=get;list;watch;patch

// Mode represents the issuer of the certificate.
type Mode string

const (
	// SelfSigned is the mode of an operator that issues and renews the certificate, with its
	// own authority, which it injects into the webhook configurations.
	SelfSigned Mode = "self-signed"
	// FromSecret is the mode of an operator that only reads the Secret: another controller
	// (cert-manager) writes it and injects the bundle.
	FromSecret Mode = "secret"
)

// Options holds the names of the objects that a [Certs] keeps, and its settings.
type Options struct {
	// Mode is the issuer of the certificate; empty means SelfSigned.
	Mode Mode
	// Namespace is the operator's namespace, with the Secret and the Service.
	Namespace string
	// SecretName is the Secret with the certificate.
	SecretName string
	// ServiceName is the Service by which the configurations name the webhooks.
	ServiceName string
	// MutatingWebhook and ValidatingWebhook are the configurations that must trust the
	// certificate. They can be made after the operator has started.
	MutatingWebhook, ValidatingWebhook string
	// Tracer makes a span for each pass. Nil means that there are no spans.
	Tracer trace.Tracer
	// Clock is the clock; nil means the real clock.
	Clock clock.PassiveClock
}

func (o Options) validate() error {
	if o.Mode != SelfSigned && o.Mode != FromSecret {
		return fmt.Errorf("mode %q is neither %q nor %q", o.Mode, SelfSigned, FromSecret)
	}
	if o.Namespace == "" || o.SecretName == "" {
		return errors.New("the Secret needs a namespace and a name")
	}
	if o.Mode == SelfSigned && (o.ServiceName == "" || o.MutatingWebhook == "" || o.ValidatingWebhook == "") {
		return errors.New("the Service and both webhook configurations need a name")
	}
	return nil
}

func (o Options) secret() types.NamespacedName {
	return types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName}
}

// names returns the names for which the certificate must be valid. The API server asks
// for the first.
func (o Options) names() []string {
	name := o.ServiceName + "." + o.Namespace + ".svc"
	return []string{name, name + ".cluster.local"}
}

// handover is the time for which a certificate that replaces a good one waits, for API
// servers whose watch shows them the new bundle late.
const handover = 10 * time.Second

// recheck is the interval between passes when nothing changes. It is short enough for all
// work that is due at a certain time.
const recheck = time.Hour

// unreadyRecheck is the longest interval between passes until one has reached its end, so that
// a replica that starts does not depend on a watch alone to become ready.
const unreadyRecheck = 5 * time.Second

// errWait ends a pass that can continue only after another process has written an object. The
// watch of that object starts the next pass.
var errWait = errors.New("waiting")

// progress holds the progress of the passes of one reconciler.
type progress struct {
	subject string                 // begins its messages
	trouble atomic.Pointer[string] // the reason why the last pass did not reach its end
	ready   chan struct{}
	isReady sync.Once
}

// Ready returns a channel that is closed, for good, when a pass has reached its end.
func (p *progress) Ready() <-chan struct{} { return p.ready }

// succeeded records that a pass has reached its end.
func (p *progress) succeeded() {
	p.trouble.Store(nil)
	p.isReady.Do(func() { close(p.ready) })
}

// conflictRecheck is the time that the watch gets to show another replica's write.
const conflictRecheck = time.Second

// failed decides on the next pass by the error of this one. A conflict means that another
// replica has written, and that the watch is about to show its write.
func (p *progress) failed(ctx context.Context, err error, delay time.Duration) (reconcile.Result, error) {
	trouble := err.Error()
	previous := p.trouble.Swap(&trouble)
	if p.check() != nil {
		delay = min(delay, unreadyRecheck)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: min(delay, conflictRecheck)}, nil
	}
	if errors.Is(err, errWait) {
		if previous == nil || *previous != trouble {
			log.FromContext(ctx).Info(p.subject + ": " + trouble)
		}
		return reconcile.Result{RequeueAfter: delay}, nil
	}
	return reconcile.Result{}, err
}

// check returns an error with the reason why no pass has reached its end yet, or nil if one has.
func (p *progress) check() error {
	select {
	case <-p.ready:
		return nil
	default:
		return errors.New(p.troubleText())
	}
}

func (p *progress) troubleText() string {
	subject := strings.ToLower(p.subject)
	if trouble := p.trouble.Load(); trouble != nil {
		return subject + ": " + *trouble
	}
	return subject + ": not loaded yet"
}

// scope holds the state of one pass.
type scope struct {
	now            time.Time
	configurations []client.Object // by readConfigurations: the existing ones
	missing        []string        // by readConfigurations: the names of the missing ones
	secret         *corev1.Secret  // by readSecret; nil if there is none
	held           secretContent   // by readSecret, and by rotate if that changes it
	unusable       error           // by readSecret: the reason why held.serving is nil
	again          time.Duration   // the time until the next pass; serve can shorten it
}

const fieldOwner = client.FieldOwner("cadastre-webhook-certificate")
