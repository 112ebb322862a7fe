package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// handover is for how long a certificate that replaces a good one waits: for API
// servers whose watch shows them the new bundle late.
const handover = 10 * time.Second

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

func newCerts(options Options, reader client.Reader, writer client.Client) (*Certs, error) {
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
