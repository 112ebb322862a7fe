package suite

import (
	"crypto/tls"
	"io"
	"net/http"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Account makes a service account in the namespace default, and returns a token of it.
func (w *World) Account(name string) string {
	w.Helper()
	w.Created(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}})
	clients, err := kubernetes.NewForConfig(w.Config())
	Must(w, err)
	token, err := clients.CoreV1().ServiceAccounts("default").CreateToken(w.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	Must(w, err)
	return token.Status.Token
}

// Diagnostics asks a replica at a path of its endpoint for metrics, such as /metrics, with a
// token or, if that is empty, without, and returns the code and the body of the answer.
func (w *World) Diagnostics(replica int, path, token string) (int, []byte) {
	w.Helper()
	req, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://"+w.Managers[replica].MetricsAddress+path, nil)
	Must(w, err)
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	// A replica signs its certificate itself, and the monitors do not check it either.
	over := &http.Client{Timeout: 20 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	response, err := over.Do(req)
	Must(w, err)
	answer, err := io.ReadAll(response.Body)
	Must(w, err)
	Must(w, response.Body.Close())
	return response.StatusCode, answer
}
