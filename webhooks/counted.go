package webhooks

import (
	"context"
	"net/http"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/metrics"
)

// countingManager is a manager whose webhook server counts what its webhooks refuse, those that
// builders register included.
type countingManager struct {
	manager.Manager
	metrics *metrics.Instruments
}

// GetWebhookServer implements manager.Manager.
func (c countingManager) GetWebhookServer() webhook.Server {
	return countingServer{c.Manager.GetWebhookServer(), c.metrics}
}

type countingServer struct {
	webhook.Server
	metrics *metrics.Instruments
}

// Register implements webhook.Server.
func (s countingServer) Register(path string, hook http.Handler) {
	if hook, ok := hook.(*admission.Webhook); ok {
		hook.Handler = refusals(hook.Handler, s.metrics)
	}
	s.Server.Register(path, hook)
}

// refusals counts what a handler refuses.
func refusals(of admission.Handler, counter *metrics.Instruments) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		response := of.Handle(ctx, req)
		if !response.Allowed {
			code := int32(http.StatusForbidden) // as the API server has it where none is given
			if response.Result != nil && response.Result.Code != 0 {
				code = response.Result.Code
			}
			counter.Refused(req.Resource.Resource, strings.ToLower(string(req.Operation)), code)
		}
		return response
	})
}
