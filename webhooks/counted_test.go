package webhooks

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/testing/entries"
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
	observedServer{server, observer{refusals: refusals{counter, nil}}}.Register("/path", &admission.Webhook{Handler: admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response { return answers[req.Name] })})
	handler := server.hook.(*reviewer).hook.Handler
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

// TestRefusalBeforeTheHandlerIsCounted has requests that no handler sees: one that is too large,
// one that is no review, one while all room for small ones is taken, and a large one whose time
// is up while another is handled.
func TestRefusalBeforeTheHandlerIsCounted(t *testing.T) {
	counter, server, busy := metrics.New(clock.RealClock{}), &registered{}, newInFlight()
	observedServer{server, observer{refusals: refusals{counter, nil}, inFlight: busy}}.Register("/path", &admission.Webhook{Handler: admission.HandlerFunc(
		func(context.Context, admission.Request) admission.Response {
			t.Error("a handler is called")
			return admission.Allowed("")
		})})
	send := func(ctx context.Context, body string, want int) {
		t.Helper()
		if code, _ := sentTo(ctx, t, server.hook, body); code != want {
			t.Errorf("it is answered %d, want %d", code, want)
		}
	}
	send(t.Context(), reviewOf(maxRequestBytes), http.StatusRequestEntityTooLarge)
	send(t.Context(), "{", http.StatusBadRequest)
	late, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, busy.turn.Acquire(t.Context(), 1))
	named := `{"request":{"uid":"u-1","operation":"CREATE","resource":{"resource":"ipclaims"},"object":{"a":"` + strings.Repeat("x", smallRequestBytes) + `"}}}`
	send(late, named, http.StatusTooManyRequests)
	must(t, busy.small.Acquire(t.Context(), smallBytes))
	send(t.Context(), reviewOf(2), http.StatusTooManyRequests)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(counter.Collectors()...)
	want := "# HELP cadastre_webhook_refusals_total " + metrics.Of(metrics.Refusals).Help + `
# TYPE cadastre_webhook_refusals_total counter
cadastre_webhook_refusals_total{code="400",operation="",resource=""} 1
cadastre_webhook_refusals_total{code="413",operation="",resource=""} 1
cadastre_webhook_refusals_total{code="429",operation="",resource=""} 1
cadastre_webhook_refusals_total{code="429",operation="create",resource="ipclaims"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), metrics.Refusals); err != nil {
		t.Error(err)
	}
}

// TestRefusalsAreInTheHistory with who was refused what, but for dry runs, which were to
// change nothing.
func TestRefusalsAreInTheHistory(t *testing.T) {
	recorder, take := entries.Recorder()
	conflict := denied(subject{kind: "IPClaim", plural: "ipclaims", name: "shop"}.conflict(errors.New("taken")))
	handler := refusals{metrics.New(clock.RealClock{}), recorder}.of(admission.HandlerFunc(
		func(_ context.Context, req admission.Request) admission.Response {
			if req.Name == "allowed" {
				return admission.Allowed("")
			}
			return conflict
		}))
	ask := func(name, object string, dryRun bool) {
		handler.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind{Kind: "IPClaim"}, Namespace: "team", Name: name, Operation: admissionv1.Create, DryRun: &dryRun,
			Object: runtime.RawExtension{Raw: []byte(object)}, UserInfo: authenticationv1.UserInfo{Username: "alice"},
		}})
	}
	ask("allowed", `{}`, false)
	ask("tried", `{"spec":{"cidr":"10.0.0.0/24"}}`, true)
	ask("shop", `{"spec":{"cidr":"10.0.0.0/24"}}`, false)
	ask("address", `{"spec":{"address":"10.0.0.7"}}`, false)
	ask("odd", `{"spec":{"cidr":["10.0.0.0/24"]}}`, false)
	ask("wrong", `{"spec":{"cidr":"10.0.0.0/99"}}`, false)
	var got []string
	for _, e := range take() {
		got = append(got, fmt.Sprintf("%s %s %s %s/%s %s %d %s", e.Action, e.Operation, e.HolderKind, e.HolderNamespace, e.Holder, e.Block, e.Code, e.Reason))
		if e.RequestedBy != "alice" || !strings.Contains(e.Message, "taken") {
			t.Errorf("entry %+v, want the user and the message", e)
		}
	}
	want := []string{
		"Refused CREATE IPClaim team/shop 10.0.0.0/24 409 Conflict",
		"Refused CREATE IPClaim team/address 10.0.0.7/32 409 Conflict",
		"Refused CREATE IPClaim team/odd invalid Prefix 409 Conflict",
		"Refused CREATE IPClaim team/wrong invalid Prefix 409 Conflict",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}
