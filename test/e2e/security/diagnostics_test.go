package security

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// diagnosticsAreGuarded asks without credentials, as a user, and as a user with the right.
func (w *world) diagnosticsAreGuarded() {
	plainAccount, reader := w.Account("plain-account"), w.Account("reader")
	w.Created(
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "diagnostics"}, Rules: []rbacv1.PolicyRule{{
			NonResourceURLs: []string{"/metrics", "/debug/pprof/*"}, Verbs: []string{"get"},
		}}},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "diagnostics"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "diagnostics"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "reader"}},
		})
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
