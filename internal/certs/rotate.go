package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

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
