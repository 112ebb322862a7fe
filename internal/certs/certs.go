package certs

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
