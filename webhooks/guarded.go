package webhooks

import (
	"context"
	"net/http"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// secretElement is the first element of every path at which a guarded server
// answers.
const secretElement = "secret"

// Guarded is a server whose paths begin with a secret. It answers a request with
// another one as it answers one for a path that does not exist, before it reads
// anything of its body.
func Guarded(server webhook.Server, accepts func(ctx context.Context, secret string) bool) webhook.Server {
	return &guarded{Server: server, accepts: accepts}
}

type guarded struct {
	webhook.Server
	accepts func(context.Context, string) bool
}

// Register implements webhook.Server. The path is the one without the secret.
func (g *guarded) Register(path string, hook http.Handler) {
	g.Server.Register("/{"+secretElement+"}"+path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.accepts(r.Context(), r.PathValue(secretElement)) {
			http.NotFound(w, r)
			return
		}
		hook.ServeHTTP(w, r)
	}))
}
