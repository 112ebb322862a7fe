package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

type step func(context.Context, *scope) error

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

// complete ends the pass if a configuration does not exist yet, and so keeps a replica that
// starts from being ready.
func (c *Certs) complete(_ context.Context, s *scope) error {
	if len(s.missing) > 0 {
		return fmt.Errorf("%w for %s", errWait, strings.Join(s.missing, " and "))
	}
	return nil
}

// overlap is the time for which the previous authorities stay trusted after a certificate was
// issued, for replicas that have not loaded it yet.
const overlap = time.Hour

// These are the keys of the Secret. cert-manager uses the same names for the first three.
const (
	certificateKey = corev1.TLSCertKey
	privateKey     = corev1.TLSPrivateKeyKey
	bundleKey      = corev1.ServiceAccountRootCAKey
	authorityKey   = "ca.key"
)

// secretContent holds the content of the Secret. The zero value represents a Secret without useful data.
type secretContent struct {
	authority *tls.Certificate    // signs; nil if there is none that can sign
	bundle    []*x509.Certificate // the trusted certificates; the authority is first
	serving   *tls.Certificate    // nil if there is none
}

// parseHeld reads the Secret's data. It returns an error if there is no certificate to serve.
func parseHeld(data map[string][]byte) (secretContent, error) {
	h := secretContent{bundle: parseBundle(data[bundleKey])}
	if authority, err := parseAuthority(data[bundleKey], data[authorityKey]); err == nil {
		h.authority = authority
	}
	serving, err := tls.X509KeyPair(data[certificateKey], data[privateKey])
	if err != nil {
		return h, fmt.Errorf("%s and %s: %w", certificateKey, privateKey, err)
	}
	h.serving = &serving
	return h, nil
}

// data returns the data of the Secret, which parseHeld reads. h must have both certificates.
func (h secretContent) data() (map[string][]byte, error) {
	key, err := encodeKey(h.serving)
	if err != nil {
		return nil, err
	}
	signingKey, err := encodeKey(h.authority)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{
		certificateKey: encodeBundle([]*x509.Certificate{h.serving.Leaf}),
		privateKey:     key,
		bundleKey:      encodeBundle(h.bundle),
		authorityKey:   signingKey,
	}, nil
}

// next returns the content that the Secret should have instead of h, and a message about the
// change. The message is empty if h is as it should be. next is idempotent: it leaves its own
// result alone for the same moment and the same names.
//
// injected holds the authorities that the configurations trust now. A new authority joins them,
// so that replicas can continue to serve their certificate, even if the Secret does not hold it
// any more.
func (h secretContent) next(now time.Time, names []string, injected []*x509.Certificate) (secretContent, string, error) {
	switch {
	case h.authority == nil || isDue(h.authority.Leaf, now):
		return h.withAuthority(now, names, injected)
	case h.serving == nil || isDue(h.serving.Leaf, now) || verify(h.serving, h.bundle[:1], now) != nil:
		return h.withServing(now, names, injected)
	case !covers(h.serving.Leaf, names):
		// The certificate keeps its names. Otherwise two releases of the operator that want
		// different names would replace each other's certificate for ever.
		all := slices.Concat(names, h.serving.Leaf.DNSNames)
		slices.Sort(all)
		return h.withServing(now, slices.Compact(all), injected)
	case len(h.bundle) > 1 && !now.Before(issued(h.serving.Leaf).Add(overlap)):
		h.bundle = h.bundle[:1]
		return h, "only the present authority is trusted", nil
	}
	return h, "", nil
}

