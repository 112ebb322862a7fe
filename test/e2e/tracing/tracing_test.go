package tracing

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
	"github.com/cadastre-dev/cadastre/internal/observe/tracing"
	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/internal/testing/collector"
	"github.com/cadastre-dev/cadastre/internal/testing/suite"
)

// The services whose spans the collector has.
const (
	apiServer = "apiserver"
	etcd      = "etcd"
	operator  = "cadastre"
)

// The spans of a create call, as the services name them.
const (
	admits  = "admission CREATE ipclaims"
	creates = "POST /apis/ipam.cadastre.dev/v1alpha1/namespaces/{:namespace}/ipclaims"
	records = "POST /apis/ipam.cadastre.dev/v1alpha1/namespaces/{:namespace}/ipallocations"
	writes  = "etcdserverpb.KV/Txn"
)

func TestTracing(t *testing.T) {
	w := start(t)
	w.Namespace("team")
	w.Pools(
		build.Pool("offices").CIDR("10.0.0.0/16").Classes("office").Obj(),
		build.Pool("one").CIDR("10.1.0.0/32").Obj(),
	)
	w.Created(build.Class("office").Lengths(24, 32).Obj())
	worldFor := func(t *testing.T) *world {
		testWorld := *w
		testWorld.World = w.For(t)
		return &testWorld
	}
	suite.Steps(t, worldFor,
		suite.Step[*world]{Name: "one trace leads from the client to etcd", Run: (*world).leadsThrough},
		suite.Step[*world]{Name: "a claim that waits is served in a trace of the controller", Run: (*world).waits},
		suite.Step[*world]{Name: "an address is allocated in a trace of the controller", Run: (*world).addresses},
		suite.Step[*world]{Name: "the certificate and the paths are kept in separate traces", Run: (*world).guards},
		suite.Step[*world]{Name: "a refusal is in the trace with its code", Run: (*world).refuses},
		suite.Step[*world]{Name: "a request that the client does not sample is not traced", Run: (*world).isNotSampled},
		suite.Step[*world]{Name: "all that spans have is documented, and no secret", Run: (*world).documented},
		suite.Step[*world]{Name: "a collector that hangs holds up no create", Run: (*world).hangs},
	)
}

// leadsThrough creates a claim as a client that traces.
func (w *world) leadsThrough() {
	client := w.begin(true)
	claim := build.Claim("team", "desk").Class("office").Length(32).Obj()
	suite.Must(w, client.Create(w.Context(), claim))

	var created collector.Span
	spans := w.spans(client, "the trace is complete", func(spans collector.Spans) bool {
		stored, ok := spans.Of(etcd, writes, apiServer+" "+records)
		_, claimed := spans.Of(etcd, writes, apiServer+" "+creates)
		_, ended := spans.Of(operator, tracing.Confirm)
		created, _ = spans.Of(apiServer, creates)
		return ok && claimed && ended && created.ID != "" && stored.Trace != created.Trace
	})
	if created.Trace != client.id || created.Parent != client.span {
		w.Errorf("the API server's span has trace %s and parent %s, want the client's, %s and %s", created.Trace, created.Parent, client.id, client.span)
	}
	allocates := []string{operator + " " + tracing.Allocate, operator + " " + admits, apiServer + " HTTP POST", apiServer + " Call mutating webhook", apiServer + " " + creates}
	for _, step := range []string{tracing.Find, tracing.Record, tracing.Confirm} {
		span, ok := spans.Of(operator, step, allocates...)
		if !ok || span.Trace != client.id || !has(span, tracing.Block, claim.Status.AllocatedCIDR) {
			w.Errorf("%s: got %+v, want one of the block %s below %q", step, span, claim.Status.AllocatedCIDR, allocates)
		}
	}
	called, _ := spans.Of(operator, "HTTP POST", operator+" "+tracing.Record)
	recorded, _ := spans.Of(apiServer, records)
	if called.ID == "" || !slices.Contains(recorded.Links, called.ID) {
		w.Errorf("the API server's span of the record is linked to %q, want to the operator's request %q", recorded.Links, called.ID)
	}
	w.drawn(spans)
}

