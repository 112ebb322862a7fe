package security

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
	"github.com/cadastre-dev/cadastre/test/framework/authority"
)

// diagnosticsAreGuarded asks without credentials, as a user, and as a user with the right.
func (w *world) diagnosticsAreGuarded() {
	plainAccount, reader := w.Account("plain-account"), w.Account("reader")
	w.Created(
		build.ClusterRole("diagnostics", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics", "/debug/pprof/*"}, Verbs: []string{"get"}}),
		build.ClusterBinding("diagnostics", "diagnostics", build.ServiceAccount("default", "reader")))
	for _, path := range []string{"/metrics", "/debug/pprof/cmdline", "/debug/pprof/heap"} {
		for _, c := range []struct {
			who, token string
			want       int
		}{
			{"nobody", "", http.StatusUnauthorized},
			{"a user with a forged token", "forged", http.StatusInternalServerError}, // as the library has it
			{"a user without the right", plainAccount, http.StatusForbidden},
			{"a user with the right", reader, http.StatusOK},
		} {
			code, answer := w.Diagnostics(0, path, c.token)
			if code != c.want {
				w.Errorf("%s to %s: %d, want %d", path, c.who, code, c.want)
			}
			if leads := `leader_election_master_status{name="cadastre.ipam.cadastre.dev"}`; path == "/metrics" && code == http.StatusOK && !bytes.Contains(answer, []byte(leads)) {
				w.Errorf("%s does not name the leader: no %s", path, leads)
			}
		}
	}
}

// sizeIsBounded sends a webhook a review that it allows, and the same with more in it than any
// object can have.
func (w *world) sizeIsBounded() {
	review := func(more int) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"1","operation":"UPDATE","dryRun":true,"namespace":"default",`+
			`"object":{"metadata":{"name":"c"},"spec":{}},"oldObject":{"metadata":{"name":"c","annotations":{"more":%q}},"spec":{}}}}`, strings.Repeat("x", more))
	}
	for _, sent := range []struct {
		name string
		body []byte
		code int32 // 0: it is allowed
	}{
		{"a review", review(1), 0},
		{"a review of 8 MiB", review(8 << 20), http.StatusRequestEntityTooLarge},
		{"nothing", nil, http.StatusBadRequest},
		{"no review", []byte("[]"), http.StatusBadRequest},
	} {
		answer := w.reviewed(bytes.NewReader(sent.body))
		if sent.code == 0 && !answer.Allowed || sent.code != 0 && (answer.Allowed || answer.Result.Code != sent.code) {
			w.Errorf("%s: %+v, want code %d", sent.name, answer, sent.code)
		}
	}
}

// timeIsBounded sends a webhook the beginning of a review, and never the rest.
func (w *world) timeIsBounded() {
	never, rest := io.Pipe()
	defer func() { suite.Must(w, rest.Close()) }()
	answer := w.reviewed(io.MultiReader(strings.NewReader(`{"apiVersion":`), never))
	if answer.Allowed || answer.Result.Code != http.StatusBadRequest {
		w.Errorf("half a review: %+v, want code %d", answer, http.StatusBadRequest)
	}
}

func (w *world) reviewed(body io.Reader) *admissionv1.AdmissionResponse {
	w.Helper()
	path := w.secretPaths()["create.ipclaim.ipam.cadastre.dev"]
	code, answer := w.post(suite.Insecure(20*time.Second), path, body)
	if code == http.StatusNotFound {
		w.Fatalf("%s: %d: %s", path, code, answer)
	}
	review := &admissionv1.AdmissionReview{}
	suite.Must(w, json.Unmarshal(answer, review))
	if review.Response == nil {
		w.Fatal("no response")
	}
	return review.Response
}

// post sends a review to a path of the first replica.
func (w *world) post(httpClient *http.Client, path string, body io.Reader) (int, []byte) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodPost, "https://"+w.Managers[0].WebhookAddress+path, body)
	suite.Must(w, err)
	req.Header.Set("Content-Type", "application/json")
	response, err := httpClient.Do(req)
	suite.Must(w, err)
	defer func() { suite.Must(w, response.Body.Close()) }()
	answer, err := io.ReadAll(io.LimitReader(response.Body, 1<<16))
	suite.Must(w, err)
	return response.StatusCode, answer
}

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
	mutating, validating := w.configurations()
	for _, configuration := range mutating {
		for i := range configuration.Webhooks {
			configuration.Webhooks[i].ClientConfig.CABundle = a.PEM
		}
		suite.Must(w, w.Update(w.Context(), configuration))
	}
	for i := range validating.Webhooks {
		validating.Webhooks[i].ClientConfig.CABundle = a.PEM
	}
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
