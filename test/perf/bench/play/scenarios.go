package play

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cadastre-dev/cadastre/test/perf/bench/figures"
	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

// Run plays the scenarios.
func (w *World) Run(ctx context.Context) error {
	for _, scenario := range []struct {
		name string
		play func(context.Context) error
	}{
		{"rates", w.rates},
		{"early", w.early},
		{"variants", w.variants},
		{"deny", w.deny},
		{"release", w.release},
		{"replicas", w.severalReplicas},
		{"failover", w.failover},
		{"capi", w.addressClaims},
		{"clusters", w.clusters},
		{"weight", w.weight},
		{"fill", w.fill},
		{"restart", w.restart},
		{"observed", w.observed}, // which changes the flags of the managers
		{"causes", w.causes},
		{"reads", w.reads},
		{"cores", w.cores},
		{"ablation", w.ablation}, // which changes what is installed: the last
	} {
		asked := slices.Contains(w.options.Only, scenario.name)
		if !asked && (len(w.options.Only) > 0 || slices.Contains([]string{"observed", "causes", "reads", "cores", "ablation"}, scenario.name)) {
			continue
		}
		w.say("%s", scenario.name)
		err := scenario.play(ctx)
		if err == nil {
			err = w.checkRollbacks(ctx)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", scenario.name, err)
		}
	}
	return nil
}

func closed(clients int) load.Shape { return load.Shape{Clients: clients} }

func open(perSecond int) load.Shape { return load.Shape{PerSecond: perSecond} }

// shapes returns the shapes of load for all measurements.
func (w *World) shapes() []load.Shape {
	return either(w,
		[]load.Shape{closed(1), closed(8), closed(32), open(100), open(300)},
		[]load.Shape{closed(8), closed(32), open(100)})
}

// slice returns the length of a round.
func (w *World) slice() load.Limit {
	return load.Limit{For: either(w, 2500*time.Millisecond, 1500*time.Millisecond)}
}

// rates measures the rates of plain creates, of a claim's writes, of claims and of Services. The latencies at 150/s, and
// at half of the rate that claims have reached with 8 clients, are of rounds in clusters of their own: the more Services
// there are, the slower is the next.
func (w *World) rates(ctx context.Context) error {
	contenders, rounds := []contender{bare(), twoWrites(), byPool("by-pool"), byClass(), service()}, either(w, 5, 2)
	if err := w.inAllShapes(ctx, w.shapes(), contenders, rounds, w.slice()); err != nil {
		return err
	}
	most := w.report.Find(figures.Key{Scenario: "claim", Variant: "by pool", Shape: closed(8).String()})
	half := open(int(most.DonePerSecond() / 2))
	w.report.Of(figures.Key{Scenario: figures.Half, Shape: half.String()})
	several := load.Limit{For: either(w, 5*time.Second, 1500*time.Millisecond)} // collections of the API server's garbage
	for range rounds {
		if err := w.inAllShapes(ctx, []load.Shape{open(150), half}, contenders, 1, several); err != nil {
			return err
		}
		contenders = append(contenders[1:], contenders[0])
	}
	return nil
}

// early measures claims and Services in turn, from the first ones on.
func (w *World) early(ctx context.Context) error {
	claims, services := byPool("by-pool"), service()
	claims.scenario, claims.variant = "early", "claim"
	services.scenario, services.variant = "early", "service"
	contenders := []contender{claims, services}
	for range either(w, 5, 1) {
		if err := w.restartCluster(ctx); err != nil {
			return err
		}
		for _, c := range contenders { // the first requests for a kind are slow
			if _, err := w.round(ctx, c, closed(1), load.Limit{Count: 20}); err != nil {
				return err
			}
		}
		for at := 0; at < either(w, 2000, 800); at += 400 {
			if err := w.measure(ctx, contenders, plan{closed(8), load.Limit{Count: 400}, 1, at}); err != nil {
				return err
			}
		}
		slices.Reverse(contenders)
	}
	return nil
}

// variants measures the other ways to claim.
func (w *World) variants(ctx context.Context) error {
	return w.inAllShapes(ctx, either(w, w.shapes(), []load.Shape{closed(8)}), variants(),
		either(w, 2, 1), either(w, w.slice(), load.Limit{For: time.Second}))
}

// inAllShapes measures contenders in one shape of load after the other, in a full run each
// in a new cluster: the objects of earlier ones make the API server's garbage
// collections longer, and each Service slower.
func (w *World) inAllShapes(ctx context.Context, shapes []load.Shape, contenders []contender, rounds int, limit load.Limit) error {
	for i, shape := range shapes {
		if i == 0 || !w.options.Quick {
			if err := w.afresh(ctx, contenders...); err != nil {
				return err
			}
		}
		if err := w.measure(ctx, contenders, plan{shape, limit, rounds, 0}); err != nil {
			return err
		}
	}
	return nil
}

