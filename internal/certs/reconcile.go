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

// overlap is for how long after a certificate was issued the authorities before
// its own stay trusted: for replicas that have not loaded it yet.
const overlap = time.Hour

// The keys of the Secret, as cert-manager names the first three.
const (
	certificateKey = corev1.TLSCertKey
	privateKey     = corev1.TLSPrivateKeyKey
	bundleKey      = corev1.ServiceAccountRootCAKey
	authorityKey   = "ca.key"
)

// held is what the Secret holds. The zero value is that of a Secret without
// anything of use.
type held struct {
	authority *tls.Certificate    // signs; nil where there is none that can
	bundle    []*x509.Certificate // what is to be trusted; the authority is first
	serving   *tls.Certificate    // nil where there is none
}

// parseHeld reads the Secret's data. The error says why there is nothing to serve.
func parseHeld(data map[string][]byte) (held, error) {
	h := held{bundle: parseBundle(data[bundleKey])}
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

// data is what parseHeld reads. Both certificates have to be there.
func (h held) data() (map[string][]byte, error) {
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

// next decides what the Secret should hold instead of h, and says what is new;
// nothing is, where h is as it should be. It is so of every answer: what next
// returned for some moment and some names, it leaves alone at that moment.
//
// injected is what the configurations trust now. A new authority joins it, so
// that replicas can go on with the certificate that they serve, even one that the
// Secret does not hold any more.
func (h held) next(now time.Time, names []string, injected []*x509.Certificate) (held, string, error) {
	switch {
	case h.authority == nil || due(h.authority.Leaf, now):
		return h.withAuthority(now, names, injected)
	case h.serving == nil || due(h.serving.Leaf, now) || verify(h.serving, h.bundle[:1], now) != nil:
		return h.withServing(now, names, injected)
	case !covers(h.serving.Leaf, names):
		// The names that it has stay, or two releases of the operator that want
		// different ones would replace each other's certificate for ever.
		all := slices.Concat(names, h.serving.Leaf.DNSNames)
		slices.Sort(all)
		return h.withServing(now, slices.Compact(all), injected)
	case len(h.bundle) > 1 && !now.Before(issued(h.serving.Leaf).Add(overlap)):
		h.bundle = h.bundle[:1]
		return h, "only the present authority is trusted", nil
	}
	return h, "", nil
}

func (h held) withAuthority(now time.Time, names []string, injected []*x509.Certificate) (held, string, error) {
	authority, err := issueAuthority(now)
	if err != nil {
		return held{}, "", err
	}
	serving, err := issueServing(now, names, authority)
	if err != nil {
		return held{}, "", err
	}
	bundle := []*x509.Certificate{authority.Leaf}
	for _, trusted := range slices.Concat(h.bundle, injected) {
		if now.Before(trusted.NotAfter) && !slices.ContainsFunc(bundle, trusted.Equal) {
			bundle = append(bundle, trusted)
		}
	}
	return held{authority: authority, bundle: bundle, serving: serving}, "new authority and certificate", nil
}

func (h held) withServing(now time.Time, names []string, injected []*x509.Certificate) (held, string, error) {
	serving, err := issueServing(now, names, h.authority)
	if err != nil || verify(serving, h.bundle[:1], now) != nil {
		return h.withAuthority(now, names, injected) // this one is not fit to sign
	}
	h.serving = serving
	return h, "new certificate", nil
}

// readConfigurations comes before readSecret: whatever a configuration trusts, the
// Secret that is read then is as new as that, or newer.
func (c *Certs) readConfigurations(ctx context.Context, s *scope) (err error) {
	s.configurations, s.missing, err = readConfigurations(ctx, c.reader, c.options.MutatingWebhook, c.options.ValidatingWebhook)
	return err
}

// readConfigurations returns the webhook configurations that exist, and the names
// of those that do not.
func readConfigurations(ctx context.Context, reader client.Reader, mutating, validating string) (found []client.Object, missing []string, err error) {
	for _, wanted := range []struct {
		name string
		into client.Object
	}{
		{mutating, &admissionv1.MutatingWebhookConfiguration{}},
		{validating, &admissionv1.ValidatingWebhookConfiguration{}},
	} {
		err := reader.Get(ctx, types.NamespacedName{Name: wanted.name}, wanted.into)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, wanted.name)
		case err != nil:
			return nil, nil, fmt.Errorf("reading %s: %w", wanted.name, err)
		default:
			found = append(found, wanted.into)
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

// changeConfiguration writes what change does to a configuration, unless that is
// nothing or another has written it meanwhile.
func changeConfiguration(ctx context.Context, writer client.Writer, configuration client.Object, change func() bool, owner client.FieldOwner) error {
	before, _ := configuration.DeepCopyObject().(client.Object)
	if !change() {
		return nil
	}
	patch := client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	err := writer.Patch(ctx, configuration, patch, owner)
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("%w for %s, which is gone", errWait, configuration.GetName())
	}
	if err != nil {
		return fmt.Errorf("patching %s: %w", configuration.GetName(), err)
	}
	return nil
}

// setBundle reports whether that changes the configuration.
func setBundle(configuration client.Object, bundle []byte) bool {
	changed := false
	for _, webhook := range clientConfigs(configuration) {
		changed = changed || !bytes.Equal(webhook.CABundle, bundle)
		webhook.CABundle = bundle
	}
	return changed
}

// trusted are the certificates in the configurations' bundles.
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
