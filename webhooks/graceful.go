package webhooks

import (
	"context"
	"net/http"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

const (
	// linger is how long a server that is stopped goes on answering, and asks
	// its clients to use another connection next time. A connection that is in
	// use all the time is so closed behind an answer, and none while its client is
	// sending the next request.
	linger = time.Second
	// defaultTimeout is timeoutSeconds of the manifests, for a request that does not say
	// how long the API server waits.
	defaultTimeout = 5 * time.Second
	// answerMargin is what is left of the time-out for the way of request and answer. An
	// answer that comes too late is an error of the API server for the user (HTTP 500);
	// one that comes in time says to try again (429). The API server rounds what it says up
	// to whole seconds, so that nothing may be left where the user's own time-out is shorter.
	answerMargin = time.Second
)

// timeoutOf returns how long the API server waits for the answer: it sends that with each
// request (its query parameter timeout; k8s.io/apiserver, pkg/admission/plugin/webhook).
func timeoutOf(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		return defaultTimeout
	}
	return timeout
}

// answerWithin returns how long a request may take.
func answerWithin(r *http.Request) time.Duration {
	timeout := timeoutOf(r)
	return max(timeout-answerMargin, timeout/2)
}

// Graceful is a server that answers what is under way when it is stopped.
// The library's own cancels it: the context of a request is done as soon as that
// of the server is. Nor does that one bound the time in which a request is sent.
func Graceful(server webhook.Server) webhook.Server { return &graceful{Server: server} }

type graceful struct {
	webhook.Server
	ending atomic.Bool
}

// Register implements webhook.Server.
func (g *graceful) Register(path string, hook http.Handler) {
	g.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.ending.Load() {
			w.Header().Set("Connection", "close")
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerWithin(r))
		defer cancel()
		boundReading(ctx, w)
		stop := context.AfterFunc(r.Context(), func() {
			if !g.ending.Load() { // then it is the caller who has gone
				cancel()
			}
		})
		defer stop()
		hook.ServeHTTP(w, r.WithContext(ctx))
	}))
}

// boundReading ends the reading of a request with its context.
func boundReading(ctx context.Context, w http.ResponseWriter) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
	}
}

// Start implements manager.Runnable.
func (g *graceful) Start(ctx context.Context) error {
	serving, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		g.ending.Store(true)
		clock := time.NewTimer(linger) //nolint:forbidigo // of a process that ends
		defer clock.Stop()
		select {
		case <-clock.C:
			end()
		case <-serving.Done():
		}
	})
	defer stop()
	return g.Server.Start(serving)
}