func (h secretContent) withAuthority(now time.Time, names []string, injected []*x509.Certificate) (secretContent, string, error) {
	authority, err := issueAuthority(now)
	if err != nil {
		return secretContent{}, "", err
	}
	serving, err := issueServing(now, names, authority)
	if err != nil {
		return secretContent{}, "", err
	}
	bundle := []*x509.Certificate{authority.Leaf}
	for _, trusted := range slices.Concat(h.bundle, injected) {
		if now.Before(trusted.NotAfter) && !slices.ContainsFunc(bundle, trusted.Equal) {
			bundle = append(bundle, trusted)
		}
	}
	return secretContent{authority: authority, bundle: bundle, serving: serving}, "new authority and certificate", nil
}

func (h secretContent) withServing(now time.Time, names []string, injected []*x509.Certificate) (secretContent, string, error) {
	serving, err := issueServing(now, names, h.authority)
	if err != nil || verify(serving, h.bundle[:1], now) != nil {
		return h.withAuthority(now, names, injected) // this authority is not fit to sign
	}
	h.serving = serving
	return h, "new certificate", nil
}

// readConfigurations reads the webhook configurations into the scope. It runs before readSecret,
// so the Secret is at least as new as the bundles in the configurations.
func (c *Certs) readConfigurations(ctx context.Context, s *scope) (err error) {
	s.configurations, s.missing, err = readConfigurations(ctx, c.reader, c.options.MutatingWebhook, c.options.ValidatingWebhook)
	return err
}

// readConfigurations returns the webhook configurations that exist, and the names
// of the missing ones.
func readConfigurations(ctx context.Context, reader client.Reader, mutating, validating string) (found []client.Object, missing []string, err error) {
	for _, configuration := range []struct {
		name string
		into client.Object
	}{
		{mutating, &admissionv1.MutatingWebhookConfiguration{}},
		{validating, &admissionv1.ValidatingWebhookConfiguration{}},
	} {
		err := reader.Get(ctx, types.NamespacedName{Name: configuration.name}, configuration.into)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, configuration.name)
		case err != nil:
			return nil, nil, fmt.Errorf("reading %s: %w", configuration.name, err)
		default:
			found = append(found, configuration.into)
		}
	}
	return found, missing, nil
}

// inject makes every webhook of the configurations trust the Secret's bundle.
func (c *Certs) inject(ctx context.Context, s *scope) error {
	bundle := encodeBundle(s.held.bundle)
	for _, configuration := range s.configurations {
		set := func() bool { return setBundle(configuration, bundle) }
		if err := changeConfiguration(ctx, c.writer, configuration, set, fieldOwner); err != nil {
			return err
		}
	}
	return nil
}

// changeConfiguration calls change and writes the changed configuration. It writes nothing if
// change reports no change, and fails if the configuration has changed since it was read.
func changeConfiguration(ctx context.Context, writer client.Writer, configuration client.Object, change func() bool, owner client.FieldOwner) error {
	original, _ := configuration.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	patch := client.StrategicMergeFrom(original, client.MergeFromWithOptimisticLock{})
	err := writer.Patch(ctx, configuration, patch, owner)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w for %s, which is gone", errWait, configuration.GetName())
	}
	if err != nil {
		return fmt.Errorf("patching %s: %w", configuration.GetName(), err)
	}
	return nil
}

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
			all = append(all, parseBundle(webhook.CABundle)...)
		}
	}
	return all
}

func clientConfigs(configuration client.Object) []*admissionv1.WebhookClientConfig {
	var configs []*admissionv1.WebhookClientConfig
	each(configuration, func(_ string, config *admissionv1.WebhookClientConfig) { configs = append(configs, config) })
	return configs
}

// each calls do for every webhook of a configuration.
func each(configuration client.Object, do func(name string, config *admissionv1.WebhookClientConfig)) {
	switch configuration := configuration.(type) {
	case *admissionv1.MutatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			do(configuration.Webhooks[i].Name, &configuration.Webhooks[i].ClientConfig)
		}
	case *admissionv1.ValidatingWebhookConfiguration:
		for i := range configuration.Webhooks {
			do(configuration.Webhooks[i].Name, &configuration.Webhooks[i].ClientConfig)
		}
	}
}