// waits makes a claim wait for the only address of a pool.
func (w *world) waits() {
	first, waits := build.Claim("team", "first").Pool("one").Length(32).Obj(), build.Claim("team", "waits").Pool("one").Length(32).Obj()
	w.Created(first)
	client := w.begin(true)
	suite.Must(w, client.Create(w.Context(), waits))
	w.spans(client, "the request of the claim that waits is traced", func(spans collector.Spans) bool {
		admitted, _ := spans.Of(operator, admits)
		allocated, _ := spans.Of(operator, tracing.Allocate, operator+" "+admits)
		_, awaited := spans.Of(operator, tracing.Await, operator+" "+tracing.Allocate)
		return has(admitted, tracing.Allowed, "true") && has(allocated, tracing.Result, "exhausted") && awaited
	})
	w.Deleted(first)
	// A pass that reads the claim in its former state finds the record, and makes no attempt.
	var pass, release collector.Spans
	w.Await("its turn and the release before it are traced", func(context.Context) bool {
		pass = w.operatorSpans(tracing.Allocate, func(s collector.Span) bool {
			return has(s, tracing.Name, "waits") && has(s, tracing.Origin, "controller") && has(s, tracing.Result, "allocated") && has(s, tracing.Attempts, "1")
		})
		release = w.operatorSpans(tracing.Release, func(s collector.Span) bool { return has(s, tracing.Name, "first") })
		return len(pass) == 1 && len(release) == 1
	})
	if waited, _ := pass[0].Attributes[string(tracing.Waited)].(float64); waited <= 0 {
		w.Errorf("the claim has waited %v s, want more than none", waited)
	}
	w.isBelow(pass[0], "reconcile ipclaim", "waits")
	w.isBelow(release[0], "reconcile orphan", "")
	w.Await("the requests of the release to the API server are in its trace", func(context.Context) bool {
		requests := w.operatorSpans("HTTP ", func(s collector.Span) bool { return s.Parent == release[0].ID })
		return slices.ContainsFunc(requests, func(s collector.Span) bool { return s.Name == "HTTP DELETE" })
	})
}

// addresses creates an IPAddressClaim, which the leader serves. A pass that reads it in its former
// state finds the record, and makes no attempt.
func (w *world) addresses() {
	w.Created(build.AddressClaim("team", "machine").Pool("offices").Obj())
	var pass collector.Spans
	w.Await("the allocation of its address is traced", func(context.Context) bool {
		pass = w.operatorSpans(tracing.Allocate, func(s collector.Span) bool {
			return has(s, tracing.Kind, "IPAddressClaim") && has(s, tracing.Name, "machine") && has(s, tracing.Result, "allocated") && has(s, tracing.Attempts, "1")
		})
		return len(pass) == 1
	})
	w.isBelow(pass[0], "reconcile ipaddressclaim", "machine")
	for _, step := range []string{tracing.Find, tracing.Record, tracing.Confirm} {
		if len(w.operatorSpans(step, func(s collector.Span) bool { return s.Parent == pass[0].ID })) != 1 {
			w.Errorf("the allocation has no span %q", step)
		}
	}
}

// guards expects the passes of the controllers that run on every replica.
func (w *world) guards() {
	for _, controller := range []string{"webhook-certificate", "webhook-path"} {
		w.Await(controller+" is traced", func(context.Context) bool {
			return len(w.operatorSpans("reconcile "+controller, func(collector.Span) bool { return true })) >= len(w.Managers)
		})
	}
}

// isBelow expects that the parent of a span is of that name, and about an object.
func (w *world) isBelow(span collector.Span, name, object string) {
	w.Helper()
	w.Await(name+" has ended", func(context.Context) bool {
		return len(w.operatorSpans(name, func(s collector.Span) bool {
			return s.ID == span.Parent && (object == "" || has(s, tracing.Name, object))
		})) == 1
	})
}

