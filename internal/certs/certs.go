// Package certs keeps the webhooks' serving certificate: it has it issued, makes
// the API server trust it, and serves it from memory.
//
// One Secret holds everything: tls.crt and tls.key, which every replica serves,
// ca.crt, which the webhook configurations trust, and (self-signed mode only)
// ca.key, which signs. Each replica watches that Secret and the configurations,
// and each may write them; there is no leader. Every write carries the resource
// version that it was decided on, so of several replicas that decide at once one
// writes, and the others read what it wrote.
//
// In self-signed mode, no replica serves a certificate that the API server does
// not trust:
//
//   - The bundle comes first. A pass injects ca.crt into the configurations before
//     it serves tls.crt.
//   - A certificate that replaces a good one is served only after the [handover],
//     so that every API server has seen the bundle.
//   - A new authority is put in front of those that are trusted already; these
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
// open-policy-agent/cert-controller does not do this: it ends the process where
// the Secret or the mounted files are missing, does not make a deleted Secret
// again, counts a missing configuration as injected, and replaces the authority
// before anything trusts the new one. It also has to list all Secrets of the
// namespace, and its keys are RSA, which makes the handshakes slower.
//
// # Paths
//
// The webhooks have side effects, so they answer the API server alone: the paths in
// the configurations begin with a secret, and requests to other paths get 404. The
// manifests have no path, as they have no bundle; [Paths] injects it. A Secret of
// its own holds the present secret, when it was made, when both configurations had it,
// and those before it. It is apart from the certificate's, which another controller
// writes in FromSecret mode.
//
// The API server writes the path of a webhook that it could not call into its answer. A
// secret that may so have become known is replaced: one that was injected when a replica
// started, and one on whose path a request ended without its answer. That is at most one
// replacement in ten minutes, however many requests a client cancels; and one each hour.
//
// No webhook is called by a path that a replica does not answer:
//
//   - A new secret is injected when it is as old as the [handover]; all replicas
//     watch the Secret. One that has not seen it yet reads the Secret when it is
//     called by it.
//   - The secret before it is accepted until both configurations have the new one, and for
//     a minute then: also if a replica dies between the two writes. No other secret is
//     made before that.
//   - A request with one of the secrets before that, of which the Secret has those of a day
//     at least, is refused with HTTP 503 in a way that has clients try again.
//   - Replicas measure from when they see a change, by their own clocks; only one that
//     has just started goes by the times in the Secret.
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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// Certs is the serving certificate of one replica. Its exported methods other
// than Reconcile may be called concurrently, and before the manager starts.
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

// New is the certificate of one replica, which Setup keeps. The reader reads from the API
// server, past all caches.
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

// GetCertificate is for [tls.Config]. It fails until a certificate is loaded.
func (c *Certs) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if serving := c.serving.Load(); serving != nil {
		return serving, nil
	}
	return nil, errors.New(c.why())
}

// NotAfter is when the certificate that is served expires; false until one is loaded.
func (c *Certs) NotAfter() (time.Time, bool) {
	if serving := c.serving.Load(); serving != nil {
		return serving.Leaf.NotAfter, true
	}
	return time.Time{}, false
}

// Check is a healthz.Checker for readyz: nil from when a certificate is loaded and
// (self-signed mode) both configurations trust it, which Ready says, for as long as
// the certificate has not expired. A configuration that is deleted or emptied later
// does not make a replica unready: it is put right while the others still serve.
func (c *Certs) Check(*http.Request) error {
	if err := c.check(); err != nil {
		return err
	}
	if leaf := c.serving.Load().Leaf; c.options.Clock.Now().After(leaf.NotAfter) {
		return fmt.Errorf("webhook certificate: expired at %s: %s", leaf.NotAfter.Format(time.RFC3339), c.why())
	}
	return nil
}

// All rights are limited to the objects' names; `create` can be because the Secret
// is made by a patch.
//
// +kubebuilder:rbac:groups="",namespace=cadastre-system,resources=secrets,resourceNames=cadastre-webhook-server-cert;cadastre-webhook-path,verbs=get;list;watch;create;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=mutatingwebhookconfigurations,resourceNames=zz-cadastre-mutating-webhook-configuration,verbs=get;list;watch;patch
// +kubebuilder:rbac:groups=admissionregistration.k8s.io,resources=validatingwebhookconfigurations,resourceNames=cadastre-validating-webhook-configuration,verbs=get;list;watch;patch

