package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type step func(context.Context, *scope) error

// Reconcile makes one pass. Whatever the request, there is one thing to do.
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

// usable ends the pass where a Secret that others write has nothing fit to serve.
// Its authority is not asked: who injects the bundle may know better.
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

// serve serves the Secret's certificate. Where what is served now is trusted, that
// stays for the handover.
func (c *Certs) serve(ctx context.Context, s *scope) error {
	serving, fresh := c.serving.Load(), s.held.serving
	if serving != nil && same(serving, fresh) {
		c.next = nil
		return nil
	}
	if c.next == nil || !same(c.next, fresh) {
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

// trusts reports whether the API server accepts a certificate. It is taken to do
// so until the end where the Secret does not say which authority issued it.
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

// complete ends the pass, and keeps a replica that starts from being ready, where
// a configuration does not exist yet.
func (c *Certs) complete(_ context.Context, s *scope) error {
	if len(s.missing) > 0 {
		return fmt.Errorf("%w for %s", errWait, strings.Join(s.missing, " and "))
	}
	return nil
}
