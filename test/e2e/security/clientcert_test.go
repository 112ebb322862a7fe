package security

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/authority"
)

// TestWebhooksUseExternalCertificates issues the webhooks' certificate and injects its authority outside
// the operator, as cert-manager does. The API server sends a client certificate.
func TestWebhooksUseExternalCertificates(t *testing.T) {
	a := authority.New(t)
	clientCert, clientKey := a.Issue(t, x509.ExtKeyUsageClientAuth, "kube-apiserver")
	w := &world{suite.Start(t, cluster.Options{
		Webhooks:       []string{"127.0.0.1:1"}, // no listener: the manager is to find its certificate
		ManagerArgs:    []string{"--webhook-cert-source=secret", "--webhook-client-ca=" + a.File(t)},
		APIServerFlags: map[string]string{"admission-control-config-file": authority.AdmissionConfig(t, clientCert, clientKey)},
	})}
	w.certificateOf(a)
	_, err := w.AddManager(t.Context())
	suite.Must(t, err)

	w.bundlesAre(a)
	both, err := tls.X509KeyPair(clientCert, clientKey)
	suite.Must(t, err)
	trustedClient := suite.Insecure(20 * time.Second)
	trustedClient.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{both}
	const name = "create.ipclaim.ipam.cadastre.dev"
	path := w.secretPaths()[name]

	w.Namespace("victim")
	w.Pools(build.Pool("asked").CIDR("10.30.0.0/24").Obj())
	if code, answer := w.post(trustedClient, plainPath(path), creation("victim", "asked")); code != http.StatusNotFound {
		t.Errorf("a client without the secret: %d %s, want %d", code, answer, http.StatusNotFound)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "https://"+w.Managers[0].WebhookAddress+path, creation("victim", "asked"))
	suite.Must(t, err)
	if response, err := suite.Insecure(20 * time.Second).Do(request); err == nil {
		_ = response.Body.Close()
		t.Errorf("a client without certificate: %d, want no connection", response.StatusCode)
	}
	if n := w.records("victim"); n != 0 {
		t.Errorf("%d blocks were recorded without a holder", n)
	}
	w.pathIsReplaced(trustedClient)
	w.bundlesAre(a)
}

// certificateOf puts a certificate into the Secret that the operator reads, and its
// authority into the configurations.
func (w *world) certificateOf(a authority.Authority) {
	w.Helper()
	name := "cadastre-webhook-service." + cluster.Namespace + ".svc"
	certificate, key := a.Issue(w, x509.ExtKeyUsageServerAuth, name)
	w.Created(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.Namespace, Name: "cadastre-webhook-server-cert"}, Type: corev1.SecretTypeTLS,
		Data: map[string][]byte{"tls.crt": certificate, "tls.key": key, "ca.crt": a.PEM},
	})
	mutating := &admissionregistrationv1.MutatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: mutatingWebhooks}, mutating))
	for i := range mutating.Webhooks {
		mutating.Webhooks[i].ClientConfig.CABundle = a.PEM
	}
	validating := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	suite.Must(w, w.Get(w.Context(), client.ObjectKey{Name: validatingWebhooks}, validating))
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = a.PEM
	}
	suite.Must(w, w.Update(w.Context(), mutating))
	suite.Must(w, w.Update(w.Context(), validating))
}

func (w *world) bundlesAre(a authority.Authority) {
	w.Helper()
	for name, config := range w.clientConfigs() {
		if strings.TrimSpace(string(config.CABundle)) != strings.TrimSpace(string(a.PEM)) {
			w.Errorf("%s does not have the bundle that another writer injected", name)
		}
	}
}
