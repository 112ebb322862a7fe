package play

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/client-go/rest"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// contender represents a kind of object to create, as fast as possible.
type contender struct {
	scenario, variant string
	// collection is the path of the objects in a namespace, with %s for it.
	collection string
	// kind and apiVersion of the objects, and the spec of the nth.
	apiVersion, kind string
	spec             func(n int) map[string]any
	// labels and annotations of the objects; nil: none.
	labels, annotations map[string]string
	// answered must be in the answer.
	answered string
	// then is called by the client after the answer; nil: nothing.
	then func(ctx context.Context, wire *wire, path string, answer []byte) error
	// done reports whether all that follows from a create is done; nil: at once.
	done done
}

// body returns the nth object.
func (c contender) body(n int) []byte {
	body, err := json.Marshal(map[string]any{
		"apiVersion": c.apiVersion, "kind": c.kind,
		"metadata": map[string]any{"name": fmt.Sprintf("c-%06d", n), "labels": c.labels, "annotations": c.annotations},
		"spec":     c.spec(n),
	})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return body
}

// request creates an object.
func request(wires []*wire, c contender, path string) load.Request {
	return func(ctx context.Context, client, n int) error {
		wire := wires[client%len(wires)]
		answer, err := wire.do(ctx, "POST", path, c.body(n))
		switch {
		case err != nil:
			return err
		case !bytes.Contains(answer, []byte(c.answered)):
			return errors.New("created, but without " + c.answered)
		case c.then == nil:
			return nil
		}
		return c.then(ctx, wire, path, answer)
	}
}

// round creates the objects of one contender in a new namespace, and waits until all
// is done.
func (w *World) round(ctx context.Context, c contender, shape load.Shape, limit load.Limit) (outcome, error) {
	path, seen, err := w.watched(ctx, c)
	if err != nil {
		return outcome{}, err
	}
	defer seen.stop()
	begin, before := time.Now(), w.cpuTimes()
	measured := load.Run(ctx, shape, limit, request(w.wires, c, path))
	if len(measured.Latencies) == 0 && len(measured.Errors) > 0 {
		return outcome{}, fmt.Errorf("nothing could be created: %w", measured.Errors[0])
	}
	last, err := seen.await(ctx, len(measured.Latencies))
	if err != nil {
		return outcome{}, fmt.Errorf("waiting for what follows: %w", err)
	}
	result := outcome{Round: measured, cpu: w.spent(before, len(measured.Latencies))}
	if c.done != nil {
		result.done = last.Sub(begin)
	}
	if c.kind == "IPClaim" || c.kind == "IPAddressClaim" {
		w.held += len(measured.Latencies)
	}
	return result, ctx.Err()
}

// watched returns the path of the objects of a contender in a new namespace, which it watches.
func (w *World) watched(ctx context.Context, c contender) (path string, seen *sightings, err error) {
	namespace, err := w.namespace(ctx)
	if err != nil {
		return "", nil, err
	}
	path, test := fmt.Sprintf(c.collection, namespace), c.done
	if test == nil {
		test = func(*object) bool { return true }
	}
	seen, err = w.sight(ctx, path, test)
	return path, seen, err
}

// outcome holds the results of a round.
type outcome struct {
	load.Round
	// done is from the first request until all that follows was done; zero if
	// nothing follows.
	done time.Duration
	// cpu is the time that the parts used for each request, in milliseconds.
	cpu map[string]float64
}

// plan describes a measurement.
type plan struct {
	shape  load.Shape
	limit  load.Limit
	rounds int
	// at is the number of objects that existed already.
	at int
}

// measure plays rounds of several contenders in turn, so that a disturbance
// of the machine affects all of them.
func (w *World) measure(ctx context.Context, contenders []contender, p plan) error {
	for i := range p.rounds {
		for j := range contenders {
			if _, err := w.record(ctx, contenders[(i+j)%len(contenders)], p, i); err != nil {
				return err
			}
		}
	}
	return nil
}

// record plays one of the rounds of a contender, and adds it to the report.
func (w *World) record(ctx context.Context, c contender, p plan, round int) (outcome, error) {
	result, err := w.round(ctx, c, p.shape, p.limit)
	if err != nil {
		return result, fmt.Errorf("%s %s, %s: %w", c.scenario, c.variant, p.shape, err)
	}
	series := w.report.Of(figures.Key{Scenario: c.scenario, Variant: c.variant, Shape: p.shape.String(), At: p.at})
	series.Add(result.Round, result.done, result.cpu)
	w.reportRound(series, round, p.rounds)
	return result, nil
}

// reportRound prints the last round of a series.
func (w *World) reportRound(s *figures.Series, round, rounds int) {
	last := s.Rounds[len(s.Rounds)-1]
	text := fmt.Sprintf("%-8s %-16s %-10s round %d/%d: %6.0f/s, p95 %6.1f ms", s.Scenario, s.Variant, s.Shape, round+1, rounds, last.PerSecond(), last.P95)
	if last.DoneSeconds > 0 {
		text += fmt.Sprintf(", done %5.0f/s", last.DonePerSecond())
	}
	if used, ok := last.CPU["apiserver"]; ok {
		text += fmt.Sprintf(", CPU of the API server %.2f ms each, managers %.2f", used, last.CPU["managers"])
	}
	if s.Failures > 0 {
		text += fmt.Sprintf(", %d failed: %s", s.Failures, s.Error)
	}
	w.say("%s", text)
}

// wire holds a separate connection to the API server, as every client has one. It
// sends and receives JSON as it is, so that the clients' own work, which is done
// on the same machine, stays small and the same for all kinds.
type wire struct {
	host string
	http *http.Client
	// traced makes each request begin a trace, which is to be recorded.
	traced bool
	// as is the user as whom it sends requests; empty: an administrator, whom the API server never holds back.
	as string
}

func newWire(config *rest.Config) (*wire, error) {
	// Clients with the same configuration share connections; a separate dialer
	// prevents that.
	config.Dial = (&net.Dialer{}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &wire{host: strings.TrimSuffix(config.Host, "/"), http: client}, nil
}

// do sends a request and returns the answer, of which a status other than 2xx is
// an error.
func (w *wire) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	return w.doAs(ctx, "application/json", method, path, body)
}

// doAs does the same, with an answer of a media type.
func (w *wire) doAs(ctx context.Context, mediaType, method, path string, body []byte) ([]byte, error) {
	response, err := w.open(ctx, mediaType, method, path, body)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, err
	}
	if response.StatusCode/100 != 2 {
		return answer, &statusError{response.StatusCode, answer}
	}
	return answer, nil
}

// send sends an object, and discards the answer.
func (w *wire) send(ctx context.Context, method, path string, object any) error {
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	_, err = w.do(ctx, method, path, body)
	return err
}

func (w *wire) open(ctx context.Context, mediaType, method, path string, body []byte) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, method, w.host+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", mediaType)
	if w.as != "" {
		request.Header.Set("Impersonate-User", w.as)
	}
	if w.traced {
		id := uuid.New()
		request.Header.Set("Traceparent", fmt.Sprintf("00-%x-%x-01", id[:], id[:8]))
	}
	return w.http.Do(request)
}

// statusError represents an answer that is not 2xx.
type statusError struct {
	code   int
	answer []byte
}

func (e *statusError) Error() string {
	return fmt.Sprintf("HTTP %d: %s", e.code, bytes.TrimSpace(e.answer[:min(len(e.answer), 300)]))
}
