package webhooks

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/tracing"
)

// observedManager is a manager whose webhook server counts what its webhooks refuse, writes it
// into the history, and traces requests, those of webhooks that builders register included.
type observedManager struct {
	manager.Manager
	refusals refusals
	tracer   *tracing.Tracer
}

// GetWebhookServer implements manager.Manager.
func (m observedManager) GetWebhookServer() webhook.Server {
	return observedServer{m.Manager.GetWebhookServer(), m.refusals, m.tracer}
}

type observedServer struct {
	webhook.Server
	refusals refusals
	tracer   *tracing.Tracer
}

// Register implements webhook.Server.
func (s observedServer) Register(path string, hook http.Handler) {
	if hook, ok := hook.(*admission.Webhook); ok {
		hook.Handler = s.refusals.of(hook.Handler)
		traceRequests(hook, s.tracer)
	}
	s.Server.Register(path, hook)
}
