package installation

import (
	"context"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// removalPolicy is what `manager remove-finalizers` installs.
const removalPolicy = "cadastre-removal"

// policies checks the policies that keep records, and what the operator fills in, to the
// operator, and that they are bound.
func (d *Doctor) policies(ctx context.Context) []Check {
	var checks []Check
	shipped := shippedPolicies(d.account())
	for i := range shipped {
		checks = append(checks, d.policy(ctx, &shipped[i]))
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{}
	if d.Client.Get(ctx, client.ObjectKey{Name: removalPolicy}, binding) == nil {
		checks = append(checks, failed("policy/"+removalPolicy, "delete the ValidatingAdmissionPolicyBinding and the ValidatingAdmissionPolicy "+removalPolicy+" to go on", "Cadastre is being removed, and nothing is handed out"))
	}
	return checks
}

func (d *Doctor) policy(ctx context.Context, shipped *admissionv1.ValidatingAdmissionPolicy) Check {
	name, key := "policy/"+shipped.Name, client.ObjectKey{Name: shipped.Name}
	live, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	err := d.Client.Get(ctx, key, live)
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, remedyManifests, "there is no ValidatingAdmissionPolicy %s, so users other than the operator can write %s", shipped.Name, protects(shipped))
	case err != nil:
		return unread(name, "ValidatingAdmissionPolicy "+shipped.Name, err)
	}
	err = d.Client.Get(ctx, key, binding)
	switch {
	case apierrors.IsNotFound(err):
		return failed(name, remedyManifests, "there is no ValidatingAdmissionPolicyBinding %s, so users other than the operator can write %s", shipped.Name, protects(shipped))
	case err != nil:
		return unread(name, "ValidatingAdmissionPolicyBinding "+shipped.Name, err)
	}
	if wrong := append(policyDifferences(live, shipped), bindingDifferences(binding, shipped.Name)...); len(wrong) > 0 {
		return failed(name, remedyManifests, "%s, so users other than the operator may be able to write %s", strings.Join(wrong, "; "), protects(shipped))
	}
	if live.Status.TypeChecking != nil && len(live.Status.TypeChecking.ExpressionWarnings) > 0 {
		return warned(name, "apply the CRDs of the operator's version", "the API server warns of %s: %s", live.Status.TypeChecking.ExpressionWarnings[0].FieldRef, live.Status.TypeChecking.ExpressionWarnings[0].Warning)
	}
	return ok(name, "is as shipped, and bound")
}

// protects is what a policy keeps to the operator.
func protects(shipped *admissionv1.ValidatingAdmissionPolicy) string {
	if shipped.Name == "cadastre-allocations" {
		return "the register"
	}
	return "what it fills in"
}

func policyDifferences(live, shipped *admissionv1.ValidatingAdmissionPolicy) []string {
	var wrong []string
	add := func(differs bool, text string) {
		if differs {
			wrong = append(wrong, text)
		}
	}
	a, b := &live.Spec, &shipped.Spec
	add(!same(a.FailurePolicy, b.FailurePolicy), "failurePolicy is "+shown(a.FailurePolicy)+" and not "+shown(b.FailurePolicy))
	add(a.ParamKind != nil, "it takes parameters")
	add(!sameConditions(a.MatchConditions, b.MatchConditions), "matchConditions are not as shipped")
	add(!slices.EqualFunc(a.Variables, b.Variables, func(x, y admissionv1.Variable) bool {
		return x.Name == y.Name && folded(x.Expression) == folded(y.Expression)
	}), "variables are not as shipped")
	add(!slices.EqualFunc(a.Validations, b.Validations, func(x, y admissionv1.Validation) bool {
		return folded(x.Expression) == folded(y.Expression) && same(x.Reason, y.Reason)
	}), "validations are not as shipped")
	add(!sameMatch(a.MatchConstraints, b.MatchConstraints), "matchConstraints are not as shipped")
	return wrong
}

// sameMatch compares what a policy matches. The API server fills in selectors that select all.
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

func bindingDifferences(binding *admissionv1.ValidatingAdmissionPolicyBinding, policy string) []string {
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
