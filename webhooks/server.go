package webhooks

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/cadastre-dev/cadastre/internal/certs"
	"github.com/cadastre-dev/cadastre/internal/observe/history"
	"github.com/cadastre-dev/cadastre/internal/observe/metrics"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
)

const (
	// drainPeriod is the time for which a stopped server continues to answer. In this time it asks its
	// clients to use another connection for the next request. So the server closes a connection
	// that is in use all the time after an answer, and closes no connection while its client is
	// sending the next request.
	drainPeriod = time.Second
	// defaultTimeout is timeoutSeconds of the manifests, for a request that does not state how long
	// the API server waits.
	defaultTimeout = 5 * time.Second
	// answerMargin is the part of the time-out that is reserved for the transfer of request and
	// answer. An answer that comes too late is an error of the API server for the user (HTTP 500);
	// an answer in time asks the user to try again (429). The API server rounds the time-out that
	// it states up to whole seconds, so that no time may remain if the user's own time-out is
	// shorter.
	answerMargin = time.Second
)

// secretElement is the first element of every path at which a guarded server
// answers.
const secretElement = "secret"

// PathGuard represents the secrets with which paths begin.
type PathGuard interface {
	// Judge returns the way to answer a request on a path with this secret.
	Judge(ctx context.Context, secret string) certs.Standing
	// Unanswered notes that such a request has ended without its answer.
	Unanswered(secret string)
}

// NewServer returns a server whose paths begin with a secret, and which answers the requests that
// are in progress when it is stopped. The library's own server cancels them: the context of a
// request is done as soon as the context of the server is. Nor does the library's server bound the
// time in which a request is sent.
func NewServer(base webhook.Server, paths PathGuard) webhook.Server {
	return &server{Server: base, paths: paths}
}

type server struct {
	webhook.Server
	paths    PathGuard
	isEnding atomic.Bool
}

// Register implements webhook.Server. The path is without the secret. The secret is judged first:
// the time that a request took is compared with the time that the API server waits, which is longer
// than the time that the hook has.
func (s *server) Register(path string, hook http.Handler) {
	s.Server.Register("/{"+secretElement+"}"+path, s.withSecret(s.withDeadline(hook)))
}

// withSecret answers a request with a secret that was never in use in the same way as a request for
// a path that does not exist, before it reads any of its body. A request with a replaced secret is
// from an API server that does not know the present secret yet: its client is asked to try again.
func (s *server) withSecret(hook http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret := r.PathValue(secretElement)
		switch s.paths.Judge(r.Context(), secret) {
		case certs.PathAccepted:
			s.serve(w, r, hook, secret)
		case certs.PathOlder:
			retryLater(w, r)
		default:
			http.NotFound(w, r)
		}
	})
}

// serve calls the hook. It notes a request that was not answered in the time that the API server
// waits.
func (s *server) serve(w http.ResponseWriter, r *http.Request, hook http.Handler, secret string) {
	waitCtx, cancel := context.WithTimeout(r.Context(), timeoutOf(r))
	defer cancel()
	isAnswered := false
	defer func() { // also if the hook panics
		if !isAnswered || waitCtx.Err() != nil {
			s.paths.Unanswered(secret)
		}
	}()
	hook.ServeHTTP(w, r)
	isAnswered = true
}

// withDeadline ends a request when its time is over or its caller has gone, but not because the
// server ends.
func (s *server) withDeadline(hook http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.isEnding.Load() {
			w.Header().Set("Connection", "close")
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), answerTimeout(r))
		defer cancel()
		boundReading(ctx, w)
		stop := context.AfterFunc(r.Context(), func() {
			if !s.isEnding.Load() { // then the caller has gone
				cancel()
			}
		})
		defer stop()
		hook.ServeHTTP(w, r.WithContext(ctx))
	})
}

// Start implements manager.Runnable.
func (s *server) Start(ctx context.Context) error {
	serveCtx, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		s.isEnding.Store(true)
		clock := time.NewTimer(drainPeriod) //nolint:forbidigo // of a process that ends
		defer clock.Stop()
		select {
		case <-clock.C:
			end()
		case <-serveCtx.Done():
		}
	})
	defer stop()
	return s.Server.Start(serveCtx)
}

// timeoutOf returns the time that the API server waits for the answer: it sends that time with each
// request (its query parameter timeout; k8s.io/apiserver, pkg/admission/plugin/webhook).
func timeoutOf(r *http.Request) time.Duration {
	timeout, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || timeout <= 0 {
		return defaultTimeout
	}
	return timeout
}

// answerTimeout returns the time that a request can take.
func answerTimeout(r *http.Request) time.Duration {
	timeout := timeoutOf(r)
	return max(timeout-answerMargin, timeout/2)
}

// boundReading ends the reading of a request when its context ends.
func boundReading(ctx context.Context, w http.ResponseWriter) {
	if deadline, ok := ctx.Deadline(); ok {
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
	}
}

// retryLater refuses a review in the way that makes clients of the API server try again. It reads
// all of the request, so that the connection can be used again, and keeps its UID.
func retryLater(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), answerTimeout(r))
	defer cancel()
	boundReading(ctx, w)
	body := http.MaxBytesReader(w, r.Body, maxRequestBytes)
	var review struct{ Request struct{ UID types.UID } }
	if err := json.NewDecoder(body).Decode(&review); err != nil {
		http.Error(w, "the request is no AdmissionReview", http.StatusBadRequest)
		return
	}
	_, _ = io.Copy(io.Discard, body)
	refusal := apierrors.NewServiceUnavailable("the API server called a path of Cadastre's webhooks that was replaced: try again")
	refusal.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	answer(w, r, review.Request.UID, denied(refusal))
}

