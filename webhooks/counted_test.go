package webhooks

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/metrics"
)

// registered keeps what is registered.
type registered struct {
	webhook.Server
	hook http.Handler
}

func (r *registered) Register(_ string, hook http.Handler) { r.hook = hook }

func TestRefusalsAreCountedByTheirCode(t *testing.T) {
	counter, server := metrics.New(clock.RealClock{}), &registered{}
	answers := map[string]admission.Response{
		"allowed":   admission.Allowed(""),
		"denied":    admission.Denied("no"),
		"conflict":  denied(subject{kind: "IPClaim", plural: "ipclaims"}.conflict(errors.New("taken"))),
		"exhausted": admission.Errored(http.StatusInsufficientStorage, errors.New("full")),
	}
	countingServer{server, counter}.Register("/path", &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response { return answers[req.Name] })})
	handler := server.hook.(*admission.Webhook).Handler
	for name := range answers {
		req := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Name: name, Operation: admissionv1.Create, Resource: metav1.GroupVersionResource{Resource: "ipclaims"},
		}}
		if response := handler.Handle(t.Context(), req); response.Allowed != answers[name].Allowed {
			t.Errorf("%s: the answer was changed", name)
		}
	}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(counter.Collectors()...)
	want := "# HELP cadastre_webhook_refusals_total " + metrics.Of(metrics.Refusals).Help + `
# TYPE cadastre_webhook_refusals_total counter
cadastre_webhook_refusals_total{code="403",operation="create",resource="ipclaims"} 1
cadastre_webhook_refusals_total{code="409",operation="create",resource="ipclaims"} 1
cadastre_webhook_refusals_total{code="507",operation="create",resource="ipclaims"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.Refusals); err != nil {
		t.Error(err)
	}
}
