package suite

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/cadastre-dev/cadastre/internal/testing/cluster"
)

// Leader waits until a replica leads, and returns it.
func (w *World) Leader() *cluster.Manager {
	w.Helper()
	var leader *cluster.Manager
	w.Await("a replica leads", func(context.Context) bool {
		i := slices.IndexFunc(w.Managers, func(m *cluster.Manager) bool { return m.Running() && w.leads(m) })
		if i >= 0 {
			leader = w.Managers[i]
		}
		return i >= 0
	})
	return leader
}

// leads reports whether a replica leads, by its log since it was last started: there the
// controller of claims, which only the leader runs, has begun, and has not ended since.
func (w *World) leads(m *cluster.Manager) bool {
	log, err := os.ReadFile(m.LogPath())
	Must(w, err)
	life := string(log)
	if i := strings.LastIndex(life, "\n--- "); i >= 0 {
		life = life[i:]
	}
	runs := false
	for line := range strings.Lines(life) {
		if strings.Contains(line, `controller="ipclaim"`) {
			runs = runs && !strings.Contains(line, "All workers finished") || strings.Contains(line, "Starting workers")
		}
	}
	return runs
}

// Processes returns the processes of the replicas.
func (w *World) Processes() []int {
	var pids []int
	for _, m := range w.Managers {
		pids = append(pids, m.PID())
	}
	return pids
}

// Unharmed fails the test if a replica ended, was started again, or panicked, since these were the
// Processes.
func (w *World) Unharmed(processes []int) {
	w.Helper()
	for i, m := range w.Managers {
		log, err := os.ReadFile(m.LogPath())
		Must(w, err)
		if !m.Running() || m.PID() != processes[i] || bytes.Contains(bytes.ToLower(log), []byte("panic")) {
			w.Errorf("%s ended or panicked: see %s", m.Name, m.LogPath())
		}
	}
}

// Memory returns a measure of the memory of a process, in bytes, such as VmRSS: see proc(5).
func Memory(t testing.TB, pid int, measure string) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Must(t, err)
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, measure+": %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	t.Fatalf("no %s in %s", measure, status)
	return 0
}

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

// Insecure returns a client that trusts every server, and has no certificate.
func Insecure(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
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
	response, err := Insecure(20 * time.Second).Do(req) // a replica signs its certificate itself, and the monitors do not check it either
	Must(w, err)
	answer, err := io.ReadAll(response.Body)
	Must(w, err)
	Must(w, response.Body.Close())
	return response.StatusCode, answer
}

// APIServerMetrics returns the metrics of the API server.
func (w *World) APIServerMetrics() map[string]*dto.MetricFamily {
	w.Helper()
	return Families(w, []byte(w.RunKubectl("get", "--raw", "/metrics")))
}

// Families parses the text of metrics.
func Families(t testing.TB, text []byte) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	Must(t, err)
	return families
}

// Labels returns the labels of a metric.
func Labels(metric *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range metric.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}
