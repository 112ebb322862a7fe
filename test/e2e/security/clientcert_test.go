package security

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/test/framework/build"
	"github.com/cadastre-dev/cadastre/test/framework/cluster"
	"github.com/cadastre-dev/cadastre/test/framework/suite"
)

// authority signs certificates: what cert-manager does for the webhooks, and an
// administrator for the clients.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	pem         []byte
}

func newAuthority(t *testing.T) authority {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "somebody else"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	suite.Must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	suite.Must(t, err)
	certificate, err := x509.ParseCertificate(der)
	suite.Must(t, err)
	return authority{certificate, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue makes a certificate for a server or a client, and its key.
func (a authority) issue(t testing.TB, usage x509.ExtKeyUsage, names ...string) (certificate, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: names[0]}, DNSNames: names,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	suite.Must(t, err)
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, own.Public(), a.key)
	suite.Must(t, err)
	encoded, err := x509.MarshalPKCS8PrivateKey(own)
	suite.Must(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: encoded})
}

// sendsCertificates writes what has an API server send a client certificate to all
// webhooks, and returns the file for its --admission-control-config-file.
func sendsCertificates(t *testing.T, certificate, key []byte) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		suite.Must(t, os.WriteFile(path, content, 0o600))
		return path
	}
	kubeconfig := write("webhooks.kubeconfig", fmt.Appendf(nil, `apiVersion: v1
kind: Config
users:
- name: cadastre-webhook-service.cadastre-system.svc
  user: {client-certificate: %[1]s, client-key: %[2]s}
- name: '*'
  user: {client-certificate: %[1]s, client-key: %[2]s}
`, write("client.crt", certificate), write("client.key", key)))
	return write("admission.yaml", fmt.Appendf(nil, `apiVersion: apiserver.config.k8s.io/v1
kind: AdmissionConfiguration
plugins:
- name: MutatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s}
- name: ValidatingAdmissionWebhook
  configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: WebhookAdmissionConfiguration, kubeConfigFile: %[1]s}
`, kubeconfig))
}

// TestWithCertificatesOfOthers has somebody else issue the webhooks' certificate and
// inject its authority, as cert-manager does, and the API server send a certificate
// of its own.
func TestWithCertificatesOfOthers(t *testing.T) {
	a := newAuthority(t)
	clientCert, clientKey := a.issue(t, x509.ExtKeyUsageClientAuth, "kube-apiserver")
	clientCA := filepath.Join(t.TempDir(), "ca.crt")
	suite.Must(t, os.WriteFile(clientCA, a.pem, 0o600))
	w := &world{suite.Start(t, cluster.Options{
		Webhooks:       []string{"127.0.0.1:1"}, // nobody: the manager is to find its certificate
		ManagerArgs:    []string{"--webhook-cert-source=secret", "--webhook-client-ca=" + clientCA},
		APIServerFlags: map[string]string{"admission-control-config-file": sendsCertificates(t, clientCert, clientKey)},
	})}
	w.certificateOf(a)
	_, err := w.AddManager(t.Context())
	suite.Must(t, err)

	w.bundlesAre(a)
	both, err := tls.X509KeyPair(clientCert, clientKey)
	suite.Must(t, err)
	known := insecure()
	known.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{both}
	const name = "create.ipclaim.ipam.cadastre.dev"
	path := w.secretPaths()[name]

	w.Namespace("victim")
	w.Pools(build.Pool("asked").CIDR("10.30.0.0/24").Obj())
	if code, answer := w.post(known, plainPath(path), creation("victim", "asked")); code != http.StatusNotFound {
		t.Errorf("a client without the secret: %d %s, want %d", code, answer, http.StatusNotFound)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.Managers[0].WebhookAddress+path, creation("victim", "asked"))
	suite.Must(t, err)
	if response, err := insecure().Do(request); err == nil {
		_ = response.Body.Close()
		t.Errorf("a client without certificate: %d, want no connection", response.StatusCode)
	}
	if n := w.records("victim"); n != 0 {
		t.Errorf("%d blocks were recorded for nobody", n)
	}
	w.pathIsReplaced(known)
	w.bundlesAre(a)
}

// certificateOf puts a certificate into the Secret that the operator reads, and its
// authority into the configurations.
func (w *world) certificateOf(a authority) {
	w.Helper()
	name := "cadastre-webhook-service." + cluster.Namespace + ".svc"
	certificate, key := a.issue(w, x509.ExtKeyUsageServerAuth, name)
	w.Created(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "cadastre-webhook-server-cert"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": a.pem},
	})
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: mutatingWebhooks}, mutating))
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = a.pem
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: validatingWebhooks}, validating))
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = a.pem
	}
	suite.Must(w, w.Update(w.Context(), mutating))
	suite.Must(w, w.Update(w.Context(), validating))
}

func (w *world) bundlesAre(a authority) {
	w.Helper()
	for name, config := range w.clientConfigs() {
		if strings.TrimSpace(string(config.CABundle)) != strings.TrimSpace(string(a.pem)) {
			w.Errorf("%s does not have the bundle that somebody else injected", name)
		}
	}
}
