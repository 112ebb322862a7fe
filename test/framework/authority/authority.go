// Package authority issues certificates for tests, as an administrator or cert-manager would.
package authority

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/must"
)

// Authority signs certificates that are valid for an hour.
type Authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	// PEM is the authority's own certificate.
	PEM []byte
}

// New makes an authority.
func New(t testing.TB) Authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of a test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	must.Succeed(t, err)
	certificate, err := x509.ParseCertificate(der)
	must.Succeed(t, err)
	return Authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// Issue makes a certificate for a server or a client, and its key.
func (a Authority) Issue(t testing.TB, usage x509.ExtKeyUsage, names ...string) (certificate, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must.Succeed(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, own.Public(), a.key)
	must.Succeed(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(own)
	must.Succeed(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// File writes the authority's certificate into a file, for --webhook-client-ca.
func (a Authority) File(t testing.TB) string {
	t.Helper()
	return write(t, t.TempDir(), "ca.crt", a.PEM)
}

// AdmissionConfig writes the configuration by which an API server sends a client certificate to all
// webhooks, and returns the file for its --admission-control-config-file.
func AdmissionConfig(t testing.TB, certificate, key []byte) string {
	t.Helper()
	dir := t.TempDir()
	kubeconfig := write(t, dir, "webhooks.kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
users:
- name: cadastre-webhook-service.cadastre-system.svc
  user: {client-certificate: %[1]s, client-key: %[2]s}
- name: '*'
  user: {client-certificate: %[1]s, client-key: %[2]s}
`, write(t, dir, "client.crt", certificate), write(t, dir, "client.key", key)))
	return write(t, dir, "admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s}
`, kubeconfig))
}

func write(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.Succeed(t, os.WriteFile(path, content, 0o600))
	return path
}