// afresh starts a cluster with nothing claimed in it, except in a quick run, and lets each
// contender create for a second: the first requests for a kind are slow.
func (w *World) afresh(ctx context.Context, contenders ...contender) error {
	if !w.options.Quick {
		if err := w.restartCluster(ctx); err != nil {
			return err
		}
	}
	return w.warmUp(ctx, contenders...)
}

func (w *World) warmUp(ctx context.Context, contenders ...contender) error {
	for _, c := range contenders {
		if _, err := w.round(ctx, c, closed(8), load.Limit{For: time.Second}); err != nil {
			return err
		}
	}
	return nil
}

// ablation measures claims with one part after the other taken away, to see the cost of
// each. It is not part of a full run.
func (w *World) ablation(ctx context.Context) error {
	plain := bare()
	plain.scenario = "ablation"
	steps := []struct {
		without string
		take    func(context.Context) error
	}{
		{"everything there", func(context.Context) error { return nil }},
		{"no policies", w.dropPolicies},
		{"nor rules of IPAllocation", func(ctx context.Context) error { return w.dropRules(ctx, "ipallocations.ipam.cadastre.dev") }},
		{"nor rules of IPClaim", func(ctx context.Context) error { return w.dropRules(ctx, "ipclaims.ipam.cadastre.dev") }},
	}
	for _, step := range steps {
		if err := step.take(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.without, err)
		}
		if _, err := w.round(ctx, byPool("by-pool"), closed(8), load.Limit{Count: 300}); err != nil { // warms up
			return err
		}
		c := byPool("by-pool")
		c.scenario, c.variant = "ablation", step.without
		if err := w.measure(ctx, []contender{plain, c}, plan{closed(8), load.Limit{Count: 1000}, 3, 0}); err != nil {
			return err
		}
	}
	return nil
}

func (w *World) dropPolicies(ctx context.Context) error {
	for _, kind := range []string{"ValidatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy"} {
		obj := &unstructured.Unstructured{}
		obj.SetAPIVersion("admissionregistration.k8s.io/v1")
		obj.SetKind(kind)
		if err := w.k8s.DeleteAllOf(ctx, obj); err != nil {
			return err
		}
	}
	return nil
}

// dropRules takes the CEL rules out of a kind.
func (w *World) dropRules(ctx context.Context, name string) error {
	path := "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/" + name
	text, err := w.watch.do(ctx, "GET", path, nil)
	if err != nil {
		return err
	}
	var object map[string]any
	if err := json.Unmarshal(text, &object); err != nil {
		return err
	}
	withoutRules(object)
	return w.watch.send(ctx, "PUT", path, object)
}

// addressClaims measures Cluster API's claims, each until it has its address,
// with more and more addresses in use, beside plain creates.
func (w *World) addressClaims(ctx context.Context) error {
	if !w.capi {
		w.report.Note("capi: left out, because the kinds of Cluster API are not installed or not served")
		w.say("capi     left out: IPAddressClaims are not served")
		return nil
	}
	if err := w.afresh(ctx, bare(), addressClaim()); err != nil {
		return err
	}
	used := 0
	for _, level := range either(w, []int{0, 1000, 4000, 16000}, []int{0, 300}) {
		for used < level {
			measured, err := w.round(ctx, addressClaim(), closed(32), load.Limit{Count: min(level-used, 3000)})
			if err != nil {
				return err
			}
			used += len(measured.Latencies)
		}
		for range either(w, 5, 1) {
			before := w.held
			if err := w.measure(ctx, []contender{bare(), addressClaim()}, plan{closed(32), w.slice(), 1, level}); err != nil {
				return err
			}
			used += w.held - before
		}
	}
	return nil
}

// clusters measures Clusters of Cluster API with and without their networks, beside claims: 200 of each by
// 10 clients. Cluster API's manager runs, too.
func (w *World) clusters(ctx context.Context) error {
	contenders := []contender{clusterAPICluster(0), clusterAPICluster(1), clusterAPICluster(3), byClass()}
	if err := w.restartCluster(ctx); err != nil {
		return err
	}
	if err := w.cluster.StartClusterAPI(ctx); err != nil {
		return fmt.Errorf("starting Cluster API's manager: %w", err)
	}
	if err := w.afresh(ctx, contenders...); err != nil {
		return err
	}
	return w.measure(ctx, contenders, plan{closed(10), load.Limit{Count: 200}, either(w, 3, 1), 0})
}

// serves reports whether a controller gives an IPAddressClaim its address.
func (w *World) serves(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c := addressClaim()
	path, seen, err := w.watched(ctx, c)
	if err != nil {
		return false
	}
	defer seen.stop()
	if _, err := w.watch.do(ctx, "POST", path, c.body(0)); err != nil {
		return false
	}
	_, err = seen.awaitName(ctx, "c-000000")
	return err == nil
}
