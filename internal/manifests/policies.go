package manifests

import (
	"slices"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
)

// PolicyDifferences returns the differences by which a policy allows requests that the shipped
// one refuses, or refuses requests that the shipped one allows.
func PolicyDifferences(live, shipped *admissionv1.ValidatingAdmissionPolicy) []string {
	var wrong []string
	add := func(differs bool, text string) {
		if differs {
			wrong = append(wrong, text)
		}
	}
	a, b := &live.Spec, &shipped.Spec
	add(!isEqual(a.FailurePolicy, b.FailurePolicy), "failurePolicy is "+formatPointer(a.FailurePolicy)+" and not "+formatPointer(b.FailurePolicy))
	add(a.ParamKind != nil, "it takes parameters")
	add(!sameConditions(a.MatchConditions, b.MatchConditions), "matchConditions are not as shipped")
	add(!slices.EqualFunc(a.Variables, b.Variables, func(x, y admissionv1.Variable) bool {
		return x.Name == y.Name && folded(x.Expression) == folded(y.Expression)
	}), "variables are not as shipped")
	add(!slices.EqualFunc(a.Validations, b.Validations, func(x, y admissionv1.Validation) bool {
		return folded(x.Expression) == folded(y.Expression) && isEqual(x.Reason, y.Reason)
	}), "validations are not as shipped")
	add(!sameMatch(a.MatchConstraints, b.MatchConstraints), "matchConstraints are not as shipped")
	return wrong
}

// sameMatch compares the requests that two policies match. The API server fills in selectors
// that select all.
func sameMatch(live, shipped *admissionv1.MatchResources) bool {
	if live == nil || shipped == nil {
		return live == shipped
	}
	rules := func(m *admissionv1.MatchResources) []admissionv1.RuleWithOperations {
		var all []admissionv1.RuleWithOperations
		for i := range m.ResourceRules {
			all = append(all, m.ResourceRules[i].RuleWithOperations)
		}
		return all
	}
	names := func(m *admissionv1.MatchResources) [][]string {
		var all [][]string
		for i := range m.ResourceRules {
			all = append(all, m.ResourceRules[i].ResourceNames)
		}
		return all
	}
	return sameRules(rules(live), rules(shipped)) && equality.Semantic.DeepEqual(names(live), names(shipped)) &&
		!selects(live.NamespaceSelector) && !selects(live.ObjectSelector) && len(live.ExcludeResourceRules) == 0
}

// BindingDifferences returns the differences by which a binding does not enforce the policy on
// all objects.
func BindingDifferences(binding *admissionv1.ValidatingAdmissionPolicyBinding, policy string) []string {
	var wrong []string
	spec := &binding.Spec
	if spec.PolicyName != policy {
		wrong = append(wrong, "its binding is of "+spec.PolicyName)
	}
	if !slices.Contains(spec.ValidationActions, admissionv1.Deny) {
		wrong = append(wrong, "its binding does not deny")
	}
	if m := spec.MatchResources; m != nil && (selects(m.NamespaceSelector) || selects(m.ObjectSelector) || len(m.ResourceRules)+len(m.ExcludeResourceRules) > 0) {
		wrong = append(wrong, "its binding leaves objects out")
	}
	return wrong
}
