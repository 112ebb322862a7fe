package play

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

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
		"metadata": map[string]any{"name": fmt.Sprintf("c-%06d", n)},
		"spec":     c.spec(n),
	})
	if err != nil {
		panic(err) // maps of strings and numbers
	}
	return body
}

// request creates an object.
func (w *World) request(c contender, path string) load.Request {
	return func(ctx context.Context, client, n int) error {
		wire := w.wires[client%len(w.wires)]
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
	namespace, err := w.namespace(ctx)
	if err != nil {
		return outcome{}, err
	}
	path := fmt.Sprintf(c.collection, namespace)
	test := c.done
	if test == nil {
		test = created
	}
	seen, err := w.sight(ctx, path, test)
	if err != nil {
		return outcome{}, err
	}
	defer seen.stop()
	begin, before := time.Now(), w.cpuTimes()
	measured := load.Run(ctx, shape, limit, w.request(c, path))
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

// outcome holds the results of a round.
type outcome struct {
	load.Round
	// done is from the first request until all that follows was done; zero if
	// nothing follows.
	done time.Duration
	// cpu is the time that the parts used for each request, in milliseconds.
	cpu map[string]float64
}

func (o outcome) addTo(s *figures.Series) { s.Add(o.Round, o.done, o.cpu) }

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
			c := contenders[(i+j)%len(contenders)]
			result, err := w.round(ctx, c, p.shape, p.limit)
			if err != nil {
				return fmt.Errorf("%s %s, %s: %w", c.scenario, c.variant, p.shape, err)
			}
			series := w.report.Of(figures.Key{Scenario: c.scenario, Variant: c.variant, Shape: p.shape.String(), At: p.at})
			result.addTo(series)
			w.reportRound(series, i, p.rounds)
		}
	}
	return nil
}

// reportRound prints the last round of a series.
func (w *World) reportRound(s *figures.Series, round, rounds int) {
	last := s.Rounds[len(s.Rounds)-1]
	text := fmt.Sprintf("%-8s %-16s %-10s round %d/%d: %6.0f/s, p95 %6.1f ms", s.Scenario, s.Variant, s.Shape, round+1, rounds, last.PerSecond(), s.Millis.P95)
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
