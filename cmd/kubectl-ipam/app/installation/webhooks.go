package installation

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"slices"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

const (
	kindMutating   = "MutatingWebhookConfiguration"
	kindValidating = "ValidatingWebhookConfiguration"
)

// webhooks checks the webhook configurations, and the certificates and the Service that they refer
// to.
func (d *Doctor) webhooks(ctx context.Context) []Check {
	var checks []Check
	var all []*manifests.Webhook
	for _, c := range []struct{ check, kind, name string }{
		{"webhooks/mutating", kindMutating, MutatingWebhook},
		{"webhooks/validating", kindValidating, ValidatingWebhook},
	} {
		live, err := readWebhooks(ctx, d.Client, c.kind, c.name)
		switch {
		case apierrors.IsNotFound(err):
			checks = append(checks, failed(c.check, remedyManifests, "there is no %s %s", c.kind, c.name))
		case err != nil:
			checks = append(checks, unread(c.check, c.kind+" "+c.name, err))
		default:
			checks = append(checks, judgeWebhooks(c.check, live, manifests.Webhooks(c.kind, d.account())))
			all = append(all, live...)
		}
	}
	if len(all) > 0 {
		checks = append(checks, judgeTrust(all), d.service(ctx, all))
	}
	return checks
}

func readWebhooks(ctx context.Context, reader client.Reader, kind, name string) ([]*manifests.Webhook, error) {
	var found []*manifests.Webhook
	if kind == kindMutating {
		configuration := &admissionv1.MutatingWebhookConfiguration{}
		err := reader.Get(ctx, client.ObjectKey{Name: name}, configuration)
		for i := range configuration.Webhooks {
			found = append(found, manifests.WebhookOf(&configuration.Webhooks[i]))
		}
		return found, err
	}
	configuration := &admissionv1.ValidatingWebhookConfiguration{}
	err := reader.Get(ctx, client.ObjectKey{Name: name}, configuration)
	for i := range configuration.Webhooks {
		found = append(found, &manifests.Webhook{ValidatingWebhook: configuration.Webhooks[i]})
	}
	return found, err
}

// judgeWebhooks compares the webhooks of a configuration with the shipped ones.
func judgeWebhooks(name string, live []*manifests.Webhook, shipped map[string]*manifests.Webhook) Check {
	byName := map[string]*manifests.Webhook{}
	for _, w := range live {
		byName[w.Name] = w
	}
	var wrong []string
	for _, want := range slices.Sorted(maps.Keys(shipped)) {
		got := byName[want]
		if got == nil {
			wrong = append(wrong, want+" is missing")
			continue
		}
		for _, difference := range got.Differences(shipped[want]) {
			wrong = append(wrong, want+": "+difference)
		}
	}
	var unknownWebhooks []string
	for _, w := range live {
		if shipped[w.Name] == nil {
			unknownWebhooks = append(unknownWebhooks, w.Name)
		}
	}
	switch {
	case len(wrong) > 0:
		return failed(name, remedyManifests, "%s", strings.Join(wrong, "; "))
	case len(unknownWebhooks) > 0:
		return warned(name, "use a client of the operator's version, or apply the manifests of its version", "this client does not know %s", strings.Join(unknownWebhooks, ", "))
	}
	return ok(name, "all %d are as shipped", len(live))
}

// judgeTrust judges the parts of the configurations that the operator writes: the bundle and the
// path.
func judgeTrust(all []*manifests.Webhook) Check {
	const name, remedy = "webhooks/trust", "let the operator write it: it does so when it starts, and whenever that changes; see deployment and leader"
	first := all[0].ClientConfig.CABundle
	for _, w := range all {
		config := &w.ClientConfig
		switch {
		case len(config.CABundle) == 0:
			return failed(name, remedy, "%s has no caBundle, so the API server trusts no replica", w.Name)
		case len(certificatesIn(config.CABundle)) == 0:
			return failed(name, remedy, "the caBundle of %s has no certificate that can be read", w.Name)
		case !bytes.Equal(config.CABundle, first):
			return failed(name, remedy, "the caBundle of %s is not that of %s", w.Name, all[0].Name)
		case config.Service != nil && (config.Service.Path == nil || *config.Service.Path == "" || *config.Service.Path == "/"):
			return failed(name, remedy, "%s has no path", w.Name)
		}
	}
	return ok(name, "all %d trust one bundle, and have a path", len(all))
}

// service checks that the Service exists by which the webhooks are called.
func (d *Doctor) service(ctx context.Context, all []*manifests.Webhook) Check {
	const name = "webhooks/service"
	reference := all[0].ClientConfig.Service
	if reference == nil {
		return warned(name, remedyManifests, "%s is called by a URL and not by a Service", all[0].Name)
	}
	what := "Service " + reference.Namespace + "/" + reference.Name
	err := d.Client.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Name}, &corev1.Service{})
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, remedyManifests, "there is no %s", what)
	case err != nil:
		return unread(name, what, err)
	}
	return ok(name, "%s exists", what)
}

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
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, c := range bundle {
		roots.AddCert(c)
	}
	for _, c := range served[1:] {
		intermediates.AddCert(c)
	}
	if now.After(served[0].NotAfter) {
		return failed(name, remedy, "expired at %s", at(served[0].NotAfter))
	}
	if _, err := served[0].Verify(x509.VerifyOptions{DNSName: host, Roots: roots, Intermediates: intermediates, CurrentTime: now}); err != nil {
		return failed(name, "let the operator write the caBundle again; see deployment and leader", "the API server does not trust it: %v", err)
	}
	return judgeExpiry(name, served[:1], now, "the webhooks' certificate", "")
}

// judgeExpiry judges the certificate that ends first.
func judgeExpiry(name string, certificates []*x509.Certificate, now time.Time, what, addition string) Check {
	if addition != "" {
		addition = "; " + addition
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
		return failed(name, "see whether the operator runs: deployment and leader", "%s expired at %s%s", what, at(end), addition)
	case now.Add(expiresSoon).After(end):
		return warned(name, "see whether the operator runs, which renews it: deployment and leader", "%s expires at %s%s", what, at(end), addition)
	}
	return ok(name, "%s is trusted until %s%s", what, at(end), addition)
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
