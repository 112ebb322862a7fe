package installation

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// expiresSoon is the time before its end at which a certificate should have been renewed: the
// operator renews it a month before.
const expiresSoon = 14 * 24 * time.Hour

// certificates checks the certificate that the webhooks serve if the caller can read its Secret,
// else the certificates that the configurations trust.
func (d *Doctor) certificates(ctx context.Context) []Check {
	const name = "certificate"
	live, err := readWebhooks(ctx, d.Client, kindMutating, MutatingWebhook)
	if err != nil || len(live) == 0 {
		return []Check{skipped(name, "there are no webhooks that you may read")}
	}
	bundle := certificatesIn(live[0].ClientConfig.CABundle)
	secret := &corev1.Secret{}
	what := "Secret " + d.Operator + "/" + CertificateSecret
	err = d.Client.Get(ctx, client.ObjectKey{Namespace: d.Operator, Name: CertificateSecret}, secret)
	switch {
	case apierrors.IsForbidden(err):
		return []Check{judgeExpiry(name, bundle, d.Now(), "the authority of the webhooks' certificate", "you may not read "+what)}
	case apierrors.IsNotFound(err):
		return []Check{failed(name, "let the operator or cert-manager write it; see deployment and leader", "there is no %s", what)}
	case err != nil:
		return []Check{unread(name, what, err)}
	}
	var host string
	if service := live[0].ClientConfig.Service; service != nil {
		host = service.Name + "." + service.Namespace + ".svc"
	}
	return []Check{judgeCertificate(certificatesIn(secret.Data[corev1.TLSCertKey]), bundle, host, d.Now())}
}

// judgeCertificate judges whether an API server that trusts the bundle accepts a server of
// the name with the certificate.
func judgeCertificate(served, bundle []*x509.Certificate, host string, now time.Time) Check {
	const name, remedy = "certificate", "delete the Secret " + CertificateSecret + ", and the operator issues another; with cert-manager, see its Certificate"
	if len(served) == 0 {
		return failed(name, remedy, "the Secret has no certificate that can be read")
	}
	roots, between := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range bundle {
		roots.AddCert(c)
	}
	for _, c := range served[1:] {
		between.AddCert(c)
	}
	if now.After(served[0].NotAfter) {
		return failed(name, remedy, "expired at %s", at(served[0].NotAfter))
	}
	if _, err := served[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: between, CurrentTime: now}); err != nil {
		return failed(name, "let the operator write the caBundle anew; see deployment and leader", "the API server does not trust it: %v", err)
	}
	return judgeExpiry(name, served[:1], now, "the webhooks' certificate", "")
}

// judgeExpiry judges the certificate that ends first.
func judgeExpiry(name string, certificates []*x509.Certificate, now time.Time, what, beside string) Check {
	if beside != "" {
		beside = "; " + beside
	}
	if len(certificates) == 0 {
		return skipped(name, "there is none that you may read")
	}
	end := certificates[0].NotAfter
	for _, c := range certificates[1:] {
		if c.NotAfter.Before(end) {
			end = c.NotAfter
		}
	}
	switch {
	case now.After(end):
		return failed(name, "see whether the operator runs: deployment and leader", "%s expired at %s%s", what, at(end), beside)
	case now.Add(expiresSoon).After(end):
		return warned(name, "see whether the operator runs, which renews it: deployment and leader", "%s expires at %s%s", what, at(end), beside)
	}
	return ok(name, "%s is trusted until %s%s", what, at(end), beside)
}

func at(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// certificatesIn returns the readable certificates of a PEM text.
func certificatesIn(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && block.Type == "CERTIFICATE" {
			all = append(all, c)
		}
	}
}