// refuses asks for a block that another claim has.
func (w *world) refuses() {
	client := w.begin(true)
	taken := build.Claim("team", "taken").Pool("offices").CIDR("10.0.0.0/32").Obj()
	if err := client.Create(w.Context(), taken); !apierrors.IsConflict(err) {
		w.Fatalf("a block in use is answered with %v, want 409", err)
	}
	w.spans(client, "the refusal is traced", func(spans collector.Spans) bool {
		admitted, _ := spans.Of(operator, admits)
		allocated, _ := spans.Of(operator, tracing.Allocate)
		return has(admitted, tracing.Allowed, "false") && has(admitted, tracing.Code, fmt.Sprint(http.StatusConflict)) && has(allocated, tracing.Result, "taken")
	})
}

// isNotSampled expects no spans of a trace that is not sampled. A replica sends its recorded spans
// before it ends, so that all would have arrived then.
func (w *world) isNotSampled() {
	quiet, loud := w.begin(false), w.begin(true)
	for n := range 10 {
		suite.Must(w, quiet.Create(w.Context(), build.Claim("team", fmt.Sprint("quiet-", n)).Pool("offices").Length(32).Obj()))
		suite.Must(w, loud.Create(w.Context(), build.Claim("team", fmt.Sprint("loud-", n)).Pool("offices").Length(32).Obj()))
	}
	for _, manager := range w.Managers {
		suite.Must(w, manager.Stop())
	}
	spansOf := func(claims string) collector.Spans {
		return w.operatorSpans(admits, func(s collector.Span) bool {
			return strings.HasPrefix(fmt.Sprint(s.Attributes[string(tracing.Name)]), claims)
		})
	}
	if sent := spansOf("loud-"); len(sent) != 10 {
		w.Errorf("when the replicas have ended there are spans of %d requests that are sampled, want 10", len(sent))
	}
	if sent := spansOf("quiet-"); len(sent) > 0 {
		w.Errorf("spans are sent of %d requests that are not sampled", len(sent))
	}
	if sent := w.collector.Spans(func(s collector.Span) bool { return s.Trace == quiet.id }); len(sent) > 0 {
		w.Errorf("%d spans are sent of a trace that is not sampled: %+v", len(sent), sent[0])
	}
	for _, manager := range w.Managers {
		suite.Must(w, manager.Start(w.Context()))
	}
}

// documented compares the spans of all tests with the tables of the documentation.
func (w *world) documented() {
	spans, types := w.tables()
	secret, seen := w.pathSecret(), map[string]bool{}
	for _, span := range w.operatorSpans("", func(collector.Span) bool { return true }) {
		name := span.Name
		for _, kind := range []string{tracing.Admission, tracing.Reconcile} {
			if strings.HasPrefix(name, kind+" ") {
				name = kind
			}
		}
		for key, value := range span.Attributes {
			seen[key] = true
			if strings.Contains(fmt.Sprint(value), secret) {
				w.Errorf("%s of %s has the secret of the webhooks' paths", key, span.Name)
			}
			if !strings.HasPrefix(name, "HTTP ") && (!slices.Contains(spans[name], key) || fmt.Sprintf("%T", value) != types[key]) {
				w.Errorf("%s has the attribute %s of type %T, which is not documented", span.Name, key, value)
			}
		}
	}
	for key := range types {
		if !seen[key] {
			w.Errorf("no span has the attribute %s", key)
		}
	}
}

var (
	spanRow      = regexp.MustCompile("(?m)^\\| `([a-z ]+)` \\| .* \\| `(.*)` \\|$")
	attributeRow = regexp.MustCompile("(?m)^\\| `([a-z._]+)` \\| (string|bool|int64|float64) \\|")
)

// tables returns the documented attributes of each kind of span, and their types.
func (w *world) tables() (attributes map[string][]string, types map[string]string) {
	w.Helper()
	text, err := os.ReadFile(document)
	suite.Must(w, err)
	attributes, types = map[string][]string{}, map[string]string{}
	for _, row := range attributeRow.FindAllStringSubmatch(string(text), -1) {
		types[row[1]] = row[2]
	}
	for _, row := range spanRow.FindAllStringSubmatch(string(text), -1) {
		attributes[row[1]] = strings.Split(row[2], "`, `")
	}
	if len(attributes) == 0 || len(types) == 0 {
		w.Fatalf("%s has no tables of spans and attributes", document)
	}
	return attributes, types
}