// chain holds the parts that each request passes on its way to a handler.
type chain struct {
	refusals refusals
	tracer   trace.Tracer
	// operator is the user name of the operator itself.
	operator string
	inFlight *inFlight
}

// wrap returns an HTTP handler around an admission handler: it bounds the bytes in flight, reads
// the review, traces it, counts refusals, and bounds the objects.
func (c chain) wrap(handler admission.Handler) http.Handler {
	return c.wrapBounded(boundedHandler{handler, c.operator})
}

// wrapBounded does the same around a handler that bounds the objects by itself.
func (c chain) wrapBounded(handler admission.Handler) http.Handler {
	hook := &admission.Webhook{Handler: c.refusals.countRefusals(handler)}
	if c.tracer != nil {
		hook.Handler, hook.WithContextFunc = traceHandler(hook.Handler, c.tracer), withParent
	}
	return &reviewer{hook, c.inFlight, c.refusals}
}

// refusals holds the counter of the webhooks' refusals, and the history into which they are
// written.
type refusals struct {
	metrics *metrics.Instruments
	history *history.Recorder
}

// countRefusals returns a handler that counts and notes the refusals of a handler. Each answer has a
// result: admission.Denied and its siblings make one.
func (r refusals) countRefusals(handler admission.Handler) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		response := handler.Handle(ctx, req)
		if !response.Allowed {
			r.add(req, response)
		}
		return response
	})
}

func (r refusals) add(req admission.Request, response admission.Response) {
	r.count(req.AdmissionRequest, response)
	if isDryRun(req) { // no change was requested
		return
	}
	result := response.Result
	r.history.Refused(history.Refusal{
		Kind: req.Kind.Kind, Namespace: req.Namespace, Name: req.Name, Operation: string(req.Operation), Block: blockIn(req.Object.Raw),
		User: req.UserInfo.Username, Code: result.Code, Reason: string(result.Reason), Message: result.Message,
	})
}

func (r refusals) count(req admissionv1.AdmissionRequest, response admission.Response) {
	r.metrics.Refused(req.Resource.Resource, strings.ToLower(string(req.Operation)), response.Result.Code)
}

// blockIn returns the block, or the address, that an object asks for; an invalid prefix if it asks
// for none.
func blockIn(object []byte) netip.Prefix {
	var request struct {
		Spec struct{ CIDR, Address string }
	}
	if len(object) > maxObjectBytes || json.Unmarshal(object, &request) != nil { // it is refused for that
		return netip.Prefix{}
	}
	if block, err := netip.ParsePrefix(request.Spec.CIDR); err == nil {
		return block.Masked()
	}
	if address, err := netip.ParseAddr(request.Spec.Address); err == nil {
		return netip.PrefixFrom(address, address.BitLen())
	}
	return netip.Prefix{}
}

// withParent returns a context with the span that a request names as its parent, in the header
// traceparent of W3C Trace Context. The handler of otelhttp would do that, too, but its spans have
// the path of the request, which has a secret.
func withParent(ctx context.Context, r *http.Request) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.HeaderCarrier(r.Header))
}

// traceHandler returns a handler that adds a span for each request, as a child of the API server's. If
// the span of a request is recorded, the log entries for the request have the ID of its trace.
func traceHandler(handler admission.Handler, tracer trace.Tracer) admission.Handler {
	return admission.HandlerFunc(func(ctx context.Context, req admission.Request) admission.Response {
		name := tracing.Admission + " " + string(req.Operation) + " " + req.Resource.Resource
		ctx, span := tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindServer))
		defer span.End()
		if !span.IsRecording() {
			return handler.Handle(ctx, req)
		}
		describeRequest(span, req)
		response := handler.Handle(log.IntoContext(ctx, log.FromContext(ctx).WithValues("traceID", span.SpanContext().TraceID().String())), req)
		describeResponse(span, response)
		return response
	})
}

func describeRequest(span trace.Span, req admission.Request) {
	span.SetAttributes(
		tracing.Operation.String(string(req.Operation)), tracing.UID.String(string(req.UID)),
		tracing.DryRun.Bool(isDryRun(req)), tracing.Kind.String(req.Kind.Kind),
	)
	if req.Namespace != "" {
		span.SetAttributes(tracing.Namespace.String(req.Namespace))
	}
	if req.Name != "" {
		span.SetAttributes(tracing.Name.String(req.Name))
	}
}

// describeResponse notes the answer. A refused request is no failure of the operator, unless its
// code is one.
func describeResponse(span trace.Span, response admission.Response) {
	span.SetAttributes(tracing.Allowed.Bool(response.Allowed))
	if response.Allowed {
		return
	}
	code, reason := response.Result.Code, response.Result.Message
	span.SetAttributes(tracing.Code.Int(int(code)), tracing.Reason.String(reason))
	if code >= http.StatusInternalServerError && code != http.StatusInsufficientStorage {
		span.SetAttributes(tracing.ErrorType.String(strconv.Itoa(int(code))))
		span.SetStatus(codes.Error, reason)
	}
}
