package manifests

import (
	"math"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/cadastre-dev/cadastre/api/v1alpha1"
)

// TestSchemaBoundsSelectors covers the bounds alone, with the rules that the API server evaluates. Without them the
// webhooks would have to decode, and the caches to keep, what is stored while no replica answers.
func TestSchemaBoundsSelectors(t *testing.T) {
	schemas := NewSchemas()
	rules := cel.NewValidator(schemas["IPClaim"].structural, true, math.MaxInt64)
	labels := func(n int, key, value string) v1alpha1.PoolSelector {
		selector := v1alpha1.PoolSelector{MatchLabels: map[string]v1alpha1.LabelValue{}}
		for i := range n {
			selector.MatchLabels[key[i:]] = v1alpha1.LabelValue(value)
		}
		return selector
	}
	terms := func(n int, key string, values int, value string) v1alpha1.PoolSelector {
		return v1alpha1.PoolSelector{MatchExpressions: slices.Repeat([]v1alpha1.PoolSelectorExpression{
			{Key: key, Operator: "In", Values: slices.Repeat([]v1alpha1.LabelValue{v1alpha1.LabelValue(value)}, values)},
		}, n)}
	}
	long := func(n int) string { return strings.Repeat("x", n) }
	for name, test := range map[string]struct {
		selector v1alpha1.PoolSelector
		refused  bool
	}{
		"16 labels":                        {selector: labels(16, long(317), long(63))},
		"17 labels":                        {selector: labels(17, long(317), long(63)), refused: true},
		"a label's key of 318":             {selector: labels(1, long(318), long(63)), refused: true},
		"a label's value of 64":            {selector: labels(1, "zone", long(64)), refused: true},
		"16 expressions":                   {selector: terms(16, long(317), 64, long(63))},
		"17 expressions":                   {selector: terms(17, "zone", 1, "a"), refused: true},
		"an expression's key of 318":       {selector: terms(1, long(318), 1, "a"), refused: true},
		"an expression with 65 values":     {selector: terms(1, "zone", 65, "a"), refused: true},
		"an expression with a value of 64": {selector: terms(1, "zone", 1, long(64)), refused: true},
	} {
		claim, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&v1alpha1.IPClaim{Spec: v1alpha1.IPClaimSpec{PoolSelector: &test.selector}})
		if err != nil {
			t.Fatal(err)
		}
		errs := schemas.Errors("IPClaim", claim)
		ofRules, _ := rules.Validate(t.Context(), nil, schemas["IPClaim"].structural, claim, nil, math.MaxInt64)
		if errs = append(errs, ofRules...); (len(errs) > 0) != test.refused {
			t.Errorf("%s: %v", name, errs)
		}
	}
}
