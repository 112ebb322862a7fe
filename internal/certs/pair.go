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
	"errors"
	"slices"
	"time"
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

// parseBundle returns the readable certificates of a bundle, and skips the others.
func parseBundle(encoded []byte) []*x509.Certificate {
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

// parseAuthority reads the first certificate of a bundle and the key to sign with.
func parseAuthority(bundle, key []byte) (*tls.Certificate, error) {
	authority, err := tls.X509KeyPair(bundle, key)
	if err != nil {
		return nil, err
	}
	if !authority.Leaf.IsCA {
		return nil, errors.New("not a certificate authority")
	}
	return &authority, nil
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
