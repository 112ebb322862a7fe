package manifests

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func isEqual[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func formatPointer[T any](value *T) string {
	if value == nil {
		return "not set"
	}
	return fmt.Sprint(*value)
}

// selects reports whether a selector leaves anything out.
func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

func sameRules(a, b []admissionv1.RuleWithOperations) bool {
	return slices.EqualFunc(a, b, func(x, y admissionv1.RuleWithOperations) bool {
		return equality.Semantic.DeepEqual(x.Operations, y.Operations) && equality.Semantic.DeepEqual(x.APIGroups, y.APIGroups) &&
			equality.Semantic.DeepEqual(x.APIVersions, y.APIVersions) && equality.Semantic.DeepEqual(x.Resources, y.Resources) &&
			scopeOf(x) == scopeOf(y)
	})
}

// scopeOf returns the scope of a rule, or the scope that the API server writes if it is not
// set.
func scopeOf(rule admissionv1.RuleWithOperations) admissionv1.ScopeType {
	if rule.Scope == nil {
		return admissionv1.AllScopes
	}
	return *rule.Scope
}

// sameConditions compares expressions except for white space, because kustomize folds lines in
// another way than others do.
func sameConditions(a, b []admissionv1.MatchCondition) bool {
	return slices.EqualFunc(a, b, func(x, y admissionv1.MatchCondition) bool {
		return x.Name == y.Name && folded(x.Expression) == folded(y.Expression)
	})
}

func folded(text string) string { return strings.Join(strings.Fields(text), " ") }
