package webhooks

import (
	"context"
	"encoding/json"
	"io"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/cadastre-dev/cadastre/internal/certs"
)

// secretElement is the first element of every path at which a guarded server
// answers.
const secretElement = "secret"

// longestReview bounds what is read of a request that is not served.
const longestReview = 7 << 20

// PathGuard knows the secrets with which paths begin.
type PathGuard interface {
	// Judge returns how a request on a path with this secret is to be answered.
	Judge(ctx context.Context, secret string) certs.Standing
	// Unanswered notes that such a request has ended without its answer.
	Unanswered(secret string)
}

// Served is a server that is guarded and graceful. The guard judges how long a request took
// by how long the API server waits: it is around the time that a hook has, which is shorter.
func Served(server webhook.Server, paths PathGuard) webhook.Server {
	return Graceful(Guarded(server, paths))
}

// Guarded is a server whose paths begin with a secret. It answers a request with one
// that was never in use as it answers one for a path that does not exist, before it
// reads anything of its body. A request with one that was replaced is of an API server
// that does not know the present one yet: its client is asked to try again.
func Guarded(server webhook.Server, paths PathGuard) webhook.Server {
	return &guarded{Server: server, paths: paths}
}

type guarded struct {
	webhook.Server
	paths PathGuard
}

// Register implements webhook.Server. The path is the one without the secret.
func (g *guarded) Register(path string, hook http.Handler) {
	g.Server.Register("/{"+secretElement+"}"+path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch secret := r.PathValue(secretElement); g.paths.Judge(r.Context(), secret) {
		case certs.PathAccepted:
			g.serve(w, r, hook, secret)
		case certs.PathOlder:
			retryLater(w, r)
		default:
			http.NotFound(w, r)
		}
	}))
}

// serve has the hook answer, and notes a request that was not answered as long as the
// API server waits.
func (g *guarded) serve(w http.ResponseWriter, r *http.Request, hook http.Handler, secret string) {
	waits, cancel := context.WithTimeout(r.Context(), timeoutOf(r))
	defer cancel()
	answered := false
	defer func() { // also if the hook panics
		if !answered || waits.Err() != nil {
			g.paths.Unanswered(secret)
		}
	}()
	hook.ServeHTTP(w, r)
	answered = true
}

// retryLater refuses a review in the way that has clients of the API server try again. It
// reads all of the request, so that the connection can be used again, and keeps its UID.
func retryLater(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerWithin(r))
	defer cancel()
	boundReading(ctx, w)
	body := http.MaxBytesReader(w, r.Body, longestReview)
	var review struct {
		metav1.TypeMeta
		Request struct{ UID types.UID }
	}
	if err := json.NewDecoder(body).Decode(&review); err != nil {
		http.Error(w, "the request is no AdmissionReview", http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, body)
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(admissionv1.AdmissionReview{TypeMeta: review.TypeMeta, Response: &admissionv1.AdmissionResponse{
		UID: review.Request.UID,
		Result: &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
			Message: "the API server called a path of Cadastre's webhooks that was replaced: try again",
			Details: &metav1.StatusDetails{RetryAfterSeconds: 1},
		},
	}})
}
