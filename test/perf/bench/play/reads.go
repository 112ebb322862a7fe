package play

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/cadastre-dev/cadastre/internal/testing/build"
	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

const (
	people    = 50
	asTable   = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
	allClaims = "/apis/" + ours + "/ipclaims"
	// before is the time for which creates go on alone before readers begin.
	before = time.Second
	// patience is the time after which a reader gives up.
	patience = time.Minute
)

// crowd holds the users of the scenario reads, each with a connection, and the number of claims that there are.
type crowd struct {
	*World
	readers, creators []*wire
	level             int
	// lasts is the length of a round of creates.
	lasts load.Limit
}

// reads measures GET, LIST and watches with more and more claims, and creates beside bursts of LISTs. Each client is a
// user of its own, so that the API server's priority and fairness applies to it. It is not part of a full run.
func (w *World) reads(ctx context.Context) (err error) {
	if err := w.afresh(ctx, byPool("mixed")); err != nil {
		return err
	}
	c := crowd{World: w, lasts: load.Limit{For: either(w, 10*time.Second, 3*time.Second)}}
	if c.readers, err = w.users(ctx, "reader", people); err != nil {
		return err
	}
	if c.creators, err = w.users(ctx, "creator", 8); err != nil {
		return err
	}
	for _, c.level = range either(w, []int{1000, 10000, 100000}, []int{200, 600}) {
		w.say("reads    filling up to %d", c.level)
		if err := w.fillAlone(ctx, "mixed", c.level-w.held); err != nil {
			return err
		}
		if err := c.read(ctx); err != nil {
			return fmt.Errorf("with %d claims: %w", c.level, err)
		}
	}
	return nil
}

// users returns the connections of users who may do everything.
func (w *World) users(ctx context.Context, name string, count int) ([]*wire, error) {
	wires := make([]*wire, count)
	for i := range wires {
		wire, err := newWire(w.cluster.Config())
		if err != nil {
			return nil, err
		}
		wire.as = fmt.Sprintf("%s-%d", name, i)
		if err := w.k8s.Create(ctx, build.ClusterBinding(wire.as, "cluster-admin", build.User(wire.as))); err != nil {
			return nil, err
		}
		wires[i] = wire
	}
	return wires, nil
}

func (c *crowd) read(ctx context.Context) error {
	namespace, err := c.namespace(ctx)
	if err != nil {
		return err
	}
	const few = 20
	claim := byPool("mixed")
	path := fmt.Sprintf(claim.collection, namespace)
	if made := load.Run(ctx, closed(4), load.Limit{Count: few}, request(c.creators, claim, path)); len(made.Errors) > 0 {
		return made.Errors[0]
	}
	c.held += few
	of := func(path string) load.Request {
		return func(ctx context.Context, client, _ int) error {
			_, err := c.readers[client%people].do(ctx, http.MethodGet, path, nil)
			return err
		}
	}
	kubectl := func(ctx context.Context, client, _ int) error {
		return c.readers[client%people].listInPages(ctx, allClaims)
	}
	inNamespace := fmt.Sprintf("LIST of a namespace with %d", few)
	c.round(ctx, "GET of a claim", closed(8), c.slice(), of(path+"/c-000000"))
	c.round(ctx, inNamespace, closed(8), c.slice(), of(path))
	c.round(ctx, "kubectl get -A", closed(1), load.Limit{Count: 3}, kubectl)
	c.round(ctx, "LIST of an informer", closed(1), load.Limit{Count: 3}, of(allClaims+"?resourceVersion=0"))
	if err := c.creates(ctx, "alone", func(context.Context) {}); err != nil {
		return err
	}
	err = c.creates(ctx, fmt.Sprintf("beside kubectl get -A by %d", people), func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		c.round(ctx, "kubectl get -A", closed(people), load.Limit{For: c.lasts.For - before}, kubectl)
	})
	if err != nil {
		return err
	}
	many := load.Shape{PerSecond: 1000}
	return c.creates(ctx, fmt.Sprintf("beside LISTs of a namespace, %s", many), func(ctx context.Context) {
		c.round(ctx, inNamespace, many, load.Limit{For: c.lasts.For - before}, of(path))
	})
}

// round reads, and adds that to the report.
func (c *crowd) round(ctx context.Context, variant string, shape load.Shape, limit load.Limit, read load.Request) {
	c.add(variant, shape, load.Run(ctx, shape, limit, read))
}

func (c *crowd) add(variant string, shape load.Shape, round load.Round) {
	series := c.report.Of(figures.Key{Scenario: "reads", Variant: variant, Shape: shape.String(), At: c.level})
	series.Add(round, 0, nil)
	c.reportRound(series, 0, 1)
}

// creates measures creates at a steady rate, first bare ones and then claims, while readers read.
func (c *crowd) creates(ctx context.Context, beside string, read func(context.Context)) error {
	for _, kind := range []contender{bare(), byPool("mixed")} {
		if err := c.createsOf(ctx, kind, beside, read); err != nil {
			return err
		}
	}
	return nil
}

// createsOf measures creates, with the time until a watch shows each.
func (c *crowd) createsOf(ctx context.Context, kind contender, beside string, read func(context.Context)) error {
	path, seen, err := c.watched(ctx, kind)
	if err != nil {
		return err
	}
	defer seen.stop()
	create := request(c.creators, kind, path)
	var mu sync.Mutex
	sent := map[string]time.Time{}
	var round load.Round
	var working sync.WaitGroup
	shape := open(100)
	working.Go(func() {
		round = load.Run(ctx, shape, c.lasts, func(ctx context.Context, client, n int) error {
			begin := time.Now()
			err := create(ctx, client, n)
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				sent[fmt.Sprintf("c-%06d", n)] = begin
			}
			return err
		})
	})
	working.Go(func() {
		timer := time.NewTimer(before)
		defer timer.Stop()
		select {
		case <-timer.C:
			read(ctx)
		case <-ctx.Done():
		}
	})
	working.Wait()
	c.add(title(kind)+", "+beside, shape, round)
	if _, err := seen.await(ctx, len(sent)); err != nil {
		return err
	}
	if kind.kind == "IPClaim" {
		c.held += len(sent)
	}
	shown := load.Round{Took: round.Took}
	for name, begin := range sent {
		at, err := seen.awaitName(ctx, name)
		if err != nil {
			return err
		}
		shown.Latencies = append(shown.Latencies, at.Sub(begin))
	}
	c.add(title(kind)+", until a watch shows it, "+beside, shape, shown)
	return ctx.Err()
}

// listInPages reads a collection as kubectl does: tables of 500 objects.
func (w *wire) listInPages(ctx context.Context, path string) error {
	for next := ""; ; {
		answer, err := w.doAs(ctx, asTable, http.MethodGet, path+"?limit=500&continue="+url.QueryEscape(next), nil)
		if err != nil {
			return err
		}
		var page struct {
			Kind     string
			Metadata struct{ Continue string }
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			return err
		}
		if page.Kind != "Table" {
			return errors.New("the answer is a " + page.Kind + ", not a Table")
		}
		if next = page.Metadata.Continue; next == "" {
			return nil
		}
	}
}
