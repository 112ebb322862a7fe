package certs

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	authorityLife = 5 * 365 * 24 * time.Hour
	servingLife   = 90 * 24 * time.Hour
	// backdate is the time by which an API server's clock can be behind.
	backdate = time.Hour
)

// issueAuthority makes a certificate that can sign others.
func issueAuthority(now time.Time) (*tls.Certificate, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "cadastre webhooks authority"},
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(authorityLife),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}, nil)
}

// issueServing makes a certificate that is valid for these names.
func issueServing(now time.Time, names []string, authority *tls.Certificate) (*tls.Certificate, error) {
	return issue(&x509.Certificate{
		Subject:               pkix.Name{CommonName: "cadastre webhooks"},
		DNSNames:              names,
		NotBefore:             now.Add(-backdate),
		NotAfter:              now.Add(servingLife),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
	}, authority)
}

// issue makes a key and its certificate. The authority signs it, or the new key itself if the
// authority is nil.
func issue(template *x509.Certificate, authority *tls.Certificate) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	if authority == nil {
		authority = &tls.Certificate{Leaf: template, PrivateKey: key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, authority.Leaf, key.Public(), authority.PrivateKey)
	if err != nil {
		return nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// issued returns the time when a certificate was made, according to the certificate.
func issued(certificate *x509.Certificate) time.Time { return certificate.NotBefore.Add(backdate) }

// isDue reports whether a certificate must be replaced: two thirds of its life
// are over, or its life has not begun.
func isDue(certificate *x509.Certificate, now time.Time) bool {
	life := certificate.NotAfter.Sub(certificate.NotBefore)
	return now.Before(certificate.NotBefore) || !now.Before(certificate.NotBefore.Add(life/3*2))
}

// verify returns an error if a client that trusts roots does not trust a server with this
// certificate.
func verify(served *tls.Certificate, roots []*x509.Certificate, now time.Time) error {
	options := x509.VerifyOptions{
		Roots:         x509.NewCertPool(),
		Intermediates: x509.NewCertPool(),
		CurrentTime:   now,
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, root := range roots {
		options.Roots.AddCert(root)
	}
	for _, der := range served.Certificate[1:] {
		if intermediate, err := x509.ParseCertificate(der); err == nil {
			options.Intermediates.AddCert(intermediate)
		}
	}
	_, err := served.Leaf.Verify(options)
	return err
}

// covers reports whether a certificate is valid for all of these names.
func covers(certificate *x509.Certificate, names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return certificate.VerifyHostname(name) != nil })
}

func isSameCertificate(a, b *tls.Certificate) bool {
	return slices.EqualFunc(a.Certificate, b.Certificate, bytes.Equal)
}

// ParseBundle returns the readable certificates of a bundle, and skips the others.
func ParseBundle(encoded []byte) []*x509.Certificate {
	var bundle []*x509.Certificate
	for {
		var block *pem.Block
		if block, encoded = pem.Decode(encoded); block == nil {
			return bundle
		}
		if certificate, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			bundle = append(bundle, certificate)
		}
	}
}

// parseAuthority reads the first certificate of a bundle and the key to sign with. It returns nil
// if they are not readable, or not those of an authority.
func parseAuthority(bundle, key []byte) *tls.Certificate {
	authority, err := tls.X509KeyPair(bundle, key)
	if err != nil || !authority.Leaf.IsCA {
		return nil
	}
	return &authority
}

func encodeBundle(bundle []*x509.Certificate) []byte {
	var encoded bytes.Buffer
	for _, certificate := range bundle {
		encoded.Write(encodeBlock("CERTIFICATE", certificate.Raw))
	}
	return encoded.Bytes()
}

func encodeKey(pair *tls.Certificate) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	return encodeBlock("PRIVATE KEY", der), err
}

func encodeBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
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
	h := secretContent{bundle: ParseBundle(data[bundleKey]), authority: parseAuthority(data[bundleKey], data[authorityKey])}
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
