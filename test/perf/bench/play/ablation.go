package play

import (
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cadastre-dev/cadastre/test/perf/bench/load"
)

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