// Mode says who issues the certificate.
type Mode string

const (
	// SelfSigned is for an operator that issues and renews it, with an authority of
	// its own that it injects into the webhook configurations.
	SelfSigned Mode = "self-signed"
	// FromSecret is for one that only reads the Secret: somebody else (cert-manager)
	// writes it and injects the bundle.
	FromSecret Mode = "secret"
)

// Options say which objects a [Certs] keeps.
type Options struct {
	// Mode is SelfSigned where it is empty.
	Mode Mode
	// Namespace is the operator's: that of the Secret and of the Service.
	Namespace string
	// SecretName is the Secret with the certificate.
	SecretName string
	// ServiceName is the Service by which the configurations name the webhooks.
	ServiceName string
	// MutatingWebhook and ValidatingWebhook are the configurations that have to
	// trust the certificate. They may be made after the operator has started.
	MutatingWebhook, ValidatingWebhook string
	// Tracer has a span for each pass. Nil: there are none.
	Tracer *tracing.Tracer
	// Clock is the real one where it is nil.
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

// names are those that the certificate has to be good for. The API server asks
// for the first.
func (o Options) names() []string {
	name := o.ServiceName + "." + o.Namespace + ".svc"
	return []string{name, name + ".cluster.local"}
}

// handover is for how long a certificate that replaces a good one waits: for API
// servers whose watch shows them the new bundle late.
const handover = 10 * time.Second

// recheck is how often a pass runs when nothing changes: often enough for all
// that is done when its time has come.
const recheck = time.Hour

// unreadyRecheck is how often it runs at least until one has reached its end: a replica
// that starts depends on no watch alone to become ready.
const unreadyRecheck = 5 * time.Second

// errWait ends a pass that can go on only after a write of somebody else. The
// watch of what they write starts the next one.
var errWait = errors.New("waiting")

// progress is how far the passes of one reconciler have got.
type progress struct {
	subject string                 // what its messages begin with
	trouble atomic.Pointer[string] // why the last pass did not reach its end
	ready   chan struct{}
	isReady sync.Once
}

// Ready is closed, for good, when a pass has reached its end.
func (p *progress) Ready() <-chan struct{} { return p.ready }

// succeeded notes that a pass has reached its end.
func (p *progress) succeeded() {
	p.trouble.Store(nil)
	p.isReady.Do(func() { close(p.ready) })
}

// conflictRecheck is how long the watch may take to show another replica's write.
const conflictRecheck = time.Second

// failed decides what the error of a pass means. A conflict is another replica's
// write, and on its way to the watch.
func (p *progress) failed(ctx context.Context, err error, again time.Duration) (reconcile.Result, error) {
	trouble := err.Error()
	before := p.trouble.Swap(&trouble)
	if p.check() != nil {
		again = min(again, unreadyRecheck)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: min(again, conflictRecheck)}, nil
	}
	if errors.Is(err, errWait) {
		if before == nil || *before != trouble {
			log.FromContext(ctx).Info(p.subject + ": " + trouble)
		}
		return reconcile.Result{RequeueAfter: again}, nil
	}
	return reconcile.Result{}, err
}

// check returns why no pass has reached its end yet.
func (p *progress) check() error {
	select {
	case <-p.ready:
		return nil
	default:
		return errors.New(p.why())
	}
}

func (p *progress) why() string {
	subject := strings.ToLower(p.subject)
	if trouble := p.trouble.Load(); trouble != nil {
		return subject + ": " + *trouble
	}
	return subject + ": not loaded yet"
}

// scope is what one pass knows.
type scope struct {
	now            time.Time
	configurations []client.Object // by readConfigurations: those that exist
	missing        []string        // by readConfigurations: those that do not
	secret         *corev1.Secret  // by readSecret; nil where there is none
	held           held            // by readSecret, and by rotate where that changes it
	unusable       error           // by readSecret: why held.serving is nil
	again          time.Duration   // when to run the next pass; serve may bring it forward
}

const fieldOwner = client.FieldOwner("cadastre-webhook-certificate")