// pathSecret returns the first element of the path of the webhooks. The API server's spans have it,
// as docs/tracing.md warns.
func (w *world) pathSecret() string {
	w.Helper()
	spans := w.collector.Spans(func(s collector.Span) bool {
		return s.Service == apiServer && strings.Contains(fmt.Sprint(s.Attributes["url.full"]), "/mutate-ipam-cadastre-dev-v1alpha1-ipclaim")
	})
	if len(spans) == 0 {
		w.Fatal("no span of the API server has the address of a webhook: docs/tracing.md warns of it")
	}
	return strings.Split(fmt.Sprint(spans[0].Attributes["url.full"]), "/")[3]
}

// hangs compares creates while the collector hangs, and while it takes no connections, with
// those while it does not, a short round each in turn, so that what else the machine does slows all
// three.
func (w *world) hangs() {
	const rounds, creates = 20, 6
	took := map[string][]time.Duration{}
	client, n := w.begin(true), 0
	for range rounds {
		for _, state := range []struct {
			name  string
			begin func() (end func())
		}{{"works", func() func() { return func() {} }}, {"hangs", w.collector.Hang}, {"refuses", w.disconnected}} {
			end := sync.OnceFunc(state.begin())
			w.Cleanup(end)
			for range creates {
				n++
				claim := build.Claim("team", fmt.Sprint("timed-", n)).Pool("offices").Length(32).Obj()
				began := time.Now()
				suite.Must(w, client.Create(w.Context(), claim))
				took[state.name] = append(took[state.name], time.Since(began))
				if claim.Status.Phase != v1alpha1.ClaimBound {
					w.Fatalf("while the collector %s a claim is %s", state.name, claim.Status.Phase)
				}
			}
			end()
		}
	}
	median := func(name string) time.Duration {
		slices.Sort(took[name])
		return took[name][len(took[name])/2]
	}
	w.Logf("a create takes %s while the collector works, %s while it hangs, %s while it is gone", median("works"), median("hangs"), median("refuses"))
	for _, name := range []string{"hangs", "refuses"} {
		if median(name) > 2*median("works") {
			w.Errorf("a create takes %s while the collector %s, and %s while it works", median(name), name, median("works"))
		}
	}
}

// document has the picture of a trace, and the tables of spans and attributes.
var document = filepath.Join("..", "..", "..", "docs", "tracing.md")

// drawn expects that the documentation shows this trace, apart from times and random names. With
// TRACE_PICTURE set it writes the picture to that file instead.
func (w *world) drawn(spans collector.Spans) {
	w.Helper()
	picture := collector.Picture{
		// The spans between these are the API server's own: its filters and encoders.
		Passes: func(s collector.Span) bool {
			return s.Service == apiServer && !slices.Contains([]string{creates, records, "Create", "Call mutating webhook", "HTTP POST", "Create etcd3", writes}, s.Name)
		},
		Describe: func(s collector.Span) string {
			var said []string
			for _, key := range []string{string(tracing.Candidates), string(tracing.Pool), string(tracing.Block), string(tracing.Result)} {
				if value, ok := s.Attributes[key]; ok && s.Service == operator {
					said = append(said, fmt.Sprintf("%s=%v", strings.TrimPrefix(key, "cadastre."), value))
				}
			}
			return strings.Join(said, " ")
		},
	}.Draw(slices.DeleteFunc(slices.Clone(spans), func(s collector.Span) bool { return s.Name == http.MethodGet }))
	if path := os.Getenv("TRACE_PICTURE"); path != "" {
		suite.Must(w, os.WriteFile(path, []byte("```\n"+picture+"```\n"), 0o644))
		return
	}
	text, err := os.ReadFile(document)
	suite.Must(w, err)
	if !strings.Contains(timeless(string(text)), timeless(picture)) {
		w.Errorf("docs/tracing.md does not show this trace (run `make trace-picture`):\n%s", picture)
	}
}

// timeless returns text without durations.
func timeless(text string) string {
	return regexp.MustCompile(` +[0-9.]+(µs|ms|s)\b`).ReplaceAllString(text, "")
}
