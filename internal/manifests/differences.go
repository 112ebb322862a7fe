package manifests

import (
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// differences collects the ways in which an object of a cluster is not as shipped.
type differences []string

func (d *differences) add(differs bool, text string) {
	if differs {
		*d = append(*d, text)
	}
}

// addText adds a field whose value is not the shipped one.
func (d *differences) addText(field, live, shipped string) {
	d.add(live != shipped, fmt.Sprintf("%s is %s and not %s", field, live, shipped))
}

func addPointer[T comparable](d *differences, field string, live, shipped *T) {
	d.addText(field, formatPointer(live), formatPointer(shipped))
}

// Differences returns the differences that change which requests reach the webhook, and their
// treatment.
func (w *Webhook) Differences(shipped *Webhook) []string {
	var d differences
	addPointer(&d, "failurePolicy", w.FailurePolicy, shipped.FailurePolicy)
	addPointer(&d, "sideEffects", w.SideEffects, shipped.SideEffects)
	addPointer(&d, "timeoutSeconds", w.TimeoutSeconds, shipped.TimeoutSeconds)
	if shipped.Reinvocation != nil {
		addPointer(&d, "reinvocationPolicy", w.Reinvocation, shipped.Reinvocation)
	}
	d.add(!sameRules(w.Rules, shipped.Rules), "rules are not as shipped")
	d.add(!sameConditions(w.MatchConditions, shipped.MatchConditions), "matchConditions are not as shipped")
	d.addText("namespaceSelector", formatSelector(w.NamespaceSelector), formatSelector(shipped.NamespaceSelector))
	d.addText("objectSelector", formatSelector(w.ObjectSelector), formatSelector(shipped.ObjectSelector))
	d.addText("matchPolicy", formatMatchPolicy(w.MatchPolicy), formatMatchPolicy(shipped.MatchPolicy))
	return d
}

// PolicyDifferences returns the differences by which a policy allows requests that the shipped
// one refuses, or refuses requests that the shipped one allows.
func PolicyDifferences(live, shipped *admissionv1.ValidatingAdmissionPolicy) []string {
	var d differences
	a, b := &live.Spec, &shipped.Spec
	addPointer(&d, "failurePolicy", a.FailurePolicy, b.FailurePolicy)
	d.add(a.ParamKind != nil, "it takes parameters")
	d.add(!sameConditions(a.MatchConditions, b.MatchConditions), "matchConditions are not as shipped")
	d.add(!slices.EqualFunc(a.Variables, b.Variables, func(x, y admissionv1.Variable) bool {
		return x.Name == y.Name && folded(x.Expression) == folded(y.Expression)
	}), "variables are not as shipped")
	d.add(!slices.EqualFunc(a.Validations, b.Validations, func(x, y admissionv1.Validation) bool {
		return folded(x.Expression) == folded(y.Expression) && isEqual(x.Reason, y.Reason)
	}), "validations are not as shipped")
	d.add(!sameMatch(a.MatchConstraints, b.MatchConstraints), "matchConstraints are not as shipped")
	return d
}

// BindingDifferences returns the differences by which a binding does not enforce the policy on
// all objects.
func BindingDifferences(binding *admissionv1.ValidatingAdmissionPolicyBinding, policy string) []string {
	var d differences
	spec := &binding.Spec
	d.add(spec.PolicyName != policy, "its binding is of "+spec.PolicyName)
	d.add(!slices.Contains(spec.ValidationActions, admissionv1.Deny), "its binding does not deny")
	m := spec.MatchResources
	d.add(m != nil && (selects(m.NamespaceSelector) || selects(m.ObjectSelector) || len(m.ResourceRules)+len(m.ExcludeResourceRules) > 0),
		"its binding leaves objects out")
	return d
}

// sameMatch compares the requests that two policies match. The API server fills in selectors
// that select all.
func sameMatch(live, shipped *admissionv1.MatchResources) bool {
	if live == nil || shipped == nil {
		return live == shipped
	}
	return slices.EqualFunc(live.ResourceRules, shipped.ResourceRules, func(x, y admissionv1.NamedRuleWithOperations) bool {
		return sameRule(x.RuleWithOperations, y.RuleWithOperations) && equality.Semantic.DeepEqual(x.ResourceNames, y.ResourceNames)
	}) && !selects(live.NamespaceSelector) && !selects(live.ObjectSelector) && len(live.ExcludeResourceRules) == 0
}

func sameRules(a, b []admissionv1.RuleWithOperations) bool { return slices.EqualFunc(a, b, sameRule) }

// sameRule compares two rules. If no scope is set, the API server writes the scope of all.
func sameRule(x, y admissionv1.RuleWithOperations) bool {
	for _, rule := range []*admissionv1.RuleWithOperations{&x, &y} {
		if rule.Scope == nil {
			rule.Scope = new(admissionv1.AllScopes)
		}
	}
	return equality.Semantic.DeepEqual(x, y)
}

// sameConditions compares expressions except for white space, because kustomize folds lines in
// another way than others do.
func sameConditions(a, b []admissionv1.MatchCondition) bool {
	return slices.EqualFunc(a, b, func(x, y admissionv1.MatchCondition) bool {
		return x.Name == y.Name && folded(x.Expression) == folded(y.Expression)
	})
}

func folded(text string) string { return strings.Join(strings.Fields(text), " ") }

// selects reports whether a selector leaves anything out.
func selects(s *metav1.LabelSelector) bool {
	return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
}

// formatSelector returns the same text for equal selectors. The API server fills in selectors that
// select all.
func formatSelector(s *metav1.LabelSelector) string {
	if !selects(s) {
		return "empty"
	}
	return metav1.FormatLabelSelector(s)
}

// formatMatchPolicy returns the policy, or the default one of the API server if none is set.
func formatMatchPolicy(policy *admissionv1.MatchPolicyType) string {
	return string(ptr.Deref(policy, admissionv1.Equivalent))
}

func isEqual[T comparable](a, b *T) bool { return a == b || a != nil && b != nil && *a == *b }

func formatPointer[T any](value *T) string {
	if value == nil {
		return "not set"
	}
	return fmt.Sprint(*value)
}
