package operator

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/cadastre-dev/cadastre/internal/manifests"
)

// informer implements one that has listed these objects.
type informer struct {
	toolscache.SharedIndexInformer
	objects []any
}

func (i informer) HasSynced() bool { return true }

func (i informer) GetStore() toolscache.Store {
	store := toolscache.NewStore(toolscache.MetaNamespaceKeyFunc)
	for _, obj := range i.objects {
		_ = store.Add(obj)
	}
	return store
}

// inMemory returns a watch of the policies as shipped, of which all but the first have no binding.
func newPolicyWatchInMemory(t testing.TB) *policyWatch {
	t.Helper()
	p := &policyWatch{}
	for i, policy := range manifests.Policies(manifests.Account{}) {
		g := guardingPolicy{shippedPolicy: policy, policies: informer{objects: []any{&policy}}, bindings: informer{}}
		if i == 0 {
			g.bindings = informer{objects: []any{binding(policy.Name)}}
		}
		p.policies = append(p.policies, g)
	}
	return p
}

func binding(policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy},
		Spec:       admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: policy, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

func TestPolicyIsInForceOnlyAsShipped(t *testing.T) {
	shipped := manifests.Policies(manifests.Account{})
	if len(shipped) != 3 {
		t.Fatalf("%d policies", len(shipped))
	}
	for name, change := range map[string]struct {
		of   func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding)
		want bool
	}{
		"as shipped": {func(*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding) {}, true},
		"as the API server fills it in": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{}, ObjectSelector: &metav1.LabelSelector{}}
		}, true},
		"one validation is gone": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.Validations = p.Spec.Validations[1:]
		}, false},
		"its failure is ignored": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.FailurePolicy = new(admissionv1.Ignore)
		}, false},
		"it matches fewer requests": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConstraints.ResourceRules[0].Operations = p.Spec.MatchConstraints.ResourceRules[0].Operations[1:]
		}, false},
		"others are let through": {func(p *admissionv1.ValidatingAdmissionPolicy, _ *admissionv1.ValidatingAdmissionPolicyBinding) {
			p.Spec.MatchConditions = append(p.Spec.MatchConditions, admissionv1.MatchCondition{Name: "others", Expression: "request.userInfo.username != 'mallory'"})
		}, false},
		"the binding only audits": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit}
		}, false},
		"the binding is of another policy": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.PolicyName = "other"
		}, false},
		"the binding leaves namespaces out": {func(_ *admissionv1.ValidatingAdmissionPolicy, b *admissionv1.ValidatingAdmissionPolicyBinding) {
			b.Spec.MatchResources = &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}}
		}, false},
	} {
		p, b := shipped[0].DeepCopy(), binding(shipped[0].Name)
		change.of(p, b)
		if got := inForce([]any{p}, []any{b}, &shipped[0]); got != change.want {
			t.Errorf("%s: in force is %t", name, got)
		}
	}
	p, b := &shipped[0], binding(shipped[0].Name)
	if inForce(nil, []any{b}, p) || inForce([]any{p}, nil, p) {
		t.Error("in force without policy or without binding")
	}
}
