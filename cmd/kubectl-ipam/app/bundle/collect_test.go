package bundle

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/cadastre-dev/cadastre/cmd/kubectl-ipam/app/installation"
)

// kubelet answers requests for logs as the API server does by a kubelet, and notes them.
type kubelet struct {
	// logs by container; of one that was restarted, with the suffix /previous.
	logs  map[string]string
	asked map[string]url.Values
}

func (k *kubelet) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name := query.Get("container")
	if query.Get("previous") == "true" {
		name += "/previous"
	}
	text, has := k.logs[name]
	if r.URL.Path != "/api/v1/namespaces/system/pods/manager-0/log" || !has {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		fmt.Fprint(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"pods/log is forbidden: Bearer hush.hush"}`)
		return
	}
	k.asked[name] = query
	fmt.Fprint(w, text)
}

// collected returns the logs in a bundle of a pod with the containers manager, which was restarted,
// and proxy.
func collected(t *testing.T, k *kubelet) (files map[string]string, index Index) {
	t.Helper()
	k.asked = map[string]url.Values{}
	server := httptest.NewServer(k)
	defer server.Close()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "manager-0", Labels: installation.Labels()},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "manager"}, {Name: "proxy"}}},
		Status:     corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "manager", RestartCount: 1}, {Name: "proxy"}}},
	}
	stranger := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "system", Name: "stranger"}, Spec: pod.Spec}
	webhooks := &admissionv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "ours"},
		Webhooks:   []admissionv1.MutatingWebhook{{Name: "a", ClientConfig: admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Path: new("/hush-path/mutate")}}}},
	}
	c := &Collector{
		Client:  fake.NewClientBuilder().WithObjects(pod, stranger, webhooks).Build(),
		Clients: kubernetes.NewForConfigOrDie(&rest.Config{Host: server.URL}), Operator: "system",
	}
	var buffer bytes.Buffer
	a := &archive{Writer: zip.NewWriter(&buffer), filter: &Filter{}, now: time.Unix(1, 0)}
	c.learn(t.Context(), a.filter)
	if err := c.logs(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	return unzipped(t, buffer.Bytes()), a.index
}

func unzipped(t *testing.T, content []byte) map[string]string {
	t.Helper()
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, file := range archive.File {
		reader, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		files[file.Name] = string(text)
	}
	return files
}

// TestBundledLogsOmitSecrets expects the logs of all containers of the operator's pods,
// and of the former life of one that was restarted.
func TestBundledLogsOmitSecrets(t *testing.T) {
	const line = "2026-01-02T03:04:05Z started\n"
	k := &kubelet{logs: map[string]string{
		"manager": line + "calling Post https://svc/hush-path/mutate: EOF\n" +
			"request Authorization: Bearer hush.hush\n" +
			"2026-01-02T03:04:05Z -----BEGIN EC PRIVATE KEY-----\n2026-01-02T03:04:05Z hush\n2026-01-02T03:04:05Z -----END EC PRIVATE KEY-----\nend\n",
		"manager/previous": line + "proxy http://user:hush@proxy:3128\n",
	}}
	files, index := collected(t, k)
	want := map[string]string{
		"logs/manager-0.manager.log": line + "calling Post https://svc/<redacted>/mutate: EOF\n" +
			"request Authorization: Bearer <redacted>\n2026-01-02T03:04:05Z <redacted>\nend\n",
		"logs/manager-0.manager.previous.log": line + "proxy http://<redacted>@proxy:3128\n",
	}
	if diff := cmp.Diff(want, files); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	unread := []Unread{{What: "logs/manager-0.proxy.log", Why: "pods/log is forbidden: Bearer <redacted>"}}
	if diff := cmp.Diff(unread, index.Unread); diff != "" {
		t.Errorf("what could not be read, -want +got:\n%s", diff)
	}
	for _, name := range []string{"manager", "manager/previous"} {
		if got := k.asked[name]; got.Get("tailLines") != "5000" || got.Get("timestamps") != "true" {
			t.Errorf("%s was asked for with %v", name, got)
		}
	}
}

// TestLongLogKeepsLastLines covers a log that is too long: whole lines are kept, the last ones.
func TestLongLogKeepsLastLines(t *testing.T) {
	for _, size := range []int{logBytes - 100, logBytes + 100, 5*logBytes + 77} {
		var log strings.Builder
		for n := 0; log.Len() < size; n++ {
			fmt.Fprintf(&log, "line %d\n", n)
		}
		files, _ := collected(t, &kubelet{logs: map[string]string{"manager": log.String(), "manager/previous": "", "proxy": ""}})
		got := files["logs/manager-0.manager.log"]
		isWhole := got == log.String()
		if !strings.HasSuffix(log.String(), got) || !strings.HasPrefix(got, "line ") || len(got) > logBytes || len(got) < min(size, logBytes-20) || isWhole != (size < logBytes) {
			t.Errorf("of %d bytes %d are kept, from %.20q to %q", log.Len(), len(got), got, got[max(0, len(got)-20):])
		}
	}
}
