package webhooks

import (
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

// observedManager is a manager whose webhook server bounds requests, counts what its webhooks refuse,
// writes it into the history, and traces requests, those of webhooks that builders register included.
type observedManager struct {
	manager.Manager
	observer observer
}

// observer holds what all webhooks are served with.
type observer struct {
	refusals refusals
	tracer   *tracing.Tracer
	// operator is the user name of the operator itself.
	operator string
	inFlight *inFlight
}

// GetWebhookServer implements manager.Manager.
func (m observedManager) GetWebhookServer() webhook.Server {
	return observedServer{m.Manager.GetWebhookServer(), m.observer}
}

type observedServer struct {
	webhook.Server
	observer
}

// Register implements webhook.Server.
func (s observedServer) Register(path string, hook http.Handler) {
	if hook, ok := hook.(*admission.Webhook); ok {
		hook.Handler = s.refusals.of(bounded{hook.Handler, s.operator})
		traceRequests(hook, s.tracer)
		s.Server.Register(path, &reviewer{hook, s.inFlight, s.refusals})
		return
	}
	s.Server.Register(path, hook)
}
