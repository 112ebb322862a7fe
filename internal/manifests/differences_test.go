package manifests

import (
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
)

// TestScopeOfAllIsNoDifference covers rules as the API server stores them: with the scope that the
// manifests leave out.
func TestScopeOfAllIsNoDifference(t *testing.T) {
	operator := Account{Namespace: DefaultNamespace, Name: ServiceAccount}
	for scope, want := range map[admissionv1.ScopeType]int{admissionv1.AllScopes: 0, admissionv1.NamespacedScope: 1} {
		for name, shipped := range Webhooks("ValidatingWebhookConfiguration", operator) {
			live := *shipped
			live.Rules = slices.Clone(live.Rules)
			live.Rules[0].Scope = &scope
			if got := live.Differences(shipped); len(got) != want {
				t.Errorf("webhook %s with scope %s: %q, want %d differences", name, scope, got, want)
			}
		}
		for _, shipped := range Policies(operator) {
			live := shipped.DeepCopy()
			live.Spec.MatchConstraints.ResourceRules[0].Scope = &scope
			if got := PolicyDifferences(live, &shipped); len(got) != want {
				t.Errorf("policy %s with scope %s: %q, want %d differences", shipped.Name, scope, got, want)
			}
		}
	}
}
