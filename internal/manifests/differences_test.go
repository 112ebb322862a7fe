package manifests

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestScopeOfAllIsNoDifference covers rules as the API server stores them: with the scope that the
// manifests leave out.
func TestScopeOfAllIsNoDifference(t *testing.T) {
	operator := Account{Namespace: DefaultNamespace, Name: ServiceAccount}
	for scope, want := range map[admissionv1.ScopeType]int{admissionv1.AllScopes: 0, admissionv1.NamespacedScope: 1} {
		for name, shipped := range Webhooks(ValidatingWebhooks, operator) {
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

func TestSelectorsAreComparedWithTheShippedOnes(t *testing.T) {
	operator := Account{Namespace: DefaultNamespace, Name: ServiceAccount}
	cluster, claim := Webhooks(ClusterWebhooks, operator), Webhooks(MutatingWebhooks, operator)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
	exact, equivalent := admissionv1.Exact, admissionv1.Equivalent
	for name, c := range map[string]struct {
		shipped *Webhook
		change  func(*Webhook)
		want    []string
	}{
		"no change": {cluster["create-by-namespace.cluster.ipam.cadastre.dev"], func(*Webhook) {}, nil},
		"the defaults of the API server are filled in": {claim["create.ipclaim.ipam.cadastre.dev"], func(w *Webhook) {
			w.NamespaceSelector, w.ObjectSelector, w.MatchPolicy = &metav1.LabelSelector{}, &metav1.LabelSelector{}, &equivalent
		}, nil},
		"a selector is added": {claim["create.ipclaim.ipam.cadastre.dev"], func(w *Webhook) {
			w.NamespaceSelector, w.ObjectSelector = selector, selector
		}, []string{"namespaceSelector is a=b and not empty", "objectSelector is a=b and not empty"}},
		"a selector is removed": {cluster["create.cluster.ipam.cadastre.dev"], func(w *Webhook) {
			w.ObjectSelector = &metav1.LabelSelector{}
		}, []string{"objectSelector is empty and not ipam.cadastre.dev/cluster-networks=enabled"}},
		"a selector is another one": {cluster["create-by-namespace.cluster.ipam.cadastre.dev"], func(w *Webhook) {
			w.NamespaceSelector, w.ObjectSelector = selector, nil
		}, []string{
			"namespaceSelector is a=b and not ipam.cadastre.dev/cluster-networks=enabled",
			"objectSelector is empty and not ipam.cadastre.dev/cluster-networks notin (disabled,enabled)",
		}},
		"the match policy is another one": {cluster["create.cluster.ipam.cadastre.dev"], func(w *Webhook) {
			w.MatchPolicy = &exact
		}, []string{"matchPolicy is Exact and not Equivalent"}},
	} {
		live := *c.shipped
		c.change(&live)
		if diff := cmp.Diff(c.want, live.Differences(c.shipped)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
